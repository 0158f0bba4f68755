"""Objects with the column `abort`, as MatrixOne writes them after 4.2.0: rows of aborted transactions do not exist.
docs/format/object-file.md 5.1, 6; docs/upstream.md, "What differs by release"."""

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, count_deletions
from ccpr.matrixone.objects.writing.writer import WrittenObject, write_data, write_tombstones
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from ccpr.pipeline.applying import _commits_between
from tests.support.recorded import visible_batches

DATA, DEAD = (f"01a1fbac-0e0a-76cf-9a9e-edfe00740d1{digit}_00000" for digit in "12")
# The user's last column is a bool, which must not be taken for the flag.
COLUMNS = (Column("n", 0, SqlType(types.INT32, 32, -1)), Column("b", 1, SqlType(types.BOOL)))
TABLE = Table(1, 1, "d", "t", Kind.TABLE, COLUMNS)


def times(*physical: int) -> np.ndarray:
    found = np.zeros(len(physical), TIMESTAMP_DTYPE)
    found["physical"] = physical
    return found


def data(*, appendable: bool, commits: tuple[int, ...] = (10, 20, 30), aborted: list[bool] | None) -> WrittenObject:
    rows = pa.record_batch([pa.array(range(len(commits)), pa.int32()), pa.array([True] * len(commits))], ["n", "b"])
    flags = None if aborted is None else [np.array(aborted)]
    options = {"name": DATA, "by_cn": False, "commit_ts": [times(*commits)], "aborted": flags}
    return write_data(TABLE, [rows], appendable=appendable, **options)


def tombstones(rows: list[int], *, appendable: bool, aborted: list[bool] | None) -> WrittenObject:
    rowids = np.zeros(len(rows), ROWID_DTYPE)
    rowids["object"] = np.void(ObjectFile(data(appendable=True, aborted=None).content).object_id)
    rowids["row"] = rows
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(24), len(rows), [None, pa.py_buffer(rowids.tobytes())])
    flags = None if aborted is None else [np.array(aborted)]
    options = {"name": DEAD, "by_cn": False, "commit_ts": [times(*[25] * len(rows))], "aborted": flags}
    return write_tombstones([array], [pa.array(rows, pa.int32())], COLUMNS[0], appendable=appendable, **options)


def visible(at: int, *written: WrittenObject) -> list[int]:
    files = {one.stats.name: ObjectFile(one.content) for one in written}
    for one in written:
        files[one.stats.name].check(one.stats, deep=True)
    listed = [ListedObject(one.stats, Timestamp(1), None, one.stats.name == DEAD) for one in written]
    batches = visible_batches(listed, lambda name, _: files[name], COLUMNS, Timestamp(at))
    return [number for batch in batches for number in batch.column(0).to_pylist()]


@pytest.mark.parametrize("appendable", [True, False])
def test_rows_of_aborted_transactions_do_not_exist(appendable: bool) -> None:
    assert visible(99, data(appendable=appendable, aborted=None)) == [0, 1, 2]
    assert visible(99, data(appendable=appendable, aborted=[False, False, False])) == [0, 1, 2]
    assert visible(99, data(appendable=appendable, aborted=[False, True, False])) == [0, 2]
    assert visible(99, data(appendable=appendable, aborted=[True, True, True])) == []


def test_commit_times_are_found_before_the_flags() -> None:
    for aborted in (None, [False, False, False]):
        assert visible(20, data(appendable=True, aborted=aborted)) == [0, 1]
        found = ObjectFile(data(appendable=True, aborted=aborted).content).commit_timestamps(0)
        assert found is not None
        assert found["physical"].tolist() == [10, 20, 30]


@pytest.mark.parametrize("appendable", [True, False])
def test_deletes_of_aborted_transactions_delete_nothing(appendable: bool) -> None:
    rows = data(appendable=True, aborted=[False, False, False])
    dead = tombstones([0, 1], appendable=appendable, aborted=[True, False])
    assert visible(99, rows, dead) == [0, 2]
    assert visible(20, rows, dead) == [0, 1]
    listed = ListedObject(dead.stats, Timestamp(1), None, True)
    object_id = rows.stats.object_id
    file = ObjectFile(dead.content)
    assert count_deletions([listed], lambda name, _: file, Timestamp(99), of=[object_id]) == {object_id: 1}


def test_an_iteration_with_new_rows_in_such_an_object_is_not_idle() -> None:
    def has_news(aborted: list[bool]) -> bool:
        return _commits_between(
            ObjectFile(data(appendable=True, aborted=aborted).content), Timestamp(15), Timestamp(25)
        )

    assert has_news([False, False, False])
    assert not has_news([False, True, False])


def test_a_bool_column_of_the_user_at_the_end_is_no_flag() -> None:
    rows = pa.record_batch([pa.array([1, 2], pa.int32()), pa.array([True, False])], ["n", "b"])
    written = write_data(TABLE, [rows], name=DATA, appendable=False, by_cn=True, commit_ts=None)
    assert visible(99, written) == [1, 2]
    assert ObjectFile(written.content).aborted(0) is None
    assert ObjectFile(written.content).commit_timestamps(0) is None
