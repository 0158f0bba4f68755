"""Random histories: the upstream lives, the product replicates it over the wire, and after each iteration the mirror at its point equals
the engine's rows. `HISTORIES` of them, from seed `SEED` on; the seeds of `seeds.txt`, which ever failed, are run first."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from emulator.living import LivingEmulator
from emulator.storage import Storage
from matrixone.objects.timestamp import Timestamp
from matrixone.schema import Kind
from matrixone.upstream.endpoint import parse_uri
from matrixone.upstream.publications import Publication
from replication.copying import copy_in_process
from replication.iteration import Outcome
from replication.subscription import Settings, Subscription
from resources.workspace import Workspace
from tests.histories.history import DATABASE, History

NAME = "history"
FOUND = [int(line.split()[0]) for line in Path(__file__).with_name("seeds.txt").read_text().splitlines() if line and line[0] != "#"]
FIRST, COUNT = int(os.environ.get("SEED", "1")), int(os.environ.get("HISTORIES", "40"))
ITERATIONS, STEPS = 4, 9


@pytest.mark.parametrize("seed", [*FOUND, *range(FIRST, FIRST + COUNT)])
def test_the_mirror_equals_the_upstream_at_every_point(seed: int, tmp_path: Path) -> None:
    history = History(seed)
    try:
        _replicate(history, tmp_path)
    except Exception:
        print(f"history of seed {seed}:", *history.done, sep="\n  ")
        raise


def _replicate(history: History, folder: Path) -> None:
    with LivingEmulator(history.storage) as emulator, closing(_subscribed(emulator.port, folder)) as workspace:
        points: list[Outcome] = []
        for _ in range(ITERATIONS):
            for _ in range(history.rng.randint(0, STEPS)):
                history.step()
            outcome = _iteration(workspace)
            history.done.append(f"iteration {outcome.lsn}: point {outcome.point} at {outcome.at}")
            if outcome.point:
                points.append(outcome)
            assert_equal(workspace, history.storage, outcome.lsn, outcome.at)
        for outcome in points:  # and again, back in time, after merges and collections upstream
            assert_equal(workspace, history.storage, outcome.lsn, outcome.at)


def _subscribed(port: int, folder: Path) -> Workspace:
    workspace = Workspace(folder / "home")
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
    subscription = Subscription.new(NAME, endpoint, "111", workspace.vault, Publication("p", "sys", 0), DATABASE, None, Settings())
    workspace.log.insert(subscription.to_row(datetime.now(UTC)))
    return workspace


def _iteration(workspace: Workspace) -> Outcome:
    with workspace.iteration(NAME) as iteration:
        iteration.take_snapshot()
        iteration.diff_catalog()
        iteration.diff_objects()
        iteration.copy_objects(copy_in_process)
        return iteration.apply()


def assert_equal(workspace: Workspace, storage: Storage, lsn: int, at: Timestamp) -> None:
    """All tables of the mirror at a point have the rows that the upstream had at its time, and there are no others."""
    mirror = workspace.mirror(NAME)
    point = mirror.point(lsn)
    tables = [definition.name for _, definition in storage.tables_at(at)]
    assert sorted(ref.qualified_name for ref in point.tables.values() if ref.kind is Kind.TABLE) == sorted(
        f"{DATABASE}.{name}" for name in tables
    )
    for name in tables:
        schema, batches = mirror.read(point, f"{DATABASE}.{name}")
        expected = storage.rows_at(DATABASE, name, at)
        assert schema == expected.schema, name
        surplus, missing = Counter(rows(pa.Table.from_batches(batches, schema))), Counter(rows(expected))
        assert surplus == missing, f"{name}: read but not there {surplus - missing}, there but not read {missing - surplus}"


def rows(table: pa.Table) -> Iterator[str]:
    """A text for each row; Arrow's own values, so that nothing is rounded."""
    times = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us"))
    columns = [column.cast(pa.int64()) if column.type in times else column for column in table.columns]
    return (repr(row) for row in zip(*(column.to_pylist() for column in columns), strict=True))
