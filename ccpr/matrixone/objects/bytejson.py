"""Binary JSON to the text that the server prints: docs/format/object-file.md 4.6.

All values of a column are decoded together, level by level: first down (from containers to their children, over numpy
arrays of positions), then the leaves of all levels at once, then up (Arrow joins children into their containers). The
loops run over levels, and over the few floats that Arrow prints in another notation.

Hostile values cannot exhaust the memory. A child starts after its container's entries and ends inside it, so depth is
bounded by size and by MAX_DEPTH. In a sound value a child takes 5 bytes and strings do not overlap; so both are checked
against the bytes that are there, even if offsets are shared.
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectUnsupported
from ccpr.matrixone.objects.invalid_text import readable_text
from ccpr.matrixone.objects.vectors import bounds_of, gather

OBJECT, ARRAY, LITERAL, INT64, UINT64, FLOAT64, STRING = 0x01, 0x03, 0x04, 0x09, 0x0A, 0x0B, 0x0C
MAX_DEPTH = 512
_LITERALS = ("null", "true", "false")  # code 1, 2, 3
_CONTAINER_HEAD, _KEY_ENTRY, _VALUE_ENTRY = 8, 6, 5
_LENGTH_BYTES = 5  # LEB128 of a length below 2**32
# Values decoded together. This bounds the working arrays, which are about twenty times as large and fit a cache.
_CHUNK_BYTES = 1 << 20
_INT32_MAX = 2**31 - 1
_ARROW_PLAIN_LOW, _ARROW_PLAIN_HIGH = 1e-6, 1e10  # Arrow prints floats of this range as the server does
_PLAIN_HIGH = 1e21
JSON_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
JSON_ESCAPES |= {chr(code): f"\\u{code:04x}" for code in range(0x20) if chr(code) not in JSON_ESCAPES}
_NEEDS_ESCAPE = np.array([chr(byte) in JSON_ESCAPES for byte in range(256)])


@cache
def _scalar(text: str) -> pa.Scalar:
    """Built once, which matters for short columns; and not at import, where it would load pandas."""
    return pa.scalar(text)


@cache
def _array(*texts: str) -> pa.StringArray:
    return pa.array(texts)


def json_text(values: pa.BinaryArray, *, subject: str) -> pa.StringArray:
    """The text of each value; nulls stay null. Raises `ObjectDamaged`, or `ObjectUnsupported` for more than MAX_DEPTH
    levels or 2 GiB of text."""
    if len(values) == 0:
        return pa.array([], pa.string())
    ends, data = bounds_of(values).astype(np.int64), values.buffers()[2]
    valid = np.ones(len(values), bool) if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    pieces, start, total = [], 0, 0
    while start < len(values):
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + _CHUNK_BYTES, side="right")) - 1)
        piece = _texts(data, ends[start:stop], ends[start + 1 : stop + 1], valid[start:stop], subject)
        pieces.append(piece)
        total += piece.nbytes
        start = stop
    if total > _INT32_MAX:
        raise ObjectUnsupported(f"{total} bytes of JSON text in one block", subject=subject)
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Nodes of one depth. Positions count from the start of the data.

    Attributes
    ----------
    kind : type byte of each node.
    at : where its value begins (for a container: its `n`; for a literal: the code).
    end : where the enclosing container or value ends; the node may not reach beyond.
    keyed : indices of the nodes that are members of an object, with key_at and key_length.
    containers : indices of objects and arrays; their children are the next level, in order, `counts` each.
    """

    kind: np.ndarray
    at: np.ndarray
    end: np.ndarray
    keyed: np.ndarray
    key_at: np.ndarray
    key_length: np.ndarray
    containers: np.ndarray
    counts: np.ndarray


_NONE = np.empty(0, np.int64)


class _JsonBytes:
    """The data, readable at any position in several widths. The caller checks positions first."""

    def __init__(self, data: pa.Buffer, subject: str) -> None:
        self.data = data
        self.subject = subject
        self.u1 = np.frombuffer(data, np.uint8)
        self.u2, self.u4, self.u8, self.i8, self.f8 = (
            self._strided(kind) for kind in ("<u2", "<u4", "<u8", "<i8", "<f8")
        )

    def _strided(self, kind: str) -> np.ndarray:
        dtype = np.dtype(kind)
        return np.ndarray((max(0, self.data.size - dtype.itemsize + 1),), dtype, self.data, 0, (1,))

    def check(self, sound: np.ndarray, what: str) -> None:
        if not sound.all():
            raise ObjectDamaged(f"JSON: {what}", subject=self.subject)


