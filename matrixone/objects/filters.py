"""Filters that tell which keys a block cannot hold: binary fuse filters with fingerprints of 8 bits over xxHash64. object-format.md 2.7.

A filter answers every key that it was built from with yes, and some 0.4 % of all others. Those of several blocks are built
together, round by round over numpy arrays: a round takes every key that stands alone in one of its three places.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from matrixone.objects.errors import NotWritable

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime) for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_MASK64 = 2**64 - 1
_STRIPE = 32
_HEAD = struct.Struct("<QIIII")
_SEGMENT_LIMIT = 262_144
_ATTEMPTS = 100
_TOGETHER = 8  # filters built at once: more of them share the cost of a round, until their tables leave the processor's cache
_KEY_BITS = 40
_ONE_KEY, _KEY_MASK = 1 << _KEY_BITS, (1 << _KEY_BITS) - 1
_OBJECT_PREFIX, _BLOCK_PREFIX = (0, 18), (1, 20)  # id of the prefix function, bytes
_OTHERS = np.array([(1, 2), (0, 2), (0, 1)])  # of a key's three places, beside each the two that are left
_LENGTHS = struct.Struct("<III")
_U = np.uint64


def _rotated(values: np.ndarray, bits: int) -> np.ndarray:
    return values << _U(bits) | values >> _U(64 - bits)


def _round(state: np.ndarray | np.uint64, lane: np.ndarray) -> np.ndarray:
    return _rotated(state + lane * _P2, 31) * _P1


def xxhash64(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """xxHash64, seed 0, of the byte ranges `starts` .. `starts + lengths` of `data` (uint8): uint64, one a range.

    A pass handles one step of all ranges that are still that long, so that the loop runs over the longest length, not over ranges.
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
        hashes = (hashes ^ hashes >> _U(33)) * _P2
        hashes = (hashes ^ hashes >> _U(29)) * _P3
        return hashes ^ hashes >> _U(32)


def _longer(left: np.ndarray, length: int) -> np.ndarray | slice | None:
    """Which ranges have `length` bytes left: all, some, or none."""
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
    hashes = sum((_rotated(lane, bits) for lane, bits in zip(lanes[1:], (7, 12, 18), strict=True)), _rotated(lanes[0], 1))
    for lane in lanes:
        hashes = (hashes ^ _round(_U(0), lane)) * _P1 + _P4
    return hashes


@dataclass(frozen=True, slots=True)
class _Size:
    """How many fingerprints a filter over `count` hashes has: `segments` and two more segments of `length`."""

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
    """The seeds that are tried one after another: splitmix64 from 1."""
    seeds, state = [], 1
    for _ in range(_ATTEMPTS):
        state = (state + 0x9E3779B97F4A7C15) & _MASK64
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK64
        seeds.append(mixed ^ mixed >> 31)
    return seeds


_SEEDS = _seeds()


def plain_filters(hashes: Sequence[np.ndarray]) -> list[bytes]:
    """One filter for each array of hashes (uint64; repeated ones count for its size). Raises `NotWritable` if no seed of a hundred does,
    which chance does not bring about."""
    sizes = [_Size.of(len(group)) for group in hashes]
    built: list[bytes | None] = [None] * len(hashes)
    groups, open_ = list(hashes), list(range(len(hashes)))
    for attempt, seed in enumerate((_SEEDS[0], *_SEEDS)):
        for start in range(0, len(open_), _TOGETHER):
            some = open_[start : start + _TOGETHER]
            tables = _build([groups[number] for number in some], [sizes[number] for number in some], seed)
            for number, table in zip(some, tables, strict=True):
                if table is not None:
                    size = sizes[number]
                    head = _HEAD.pack(seed, size.length, size.length - 1, size.segments, size.segments * size.length)
                    built[number] = head + table.tobytes()
        open_ = [number for number in open_ if built[number] is None]
        if not open_:
            return [entry for entry in built if entry is not None]
        if attempt == 0:  # repeated hashes are never alone: the first seed once more, without them
            for number in open_:
                groups[number] = np.unique(groups[number])
    raise NotWritable(f"no filter over {len(groups[open_[0]])} keys after {_ATTEMPTS} seeds", subject="filter")


