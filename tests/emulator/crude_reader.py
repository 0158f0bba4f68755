"""A simple object reader, written from docs/format/object-file.md only: struct and loops, no code of this project."""

import struct
import uuid
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

DAY_ONE, FIRST_MOMENT = date(1, 1, 1).toordinal(), datetime(1, 1, 1)
INTEGERS = {
    20: "<b",
    21: "<h",
    22: "<i",
    23: "<q",
    25: "<B",
    26: "<H",
    27: "<I",
    28: "<Q",
    11: "<Q",
    55: "<h",
    66: "<H",
}

WKB_POINTS = {oid: struct.pack(f"<BI2{width}", 1, 1, 24, 12) for oid, width in ((67, "d"), (68, "f"))}


@dataclass
class Vector:
    oid: int
    width: int
    scale: int
    cells: list[bytes | None]


@dataclass
class Block:
    rows: int
    vectors: dict[int, Vector]
    nulls: dict[int, int]
    zone_maps: dict[int, bytes]


@dataclass
class Object:
    rows: int
    appendable: bool
    sort_key: int
    meta_columns: int
    blocks: list[Block]
    covered: list[tuple[int, int]]  # byte ranges of all parts


def inflate(content: bytes, extent: bytes) -> tuple[bytes, tuple[int, int]]:
    algorithm, offset, length, origin = struct.unpack("<BIII", extent)
    raw = content[offset : offset + length]
    assert len(raw) == length
    whole = bytes(pa.decompress(raw, origin, "lz4_raw")) if algorithm else raw
    assert len(whole) == origin
    return whole, (offset, offset + length)


def read(content: bytes) -> Object:
    assert content[:8] == bytes.fromhex("ffffffff00000000")
    assert struct.unpack_from("<H", content, 8) == (1,)
    area, meta_range = inflate(content, content[10:23])
    assert meta_range[1] + 64 == len(content)
    assert struct.unpack_from("<HH", area) == (1, 3)
    blocks, start, tombstone_blocks = struct.unpack_from("<HIH", area, 4)
    assert tombstone_blocks == 0
    data = area[4 + start :]
    rows, columns = struct.unpack_from("<IH", data, 36)
    meta_columns, _, _, appendable, sort_key = struct.unpack_from("<HHHBH", data, 140)
    place = 179 + 124 * meta_columns
    assert struct.unpack_from("<I", data, place) == (blocks,)
    covered = [(0, 64), meta_range, (meta_range[1], len(content))]
    for extent in (data[55:68], data[72:85]):
        _, offset, length, _ = struct.unpack("<BIII", extent)
        covered.append((offset, offset + length))
    found = []
    for number in range(blocks):
        offset, length = struct.unpack_from("<II", data, place + 4 + 8 * number)
        assert length == place
        found.append(_block(content, data[offset : offset + length], number, columns, meta_columns, covered))
    return Object(rows, bool(appendable), sort_key, meta_columns, found, covered)


def _block(
    content: bytes, meta: bytes, number: int, columns: int, meta_columns: int, covered: list[tuple[int, int]]
) -> Block:
    assert struct.unpack_from("<H", meta, 34) == (number,)
    (rows,) = struct.unpack_from("<I", meta, 36)
    block = Block(rows, {}, {}, {})
    for seqnum in range(meta_columns):
        column = meta[179 + 124 * seqnum :][:124]
        if column[0] == 0:
            continue
        payload, part = inflate(content, column[11:24])
        covered.append(part)
        assert struct.unpack_from("<HH", payload) == (2, 2)
        vector = _vector(payload[4:], rows)
        assert vector.oid == column[0]
        block.vectors[seqnum] = vector
        (block.nulls[seqnum],) = struct.unpack_from("<I", column, 7)
        block.zone_maps[seqnum] = column[28:92]
    assert len(block.vectors) == columns
    return block


def _vector(raw: bytes, rows: int) -> Vector:
    class_, oid, _, _, _, size, width, scale, length = struct.unpack_from("<BBBBBiiiI", raw)
    assert length == rows
    parts, at = [], 21
    for _ in range(3):
        (count,) = struct.unpack_from("<I", raw, at)
        parts.append(raw[at + 4 : at + 4 + count])
        at += 4 + count
    assert at + 1 == len(raw)
    data, area, nulls = parts
    null = [False] * rows
    if nulls:
        _, bits, _ = struct.unpack_from("<qQQ", nulls)
        null = [row < bits and bool(nulls[24 + row // 8] >> row % 8 & 1) for row in range(rows)]
    if class_ == 1 and (not data or null[:1] == [True]):
        return Vector(oid, width, scale, [None] * rows)
    step = 0 if class_ == 1 else size
    slots = [None if null[row] else data[row * step : row * step + size] for row in range(rows)]
    if size == 24 and oid != 101:
        return Vector(oid, width, scale, [None if slot is None else _varlena(slot, area) for slot in slots])
    return Vector(oid, width, scale, slots)


def _varlena(slot: bytes, area: bytes) -> bytes:
    if slot[0] <= 23:
        return slot[1 : 1 + slot[0]]
    mark, offset, length = struct.unpack_from("<III", slot)
    assert mark == 0xFFFFFFFF
    return area[offset : offset + length]


def value(vector: Vector, cell: bytes | None, labels: list[str]) -> Any:
    """A cell as Parquet's Python value; JSON is left as bytes (its binary form is a format of its own)."""
    oid = vector.oid
    if cell is None:
        return None
    if oid in INTEGERS:
        (number,) = struct.unpack(INTEGERS[oid], cell)
        if oid == 66:
            return ["", *labels][number]
        if labels:
            return ",".join(label for bit, label in enumerate(labels) if number >> bit & 1)
        return number
    match oid:
        case 10:
            return cell != b"\0"
        case 30 | 31:
            return struct.unpack("<f" if oid == 30 else "<d", cell)[0]
        case 32 | 33 | 34:
            digits = Decimal(int.from_bytes(cell, "little", signed=True))
            text = f"{abs(int(digits)):0{vector.scale + 1}}"
            shown = f"{text[: -vector.scale]}.{text[-vector.scale :]}"
            return (
                f"{'-' if digits < 0 else ''}{shown}" if oid == 34 else Decimal(f"{'-' if digits < 0 else ''}{shown}")
            )
        case 50:
            return date.fromordinal(DAY_ONE + struct.unpack("<i", cell)[0])
        case 51:
            return timedelta(microseconds=struct.unpack("<q", cell)[0])
        case 52 | 53:
            return FIRST_MOMENT + timedelta(microseconds=struct.unpack("<q", cell)[0])
        case 63:
            return str(uuid.UUID(bytes=cell))
        case 226:  # the upper half of a float
            return [struct.unpack("<f", bytes(2) + cell[at : at + 2])[0] for at in range(0, len(cell), 2)]
        case 227:
            return list(struct.unpack(f"<{len(cell) // 2}e", cell))
        case 228:
            return list(struct.unpack(f"{len(cell)}b", cell))
        case 229:
            return list(cell)
        case 224 | 225:
            size = 4 if oid == 224 else 8
            return list(struct.unpack(f"<{len(cell) // size}{'f' if size == 4 else 'd'}", cell))
        case 62 | 64 | 65 | 70 | 101:
            return cell
        case 67 | 68 if cell[0] <= 1:  # WKB
            return cell
        case _:
            return cell.decode()
