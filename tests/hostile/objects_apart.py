"""An object file taken apart into its inflated pieces and put together again with right lengths and offsets, so that
damage inside the compressed areas gets past the decompression. It uses nothing of the reader.
docs/format/object-file.md 2, 3.
"""

import random
import struct
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from tests.hostile.mutate import boundary, mutated, set_number

_LZ4 = pa.Codec("lz4_raw")
_EXTENT = struct.Struct("<BIII")
_HEADER, _COLUMN, _BLOCK_HEAD = 64, 124, 179
_DATA_META = 4 + 34  # in the inflated metadata area
# Offset and width of the fields that readers look at.
_BLOCK_FIELDS = ((16, 4), (34, 2), (36, 4), (40, 2), (140, 2), (142, 2), (146, 1), (147, 2))
_COLUMN_FIELDS = ((0, 1), (1, 2), (7, 4), (28, 4), (58, 1), (89, 1), (90, 1), (91, 1))
_EXTENT_FIELDS = ((11, 1), (12, 4), (16, 4), (20, 4))
_VECTOR_FIELDS = ((0, 2), (2, 2), (4, 1), (5, 1), (9, 4), (13, 4), (17, 4), (21, 4), (25, 4))
_ROWS_AT, _SCALE_AT, _SLOTS_AT = 21, 17, 29
_OIDS = (
    10,
    11,
    20,
    21,
    22,
    23,
    25,
    28,
    30,
    31,
    32,
    33,
    34,
    50,
    51,
    52,
    53,
    55,
    60,
    61,
    62,
    63,
    65,
    66,
    70,
    71,
    100,
    101,
    102,
    224,
    225,
)


@dataclass
class Apart:
    """An object's pieces.

    Attributes
    ----------
    header, meta, footer : their bytes; `meta` is inflated.
    entries : offset of a column's metadata in `meta` → the inflated column.
    blocks : offsets of the blocks' metadata in `meta`.
    raw : the keys of `entries` that are stored without compression.
    """

    header: bytearray
    meta: bytearray
    entries: dict[int, bytes]
    blocks: list[int]
    footer: bytes
    raw: set[int] = field(default_factory=set)

    def together(self, chance: random.Random | None = None, *, wrong_extents: int = 0) -> bytes:
        """The file. A boundary value is written into `wrong_extents` of the column extents."""
        body, meta = bytearray(), bytearray(self.meta)
        for at, entry in self.entries.items():
            stored = entry if at in self.raw else _LZ4.compress(entry, asbytes=True) if entry else b""
            if at + _COLUMN <= len(meta):
                _EXTENT.pack_into(meta, at + 11, int(at not in self.raw), _HEADER + len(body), len(stored), len(entry))
            body += stored
        for _ in range(wrong_extents if chance else 0):
            assert chance is not None
            place, width = chance.choice(_EXTENT_FIELDS)
            set_number(meta, chance.choice(list(self.entries)) + place, width, chance)
        stored = _LZ4.compress(bytes(meta), asbytes=True) if meta else b""
        header = bytearray(self.header)
        _EXTENT.pack_into(header, 10, 1, _HEADER + len(body), len(stored), len(meta))
        return bytes(header + body + stored + self.footer)


def apart(data: bytes) -> Apart:
    """The pieces of an undamaged object of metadata version 2 or 3."""
    _, offset, length, origin = _EXTENT.unpack_from(data, 10)
    meta = bytearray(_inflated(data, 1, offset, length, origin))
    columns = struct.unpack_from("<H", meta, _DATA_META + 140)[0]
    index = _DATA_META + _BLOCK_HEAD + _COLUMN * columns
    count = struct.unpack_from("<I", meta, index)[0]
    entries, blocks = {}, []
    for number in range(count):
        block = _DATA_META + struct.unpack_from("<I", meta, index + 4 + 8 * number)[0]
        blocks.append(block)
        for seqnum in range(struct.unpack_from("<H", meta, block + 140)[0]):
            at = block + _BLOCK_HEAD + _COLUMN * seqnum
            if meta[at]:
                entries[at] = _inflated(data, *_EXTENT.unpack_from(meta, at + 11))
    return Apart(bytearray(data[:_HEADER]), meta, entries, blocks, data[-64:])


def _inflated(data: bytes, algorithm: int, offset: int, length: int, origin: int) -> bytes:
    stored = data[offset : offset + length]
    return _LZ4.decompress(stored, decompressed_size=origin).to_pybytes() if algorithm else stored


