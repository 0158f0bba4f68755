"""The CRC-32 that servers have as CRC32(), of many values at once, without a loop over them.

A CRC without its first and last inversion is linear: that of two pieces is the first's, shifted by the length of the
second, xor the second's. So the words of eight bytes of all values are looked up at once, and neighbours are joined
until each value has one number; each round halves what is left of the longest.
"""

import numpy as np
import pyarrow as pa

from ccpr.mirror.row_sums import pieces, words_at

_WORD = 8
_AT_ONCE = 1 << 14  # values: what is made of them stays in the cache
_POLYNOMIAL = 0xEDB88320


def crc32_sum(values: pa.Array) -> int:
    """The sum over texts or bytes that are not null."""
    return sum(_crc32_sum(values.slice(start, _AT_ONCE)) for start in range(0, len(values), _AT_ONCE))


def _crc32_sum(values: pa.Array) -> int:
    values = values.drop_null()
    starts, lengths, stored = pieces(values)
    if len(lengths) == 0:
        return 0
    words = -(-lengths // _WORD)
    ends = np.cumsum(words)
    found = np.zeros(len(lengths), np.uint32)
    if ends[-1]:
        filled = np.flatnonzero(words)
        found[filled] = _joined(_word_crcs(starts, lengths, words, ends, stored), words[filled])
    return int((found ^ _of_inversion(lengths)).sum(dtype=np.uint64))


def _word_crcs(
    starts: np.ndarray, lengths: np.ndarray, words: np.ndarray, ends: np.ndarray, stored: np.ndarray
) -> np.ndarray:
    """Of each word of each value, which is filled up with zeros at its beginning: these do not count."""
    missing = words * _WORD - lengths
    place = np.arange(ends[-1]) - np.repeat(ends - words, words)
    padded = np.concatenate([np.zeros(_WORD, np.uint8), stored])
    found = words_at(padded, np.repeat(starts - missing + _WORD, words) + place * _WORD)
    first = (ends - words)[words > 0]
    found[first] &= _KEPT[missing[words > 0]]
    pairs = found.view("<u2").reshape(-1, _WORD // 2)
    crcs = _PAIRS[0].take(pairs[:, 0])
    for number in range(1, _WORD // 2):
        crcs ^= _PAIRS[number].take(pairs[:, number])
    return crcs


def _joined(crcs: np.ndarray, words: np.ndarray) -> np.ndarray:
    """One for each value of these numbers of words, all at least one."""
    done = np.zeros(len(words), np.uint32)
    open_ = np.arange(len(words))
    shift = _WORD_SHIFT
    while True:
        ends = np.cumsum(words)
        single = words == 1
        done[open_[single]] = crcs[ends[single] - 1]
        if single.all():
            return done
        more = ~single
        open_, lasts, words = open_[more], ends[more], words[more]
        halves = (words + 1) // 2
        # The right one of each pair, counted from the end of its value; the first of an odd number stays alone.
        after = np.cumsum(halves)
        back = np.repeat(after, halves) - 1 - np.arange(after[-1])
        right = np.repeat(lasts, halves) - 1 - 2 * back
        left = right - 1
        pairs = np.ones(after[-1], bool)
        pairs[after - halves] = words % 2 == 0
        joined = crcs[right]
        joined[pairs] ^= _shifted(crcs[left[pairs]], shift)
        crcs, words, shift = joined, halves, _squared(shift)


def _of_inversion(lengths: np.ndarray) -> np.ndarray:
    """What the inversions at the beginning and at the end add to values of these lengths."""
    unique, places = np.unique(lengths, return_inverse=True)
    found, left, shift = np.full(len(unique), 0xFFFFFFFF, np.uint32), unique.copy(), _BYTE_SHIFT
    while left.any():
        odd = left % 2 == 1
        found[odd] = _shifted(found[odd], shift)
        left //= 2
        shift = _squared(shift)
    return found[places] ^ np.uint32(0xFFFFFFFF)


def _shifted(crcs: np.ndarray, shift: np.ndarray) -> np.ndarray:
    octets = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, 4)
    first, second, third, fourth = (shift[number].take(octets[:, number]) for number in range(4))
    return first ^ second ^ third ^ fourth


def _squared(shift: np.ndarray) -> np.ndarray:
    """By twice as many bytes."""
    return _shifted(shift.reshape(-1), shift).reshape(shift.shape)


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Of the pairs of bytes of a word, with what follows as zeros; and of the four bytes of a CRC, shifted by one
    byte."""
    byte = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        byte = (byte >> np.uint32(1)) ^ np.where(byte & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
    behind = [byte]
    for _ in range(1, _WORD):
        last = behind[-1]
        behind.append((last >> np.uint32(8)) ^ byte[last & np.uint32(0xFF)])
    octet = np.arange(256, dtype=np.uint32)
    shift = np.stack([byte, octet, octet << np.uint32(8), octet << np.uint32(16)])
    pairs = [(behind[number - 1][:, None] ^ behind[number][None, :]).reshape(-1) for number in range(_WORD - 1, 0, -2)]
    return np.stack(pairs), shift


_PAIRS, _BYTE_SHIFT = _tables()
_WORD_SHIFT = _squared(_squared(_squared(_BYTE_SHIFT)))
_KEPT = np.array([2**64 - 2 ** (8 * count) for count in range(_WORD)], np.uint64)
