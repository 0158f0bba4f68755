"""The areas of an object file, decompressed, cut apart by the format's description alone: what two files are compared
by."""

import struct
from dataclasses import dataclass

import pyarrow as pa

_LZ4 = pa.Codec("lz4_raw")
_HEADER, _COLUMN = 179, 124


@dataclass(frozen=True)
class Column:
    """One column meta: its fields, its zone map, and (of a block) its decompressed entry and where the stored bytes
    lie."""

    oid: int
    position: int
    distinct: int
    nulls: int
    extent: tuple[int, int, int, int]
    zonemap: bytes
    rest: bytes


@dataclass(frozen=True)
class Areas:
    """`whole` and `second`: header and column metas of slot 0 and slot 1; `blocks` likewise for each block.
    `entries[block][column]` are decompressed payloads; `filters` one for each block and the object's."""

    header: bytes
    footer: bytes
    meta: bytes
    filter_area: bytes
    zonemap_area: bytes
    whole: tuple[bytes, list[Column]]
    blocks: list[tuple[bytes, list[Column]]]
    second: bytes
    entries: list[dict[int, bytes]]
    filters: list[bytes]


def extent_of(raw: bytes, at: int) -> tuple[int, int, int, int]:
    algorithm, offset, length, origin = struct.unpack_from("<BIII", raw, at)
    return algorithm, offset, length, origin


def stored(file: bytes, extent: tuple[int, int, int, int]) -> bytes:
    """The bytes of an extent, decompressed."""
    algorithm, offset, length, origin = extent
    raw = file[offset : offset + length]
    return raw if algorithm == 0 else _LZ4.decompress(raw, decompressed_size=origin).to_pybytes()


def areas(file: bytes) -> Areas:
    meta = stored(file, extent_of(file, 10))
    body = meta[4:]  # offsets count from behind the entry's head
    count, at = struct.unpack_from("<HI", body)
    whole = _metas(body, at)
    index = at + _HEADER + _COLUMN * len(whole[1])
    pairs = [struct.unpack_from("<II", body, index + 4 + 8 * number) for number in range(count)]
    blocks = [_metas(body, at + offset) for offset, _ in pairs]
    second = body[at + sum(pairs[-1]) if pairs else index + 4 :][:_HEADER]
    entries = [
        {seqnum: stored(file, column.extent) for seqnum, column in enumerate(columns) if column.oid}
        for _, columns in blocks
    ]
    filter_area = stored(file, extent_of(whole[0], 55))
    (number,) = struct.unpack_from("<I", filter_area, 4)
    filters = [
        filter_area[4 + start : 4 + start + length]
        for start, length in struct.iter_unpack("<II", filter_area[8 : 8 + 8 * number])
    ]
    zonemap_area = stored(file, extent_of(whole[0], 72))
    return Areas(file[:64], file[-64:], meta, filter_area, zonemap_area, whole, blocks, second, entries, filters)


def _metas(body: bytes, at: int) -> tuple[bytes, list[Column]]:
    header = body[at : at + _HEADER]
    (count,) = struct.unpack_from("<H", header, 140)
    columns = []
    for start in range(at + _HEADER, at + _HEADER + _COLUMN * count, _COLUMN):
        raw = body[start : start + _COLUMN]
        oid, position, distinct, nulls = struct.unpack_from("<BHII", raw)
        columns.append(Column(oid, position, distinct, nulls, extent_of(raw, 11), raw[28:92], raw[24:28] + raw[92:]))
    return header, columns
