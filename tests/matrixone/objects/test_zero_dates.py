"""How many values of a column are the zero date, by what its file says."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, UNIX_EPOCH_US, ZERO_DATE
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.writing.writer import write_data
from ccpr.matrixone.schema import Column, Kind, SqlType, Table

NAME = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11_00000"
COLUMNS = (
    Column("n", 0, SqlType(types.INT64, 64, -1)),
    Column("d", 1, SqlType(types.DATE)),
    Column("dt", 2, SqlType(types.DATETIME, 6, 6)),
    Column("ts", 3, SqlType(types.TIMESTAMP, 6, 6)),
)
_EARLIER = -3_600_000_000  # microseconds: 0001-01-01 in a time zone east of Greenwich


def written(stored: list[tuple[int | None, ...]], aborted: list[bool] | None = None) -> ObjectFile:
    """An object with these stored numbers in its four columns."""
    number, day, *moments = (pa.array(values, pa.int64()) for values in zip(*stored, strict=True))
    day = pa.array([None if v is None else v - UNIX_EPOCH_DAYS for v in day.to_pylist()], pa.int32()).view(pa.date32())
    moments = [pa.array([None if v is None else v - UNIX_EPOCH_US for v in m.to_pylist()], pa.int64()) for m in moments]
    kinds = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
    arrays = [number, day, *(values.view(kind) for values, kind in zip(moments, kinds, strict=True))]
    block = pa.record_batch(arrays, [column.name for column in COLUMNS])
    times, flags = np.zeros(len(stored), TIMESTAMP_DTYPE), None if aborted is None else [np.array(aborted)]
    table = Table(1, 1, "d", "t", Kind.TABLE, COLUMNS)
    made = write_data(table, [block], name=NAME, appendable=True, by_cn=False, commit_ts=[times], aborted=flags)
    return ObjectFile(made.content)


_VALUES = st.sampled_from((None, -1, 0, 1, 700_000))
_ROWS = st.tuples(_VALUES, _VALUES, _VALUES, _VALUES | st.just(_EARLIER))


@settings(max_examples=60, deadline=None)
@given(st.lists(_ROWS, min_size=1, max_size=12))
def test_the_zero_dates_of_each_column_are_counted(rows: list[tuple[int | None, ...]]) -> None:
    counts = {place: [row[place] for row in rows].count(ZERO_DATE) for place in (1, 2, 3)}
    assert written(rows).zero_dates() == {place: count for place, count in counts.items() if count}


def test_rows_of_aborted_transactions_and_columns_that_were_not_asked_for_do_not_count() -> None:
    file = written([(1, -1, -1, None), (2, -1, 0, 5)], [True, False])
    assert file.zero_dates() == {1: 1}
    assert file.zero_dates(without=[1]) == {}


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_column_whose_zone_map_excludes_the_zero_date_is_not_read(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written([tuple(5 for _ in COLUMNS), tuple(9 if at == place else -1 for at in range(4))])
    read = []
    monkeypatch.setattr(file, "_count_zero_dates", lambda block, seqnum: read.append(seqnum) or 1)
    assert file.zero_dates() == dict.fromkeys({1, 2, 3} - {place}, 1)
    assert sorted(read) == sorted({1, 2, 3} - {place})
