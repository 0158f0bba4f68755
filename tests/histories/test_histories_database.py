"""Random histories with DDL into MariaDB: after each iteration the target equals the engine's rows. `DATABASE_HISTORIES` of them, from
`SEED` on."""

import os
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from emulator.living import LivingEmulator
from matrixone.ddl_text import quote_name
from matrixone.objects.timestamp import Timestamp
from matrixone.schema import Kind
from replication.ddl_policy import DdlPolicy
from replication.points import PointHistory
from resources.targets import TargetOutcome, add, carry_targets
from resources.workspace import Workspace
from tests.destinations.target_database import Place, new_database
from tests.histories.history import DATABASE, History
from tests.histories.replicating import NAME, iterate, rows, subscribed
from tests.mariadb import MariaDb
from tests.target_rows import target_rows

FIRST, COUNT = int(os.environ.get("SEED", "1")), int(os.environ.get("DATABASE_HISTORIES", "8"))
ITERATIONS, STEPS = 5, 9


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_the_target_equals_the_upstream_at_every_point(seed: int, tmp_path: Path, mariadb: MariaDb) -> None:
    history = History(seed)
    publisher = (history.account, history.storage.accounts[history.account])
    try:
        with (
            LivingEmulator(history.storage) as emulator,
            new_database(mariadb) as place,
            closing(subscribed(emulator.port, tmp_path, DATABASE, publisher=publisher)) as workspace,
        ):
            add(workspace, NAME, "db", place.address, mariadb.password, DdlPolicy.FULL)
            for _ in range(ITERATIONS):
                for _ in range(history.rng.randint(0, STEPS)):
                    history.step()
                outcome = iterate(workspace)
                history.done.append(f"iteration {outcome.lsn}: point {outcome.point} at {outcome.at}")
                if history.rng.random() < 0.3:  # the target skips this point
                    continue
                with workspace.iteration(NAME) as iteration:
                    (carried,) = carry_targets(workspace, iteration)
                assert_carried(carried)
                assert_equal(workspace, place, history, outcome.at)
    except Exception as error:
        error.add_note("\n  ".join((f"history of seed {seed}:", *history.done)))
        raise


def assert_carried(outcome: TargetOutcome) -> None:
    assert outcome.failure is None
    if outcome.carried is not None:
        assert outcome.carried.behind == ()
        assert sum(table.missing for table in outcome.carried.tables) == 0, "a key to be deleted was not there"


def assert_equal(workspace: Workspace, place: Place, history: History, at: Timestamp) -> None:
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
        assert surplus == missing, f"{quote_name(name)}: in the target {surplus - missing}, upstream {missing - surplus}"
