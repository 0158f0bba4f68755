"""Filters by which a reader finds the keys that a block cannot hold: binary fuse filters with fingerprints of 8 bits
over xxHash64. docs/format/object-file.md 2.7.

A filter answers yes for every key that it was built from, and for about 0.4 % of all others. The filters of several
blocks are built together, round by round over numpy arrays: a round takes every key that is alone in one of its three
places.
"""

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccpr.matrixone.objects.errors import NotWritable

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_MASK64 = 2**64 - 1
_STRIPE = 32
_HEAD = struct.Struct("<QIIII")
_SEGMENT_LIMIT = 262_144
_ATTEMPTS = 100
# Filters built at once. More of them share the cost of a round, until their tables no longer fit the processor's cache.
_TOGETHER = 8
_KEY_BITS = 40
_ONE_KEY, _KEY_MASK = 1 << _KEY_BITS, (1 << _KEY_BITS) - 1
_OBJECT_PREFIX, _BLOCK_PREFIX = (0, 18), (1, 20)  # id of the prefix function, bytes
_LENGTHS = struct.Struct("<III")
_U = np.uint64


def _rotated(values: np.ndarray, bits: int) -> np.ndarray:
    rotated = values << _U(bits)
    rotated |= values >> _U(64 - bits)
    return rotated


def _shift_xor(values: np.ndarray, bits: int) -> None:
    """In place."""
    values ^= values >> _U(bits)


def _round(state: np.ndarray | np.uint64, lane: np.ndarray) -> np.ndarray:
    return _rotated(state + lane * _P2, 31) * _P1


