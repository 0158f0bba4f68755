"""Packed keys equal those that a real upstream stored, and read back."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.definitions import define
from emulator.packing import pack
from matrixone.objects.keys import unpack_key
from matrixone.objects.reader import ObjectFile
from matrixone.schema import COMPOSITE_KEY


@pytest.mark.recordings
def test_packed_keys_equal_recorded_ones(recordings: Path) -> None:
    folder = recordings / "keys"
    tables = {
        "comp": define("d", "comp", {"k1": "varchar(20)", "k2": "int", "k3": "datetime", "v": "double"}, primary_key=("k1", "k2", "k3")),
        "comp2": define(
            "d",
            "comp2",
            {"k1": "bigint", "k2": "decimal(10,2)", "k3": "bool", "k4": "date", "k5": "varbinary(10)", "v": "int"},
            primary_key=("k1", "k2", "k3", "k4", "k5"),
        ),
    }
    checked = 0
    for row in json.loads((folder / "snapshot-001" / "object_list.json").read_text())["rows"]:
        definition = tables.get(row[1])
        if definition is None or row[5]:
            continue
        file = ObjectFile((folder / "objects" / bytes.fromhex(row[2]["hex"])[18:60].decode()).read_bytes())
        parts = [definition.column(name) for name in definition.primary_key]
        ours = pack(parts, [file.column(0, column) for column in parts])
        assert ours.equals(file.column(0, definition.column(COMPOSITE_KEY)))
        checked += len(ours)
    assert checked == 400


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=8), st.integers(0, 2**16 - 1)), max_size=30))
def test_a_packed_key_reads_back_and_keeps_the_order(rows: list[tuple[int, bytes, int]]) -> None:
    columns = define("d", "t", {"a": "bigint", "b": "varbinary(8)", "c": "smallint unsigned"}).user_columns
    values = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate((pa.int64(), pa.binary(), pa.int32()))]
    keys = pack(columns, values).to_pylist()
    assert [tuple(element.value for element in unpack_key(key)) for key in keys] == rows
    assert [row for _, row in sorted(zip(keys, rows, strict=True))] == sorted(rows)