def _build(groups: list[np.ndarray], sizes: list[_Size], seed: int) -> list[np.ndarray | None]:
    """The fingerprints of each group, uint8; None where some of its keys are never alone. The tables lie behind one another."""
    bases = np.cumsum([0, *(size.total for size in sizes)])
    counts = np.array([len(group) for group in groups])
    keys = int(counts.sum())
    parts = [_places(group, size, base, seed) for group, size, base in zip(groups, sizes, bases.tolist(), strict=False)]
    places, fingerprints = (np.concatenate(part) for part in zip(*parts, strict=True))
    # Of each place how many keys have it, above the sum of the numbers under which they do (three times the key, and which of the three
    # it is): of one key, that is the number. Doubles hold it exactly.
    places, total = places.reshape(-1), int(bases[-1])
    weights = np.arange(_ONE_KEY, _ONE_KEY + 3 * keys, dtype=np.float64)
    held = np.bincount(places, weights, minlength=total).astype(np.int64)
    claim, order = np.empty(keys, np.int64), np.arange(total)
    taken: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    alone = np.flatnonzero(held >> _KEY_BITS == 1)
    while alone.size:
        number = held.take(alone) & _KEY_MASK
        found = number // 3
        turn = order[: len(found)]
        claim[found] = turn
        first = claim.take(found) == turn  # a key that is alone in two places, or a place named twice, counts once
        found, number, alone = found[first], number[first], alone[first]
        numbers = (3 * found[:, None] + _OTHERS.take(number - 3 * found, axis=0)).reshape(-1)
        others = places.take(numbers)
        taken.append((found, alone, others))
        numbers += _ONE_KEY
        np.subtract.at(held, others, numbers)
        alone = others[held.take(others) >> _KEY_BITS == 1]
    table = np.zeros(int(bases[-1]), np.uint8)
    # The last keys first: of a key's places its own is still zero, so that it can make the three agree.
    for found, own, others in reversed(taken):
        two = table.take(others).reshape(-1, 2)
        table[own] = fingerprints.take(found) ^ two[:, 0] ^ two[:, 1]
    complete = np.ones(len(groups), bool)
    if sum(len(found) for found, _, _ in taken) < keys:
        owners = np.searchsorted(np.cumsum(counts), np.concatenate([found for found, _, _ in taken] or [order[:0]]), side="right")
        complete = np.bincount(owners, minlength=len(groups)) == counts
    return [table[start:stop] if done else None for start, stop, done in zip(bases[:-1], bases[1:], complete, strict=True)]


def _places(hashes: np.ndarray, size: _Size, base: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three places of each key in the table that starts at `base`, int64 of shape (keys, 3), ascending; and its fingerprint."""
    with np.errstate(over="ignore"):
        mixed = hashes + _U(seed)
        mixed = (mixed ^ mixed >> _U(33)) * _U(0xFF51AFD7ED558CCD)
        mixed = (mixed ^ mixed >> _U(33)) * _U(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> _U(33)
    span, length, mask = _U(size.segments * size.length), _U(size.length), _U(size.length - 1)
    first = ((mixed >> _U(32)) * span + ((mixed & _U(0xFFFFFFFF)) * span >> _U(32))) >> _U(32)
    places = np.empty((len(mixed), 3), np.int64)
    places[:, 0] = first
    places[:, 1] = first + length ^ (mixed >> _U(18) & mask)
    places[:, 2] = first + (length << _U(1)) ^ (mixed & mask)
    places += base
    return places, (mixed ^ mixed >> _U(32)).astype(np.uint8)


def rowid_filters(rowids: Sequence[np.ndarray]) -> list[bytes]:
    """The hybrid filter of each block of tombstones: over the object ids, block ids and rowids (uint8 of shape (rows, 24))."""
    filters: list[list[bytes]] = []
    for number, size in ((*_OBJECT_PREFIX,), (*_BLOCK_PREFIX,)):
        prefix = bytes((number,))
        filters.append([prefix + entry for entry in plain_filters([_prefix_hashes(block, size) for block in rowids])])
    filters.append(plain_filters([fixed_hashes(block) for block in rowids]))
    return [_LENGTHS.pack(*map(len, three)) + b"".join(three) for three in zip(*filters, strict=True)]


def _prefix_hashes(rowids: np.ndarray, size: int) -> np.ndarray:
    return fixed_hashes(np.ascontiguousarray(rowids[:, :size]))


def fixed_hashes(values: np.ndarray) -> np.ndarray:
    """Hashes of values of one size: uint8 of shape (rows, size), contiguous."""
    rows, size = values.shape
    return xxhash64(values.reshape(-1), np.arange(rows, dtype=np.int64) * size, np.full(rows, size, np.int64))
