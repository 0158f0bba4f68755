"""What makes an iteration idle: no row became visible, also none in an object that had been copied before."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects.stats import ObjectStats, stats_columns
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.layout import MANIFEST_SCHEMA_1, object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.manifests import appendable_only
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, as_listed, with_checksums
from ccpr.mirror.points import TableRef
from ccpr.pipeline.applying import holds_later_rows, known_objects, write_table
from ccpr.pipeline.copying import COPY_OUTPUT
from ccpr.state.point_rows import TablePoint
from tests.matrixone.objects.building import column_entry, object_file, stats_bytes
from tests.support.manifest_parts import divided
from tests.support.values import a_table

LAST, NOW = Timestamp(100), Timestamp(200)


def appendable_table(mirror: Mirror, committed: Timestamp, **options: int) -> TableRef:
    """A table with an appendable object of two rows; the last one was committed at a time."""
    times = [Timestamp(1), committed]
    raw = b"".join(time.logical.to_bytes(4, "little") + time.physical.to_bytes(8, "little") for time in times)
    columns = {0: (22, column_entry(22, bytes(8), 2)), 1: (100, column_entry(100, raw, 2))}
    file = object_file([(2, columns)], appendable=True, **options)
    stats = stats_bytes(file, rows=2, blocks=1, flags=0x01)
    mirror.store.put(object_path(ObjectStats.parse(stats).name), [file])
    rows = [{"stats": stats, "create_physical": 1, "create_logical": 0, "is_tombstone": False}]
    listed = as_listed(1, pa.Table.from_pylist(rows, schema=MANIFEST_SCHEMA_1))
    ref = write_table(
        mirror, 0, 1, a_table(1, "t"), None, with_checksums(listed, COPY_OUTPUT.empty_table()), listed[:0]
    ).ref
    assert ref is not None
    return ref


def test_what_cannot_be_read_may_hold_later_rows(tmp_path: Path) -> None:
    """A point that is skipped would lack rows to a release that can read them."""
    mirror = Mirror(LocalStore(tmp_path))
    assert holds_later_rows(mirror, appendable_table(mirror, NOW, meta_version=4), Timestamp(300), Timestamp(400))


@pytest.mark.parametrize(
    ("committed", "later"),
    [
        (Timestamp(99, 7), False),
        (Timestamp(100), False),
        (Timestamp(100, 1), True),
        (Timestamp(150), True),
        (Timestamp(200), True),
        (Timestamp(200, 1), False),
    ],
)
def test_a_row_is_later_by_time_and_tie_breaker(committed: Timestamp, later: bool, tmp_path: Path) -> None:
    mirror = Mirror(LocalStore(tmp_path))
    assert holds_later_rows(mirror, appendable_table(mirror, committed), LAST, NOW) is later


def test_a_manifest_made_of_many_before_is_one_batch(tmp_path: Path) -> None:
    """Each batch costs readers of the manifest: with one for each point before, iterations got slower for ever."""
    mirror = Mirror(LocalStore(tmp_path))
    point: TablePoint | None = None
    for number in range(1, 20):
        stats = stats_bytes(b"x" * 500, rows=2, blocks=1, object_id=number.to_bytes(18))
        row = {"stats": stats, "create_physical": number, "create_logical": 0, "is_tombstone": False}
        added = as_listed(1, pa.Table.from_pylist([row], schema=MANIFEST_SCHEMA_1))
        added = with_checksums(added, COPY_OUTPUT.empty_table())
        point = write_table(mirror, number, 1, a_table(1, "t"), point, added, LISTED_SCHEMA.empty_table())
        assert point.ref is not None
        found = mirror.manifest(point.ref).objects
        assert (found.num_rows, found.column("stats").num_chunks) == (number, 1)


numbers = st.sets(st.integers(0, 40), max_size=30)


def rows_of(numbers: set[int]) -> pa.Table:
    """Objects as a list has them: each third one is a tombstone, each fourth appendable."""
    rows = [
        {
            "stats": stats_bytes(
                b"x" * (500 + number),
                rows=number,
                blocks=1,
                flags=number % 4 == 0,
                object_id=number.to_bytes(18),
            ),
            "create_physical": number + 1,
            "create_logical": 0,
            "is_tombstone": number % 3 == 0,
        }
        for number in sorted(numbers)
    ]
    return as_listed(1, pa.Table.from_pylist(rows, schema=MANIFEST_SCHEMA_1))


@given(
    steps=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12),
    named=numbers,
    longest=st.sampled_from([0, 0, 10]),
    merged=st.sampled_from([0, 1, 4]),
)
def test_what_comes_and_goes_makes_the_next_manifest(
    steps: list[tuple[set[int], set[int]]],
    named: set[int],
    longest: int,
    merged: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Also where an object comes again that went, and as one file or many."""
    mirror, nothing = Mirror(LocalStore(tmp_path_factory.mktemp("mirror"))), COPY_OUTPUT.empty_table()
    point, live, points = None, set[int](), list[tuple[TablePoint, set[int]]]()
    with divided(longest, merged):
        for number, (come, go) in enumerate(steps):
            rows = with_checksums(rows_of(come - live), nothing), rows_of(go & live - come)
            point = write_table(mirror, number, 1, a_table(1, "t"), point, *rows)
            live = live - (go - come) | come
            points.append((point, live))
    for point, live in points:
        check_manifest(mirror, point, live, named)


def check_manifest(mirror: Mirror, point: TablePoint, live: set[int], named: set[int]) -> None:
    assert known_objects(mirror, point).sort_by("name") == rows_of(live).sort_by("name")
    assert known_objects(mirror, point, rows_of(named)).sort_by("name") == rows_of(live & named).sort_by("name")
    assert point.ref is not None
    found = (point.ref.objects, point.ref.rows, point.ref.bytes, point.appendable)
    sizes = rows_of(live).column("size").to_pylist()
    data, appendable = [n for n in live if n % 3], [n for n in live if n % 4 == 0]
    assert found == (len(live), sum(data), sum(sizes), len(appendable))
    kept = mirror.manifest(point.ref, appendable_only).objects.column("stats").combine_chunks()
    assert sorted(stats_columns(kept).column("rows").to_pylist()) == sorted(appendable)
