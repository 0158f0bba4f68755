import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ccpr.matrixone.client import upstream_session as session_module
from ccpr.matrixone.client.column_stream import AnswerColumns, read_columns
from ccpr.matrixone.client.errors import (
    BadAnswer,
    ConnectionLost,
    ObjectGone,
    ObjectListTooLong,
    ObjectSizeMismatch,
    PartitionedTable,
    SnapshotGone,
    StaleRead,
    UnreadableObjectList,
)
from ccpr.matrixone.client.object_answers import OBJECT_LIST_SCHEMA, get_object, object_list
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Answer
from ccpr.matrixone.client.upstream_snapshots import create_snapshot
from ccpr.matrixone.objects.errors import BadObjectName
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr_emulator.serving.faults import (
    CutObject,
    CutObjectList,
    FailStatement,
    MissingObject,
    WrongChunkLength,
    WrongTotalChunks,
    WrongTotalSize,
)
from tests.support.recorded import cell

pytestmark = [pytest.mark.integration, pytest.mark.recordings]


def _snapshot(upstream: Any, session: Any, name: str) -> None:
    create_snapshot(session, name, upstream.publication, upstream.database)
    session.query("SELECT mo_ctl('dn','checkpoint','')")


def _list(upstream: Any, session: Any, name: str, against: str | None = None) -> pa.Table:
    return pa.Table.from_batches(
        object_list(session, name, upstream.publication, against=against), schema=OBJECT_LIST_SCHEMA
    )


def _recorded(path: Path) -> list[dict[str, Any]]:
    """The list as plain values, read without Arrow."""
    rows = []
    for raw in json.loads(path.read_text())["rows"]:
        database, table, stats, create, delete, tombstone = (cell(value) or b"" for value in raw)
        created, deleted = ([int(part) for part in text.decode().split("-")] for text in (create, delete))
        gone = deleted == [0, 0]
        rows.append(
            {
                "database": database.decode(),
                "table": table.decode(),
                "stats": stats,
                "create_physical": created[0],
                "create_logical": created[1],
                "delete_physical": None if gone else deleted[0],
                "delete_logical": None if gone else deleted[1],
                "is_tombstone": tombstone == b"1",
            }
        )
    return rows


@pytest.mark.parametrize("scenario", ["dml", "keys", "ddl", "all_types", "other_account", "many_tables"])
def test_lists_and_differences_over_the_wire_are_the_recorded_ones(
    play: Callable[..., Any], recordings: Path, scenario: str
):
    upstream = play(scenario)
    session = upstream.connect()
    folders = sorted((recordings / scenario).glob("snapshot-*"))
    for number, folder in enumerate(folders):
        _snapshot(upstream, session, f"xr_{number}")
        assert _list(upstream, session, f"xr_{number}").to_pylist() == _recorded(folder / "object_list.json")
        if number:
            difference = _list(upstream, session, f"xr_{number}", against=f"xr_{number - 1}").to_pylist()
            assert difference == _recorded(folder / "object_list_against_previous.json")


