"""Points: what is published reads back, chains of deltas included, at every lsn and time."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.errors import MirrorDamaged, PointGone, PointNotReached, TableMissingInMirror
from ccpr.mirror.layout import MANIFEST_SCHEMA, digest_of, manifest_path, point_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror, choose_columns
from ccpr.mirror.points import Point, TableRef, parse_at
from tests.support.publishing import publish, publish_idle
from tests.support.values import NOW, a_table

START = 1_795_000_000_000_000_000  # nanoseconds: real times are beyond the range of lsns


def a_ref(table_id: int, lsn: int) -> TableRef:
    table = a_table(table_id, f"t{table_id}")
    return TableRef(
        table_id, table.database, table.name, table.kind, lsn, manifest_path(table_id, lsn, 1, "0" * 16), 1, 2, 3
    )


def publish_all(mirror: Mirror, history: list[dict[int, bool] | None]) -> dict[int, dict[int, TableRef]]:
    """Publish a point for each entry (None: idle); an entry says which tables change (True) or go (False). The tables
    at each point."""
    tables: dict[int, TableRef] = {}
    states: dict[int, dict[int, TableRef]] = {}
    for lsn, changes in enumerate(history):
        if changes is not None:
            changed = {table_id: a_ref(table_id, lsn) if stays else None for table_id, stays in changes.items()}
            tables = {key: ref for key, ref in {**tables, **changed}.items() if ref is not None}
            point = Point(lsn, Timestamp(START + lsn), f"xr_a_{lsn}_0", NOW + timedelta(seconds=lsn), "", dict(tables))
            publish(mirror, point, changed)
            states[lsn] = dict(tables)
        elif states:
            publish_idle(mirror, lsn + 1, START + lsn)
    return states


CHANGES = st.none() | st.dictionaries(st.integers(1, 5), st.booleans(), max_size=3)


@settings(deadline=None, max_examples=25)
@given(history=st.lists(CHANGES, min_size=1, max_size=40))
def test_every_point_reads_as_it_was_made(history, tmp_path_factory: pytest.TempPathFactory) -> None:
    mirror = Mirror(LocalStore(tmp_path_factory.mktemp("mirror")))
    states = publish_all(mirror, history)
    assert mirror.lsns() == sorted(states)
    for lsn in range(len(history)):
        older = [known for known in states if known <= lsn]
        if not older:
            with pytest.raises((PointGone, PointNotReached)):
                mirror.point(lsn)
            continue
        for at in (lsn, START + lsn):
            point = mirror.point(at)
            assert point.lsn == older[-1], "an idle iteration reads as the point before it"
            assert point.tables == states[older[-1]]
    for beyond in (len(history), START + len(history)):
        with pytest.raises(PointNotReached):
            mirror.point(beyond)


def test_an_empty_mirror_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PointNotReached, match="ccpr run"):
        Mirror(LocalStore(tmp_path)).point()


def test_a_point_beside_the_head_is_not_readable_yet(tmp_path: Path) -> None:
    mirror = Mirror(LocalStore(tmp_path))
    publish_all(mirror, [{1: True}])
    point = Point(1, Timestamp(START + 1), "s", NOW, "", {})
    mirror.write_point(point, {1: None}, list(mirror.point_files().all()))  # a crash came before the head
    assert mirror.point().lsn == 0
    with pytest.raises(PointNotReached):
        mirror.point(1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format": 99}', b"\xff\xfe"])
def test_a_damaged_point_is_a_typed_error(content: bytes, tmp_path: Path) -> None:
    mirror = Mirror(LocalStore(tmp_path))
    publish_all(mirror, [{1: True}])
    path, head = point_path(0, digest_of(content)), mirror.published_head()
    (tmp_path / path).write_bytes(content)
    assert head is not None
    mirror.publish_head(replace(head, point=path))
    with pytest.raises(MirrorDamaged):
        mirror.point()


def test_a_manifest_carries_its_table(tmp_path: Path) -> None:
    mirror = Mirror(LocalStore(tmp_path))
    table = a_table(7, "weird é.name", columns="abc")
    path = mirror.write_manifest(table, MANIFEST_SCHEMA.empty_table(), 0, 1)
    ref = TableRef(7, table.database, table.name, table.kind, 0, path, 0, 0, 0)
    assert mirror.manifest(ref).table == table
    assert mirror.manifest(ref).listed_objects() == []


def test_a_damaged_manifest_is_a_typed_error(tmp_path: Path) -> None:
    mirror = Mirror(LocalStore(tmp_path))
    mirror.store.put("manifests/7/0-1.arrow", [b"ARROW1 but no more"])
    with pytest.raises(MirrorDamaged):
        mirror.manifest(TableRef(7, "db", "t", a_table().kind, 0, "manifests/7/0-1.arrow", 0, 0, 0))


def test_points_are_json_that_others_can_read(tmp_path: Path) -> None:
    publish_all(Mirror(LocalStore(tmp_path)), [{1: True}, {2: True}])
    files = sorted((tmp_path / "points").iterdir())
    full, delta = (json.loads(file.read_text()) for file in files)
    assert (full["complete"], full["earlier"]) == (True, [])
    assert (delta["complete"], delta["earlier"]) == (False, [[f"points/{files[0].name}", START]])
    assert list(delta["tables"]) == ["2"]


def test_columns_are_chosen_by_name_and_unknown_ones_are_an_error() -> None:
    table = a_table(columns="abc")
    assert [column.name for column in choose_columns(table, ["c", "a"])] == ["c", "a"]
    with pytest.raises(TableMissingInMirror, match="no column x"):
        choose_columns(table, ["x"])


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_a_time_without_a_zone_is_one_of_utc_wherever_the_reader_is(tmp_path: Path) -> None:
    mirror = Mirror(LocalStore(tmp_path))
    first, hour = 1_795_000_000_000_000_000, 3_600_000_000_000
    for lsn in range(4):
        publish(mirror, Point(lsn, Timestamp(first + lsn * hour), f"xr_a_{lsn}_0", NOW, "", {}))
    at = datetime.fromtimestamp(first / 1e9, UTC) + timedelta(hours=2, microseconds=1)
    assert mirror.point(at).lsn == 2
    assert mirror.point(at.astimezone(timezone(timedelta(hours=-5)))).lsn == 2
    assert mirror.point(at.replace(tzinfo=None)).lsn == 2
    assert mirror.point(at - timedelta(microseconds=2)).lsn == 1, "a microsecond before the point"


def test_a_datetime_finds_the_point_of_its_microsecond_though_it_has_no_nanoseconds(tmp_path: Path) -> None:
    mirror = Mirror(LocalStore(tmp_path))
    times = (1_795_000_000_000_000_789, 1_795_000_000_000_005_001)
    for lsn, at in enumerate(times):
        publish(mirror, Point(lsn, Timestamp(at), f"xr_a_{lsn}_0", NOW, "", {}))
    micro = timedelta(microseconds=1)
    first = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=times[0] // 1000)
    assert [mirror.point(first + count * micro).lsn for count in (0, 4, 5)] == [0, 0, 1]
    assert [mirror.point(at).lsn for at in (times[0], times[1] - 1, times[1])] == [0, 0, 1], "nanoseconds are exact"
    with pytest.raises(PointGone):
        mirror.point(first - micro)
    with pytest.raises(PointGone):
        mirror.point(times[0] - 1)
    for beyond in (first + 6 * micro, times[1] + 1):
        with pytest.raises(PointNotReached):
            mirror.point(beyond)


@settings(deadline=None, max_examples=15)
@given(history=st.lists(CHANGES, min_size=1, max_size=40))
def test_all_points_are_listed_and_each_file_is_read_once(history, tmp_path_factory: pytest.TempPathFactory) -> None:
    mirror = Mirror(LocalStore(tmp_path_factory.mktemp("mirror")))
    states = publish_all(mirror, history)
    read: list[str] = []
    store_read = mirror.store.read

    def counted(name: str) -> pa.Buffer:
        read.append(name)
        return store_read(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror.store, "read", counted)
        points = mirror.points()
    assert [point.lsn for point in points] == sorted(states)
    assert [point.tables for point in points] == [states[lsn] for lsn in sorted(states)]
    assert points == [mirror.point(lsn) for lsn in sorted(states)]
    files = [name for name in read if name.startswith("points/")]
    assert len(files) == len(set(files)) == len(states)


def test_what_a_person_writes_for_a_point() -> None:
    assert parse_at("7") == 7
    assert parse_at("2026-01-02T03:04:05") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert parse_at("before-migration") == "before-migration"
    with pytest.raises(ValueError, match="2 days ago"):
        parse_at("2 days ago")