def _texts(
    data: pa.Buffer | None, starts: np.ndarray, ends: np.ndarray, valid: np.ndarray, subject: str
) -> pa.StringArray:
    source = _JsonBytes(data or pa.py_buffer(b""), subject)
    rows = np.flatnonzero(valid)
    if rows.size == 0:
        return pa.nulls(len(valid), pa.string())
    starts, ends = starts[rows], ends[rows]
    source.check(ends - starts >= 2, "a value of less than two bytes")
    levels = _descend(source, source.u1[starts], starts + 1, ends)
    text = _ascend(levels, _leaves(source, levels, int((ends - starts).sum())))
    if rows.size == len(valid):
        return text
    places = np.cumsum(valid) - 1
    return text.take(pa.array(places, mask=~valid))


def _descend(source: _JsonBytes, kind: np.ndarray, at: np.ndarray, end: np.ndarray) -> list[_Level]:
    budget = int((end - at).sum()) // _VALUE_ENTRY
    keyed = key_at = key_length = _NONE
    levels: list[_Level] = []
    while True:
        containers = np.flatnonzero((kind == OBJECT) | (kind == ARRAY))
        if containers.size == 0:
            levels.append(_Level(kind, at, end, keyed, key_at, key_length, containers, _NONE))
            return levels
        if len(levels) == MAX_DEPTH:
            raise ObjectUnsupported(f"JSON nested more than {MAX_DEPTH} levels deep", subject=source.subject)
        base, limit, is_object = at[containers], end[containers], kind[containers] == OBJECT
        source.check(base + _CONTAINER_HEAD <= limit, "a container without a head")
        counts, stop = source.u4[base].astype(np.int64), base + source.u4[base + 4]
        first = base + _CONTAINER_HEAD + np.where(is_object, _KEY_ENTRY, 0) * counts
        behind = first + _VALUE_ENTRY * counts
        source.check((behind <= stop) & (stop <= limit), "a container that does not fit where it is")
        budget -= int(counts.sum())
        if budget < 0:
            raise ObjectDamaged("JSON: more values than the bytes can hold", subject=source.subject)
        levels.append(_Level(kind, at, end, keyed, key_at, key_length, containers, counts))

        parent = np.repeat(np.arange(len(containers)), counts)
        number = np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts)
        entry = first[parent] + _VALUE_ENTRY * number
        kind = source.u1[entry]
        at, end = base[parent] + source.u4[entry + 1], stop[parent]
        source.check((kind == LITERAL) | ((at >= behind[parent]) & (at < end)), "a value outside its container")
        at = np.where(kind == LITERAL, entry + 1, at)

        keyed = np.flatnonzero(is_object[parent])
        owner = parent[keyed]
        key_entry = base[owner] + _CONTAINER_HEAD + _KEY_ENTRY * number[keyed]
        key_at, key_length = base[owner] + source.u4[key_entry], source.u2[key_entry + 4].astype(np.int64)
        source.check((key_at >= behind[owner]) & (key_at + key_length <= stop[owner]), "a key outside its object")


def _leaves(source: _JsonBytes, levels: list[_Level], size: int) -> tuple[pa.StringArray, pa.StringArray | None]:
    """Texts of all leaves (empty for containers) and of all keys with their colon (empty where there is none), level
    by level."""
    kind, at, end = (np.concatenate([getattr(level, name) for level in levels]) for name in ("kind", "at", "end"))
    groups, places = [_array("")], np.zeros(len(kind), np.int64)

    def put(nodes: np.ndarray, texts: pa.StringArray) -> None:
        places[nodes] = sum(map(len, groups)) + np.arange(len(nodes))
        groups.append(texts)

    known = (kind == OBJECT) | (kind == ARRAY)
    for number in (LITERAL, INT64, UINT64, FLOAT64):
        if (nodes := np.flatnonzero(kind == number)).size:
            put(nodes, _plain_texts(source, number, at[nodes], end[nodes]))
            known[nodes] = True
    nodes = np.flatnonzero(kind == STRING)
    known[nodes] = True
    source.check(known, "an unknown type")

    string_at, string_length = _string_ranges(source, at[nodes], end[nodes])
    key_at = np.concatenate([level.key_at for level in levels])
    key_length = np.concatenate([level.key_length for level in levels])
    if int(string_length.sum() + key_length.sum()) > size:
        raise ObjectDamaged("JSON: more text than the bytes can hold", subject=source.subject)
    quoted = _quoted(source, np.concatenate([string_at, key_at]), np.concatenate([string_length, key_length]))
    put(nodes, quoted.slice(0, len(nodes)))
    leaves = pa.concat_arrays(groups).take(pa.array(places))
    if key_at.size == 0:
        return leaves, None
    starts = np.cumsum([0, *(len(level.kind) for level in levels)])
    keyed = np.concatenate([level.keyed + start for level, start in zip(levels, starts, strict=False)])
    places[:] = 0
    places[keyed] = 1 + np.arange(len(keyed))
    keys = pc.binary_join_element_wise(quoted.slice(len(nodes)), _scalar(""), _scalar(": "))
    return leaves, pa.concat_arrays([groups[0], keys]).take(pa.array(places))


