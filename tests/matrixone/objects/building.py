"""Objects, vectors and JSON written by hand, from the format's description alone: what the reader is tested against.

None of the reader's code is used, so that an error in it cannot hide in the tests.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

SIZES = {
    10: 1,
    20: 1,
    25: 1,
    21: 2,
    26: 2,
    55: 2,
    66: 2,
    22: 4,
    27: 4,
    30: 4,
    50: 4,
    33: 16,
    63: 16,
    34: 32,
    100: 12,
    101: 24,
    102: 20,
}
SIZES |= dict.fromkeys((11, 23, 28, 31, 32, 51, 52, 53), 8)
SIZES |= dict.fromkeys((60, 61, 62, 64, 65, 67, 70, 71, 72, 224, 225), 24)
OBJECT_ID = bytes(range(16)) + b"\x01\x00"
_LZ4 = pa.Codec("lz4_raw")


def nulls_bytes(null: Sequence[bool], *, version: int = 2, bits: int | None = None) -> bytes:
    """The null bitmap; `bits` is its length, by default one a row. Bits beyond `null` are set, as they mean nothing."""
    if not any(null):
        return b""
    length = len(null) if bits is None else bits
    words = (length + 63) // 64
    number = sum(1 << row for row, is_null in enumerate(null) if is_null and row < length)
    if length > len(null):
        number |= ((1 << length - len(null)) - 1) << len(null)
    number |= (1 << 64 * words) - (1 << length) if words else 0
    return struct.pack(
        "<qQQ" if version == 2 else "<iQQ", sum(null) if version == 2 else 0, length, 8 * words
    ) + number.to_bytes(8 * words, "little")


def column_entry(
    oid: int,
    slots: bytes,
    rows: int,
    *,
    area: bytes = b"",
    nulls: bytes = b"",
    version: int = 2,
    constant: bool = False,
    width: int = 0,
    scale: int = 0,
) -> bytes:
    head = struct.pack("<HHBBBBBiiiI", 2, version, int(constant), oid, 0, 0, 0, SIZES[oid], width, scale, rows)
    parts = (struct.pack("<I", len(part)) + part for part in (slots, area, nulls))
    return head + b"".join(parts) + b"\x00"


def varlena_slots(
    values: Sequence[bytes | None], *, outside: Sequence[bool] | None = None, share: bool = False
) -> tuple[bytes, bytes]:
    """Slots and area. `outside` puts short values into the area too; `share` lets values overlap where the area holds
    them already."""
    slots, area = bytearray(), bytearray(b"\xee\xee")
    for row, value in enumerate(values):
        if value is None:
            slots += b"\xff" * 24  # nobody may follow the slot of a null row
        elif len(value) <= 23 and not (outside is not None and outside[row]):
            slots += bytes([len(value)]) + value.ljust(23, b"\xdd")
        else:
            found = area.find(value) if share else -1
            start = found if found >= 0 else len(area)
            if found < 0:
                area += value
            slots += struct.pack("<III", 0xFFFFFFFF, start, len(value)) + b"\xcc" * 12
    return bytes(slots), bytes(area)


def varlena_entry(oid: int, values: Sequence[bytes | None], **options: Any) -> bytes:
    """A whole column entry of a varlena type; options as of `varlena_slots` and `column_entry`."""
    slots, area = varlena_slots(values, outside=options.pop("outside", None), share=options.pop("share", False))
    nulls = nulls_bytes(
        [value is None for value in values], version=options.get("version", 2), bits=options.pop("bits", None)
    )
    return column_entry(oid, slots, len(values), area=area, nulls=nulls, **options)


def object_file(
    blocks: Sequence[tuple[int, Mapping[int, tuple[int, bytes]]]],
    *,
    columns: int | None = None,
    appendable: bool = False,
    sort_key: int = 65535,
    meta_version: int = 3,
    object_id: bytes = OBJECT_ID,
    compressed: bool = True,
) -> bytes:
    """A file of blocks (rows, seqnum -> (oid, column entry)); `columns` is the number of column metas."""
    count = columns if columns is not None else 1 + max((seqnum for _, block in blocks for seqnum in block), default=-1)
    body, metas = bytearray(), []
    for number, (rows, block) in enumerate(blocks):
        column_metas = [bytes(124)] * count
        for seqnum, (oid, entry) in block.items():
            stored = _LZ4.compress(entry, asbytes=True) if compressed else entry
            extent = struct.pack("<BIII", int(compressed), 64 + len(body), len(stored), len(entry))
            column_metas[seqnum] = (struct.pack("<BHII", oid, seqnum, 0, 0) + extent).ljust(124, b"\x00")
            body += stored
        metas.append(_header(bytes(18), number, rows, count, appendable=False, sort_key=0) + b"".join(column_metas))
    meta = _header(
        object_id, len(blocks), sum(rows for rows, _ in blocks), count, appendable=appendable, sort_key=sort_key
    ) + bytes(124 * count)
    at = len(meta) + 4 + 8 * len(blocks)
    meta += struct.pack("<I", len(blocks))
    for block_meta in metas:
        meta += struct.pack("<II", at, len(block_meta))
        at += len(block_meta)
    meta += b"".join(metas)
    if meta_version > 1:
        meta = struct.pack("<HIHI", len(blocks), 34, 0, 0) + bytes(20) + bytes(2) + meta
    meta = struct.pack("<HH", 1, meta_version) + meta
    stored = _LZ4.compress(meta, asbytes=True)
    extent = struct.pack("<BIII", 1, 64 + len(body), len(stored), len(meta))
    header = (struct.pack("<QH", 0xFFFFFFFF, 1) + extent + struct.pack("<I", 7)).ljust(64, b"\x00")
    return bytes(header + body + stored + bytes(64))


def _header(object_id: bytes, sequence: int, rows: int, columns: int, *, appendable: bool, sort_key: int) -> bytes:
    head = bytes(16) + object_id + struct.pack("<HIH", sequence, rows, columns)
    shape = struct.pack("<HHHBH", columns, max(columns - 1, 0), 0, int(appendable), sort_key)
    return (head.ljust(140, b"\x00") + shape).ljust(179, b"\x00")


def stats_bytes(
    file: bytes, *, rows: int, blocks: int, flags: int = 0, object_id: bytes = OBJECT_ID, zonemap: bytes = bytes(64)
) -> bytes:
    """The stats that the object list shows for a file."""
    hexadecimal = object_id[:16].hex()
    name = "-".join(hexadecimal[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    name += f"_{int.from_bytes(object_id[16:], 'little'):05d}"
    return (
        object_id
        + name.encode()
        + file[10:23]
        + struct.pack("<II", rows, blocks)
        + zonemap
        + struct.pack("<IIB", len(file), len(file), flags)
    )


def json_bytes(value: Any) -> bytes:
    """Binary JSON with its type byte."""
    kind, body = _json(value)
    return bytes([kind]) + body


def _json(value: Any) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 0x04, bytes([1 if value is None else 2 if value else 3])
    if isinstance(value, int):
        return (0x09, struct.pack("<q", value)) if value < 2**63 else (0x0A, struct.pack("<Q", value))
    if isinstance(value, float):
        return 0x0B, struct.pack("<d", value)
    if isinstance(value, str):
        return 0x0C, _leb128(len(value.encode())) + value.encode()
    keys = sorted(key.encode() for key in value) if isinstance(value, dict) else []
    members = [value[key.decode()] for key in keys] if isinstance(value, dict) else list(value)
    at = 8 + 6 * len(keys) + 5 * len(members)
    key_entries = b""
    for key in keys:
        key_entries += struct.pack("<IH", at, len(key))
        at += len(key)
    entries, bodies = b"", b""
    for kind, body in map(_json, members):
        if kind == 0x04:
            entries += bytes([kind]) + body + bytes(3)
        else:
            entries += struct.pack("<BI", kind, at + len(bodies))
            bodies += body
    content = key_entries + entries + b"".join(keys) + bodies
    return (0x01 if isinstance(value, dict) else 0x03), struct.pack("<II", len(members), 8 + len(content)) + content


def _leb128(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