def damaged(parts: Apart, chance: random.Random, others: list[Apart]) -> bytes:
    """The object with a few of its pieces damaged, and mostly right lengths and offsets."""
    work = Apart(bytearray(parts.header), bytearray(parts.meta), dict(parts.entries), list(parts.blocks), parts.footer)
    wrong = 0
    for _ in range(chance.choice((1, 1, 2, 4))):
        with suppress(struct.error):  # earlier edits may have left too few bytes for this one
            wrong += _edit(work, chance, others)
    if chance.random() < 0.05:
        work.raw = set(work.entries)
    return work.together(chance, wrong_extents=wrong if work.entries else 0)


def _edit(work: Apart, chance: random.Random, others: list[Apart]) -> int:
    """Damage one piece. Returns how many extents are to be wrong."""
    edit = chance.randrange(12)
    if edit < 6 and work.entries:
        at = chance.choice(list(work.entries))
        work.entries[at] = _vector(
            work.entries[at], chance, [entry for other in others for entry in other.entries.values()]
        )
    elif edit == 6:
        _meta_field(work, chance)
    elif edit == 7 and len(work.entries) > 1:
        one, two = chance.sample(list(work.entries), 2)
        work.entries[one], work.entries[two] = work.entries[two], work.entries[one]
    elif edit == 8 and work.entries:
        _retype(work, chance)
    elif edit == 9:
        return 1
    elif edit == 10 and work.blocks:
        _more_or_fewer_rows(work, chance)
    else:
        chance.choice((_duplicate_block, _meta_bytes))(work, chance)
    return 0