def _plain_texts(source: _JsonBytes, kind: int, at: np.ndarray, end: np.ndarray) -> pa.StringArray:
    """Texts of leaves of one kind that are not strings."""
    if kind == LITERAL:
        codes = source.u1[at]
        source.check((codes >= 1) & (codes <= len(_LITERALS)), "an unknown literal")
        return _array(*_LITERALS).take(pa.array(codes - 1))
    source.check(at + 8 <= end, "a number outside its container")
    if kind == FLOAT64:
        return _float_text(source.f8[at], source)
    return pa.array((source.i8 if kind == INT64 else source.u8)[at]).cast(pa.string())


def _ascend(levels: list[_Level], leaves: tuple[pa.StringArray, pa.StringArray | None]) -> pa.StringArray:
    texts, keys = leaves
    stop = len(texts)
    below: pa.StringArray | None = None
    for level in reversed(levels):
        start = stop - len(level.kind)
        text = texts.slice(start, stop - start)
        if below is not None:
            text = _with_containers(level, text, below)
        if keys is not None and level.keyed.size:
            text = pc.binary_join_element_wise(keys.slice(start, stop - start), text, _scalar(""))
        below, stop = text, start
    assert below is not None  # there is always the level of the values themselves
    return below


def _with_containers(level: _Level, text: pa.StringArray, below: pa.StringArray) -> pa.StringArray:
    offsets = np.zeros(len(level.counts) + 1, np.int32)
    np.cumsum(level.counts, out=offsets[1:])
    inside = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), below), _scalar(", "))
    kind = pa.array((level.kind[level.containers] == OBJECT).view(np.uint8))
    whole = pc.binary_join_element_wise(_array("[", "{").take(kind), inside, _array("]", "}").take(kind), _scalar(""))
    if len(whole) == len(text):
        return whole
    mask = np.zeros(len(text), bool)
    mask[level.containers] = True
    return pc.replace_with_mask(text, pa.array(mask), whole)


def _string_ranges(source: _JsonBytes, at: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and length of strings whose LEB128 length is at `at`."""
    length, open_ = np.zeros(len(at), np.int64), np.ones(len(at), bool)
    at = at.copy()
    for place in range(_LENGTH_BYTES):
        if not open_.any():
            break
        source.check(~open_ | (at < end), "a string without its length")
        byte = source.u1[np.where(open_, at, 0)]
        length += np.where(open_, (byte & 0x7F).astype(np.int64) << 7 * place, 0)
        at += open_
        open_ &= byte >= 0x80
    source.check(~open_ & (at + length <= end), "a string outside its container")
    return at, length


def _quoted(source: _JsonBytes, at: np.ndarray, length: np.ndarray) -> pa.StringArray:
    raw = gather(source.data, at, length)
    text = readable_text(raw)
    body = raw.buffers()[2]
    if body is not None:
        present = np.bincount(np.frombuffer(body, np.uint8, int(length.sum())), minlength=256)
        if present[_NEEDS_ESCAPE].any():
            for character, escaped in JSON_ESCAPES.items():  # the backslash comes first
                if present[ord(character)]:
                    text = pc.replace_substring(text, character, escaped)
    return pc.binary_join_element_wise(_scalar('"'), text, _scalar('"'), _scalar(""))


def _float_text(values: np.ndarray, source: _JsonBytes) -> pa.StringArray:
    """The shortest text that reads back equal: without an exponent from 1e-6 to below 1e21, else with an exponent of
    two digits or more."""
    source.check(np.isfinite(values), "a number that is not finite")
    text = pa.array(values).cast(pa.string())
    size = np.abs(values)
    odd = (size >= _ARROW_PLAIN_HIGH) | ((size < _ARROW_PLAIN_LOW) & (size != 0))
    if odd.any():
        text = pc.replace_with_mask(
            text, pa.array(odd), pa.array([_odd_float(value) for value in values[odd].tolist()])
        )
    return text


def _odd_float(value: float) -> str:
    if _ARROW_PLAIN_LOW <= abs(value) < _PLAIN_HIGH:
        plain = format(Decimal(repr(value)), "f")
        return plain.removesuffix(".0")
    return repr(value)
