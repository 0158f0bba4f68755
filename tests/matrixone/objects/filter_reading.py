"""A reader of filters, one key at a time, from docs/format/object-file.md 2.7 only, without the writer's code."""

import struct

_MASK = 2**64 - 1
_P1, _P2, _P3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
_P4, _P5 = 9650029242287828579, 2870177450012600261


def xxhash64(data: bytes) -> int:
    """xxHash64 with seed 0."""
    at = 0
    if len(data) >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= len(data):
            lanes = [_round(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)]
            at += 32
        value = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = _P5
    value = (value + len(data)) & _MASK
    while at + 8 <= len(data):
        value = (_rotated(value ^ _round(0, struct.unpack_from("<Q", data, at)[0]), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        value = (_rotated(value ^ struct.unpack_from("<I", data, at)[0] * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotated(value ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def contains(filter_: bytes, key: bytes) -> bool:
    """Whether a plain filter answers a key with yes."""
    seed, length, mask, segments, span = struct.unpack_from("<QIIII", filter_)
    assert mask == length - 1
    assert span == segments * length
    assert len(filter_) == 24 + (segments + 2) * length
    value = (xxhash64(key) + seed) & _MASK
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & _MASK
    value ^= value >> 33
    first = value * span >> 64
    places = first, (first + length) ^ (value >> 18 & mask), (first + 2 * length) ^ (value & mask)
    found = 0
    for place in places:
        found ^= filter_[24 + place]
    return (value ^ value >> 32) & 0xFF == found


def hybrid_parts(filter_: bytes) -> list[tuple[int, bytes]]:
    """The three filters of a tombstone block, each with the size of the prefix of a rowid that it is about."""
    lengths = struct.unpack_from("<3I", filter_)
    assert len(filter_) == 12 + sum(lengths)
    first, second = filter_[12 : 12 + lengths[0]], filter_[12 + lengths[0] : 12 + lengths[0] + lengths[1]]
    assert (first[0], second[0]) == (0, 1)
    return [(18, first[1:]), (20, second[1:]), (24, filter_[12 + lengths[0] + lengths[1] :])]


def _round(state: int, lane: int) -> int:
    return _rotated((state + lane * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK
