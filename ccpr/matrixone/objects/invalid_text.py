"""Text that is not UTF-8. MatrixOne does not check: `INSERT … VALUES (x'ff00fe')` into a varchar stores the bytes.

It is read as text all the same: each byte that is not part of a character becomes one private character, U+10FE00 plus
the byte, so U+10FE80 to U+10FEFF. These characters themselves, which no text is known to use, are written as their four
bytes. So different bytes are different texts, and `stored_bytes` gives the bytes back. MatrixOne too counts a byte that
is not part of a character as one character, so that the text is not longer than its column is declared.

The order of escaped texts is not that of the stored bytes: what compares with zone maps compares `stored_bytes`.
Source: decision text-that-is-not-utf-8.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.vectors import bounds_of, is_ascii

REPLACEMENT = "\ufffd"
_FIRST, _STOP = 0x10FE80, 0x10FF00
_ESCAPES = {0xDC00 + byte: chr(0x10FE00 + byte) for byte in range(0x80, 0x100)}  # of Python's lone surrogates
_ESCAPES |= {code: "".join(chr(0x10FE00 + byte) for byte in chr(code).encode()) for code in range(_FIRST, _STOP)}
_SURROGATES = {code: 0xDC00 + code - 0x10FE00 for code in range(_FIRST, _STOP)}
_REPLACEMENTS = dict.fromkeys(range(_FIRST, _STOP), REPLACEMENT)
_LEAD = 0xF4  # the largest first byte of a character, and the first of every escape
_PREFIXES = (b"\xf4\x8f\xba", b"\xf4\x8f\xbb")  # of all escapes


def escaped(raw: bytes) -> str:
    """The text of some bytes; UTF-8 stays as it is."""
    return raw.decode("utf-8", "surrogateescape").translate(_ESCAPES)


def original(text: str) -> bytes:
    """The bytes that `escaped` got. Raises UnicodeEncodeError for half of a surrogate pair."""
    return text.encode() if text.isascii() else text.translate(_SURROGATES).encode("utf-8", "surrogateescape")


def replaced(text: str) -> str:
    """An escaped text with one replacement character for each byte that is not part of a character."""
    return text.translate(_REPLACEMENTS)


def readable_text(values: pa.BinaryArray) -> pa.StringArray:
    """The values as text, whatever their bytes are."""
    data = _data(values)
    if is_ascii(data):
        return pa.Array.from_buffers(pa.string(), len(values), values.buffers(), values.null_count, values.offset)
    try:
        text = values.cast(pa.string())
    except pa.ArrowInvalid:
        odd = _invalid_rows(values)
    else:
        if not _has_lead(data):
            return text
        odd = np.zeros(len(values), bool)
    return _changed(values, odd | _with_escapes(values), lambda raw: escaped(raw).encode()).cast(pa.string())


def stored_bytes(texts: pa.StringArray) -> pa.BinaryArray:
    """The bytes of escaped texts, as they are stored. Without a copy where none is escaped."""
    values = texts.cast(pa.binary())
    if not _has_lead(_data(values)):
        return values
    return _changed(values, _with_escapes(values), lambda raw: original(raw.decode()))


def replaced_text(texts: pa.StringArray) -> pa.StringArray:
    """Escaped texts with replacement characters instead of escapes."""
    values = texts.cast(pa.binary())
    if not _has_lead(_data(values)):
        return texts
    return _changed(values, _with_escapes(values), lambda raw: replaced(raw.decode()).encode()).cast(pa.string())


def count_escaped(texts: pa.StringArray) -> int:
    """How many values were not UTF-8."""
    values = texts.cast(pa.binary())
    return int(np.count_nonzero(_with_escapes(values))) if _has_lead(_data(values)) else 0


def _data(values: pa.BinaryArray) -> pa.Buffer:
    """The bytes of all values, without what the array's buffer holds before and behind them."""
    ends, data = bounds_of(values), values.buffers()[2]
    return pa.py_buffer(b"") if data is None else data.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _has_lead(data: pa.Buffer) -> bool:
    return data.size > 0 and int(np.frombuffer(data, np.uint8).max()) >= _LEAD


def _with_escapes(values: pa.BinaryArray) -> np.ndarray:
    """bool, one a value: whether it has a character that escapes are made of."""
    found = pc.or_(*(pc.match_substring(values, prefix) for prefix in _PREFIXES))
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def _invalid_rows(values: pa.BinaryArray) -> np.ndarray:
    """bool, one a value: whether it is not UTF-8. Found by halves, as most values are."""
    found, parts = np.zeros(len(values), bool), [(0, len(values))]
    while parts:
        start, stop = parts.pop()
        try:
            values.slice(start, stop - start).cast(pa.string())
        except pa.ArrowInvalid:
            if stop - start == 1:
                found[start] = True
            else:
                middle = (start + stop) // 2
                parts += [(start, middle), (middle, stop)]
    return found


def _changed(values: pa.BinaryArray, rows: np.ndarray, change: Callable[[bytes], bytes]) -> pa.BinaryArray:
    """The values with some of them changed one by one: those that are not UTF-8 are few."""
    if not rows.any():
        return values
    mask = pa.array(rows)
    return pc.replace_with_mask(values, mask, pa.array(map(change, values.filter(mask).to_pylist()), pa.binary()))
