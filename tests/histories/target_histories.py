"""A simulated upstream's replica synced into a database: iterate, sync_target, compare the target with the engine's
rows."""

from collections import Counter
from pathlib import Path

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.schema.choices import DdlPolicy, Dialect, MaxDrop
from ccpr.service.target_sync import TargetOutcome, sync_targets
from ccpr.service.targets import add
from ccpr.service.workspace import Workspace
from ccpr.state.history import PointHistory
from ccpr.state.settings import TargetSettings
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.history import DATABASE, History
from tests.histories.replicating import NAME, iterate, rows, subscribed
from tests.support.target_rows import target_rows
from tests.targets.target_database import Place, TargetServer, new_database

ITERATIONS, STEPS = 5, 9


def sync_target(seed: int, folder: Path, server: TargetServer) -> None:
    """A history into a database of its own. Raises AssertionError, or what the product raises, with the history as a
    note."""
    history = History(seed, plain_names=server.dialect is Dialect.MATRIXONE)
    publisher = (history.account, history.storage.accounts[history.account])
    try:
        with (
            SimulatedUpstream(history.storage) as emulator,
            new_database(server) as place,
            subscribed(emulator.port, folder, DATABASE, publisher=publisher) as workspace,
        ):
            add(
                workspace,
                NAME,
                "db",
                place.address,
                server.password,
                TargetSettings(DdlPolicy.FULL, max_drop=MaxDrop(1_000)),
            )
            for _ in range(ITERATIONS):
                for _ in range(history.rng.randint(0, STEPS)):
                    history.step()
                outcome = iterate(workspace)
                history.done.append(f"iteration {outcome.lsn}: point {outcome.point} at {outcome.at}")
                if history.rng.random() < 0.3:  # the target skips this point
                    continue
                with workspace.iteration(NAME) as iteration:
                    (synced,) = sync_targets(workspace, iteration)
                _assert_synced(synced)
                assert_target_equal(workspace, place, history, outcome.at)
    except Exception as error:
        error.add_note("\n  ".join((f"history of seed {seed}:", *history.done)))
        raise


def _assert_synced(outcome: TargetOutcome) -> None:
    assert outcome.failure is None
    if outcome.result is not None:
        assert outcome.result.behind == ()
        assert sum(table.missing for table in outcome.result.tables) == 0, "a key to be deleted was not there"


def assert_target_equal(workspace: Workspace, place: Place, history: History, at: Timestamp) -> None:
    row = workspace.log.row(NAME)
    tables = PointHistory(workspace.log.engine, row.task_id).tables(row.iteration_lsn).values()
    columns = {point.table.name: point.table.user_columns for point in tables if point.table.kind is Kind.TABLE}
    names = [definition.name for _, definition in history.storage.tables_at(at, account=history.account)]
    there = {name for (name,) in place.query("SHOW TABLES") if not name.startswith("ccpr_")}
    assert there == set(names)
    for name in names:
        expected = history.storage.rows_at(DATABASE, name, at, account=history.account)
        found = target_rows(place.server, place.database, name, columns[name])
        assert found.schema == expected.schema, name
        surplus, missing = Counter(rows(found)), Counter(rows(expected))
        assert surplus == missing, (
            f"{quote_name(name)}: in the target {surplus - missing}, upstream {missing - surplus}"
        )
