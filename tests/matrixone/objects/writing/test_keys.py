"""The writer's packed keys against a reader of packed keys that shares no code with it."""

from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.invalid_text import original
from ccpr.matrixone.objects.writing.column_encoding import encode
from ccpr.matrixone.objects.writing.packed_keys import packed_keys
from ccpr.matrixone.schema import Column, SqlType
from tests.matrixone.objects.generated_rows import Generated, generated
from tests.support.packed_keys import unpack_key
from tests.support.recorded import Snapshot

KEY_TYPES = [
    *(
        types.BOOL,
        types.BIT,
        types.INT8,
        types.INT16,
        types.INT32,
        types.INT64,
        types.UINT8,
        types.UINT16,
        types.UINT32,
        types.UINT64,
    ),
    *(
        types.FLOAT32,
        types.FLOAT64,
        types.DECIMAL64,
        types.DECIMAL128,
        types.DECIMAL256,
        types.DATE,
        types.TIME,
        types.DATETIME,
        types.TIMESTAMP,
        types.YEAR,
    ),
    *(types.CHAR, types.VARBINARY, types.TEXT, types.UUID, types.ENUM, "set"),
]


@pytest.mark.parametrize("kind", KEY_TYPES)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_packed_keys_unpack_and_order_as_their_values(kind: int | str, data: st.DataObject) -> None:
    first: Generated = data.draw(generated(kind, 0, "a"))
    second: Generated = data.draw(generated(types.VARCHAR, 1, "b"))
    arrays = [column.array(40, nulls, seed) for column, nulls, seed in ((first, 0.2, 1), (second, 0.0, 2))]
    columns = [first.column, second.column]
    packed = packed_keys(columns, arrays)
    full = packed_keys(columns, arrays, full=True)
    slots = encode(arrays[0], first.column)
    for row, (key, whole) in enumerate(zip(packed.to_pylist(), full.to_pylist(), strict=True)):
        elements = unpack_key(whole)
        assert elements[1].value == original(arrays[1][row].as_py())
        if arrays[0][row].as_py() is None:
            assert key is None
            assert elements[0].value is None
            continue
        assert key == whole
        if slots.values is not None:
            assert elements[0].value == slots.values[row].as_py()
        elif kind in (types.FLOAT32, types.FLOAT64):
            assert elements[0].value == arrays[0][row].as_py()
        elif kind == types.UUID:
            assert str(elements[0].value) == arrays[0][row].as_py()
        else:
            stored = slots.slots.reshape(-1).view(np.uint8).reshape(40, -1)[row].tobytes()
            signed = kind not in (
                types.BIT,
                types.UINT8,
                types.UINT16,
                types.UINT32,
                types.UINT64,
                types.ENUM,
                types.BOOL,
                "set",
            )
            assert int(elements[0].value) == int.from_bytes(stored, "little", signed=signed)  # pyright: ignore[reportArgumentType]
    if kind not in (types.ENUM, "set"):  # these order by number, not by label
        rows = [(arrays[0][row].as_py(), original(arrays[1][row].as_py()), full[row].as_py()) for row in range(40)]
        known = sorted((row for row in rows if row[0] is not None), key=lambda row: row[2])
        for before, after in pairwise(known):
            one, other = before[0], after[0]
            if kind == types.DECIMAL256:
                one, other = Decimal(one), Decimal(other)
            elif isinstance(one, str):
                one, other = original(one), original(other)
            if one == 0.0 == other and kind in (types.FLOAT32, types.FLOAT64):
                continue  # zero has two signs, and two keys
            assert (one, before[1]) <= (other, after[1])


def test_a_decimal256_is_32_bytes_behind_its_code() -> None:
    column = Column("d", 0, SqlType(types.DECIMAL256, 60, 1))
    packed = packed_keys([column], [pa.array(["0.1", "-0.1", "-25322984.0"])]).to_pylist()
    assert packed[0] == bytes((0x48, 0x80, *bytes(30), 1))
    assert packed[1] == bytes((0x48, 0x7F, *[0xFF] * 31))
    assert packed[2] == bytes((0x48, 0x7F, *[0xFF] * 27)) + (2**32 - 253229840).to_bytes(4, "big")


def test_a_type_without_a_place_in_keys_is_refused() -> None:
    column = Column("r", 0, SqlType(types.ROWID))
    with pytest.raises(NotWritable, match="cannot be part of a key"):
        packed_keys([column], [pa.array([bytes(24)], pa.binary(24))])


@pytest.mark.recordings
def test_recorded_composite_keys_are_their_columns(recordings: Path) -> None:
    snapshot = Snapshot(recordings / "keys" / "snapshot-002")
    seen = 0
    for name, table in snapshot.tables.items():
        if name not in snapshot.expected_tables() or "__mo_cpkey_col" not in [column.name for column in table.columns]:
            continue
        key = table.columns[[column.name for column in table.columns].index("__mo_cpkey_col")]
        rows = snapshot.read(name, (*table.user_columns, key)).to_pylist()
        for row in rows:
            elements = unpack_key(row.pop("__mo_cpkey_col"))
            values = {original(value) if isinstance(value, str) else value for value in row.values()}
            assert all(element.value in values for element in elements if element.code in (0x3A, 0x3B, 0x46))
            seen += 1
    assert seen


@pytest.mark.parametrize(
    "kind",
    [
        SqlType(types.INT32, 32, -1),
        SqlType(types.DECIMAL64, 10, 2),
        SqlType(types.DECIMAL128, 30, 9),
        SqlType(types.FLOAT64, 0, -1),
        SqlType(types.UUID),
        SqlType(types.BOOL),
        SqlType(types.VARCHAR, 20),
    ],
)
def test_no_rows_have_no_keys(kind: SqlType) -> None:
    column = Column("k", 0, kind)
    assert len(packed_keys([column], [pa.array([], types.arrow_type(column))])) == 0
