"""Row deltas of recorded tables: between any two snapshots they are exactly what changed, merges in between or not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest

from ccpr.mirror.delta.delta import SPLIT_ROWS, TableAt, table_delta
from ccpr.mirror.delta.split import DeltaShape
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from tests.support.delta_truth import Rows, applied, assert_is_delta, rows_at, together
from tests.support.expected import assert_rows_equal
from tests.support.recorded import Snapshot
from tests.support.recordings_location import scenarios
from tests.support.spark_fixtures import RecordedMirror

pytestmark = [pytest.mark.slow, pytest.mark.recordings]

SPLITS = (SPLIT_ROWS, 3000, 1)
CASES = [
    pytest.param(path, rows, id=f"{name}-{rows}")
    for name, path in scenarios().items()
    for rows in (SPLITS[:1] if name.startswith("4.2.0/") else SPLITS)
    if name != "other_account"
]


@dataclass(frozen=True)
class Pair:
    """A table at two points; `before` is None where it is new."""

    before: TableAt | None
    after: TableAt
    snapshot: Snapshot  # of `after`

    def __str__(self) -> str:
        return f"{self.after.ref.qualified_name} from {self.before and self.before.at} to {self.after.at}"


def pairs(mirror: Mirror, recording: Path) -> Iterator[Pair]:
    points = [mirror.point(lsn) for lsn in mirror.lsns()]
    for former, later in combinations(points, 2):
        snapshot = Snapshot(recording / f"snapshot-{later.lsn:03}")
        for table_id, ref in later.tables.items():
            if ref.name in snapshot.expected_tables():
                yield Pair(at(former, table_id), TableAt.of(later, table_id), snapshot)


def at(point: Point, table_id: int) -> TableAt | None:
    return TableAt.of(point, table_id) if table_id in point.tables else None


@pytest.fixture(scope="module")
def truth() -> Callable[[Mirror, TableAt | None, DeltaShape], Rows]:
    """`rows_at`, each once: to make texts of the rows is most of what these tests do."""
    known: dict[object, Rows] = {}

    def rows(mirror: Mirror, table: TableAt | None, shape: DeltaShape) -> Rows:
        place = (mirror.store.url, table, shape.columns)
        if place not in known:
            known[place] = rows_at(mirror, table, shape)
        return known[place]

    return rows


@pytest.mark.parametrize(("scenario", "split_rows"), CASES)
def test_a_delta_is_what_changed_between_two_snapshots(
    recordings: Path, recorded_mirror: RecordedMirror, truth: Callable[..., Rows], scenario: str, split_rows: int
) -> None:
    mirror = recorded_mirror(scenario)
    compared = 0
    for pair in pairs(mirror, recordings / scenario):
        delta = table_delta(mirror, pair.before, pair.after, split_rows=split_rows)
        change = together(delta.parts(), delta.shape)
        before = truth(mirror, pair.before, delta.shape)
        try:
            assert_is_delta(change, before, truth(mirror, pair.after, delta.shape))
            if split_rows == SPLIT_ROWS:
                names = [column.name for column in delta.table.user_columns]
                assert_rows_equal(applied(change, before).select(names), pair.snapshot.expected(pair.after.ref.name))
        except AssertionError as error:
            raise AssertionError(f"{pair}: {error}") from error
        compared += 1
    assert compared
