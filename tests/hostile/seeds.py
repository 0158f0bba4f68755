"""Small real objects to start from: recorded ones of every kind (large ones cut to a few rows), one built by hand."""

import struct
from functools import cache

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.types import VARLENA_TYPES, arrow_type
from ccpr.matrixone.objects.writing.writer import write_data, write_tombstones
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from tests.hostile.objects_apart import Apart, apart
from tests.matrixone.objects.building import column_entry, json_bytes, nulls_bytes, object_file, varlena_entry
from tests.support.recordings_location import SAMPLE

_WHOLE = 6_000  # bytes; larger ones are cut
_ROWS = 12
_SLOTS_AT = 29
_OFTEN = 2  # how many times the list holds the objects of all types and of several blocks


@cache
def objects() -> tuple[bytes, ...]:
    """Data and tombstones, appendable or not, written by TN and CN, of all column types, with several blocks."""
    found = [
        path.read_bytes()
        for path in sorted(SAMPLE.glob("*/objects/*"), key=lambda path: (path.stat().st_size, path.name))
    ]
    cut = [fewer_rows(apart(data), _ROWS).together() for data in found if len(data) > _WHOLE]
    whole = [data for data in found if len(data) <= _WHOLE]
    rich = [data for data in cut if len(apart(data).blocks) > 1 or len(apart(data).entries) > 20]
    return (*whole, *cut, *rich * _OFTEN, *[many_types()] * _OFTEN, *later_releases())


@cache
def objects_apart() -> tuple[Apart, ...]:
    return tuple(map(apart, objects()))


def fewer_rows(parts: Apart, keep: int) -> Apart:
    """The object with at most `keep` rows in a block: those that take the least space."""
    total = 0
    for number, block in enumerate(parts.blocks):
        stop = parts.blocks[number + 1] if number + 1 < len(parts.blocks) else len(parts.meta)
        entries = {at: entry for at, entry in parts.entries.items() if block < at < stop}
        rows = struct.unpack_from("<I", parts.meta, block + 36)[0]
        sizes = [sum(_area_bytes(entry, row) for entry in entries.values()) for row in range(rows)]
        chosen = sorted(sorted(range(rows), key=sizes.__getitem__)[:keep])
        parts.entries |= {at: _only(entry, rows, chosen) for at, entry in entries.items()}
        struct.pack_into("<I", parts.meta, block + 36, len(chosen))
        total += len(chosen)
    struct.pack_into("<I", parts.meta, 4 + 34 + 36, total)
    return parts


def _area_bytes(entry: bytes, row: int) -> int:
    slot = _SLOTS_AT + 24 * row
    return struct.unpack_from("<I", entry, slot + 8)[0] if entry[5] in VARLENA_TYPES and entry[slot] == 0xFF else 0


