"""Values inside columns (binary JSON, packed keys, zone maps, timestamps) and rows of the catalog."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ccpr.matrixone.client.catalog_cells import decode_type, default_cell, default_text
from ccpr.matrixone.client.table_catalog import tables_from_rows
from ccpr.matrixone.client.upstream_session import Answer
from ccpr.matrixone.ddl.definition import enum_members
from ccpr.matrixone.objects.bytejson import json_text
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.objects.zonemap import parse_zonemap
from ccpr.matrixone.schema import Table
from ccpr.state.context import Context
from tests.hostile.mutate import boundary, mutated, mutated_json, packed, unpacked
from tests.matrixone.objects.building import json_bytes
from tests.support.packed_keys import unpack_key
from tests.support.recorded import Snapshot
from tests.support.recordings_location import SAMPLE

_JSON: tuple[Any, ...] = (
    None,
    {"a": [1, 2.5, "x" * 40, {"b": None, "é": [[]]}], "": 2**64 - 1},
    [[[[True, False]]], {}, '\\"\n\x01'],
    1e-7,
    1e21,
    -5,
    "text",
    {str(number): number for number in range(40)},
)
_KEYS = (
    b"\x46\x01abc\x00\x3a\x15\x05\x44" + bytes(8),
    b"\x46\x01a\x00\xffb\x00\x52" + bytes(16) + b"\x53" + bytes(16) + b"\x15\x07",
    b"\x00\x26\x27\x50\x3d\x15\x02\x20"
    + bytes(4)
    + b"\x21"
    + bytes(8)
    + b"\x29\x0c"
    + b"\xff" * 8
    + b"\x45"
    + bytes(16),
)
_TEXTS = (
    "create table `a``b`.`t` "
    "(`e` enum('x,y','it''s','\\n') not null, s set(\"a\",'b') default 'a', i int) comment='(' ",
    "CREATE TABLE `t` ( /* ' */ `e` ENUM('a') -- x\n, k int # )\n)",
    "1700000000000000000-1",
    "0-0",
)


_DEFAULTS = [default_cell(text) + b"\x12\x02''\x18\x01" for text in ("", "it's", "é\n\0" * 60)]


class Values:
    """The first byte of an input says which reader gets the rest."""

    name = "values"
    decoded_bytes = 0

    def __init__(self) -> None:
        self._json = [json_bytes(value) for value in _JSON]
        self._zonemap = bytes(62) + b"\x80"

    def make(self, chance: random.Random) -> bytes:
        kind = chance.randrange(10)
        if kind < 5:
            values = [self._json_value(chance) for _ in range(chance.randrange(1, 5))]
            return b"\0" + packed(values)
        if kind < 7:
            return b"\1" + mutated(chance.choice(_KEYS), chance, _KEYS)
        if kind == 7:
            raw = bytearray(chance.randbytes(64) if chance.random() < 0.5 else self._zonemap + b"\x16")
            raw[62] |= 0x80
            raw[63] = chance.randrange(256)
            return b"\2" + mutated(bytes(raw), chance, gentle=chance.random() < 0.8)
        text = chance.choice(_TEXTS).encode()
        return b"\3" + mutated(text * chance.choice((1, 1, 1, 30)), chance, [other.encode() for other in _TEXTS])

    def _json_value(self, chance: random.Random) -> bytes:
        value = chance.choice(self._json)
        if chance.random() < 0.1:
            value = b"\x03" + struct.pack("<II", 1, 13) * chance.randrange(1, 5) + value
        return mutated(value, chance, self._json, gentle=chance.random() < 0.6)

    def run(self, data: bytes) -> str:
        readers: tuple[Callable[[bytes], Any], ...] = (
            self._texts,
            unpack_key,
            parse_zonemap,
            _text(enum_members),
        )
        readers[data[0]](data[1:])
        return "rows"

    def close(self) -> None:
        pass

    def _texts(self, data: bytes) -> None:
        texts = json_text(pa.array(unpacked(data), pa.binary()), subject="values")
        texts.validate(full=True)
        self.decoded_bytes = texts.nbytes


def _text(reader: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: reader(data.decode("utf-8", "surrogateescape"))


class Catalogs:
    """Rows of mo_database, mo_tables, mo_columns and get_ddl, cells of `att_default`, and what the catalog database
    stores as JSON text."""

    name = "catalogs"
    decoded_bytes = 0
    _NAMES = ("mo_database", "mo_tables", "mo_columns", "ddl")

    def __init__(self) -> None:
        snapshots = [Snapshot(SAMPLE / scenario / "snapshot-001") for scenario in ("keys", "dml", "all_types")]
        self._answers = [[snapshot.answer(name) for name in self._NAMES] for snapshot in snapshots]
        self._tables = [table.to_json() for snapshot in snapshots for table in snapshot.tables.values()]
        at = {"name": "xr_a_1_0", "lsn": 1, "attempt": 0, "physical": 5, "taken_at": 1.5}
        self._contexts: list[Any] = [
            {"open": at, "current": at, "previous": None, "to_drop": ["xr_a_0_0"], "attempts": 1},
            {},
        ]

    def make(self, chance: random.Random) -> bytes:
        kind = chance.randrange(8)
        if kind == 0 and chance.random() < 0.5:
            return b"\4" + mutated(chance.choice(_DEFAULTS), chance, _DEFAULTS, gentle=chance.random() < 0.7)
        if kind == 0:
            return b"\1" + bytes(20 if chance.random() < 0.9 else 19)[:-8] + chance.randbytes(8)
        if kind in (1, 2):
            value = mutated_json(chance.choice(self._contexts if kind == 1 else self._tables), chance)
            text = json.dumps(value).encode()
            return bytes((1 + kind,)) + (mutated(text, chance) if chance.random() < 0.2 else text)
        answers = [
            [list(answer.columns), [list(row) for row in answer.rows[:40]]] for answer in chance.choice(self._answers)
        ]
        for _ in range(chance.choice((1, 2, 5))):
            columns, rows = chance.choice(answers)
            edit = chance.randrange(12)
            if edit == 0:
                columns[chance.randrange(len(columns))] = "x"
            elif edit == 1 and rows:
                rows += rows[: chance.randrange(3)]
            elif edit == 2:
                rows[:] = []
            elif rows:
                row = chance.choice(rows)
                place = chance.randrange(len(row))
                row[place] = _cell(row[place], chance)
        return b"\0" + packed([_answer_bytes(columns, rows) for columns, rows in answers])

    def run(self, data: bytes) -> str:
        kind, rest = data[0], data[1:]
        if kind == 1:
            decode_type(rest, "column")
        elif kind == 2:
            Context.from_text(rest.decode("utf-8", "replace"))
        elif kind == 3:
            self._table(rest)
        elif kind == 4:
            default_text(rest)
        else:
            answers = [_answer_of(part) for part in unpacked(rest)]
            databases, tables, columns, ddl = answers
            catalog = tables_from_rows(databases, tables, columns, ddl, at=Timestamp(1))
            for table in catalog.tables:
                json.dumps(table.to_json())
                arrow_schema(table.columns)
        return "rows"

    def close(self) -> None:
        pass

    def _table(self, data: bytes) -> None:
        """A file of our own: `ccpr.mirror.mirror`, which reads it, turns these exceptions into a typed error."""
        try:
            table = Table.from_json(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        hash(table)


def _cell(cell: bytes | None, chance: random.Random) -> bytes | None:
    odd = (
        None,
        b"",
        b"0",
        b"1",
        b"-1",
        b"2",
        b"9" * 20,
        b"9" * 5000,
        b"\xff\xfe",
        b"a\0b",
        "٣".encode(),
        b"1e5",
        b" 1",
        b"\xc2\xb2",
        b"1_0",
        b"+1",
    )
    if cell and chance.random() < 0.4:
        return mutated(cell, chance, gentle=chance.random() < 0.7)
    if cell is not None and len(cell) == 20 and chance.random() < 0.7:
        return struct.pack(
            ">HHHHIII", *(boundary(2, chance) for _ in range(4)), *(boundary(4, chance) for _ in range(3))
        )
    return chance.choice(odd)


def _answer_bytes(columns: list[str], rows: list[list[bytes | None]]) -> bytes:
    cells = [b"\0" if cell is None else b"\1" + cell for row in rows for cell in row]
    return packed([json.dumps(columns).encode(), *cells])


def _answer_of(data: bytes) -> Answer:
    first, *cells = unpacked(data)
    columns = json.loads(first)
    values = [None if cell == b"\0" else cell[1:] for cell in cells]
    width = len(columns)
    rows = [tuple(values[at : at + width]) for at in range(0, len(values), width)]
    return Answer(tuple(columns), (253,) * width, rows)