def _vector(entry: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """A damaged column: a field of its head, a slot, the area, the bitmap, or new sections with right lengths."""
    work, edit = bytearray(entry), chance.randrange(8)
    if edit == 0:
        place, width = chance.choice(_VECTOR_FIELDS)
        set_number(work, place, width, chance)
    elif edit == 1 and len(work) > _SLOTS_AT:  # a varlena slot: first word, start and length
        slot = _SLOTS_AT + 24 * chance.randrange(1 + (len(work) - _SLOTS_AT) // 24)
        set_number(work, slot + chance.choice((0, 4, 8)), chance.choice((1, 4)), chance)
    elif edit == 2:
        return _new_sections(entry, chance)
    elif edit == 3:
        return mutated(entry, chance, others)
    elif edit == 4:
        start = max(0, len(work) - 64)
        work[start:] = mutated(bytes(work[start:]), chance, gentle=True)
    elif edit == 5 and others:
        return chance.choice(others)
    else:
        return mutated(entry, chance, gentle=True)
    return bytes(work)


def _sections(entry: bytes) -> list[bytes]:
    """Slots, area and bitmap; fewer where the entry is too short."""
    at, sections = _SLOTS_AT - 4, []
    for _ in range(3):
        if at + 4 > len(entry):
            break
        length = struct.unpack_from("<I", entry, at)[0]
        sections.append(entry[at + 4 : at + 4 + length])
        at += 4 + length
    return sections


def _new_sections(entry: bytes, chance: random.Random) -> bytes:
    sections = _sections(entry)
    if len(sections) < 3:
        return entry
    number = chance.randrange(3)
    section, edit = sections[number], chance.randrange(6)
    if edit == 0:
        sections[number] = mutated(section, chance)
    elif edit == 1:
        sections[number] = section * chance.choice((2, 3, 50))
    elif edit == 2:
        sections[number] = b""
    elif edit == 3:  # a bitmap: version 2 or 1, honest or not about its length
        rows = struct.unpack_from("<I", entry, _ROWS_AT)[0]
        bits = chance.choice((rows, rows + 1, max(0, rows - 1), 64, 0, boundary(4, chance)))
        words = min((bits + 63) // 64 * 8, 1 << 16)
        sections[2] = struct.pack("<qQQ", boundary(4, chance), bits, words) + chance.randbytes(words)
    elif edit == 4:  # all rows share one value of the area
        size = max(1, len(sections[1]))
        slot = struct.pack("<III", 0xFFFFFFFF, chance.randrange(size), boundary(4, chance, size)).ljust(24, b"\0")
        sections[0] = slot * (len(sections[0]) // 24)
    else:
        sections[1] = chance.choice((bytes(5000), chance.randbytes(300), b"\xf0\x90\x80" * 200, sections[1][::-1]))
    head = bytearray(entry[: _SLOTS_AT - 4])
    if chance.random() < 0.1:
        head[4] = 1  # a constant vector
    return bytes(head) + b"".join(struct.pack("<I", len(part)) + part for part in sections) + b"\0"


def _meta_field(work: Apart, chance: random.Random) -> None:
    if chance.random() < 0.5 and work.entries:
        place, width = chance.choice(_COLUMN_FIELDS)
        set_number(work.meta, chance.choice(list(work.entries)) + place, width, chance)
        return
    start = chance.choice([_DATA_META, *work.blocks])
    place, width = chance.choice(_BLOCK_FIELDS)
    set_number(work.meta, start + place, width, chance)


def _meta_bytes(work: Apart, chance: random.Random) -> None:
    if chance.random() < 0.5:
        work.meta = bytearray(mutated(bytes(work.meta), chance))
    else:
        head = mutated(bytes(work.meta[:_DATA_META]), chance, gentle=True)
        work.meta[: len(head)] = head


def _retype(work: Apart, chance: random.Random) -> None:
    """Give a column another type, in both its metadata and its vector."""
    at, oid = chance.choice(list(work.entries)), chance.choice(_OIDS)
    entry = bytearray(work.entries[at])
    if at < len(work.meta) and len(entry) > _SLOTS_AT:
        work.meta[at] = oid
        entry[5] = oid
        if chance.random() < 0.5:  # with a scale that is common for decimals, so that they are decoded
            struct.pack_into("<i", entry, _SCALE_AT, chance.choice((0, 2, 4)))
        work.entries[at] = bytes(entry)


_MOST_SLOTS, _MOST_BYTES = 70_000, 4 << 20  # that a case writes; what it claims has no limit


def _more_or_fewer_rows(work: Apart, chance: random.Random) -> None:
    """Write another number of rows in the metadata, and in half of the cases in the vectors, too."""
    if len(work.meta) < _DATA_META + 40:
        return
    rows = struct.unpack_from("<I", work.meta, _DATA_META + 36)[0]
    wanted = chance.choice((0, 1, rows - 1, rows + 1, 8192, 65536, boundary(2, chance))) % (1 << 32)
    struct.pack_into("<I", work.meta, _DATA_META + 36, wanted)
    for block in work.blocks[:1]:
        if block + 40 <= len(work.meta):
            struct.pack_into("<I", work.meta, block + 36, wanted)
    if chance.random() < 0.5:
        for at, entry in work.entries.items():
            changed = bytearray(entry)
            sections = _sections(entry)
            if len(sections) == 3 and rows and len(sections[0]) % rows == 0:
                width = len(sections[0]) // rows
                count = min(wanted, _MOST_SLOTS, _MOST_BYTES // max(1, width))
                slots = (sections[0] * (1 + count // rows))[: width * count]
                struct.pack_into("<I", changed, _ROWS_AT, wanted)
                rest = b"".join(struct.pack("<I", len(part)) + part for part in (slots, *sections[1:]))
                work.entries[at] = bytes(changed[: _SLOTS_AT - 4]) + rest + b"\0"


def _duplicate_block(work: Apart, chance: random.Random) -> None:
    """Let the block index name a block several times; counts agree with that, and sometimes the rows."""
    if not work.blocks or len(work.meta) < _DATA_META + _BLOCK_HEAD:
        return
    columns = struct.unpack_from("<H", work.meta, _DATA_META + 140)[0]
    index = _DATA_META + _BLOCK_HEAD + _COLUMN * columns
    if index + 12 > len(work.meta):
        return
    count, offset, length = struct.unpack_from("<III", work.meta, index)
    copies = chance.choice((1, 2, 30))
    piece = bytes(work.meta[_DATA_META + offset : _DATA_META + offset + length])
    again = b""
    for number in range(copies):
        shared = chance.random() < 0.5
        start = offset if shared else len(work.meta) - _DATA_META + 8 * copies + len(piece) * number
        again += struct.pack("<II", start + 8 * copies * shared, length)
    work.meta[index + 4 + 8 * count : index + 4 + 8 * count] = again
    work.meta += piece * copies
    struct.pack_into("<I", work.meta, index, count + copies)
    struct.pack_into("<H", work.meta, 4, min(65535, count + copies))
    rows = struct.unpack_from("<I", work.meta, _DATA_META + 36)[0]
    struct.pack_into("<I", work.meta, _DATA_META + 36, min(2**32 - 1, rows * (1 + copies) // max(1, count)))
    for number in range(count):  # what follows the index has moved
        at = index + 4 + 8 * number
        struct.pack_into("<I", work.meta, at, struct.unpack_from("<I", work.meta, at)[0] + 8 * copies)
    work.entries = {at + 8 * copies: entry for at, entry in work.entries.items()}
    work.blocks = [at + 8 * copies for at in work.blocks]