def test_an_empty_list_has_no_batches(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    create_snapshot(session, "xr_1", upstream.publication, upstream.database)
    assert upstream.sent("mo_ctl") == 0
    assert _list(upstream, session, "xr_1").num_rows == 0  # not flushed: nothing is on storage yet


def test_a_list_that_breaks_off_raises_and_can_be_asked_for_again(play: Callable[..., Any]):
    upstream = play("many_tables")
    session = upstream.connect()
    _snapshot(upstream, session, "xr_1")
    upstream.emulator.inject(CutObjectList(after_rows=20))
    with pytest.raises(ConnectionLost):
        _list(upstream, session, "xr_1")
    assert _list(upstream, session, "xr_1").num_rows == 60


def test_a_snapshot_that_is_gone_is_an_error(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    _snapshot(upstream, session, "xr_1")
    _snapshot(upstream, session, "xr_2")
    upstream.emulator.drop_snapshot("xr_1")
    with pytest.raises(SnapshotGone):
        _list(upstream, session, "xr_1")
    with pytest.raises(SnapshotGone):
        _list(upstream, session, "xr_2", against="xr_1")


def test_a_history_that_no_longer_reaches_back_is_an_error(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    _snapshot(upstream, session, "xr_1")
    _snapshot(upstream, session, "xr_2")
    upstream.emulator.inject(FailStatement("object_list", 22101, "stale read, min TS is 9-0, receive 8-0"))
    with pytest.raises(StaleRead):
        _list(upstream, session, "xr_2", against="xr_1")


def test_the_internal_error_of_a_partitioned_table_names_the_cause_and_the_remedy(play: Callable[..., Any]):
    upstream = play("partitioned")
    session = upstream.connect()
    _snapshot(upstream, session, "xr_1")
    with pytest.raises(PartitionedTable) as raised:
        _list(upstream, session, "xr_1")
    assert raised.value.number == 1105
    assert "relkind = 'partition'" in raised.value.remedy
    assert session.query("SELECT 1").rows == [(b"1",)]


COLUMNS = ("db name", "table name", "stats", "create_at", "delete_at", "is_tombstone")
GOOD = (b"d", b"t", b"\1" * 154, b"17-1", b"0-0", b"0")


class Scripted:
    """A session that gives prepared answers."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def stream(self, _sql: str, **_options: object) -> Iterator[AnswerColumns]:
        for answer in self._answers:
            cells = zip(*answer.rows, strict=True)
            yield AnswerColumns(answer.columns, tuple(pa.array(column, pa.binary()) for column in cells))

    def read_row(self, _sql: str, *, longest: int) -> dict[str, memoryview | None]:
        answer = self._answers.pop(0)
        (row,) = answer.rows
        return {
            name: None if cell is None else memoryview(cell) for name, cell in zip(answer.columns, row, strict=True)
        }


PUBLICATION = Publication("p", "sys", 0)


def _listed(*rows: tuple[bytes | None, ...]) -> list[dict[str, Any]]:
    session: Any = Scripted(Answer(COLUMNS, (253,) * 6, list(rows)))
    return pa.Table.from_batches(object_list(session, "s", PUBLICATION, against=None)).to_pylist()


def test_only_a_time_of_zero_means_not_deleted():
    rows = _listed(GOOD, (*GOOD[:4], b"18-0", b"1"), (*GOOD[:4], b"0-5", b"1"))
    assert [row["delete_physical"] for row in rows] == [None, 18, 0]
    assert [row["delete_logical"] for row in rows] == [None, 0, 5]
    assert [row["is_tombstone"] for row in rows] == [False, True, True]
    assert [row["create_logical"] for row in rows] == [1, 1, 1]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, None),
        (0, b"\xff"),
        (1, b"\xff"),
        (2, None),
        (2, b"\1" * 153),
        (2, b""),
        (3, b"0-0"),
        (3, b""),
        (3, None),
        (3, b"17"),
        (3, b"17-1-1"),
        (3, b"-17-1"),
        (3, b"17-x"),
        (3, b"17-1\n"),
        (3, b"17--1"),
        (3, b"17-"),
        (3, b"-17"),
        (3, b"17/1"),
        (3, b"17:1"),
        (3, b"00000000000000000017-1"),
        (3, b"17-12345678901"),
        (3, b"9999999999999999999-0"),
        (4, None),
        (4, b"17 -1"),
        (5, b"2"),
        (5, b""),
        (5, None),
        (5, b"true"),
    ],
)
def test_a_malformed_cell_is_refused_in_any_column(place: int, value: bytes | None):
    bad = (*GOOD[:place], value, *GOOD[place + 1 :])
    with pytest.raises(UnreadableObjectList) as raised:
        _listed(GOOD, bad, GOOD)
    assert raised.value.subject == "object list of snapshot s"


def test_a_list_of_other_columns_is_refused():
    session: Any = Scripted(Answer(("db name", "stats"), (253, 253), [(b"d", b"x")]))
    with pytest.raises(BadAnswer, match="table name"):
        list(object_list(session, "s", PUBLICATION, against=None))


# -- bytes


def _objects(upstream: Any, session: Any) -> list[ObjectStats]:
    _snapshot(upstream, session, "xr_1")
    return [ObjectStats.parse(stats.as_py()) for stats in _list(upstream, session, "xr_1")["stats"]]


@pytest.mark.parametrize("chunk_bytes", [1000, 65_536, 104_857_600])
def test_objects_arrive_as_they_were_recorded_whatever_the_chunks(
    play: Callable[..., Any], recordings: Path, chunk_bytes: int
):
    upstream = play("dml", chunk_bytes=chunk_bytes)
    session = upstream.connect()
    for stats in _objects(upstream, session):
        chunks = list(get_object(session, upstream.publication, stats.name, stats.size))
        assert b"".join(chunks) == (recordings / "dml" / "objects" / stats.name).read_bytes()
        assert all(len(chunk) <= chunk_bytes for chunk in chunks)
    assert not [
        statement
        for statement in upstream.emulator.log()
        if statement.kind == "get_object" and statement.text.endswith(" 0")
    ]


def test_a_chunk_is_requested_again_after_its_connection_was_cut(play: Callable[..., Any], recordings: Path):
    upstream = play("dml", chunk_bytes=10_000)
    session = upstream.connect()
    stats = max(_objects(upstream, session), key=lambda stats: stats.size)
    upstream.emulator.inject(CutObject(after_bytes=5_000, times=2))
    content = b"".join(get_object(session, upstream.publication, stats.name, stats.size))
    assert content == (recordings / "dml" / "objects" / stats.name).read_bytes()
    assert upstream.emulator.status().sessions_opened == 3


def test_a_connection_that_is_always_cut_ends_in_an_error(play: Callable[..., Any]):
    upstream = play("dml", chunk_bytes=10_000)
    session = upstream.connect()
    stats = max(_objects(upstream, session), key=lambda stats: stats.size)
    upstream.emulator.inject(CutObject(after_bytes=5_000, times=0))
    with pytest.raises(ConnectionLost):
        list(get_object(session, upstream.publication, stats.name, stats.size))


@pytest.mark.parametrize("chunk_bytes", [10_000, 104_857_600])
@pytest.mark.parametrize(
    "lie",
    [
        WrongTotalSize(1),
        WrongTotalSize(-1),
        WrongTotalChunks(1),
        WrongTotalChunks(-1),
        WrongChunkLength(1),
        WrongChunkLength(-1),
        WrongChunkLength(-10_000),
        WrongChunkLength(5_000),
    ],
)
def test_wrong_sizes_are_found_and_never_are_too_many_bytes_yielded(
    play: Callable[..., Any], lie: Any, chunk_bytes: int
):
    upstream = play("dml", chunk_bytes=chunk_bytes)
    session = upstream.connect()
    stats = max(_objects(upstream, session), key=lambda stats: stats.size)
    upstream.emulator.inject(lie)
    got = []
    with pytest.raises(ObjectSizeMismatch):
        got.extend(get_object(session, upstream.publication, stats.name, stats.size))
    assert sum(map(len, got)) < stats.size


def test_a_chunk_far_longer_than_the_object_is_not_read_to_its_end(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    stats = _objects(upstream, session)[0]
    upstream.emulator.inject(WrongChunkLength(50_000_000))
    with pytest.raises(ObjectSizeMismatch, match="longer"):
        list(get_object(session, upstream.publication, stats.name, stats.size))


def test_stats_with_another_size_than_the_files_are_found(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    stats = _objects(upstream, session)[0]
    for size in (stats.size + 1, stats.size - 1, 1, 0, -5):
        with pytest.raises(ObjectSizeMismatch):
            list(get_object(session, upstream.publication, stats.name, size))


def test_an_object_that_was_collected_is_an_error(play: Callable[..., Any]):
    upstream = play("dml")
    session = upstream.connect()
    stats = _objects(upstream, session)[0]
    upstream.emulator.inject(MissingObject(stats.name))
    with pytest.raises(ObjectGone):
        list(get_object(session, upstream.publication, stats.name, stats.size))


@pytest.mark.parametrize(
    "name", ["", "x", "../../etc/passwd", "ckp/meta_0-0_1-0.ckp", "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00000 1"]
)
def test_a_name_that_is_not_an_objects_name_is_never_sent(name: str):
    session: Any = Scripted()
    with pytest.raises(BadObjectName):
        list(get_object(session, PUBLICATION, name, 10))


OBJECT = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00000"
CHUNK_COLUMNS = ("data", "total_size", "chunk_index", "total_chunks", "is_complete")


@pytest.mark.parametrize(
    "row",
    [
        (b"abc", b"3", b"2", b"1", b"1"),
        (b"abc", b"3", b"1", b"1", b"0"),
        (b"abc", b"3", b"1", b"0", b"0"),
        (b"", b"3", b"1", b"2", b"0"),
        (None, b"3", b"1", b"1", b"1"),
        (b"abc", b"3", b"1", b"99999999999", b"0"),
    ],
)
def test_a_chunk_of_another_form_is_refused(row: tuple[bytes | None, ...]):
    session: Any = Scripted(Answer(CHUNK_COLUMNS, (252, 8, 3, 3, 1), [row]))
    with pytest.raises(ObjectSizeMismatch):
        list(get_object(session, PUBLICATION, OBJECT, 3))


@pytest.mark.parametrize("number", [None, b"", b"x", b"1" * 40, b"1.0"])
def test_a_chunk_without_its_numbers_is_refused(number: bytes | None):
    for place in range(1, 5):
        row = [b"abc", b"3", b"1", b"1", b"1"]
        row[place] = number
        session: Any = Scripted(Answer(CHUNK_COLUMNS, (252, 8, 3, 3, 1), [tuple(row)]))
        with pytest.raises(BadAnswer):
            list(get_object(session, PUBLICATION, OBJECT, 3))


def test_the_columns_of_a_chunk_may_come_in_any_order_and_case_and_with_others():
    cells = {
        "Is_Complete": b"1",
        "total_chunks": b"1",
        "further": None,
        "CHUNK_INDEX": b"1",
        "Data": b"abc",
        "total_size": b"3",
    }
    session: Any = Scripted(Answer(tuple(cells), (1, 3, 3, 3, 252, 8), [tuple(cells.values())]))
    assert b"".join(get_object(session, PUBLICATION, OBJECT, 3)) == b"abc"


def test_a_chunk_without_a_column_is_refused():
    session: Any = Scripted(Answer(CHUNK_COLUMNS[:4], (252, 8, 3, 3), [(b"abc", b"3", b"1", b"1")]))
    with pytest.raises(BadAnswer, match="is_complete"):
        list(get_object(session, PUBLICATION, OBJECT, 3))


def test_an_object_list_longer_than_allowed_is_not_read_to_its_end(play: Callable[..., Any]):
    upstream = play("many_tables")
    session = upstream.connect()
    _snapshot(upstream, session, "xr_1")
    with pytest.raises(ObjectListTooLong, match="longer than 5000 bytes"):
        list(object_list(session, "xr_1", upstream.publication, against=None, longest=5000))
    assert _list(upstream, session, "xr_1").num_rows == 60


def test_a_long_list_comes_in_batches(play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session_module, "read_columns", partial(read_columns, block_bytes=1000))
    upstream = play("many_tables")
    session = upstream.connect()
    _snapshot(upstream, session, "xr_1")
    batches = list(object_list(session, "xr_1", upstream.publication, against=None))
    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 60