def xxhash64(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """xxHash64, seed 0, of the byte ranges `starts` .. `starts + lengths` of `data` (uint8): uint64, one a range.

    Each pass does one step of all ranges that are long enough for it, so the loop runs over the longest length and not
    over ranges.
    """
    if len(starts) == 0:
        return np.empty(0, np.uint64)
    padded = np.zeros(len(data) + 8, np.uint8)
    padded[: len(data)] = data
    words = np.ndarray((len(data) + 1,), "<u8", padded, 0, (1,))
    hashes = np.full(len(starts), _P5, np.uint64)
    at, left = starts.astype(np.int64), lengths.astype(np.int64)
    with np.errstate(over="ignore"):
        long = np.flatnonzero(left >= _STRIPE)
        if long.size:
            hashes[long] = _stripes(words, at[long], left[long])
            at[long] += left[long] // _STRIPE * _STRIPE
            left[long] %= _STRIPE
        hashes += lengths.astype(np.uint64)
        for _ in range(_STRIPE // 8 - 1):
            if (some := _longer(left, 8)) is None:
                break
            hashes[some] = _rotated(hashes[some] ^ _round(_U(0), words[at[some]]), 27) * _P1 + _P4
            at[some] += 8
            left[some] -= 8
        rest = words[at]
        if (some := _longer(left, 4)) is not None:
            hashes[some] = _rotated(hashes[some] ^ (rest[some] & _U(0xFFFFFFFF)) * _P1, 23) * _P2 + _P3
            rest[some] >>= _U(32)
            left[some] -= 4
        for _ in range(3):
            if (some := _longer(left, 1)) is None:
                break
            hashes[some] = _rotated(hashes[some] ^ (rest[some] & _U(0xFF)) * _P5, 11) * _P1
            rest[some] >>= _U(8)
            left[some] -= 1
        _shift_xor(hashes, 33)
        hashes *= _P2
        _shift_xor(hashes, 29)
        hashes *= _P3
        _shift_xor(hashes, 32)
        return hashes


def _longer(left: np.ndarray, length: int) -> np.ndarray | slice | None:
    """The ranges that have `length` bytes left: a slice for all of them, their indices, or None."""
    enough = left >= length
    if enough.all():
        return slice(None)
    places = np.flatnonzero(enough)
    return places if places.size else None


def _stripes(words: np.ndarray, at: np.ndarray, left: np.ndarray) -> np.ndarray:
    start = (_P1 + _P2, _P2, _U(0), _U(0) - _P1)
    lanes = [np.full(len(at), value, np.uint64) for value in start]
    at, left = at.copy(), left.copy()
    while (some := _longer(left, _STRIPE)) is not None:
        for number, lane in enumerate(lanes):
            lane[some] = _round(lane[some], words[at[some] + 8 * number])
        at[some] += _STRIPE
        left[some] -= _STRIPE
    hashes = sum(
        (_rotated(lane, bits) for lane, bits in zip(lanes[1:], (7, 12, 18), strict=True)), _rotated(lanes[0], 1)
    )
    for lane in lanes:
        hashes = (hashes ^ _round(_U(0), lane)) * _P1 + _P4
    return hashes


@dataclass(frozen=True, slots=True)
class _Size:
    """How many fingerprints a filter has: `segments` plus two more segments, of `length` each."""

    length: int
    segments: int

    @classmethod
    def of(cls, count: int) -> "_Size":
        length = 4 if count == 0 else min(1 << math.floor(math.log(count) / math.log(3.33) + 2.25), _SEGMENT_LIMIT)
        capacity = 0
        if count > 1:
            capacity = round(count * max(1.125, 0.875 + 0.25 * math.log(1_000_000) / math.log(count)))
        return cls(length, max(-(-capacity // length), 3) - 2)

    @property
    def total(self) -> int:
        return (self.segments + 2) * self.length


def _seeds() -> list[int]:
    """The seeds in the order in which they are tried: splitmix64 from 1."""
    seeds, state = [], 1
    for _ in range(_ATTEMPTS):
        state = (state + 0x9E3779B97F4A7C15) & _MASK64
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK64
        seeds.append(mixed ^ mixed >> 31)
    return seeds


_SEEDS = _seeds()


def plain_filters(hashes: Sequence[np.ndarray]) -> list[bytes]:
    """One filter for each array of hashes (uint64; repeated ones count for its size). Raises `NotWritable` if none of a
    hundred seeds works, which does not happen by chance."""
    sizes = [_Size.of(len(group)) for group in hashes]
    built: list[bytes | None] = [None] * len(hashes)
    groups, open_ = list(hashes), list(range(len(hashes)))
    for attempt, seed in enumerate((_SEEDS[0], *_SEEDS)):
        due = open_
        if attempt == 1:  # repeated hashes are never alone, so the first seed is tried again without them
            for number in open_:
                groups[number] = np.unique(groups[number])
            due = [number for number in open_ if len(groups[number]) < len(hashes[number])]
        for start in range(0, len(due), _TOGETHER):
            some = due[start : start + _TOGETHER]
            tables = _build([groups[number] for number in some], [sizes[number] for number in some], seed)
            for number, table in zip(some, tables, strict=True):
                if table is not None:
                    size = sizes[number]
                    head = _HEAD.pack(seed, size.length, size.length - 1, size.segments, size.segments * size.length)
                    built[number] = head + table.tobytes()
        open_ = [number for number in open_ if built[number] is None]
        if not open_:
            return [entry for entry in built if entry is not None]
    raise NotWritable(f"no filter over {len(groups[open_[0]])} keys after {_ATTEMPTS} seeds", subject="filter")


def _build(groups: list[np.ndarray], sizes: list[_Size], seed: int) -> list[np.ndarray | None]:
    """The fingerprints of each group, uint8; None if some of its keys are never alone in a place. All groups share one
    table, in which each has its own range."""
    bases = np.cumsum([0, *(size.total for size in sizes)])
    keys, total = sum(map(len, groups)), int(bases[-1])
    places, fingerprints = np.empty((3, keys), np.int64), np.empty(keys, np.uint8)
    stop = 0
    for group, size, base in zip(groups, sizes, bases.tolist(), strict=False):
        start, stop = stop, stop + len(group)
        fingerprints[start:stop] = _put_places(places[:, start:stop], group, size, base, seed)
    # For each place the number of its keys (upper bits) and the sum of their indices: with one key, that key's index.
    held, numbers = np.zeros(total, np.int64), np.arange(_ONE_KEY, _ONE_KEY + keys)
    for row in places:
        np.add.at(held, row, numbers)
    taken = _take_keys(places, held)
    table = np.zeros(total, np.uint8)
    # The last keys first: the place that a key was alone in is still zero, so it can make the three agree.
    for found, own, three in reversed(taken):
        one, two, three = table.take(three)
        table[own] = fingerprints.take(found) ^ one ^ two ^ three
    return [None if held[start:stop].any() else table[start:stop] for start, stop in itertools.pairwise(bases.tolist())]


def _take_keys(places: np.ndarray, held: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Take keys that are alone in a place out of `held`, round by round, until there are none. For each round: the
    keys, the place in which each was alone, its three places."""
    claim, order = np.empty(places.shape[1], np.int64), np.arange(len(held))
    taken: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    alone = np.flatnonzero(held >> _KEY_BITS == 1)
    while alone.size:
        found = held.take(alone) & _KEY_MASK
        turn = order[: len(found)]
        claim[found] = turn
        # A key that is alone in two places, or a place that is listed twice, counts once.
        first = np.flatnonzero(claim.take(found) == turn)
        if len(first) < len(found):
            found, alone = found.take(first), alone.take(first)
        three = places.take(found, axis=1)
        taken.append((found, alone, three))
        numbers = found + _ONE_KEY
        for row in three:
            np.subtract.at(held, row, numbers)
        three = three.reshape(-1)
        alone = three.take(np.flatnonzero(held.take(three) >> _KEY_BITS == 1))
    return taken


def _put_places(places: np.ndarray, hashes: np.ndarray, size: _Size, base: int, seed: int) -> np.ndarray:
    """Write the three places of each key in the table that starts at `base` into `places`, int64 of shape (3, keys).
    Returns the fingerprints, uint8."""
    mixed = hashes + _U(seed)
    _shift_xor(mixed, 33)
    mixed *= _U(0xFF51AFD7ED558CCD)
    _shift_xor(mixed, 33)
    mixed *= _U(0xC4CEB9FE1A85EC53)
    _shift_xor(mixed, 33)
    span, length, mask = _U(size.segments * size.length), _U(size.length), _U(size.length - 1)
    high = mixed >> _U(32)
    fingerprints = (mixed ^ high).astype(np.uint8)
    first, second, third = places.view(np.uint64)
    np.bitwise_and(mixed, _U(0xFFFFFFFF), out=first)
    first *= span
    first >>= _U(32)
    high *= span
    first += high
    first >>= _U(32)
    np.add(first, length, out=second)
    second ^= mixed >> _U(18) & mask
    np.add(first, length << _U(1), out=third)
    third ^= mixed & mask
    places += base
    return fingerprints


def rowid_filters(rowids: Sequence[np.ndarray]) -> list[bytes]:
    """The hybrid filter of each block of tombstones: over the object ids, block ids and rowids. `rowids` are uint8 of
    shape (rows, 24)."""
    filters: list[list[bytes]] = []
    for number, size in (_OBJECT_PREFIX, _BLOCK_PREFIX):
        prefix = bytes((number,))
        hashes = [fixed_hashes(np.ascontiguousarray(block[:, :size])) for block in rowids]
        filters.append([prefix + entry for entry in plain_filters(hashes)])
    filters.append(plain_filters([fixed_hashes(block) for block in rowids]))
    return [_LENGTHS.pack(*map(len, three)) + b"".join(three) for three in zip(*filters, strict=True)]


def fixed_hashes(values: np.ndarray) -> np.ndarray:
    """Hashes of values of one size; `values` are uint8 of shape (rows, size), contiguous."""
    rows, size = values.shape
    return xxhash64(values.reshape(-1), np.arange(rows, dtype=np.int64) * size, np.full(rows, size, np.int64))
