import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.writing.encoded_columns import varlena_column
from ccpr.matrixone.schema import SqlType


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.data())
def test_a_part_of_a_column_is_written_as_if_it_stood_alone(values: list[bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    kind = SqlType(types.VARBINARY)
    part = varlena_column(kind, pa.array(values, pa.binary()).slice(start, stop - start), "test")
    assert part.entry() == varlena_column(kind, pa.array(values[start:stop], pa.binary()), "test").entry()