def _only(entry: bytes, rows: int, chosen: list[int]) -> bytes:
    oid, width, scale = entry[5], *struct.unpack_from("<ii", entry, 13)
    length = struct.unpack_from("<I", entry, 25)[0]
    size = length // rows
    area_at = _SLOTS_AT + length + 4
    nulls_at = area_at + struct.unpack_from("<I", entry, area_at - 4)[0] + 4
    bits = entry[nulls_at + 24 :] if struct.unpack_from("<I", entry, nulls_at - 4)[0] else b""
    null = [row // 8 < len(bits) and bool(bits[row // 8] >> row % 8 & 1) for row in chosen]
    slots, area = bytearray(), bytearray()
    for row in chosen:
        slot = entry[_SLOTS_AT + size * row :][:size]
        if oid in VARLENA_TYPES and slot[0] == 0xFF and not null[chosen.index(row)]:
            start, count = struct.unpack_from("<II", slot, 4)
            slot = struct.pack("<III", 0xFFFFFFFF, len(area), count) + bytes(12)
            area += entry[area_at + start : area_at + start + count]
        slots += slot
    return column_entry(
        oid, bytes(slots), len(chosen), area=bytes(area), nulls=nulls_bytes(null), width=width, scale=scale
    )


def many_types() -> bytes:
    """Constant vectors, the old null bitmap and deep JSON, which no recorded object has."""
    texts = [
        b"short",
        None,
        b"a value that is in the area ...",
        b"",
        b"x" * 23,
        b"y" * 24,
        b"z" * 60,
        b"12 bytes....",
        b"13 bytes.....",
    ]
    rows = len(texts)
    deep: object = 1.5e300
    for level in range(40):
        deep = [deep, None] if level % 2 else {"key\n": deep, "": True}
    json = [
        json_bytes(value)
        for value in (deep, {"k": [1, {"n": None}], "s": "text \x01" * 6}, [0.1, 2**63, -1, ""], "top")
    ]
    columns = {
        0: (61, varlena_entry(61, texts, version=1)),
        1: (62, varlena_entry(62, [*json, None, *json])),
        2: (22, column_entry(22, bytes(4), rows, constant=True)),
        3: (61, column_entry(61, b"\x03abc".ljust(24, b"\0"), rows, constant=True)),
        4: (34, column_entry(34, b"\x07" * 32 * rows, rows, scale=4, width=76)),
        5: (225, varlena_entry(225, [bytes(32)] * rows)),
        6: (66, column_entry(66, b"\x01\x00" * rows, rows)),
        7: (100, column_entry(100, bytes(12 * rows), rows)),
    }
    return object_file([(rows, columns)], compressed=True, appendable=True)


def later_releases() -> tuple[bytes, bytes]:
    """Data and tombstones with what later releases brought: zero dates, WKB, small vectors, abort flags."""
    columns = tuple(Column(name, number, kind) for number, (name, kind, _) in enumerate(_LATER))
    arrays = [pa.array(values, arrow_type(column)) for column, (_, _, values) in zip(columns, _LATER, strict=True)]
    rows = pa.record_batch(arrays, [column.name for column in columns])
    times, flags = np.zeros(len(rows), TIMESTAMP_DTYPE), np.arange(len(rows)) % 2 == 1
    options = {"appendable": True, "by_cn": False, "commit_ts": [times], "aborted": [flags]}
    table = Table(1, 1, "d", "t", Kind.TABLE, columns)
    data = write_data(table, [rows], name=f"{_SEGMENT}_00000", wkb=True, **options)
    rowids = np.zeros(len(rows), ROWID_DTYPE)
    rowids["row"] = np.arange(len(rows))
    array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(24), len(rows), [None, pa.py_buffer(rowids.tobytes())])
    dead = write_tombstones([array], [arrays[0]], columns[0], name=f"{_SEGMENT}_00001", **options)
    return data.content, dead.content


_SEGMENT = "01a1fbac-0e0a-76cf-9a9e-edfe00740d11"
_SHAPES = [
    "POINT(1 2)",
    "MULTIPOINT(1 2,EMPTY)",
    "POLYGON((0 0,4 0,4 4,0 0),(1 1,2 1,2 2,1 1))",
    "MULTIPOLYGON(((0 0,4 0,4 4,0 0)),EMPTY)",
    "GEOMETRYCOLLECTION(LINESTRING(1 2,3 4),GEOMETRYCOLLECTION(POINT EMPTY))",
]
_LATER = [
    ("id", SqlType(types.INT64, 64, -1), [1, 2, 3, 4, 5]),
    ("g", SqlType(types.GEOMETRY), _SHAPES),
    ("g32", SqlType(types.GEOMETRY32), _SHAPES[::-1]),
    ("d", SqlType(types.DATE), [-719_163, 0, None, 5, -719_163]),
    ("dt", SqlType(types.DATETIME, 6, 6), [-62_135_596_800_000_001, 0, None, 1, 2]),
    ("bf16", SqlType(types.VECBF16, 2), [[1.0, -2.5]] * 5),
    ("f16", SqlType(types.VECF16, 2), [[1.0, -2.5]] * 5),
    ("i8", SqlType(types.VECINT8, 2), [[1, -128]] * 5),
    ("u8", SqlType(types.VECUINT8, 2), [[1, 255]] * 5),
]
