"""JSON text to the server's binary form, one value at a time, as the JSON parser works: the inverse of
`ccpr.matrixone.objects.bytejson` (docs/format/object-file.md 4.6). WKT as the WKB that MatrixOne stores since
4.0.0-rc3: the inverse of `ccpr.matrixone.objects.geometry`."""

import json
import math
import re
import struct
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.bytejson import ARRAY, FLOAT64, INT64, LITERAL, MAX_DEPTH, OBJECT, STRING, UINT64
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.geometry import LINE, NAMES, PARTS, POINT, POLYGON
from ccpr.matrixone.objects.invalid_text import original

_NULL, _TRUE, _FALSE = b"\x01", b"\x02", b"\x03"
_KEY_LIMIT = 65_535
_I64, _U64, _F64, _PAIR, _KEY, _VALUE = (struct.Struct(form) for form in ("<q", "<Q", "<d", "<II", "<IH", "<BI"))
_VALUE_ENTRY = _VALUE.size
_INT64_MIN, _UINT64_END = -(1 << 63), 1 << 64


def json_binary(values: pa.StringArray, *, subject: str) -> pa.BinaryArray:
    """The binary form of each text; nulls stay null. Numbers as 4.6 says: a double if there is a point or an exponent,
    else the first of int64, uint64 and double that holds it; but `-0`, as only a double is printed, is one.

    Raises `NotWritable` for text that is not JSON, is nested more than MAX_DEPTH levels deep, or has a number that is
    not finite.
    """
    return pa.array([None if text is None else _binary(text, subject) for text in values.to_pylist()], pa.binary())


def _binary(text: str, subject: str) -> bytes:
    try:
        kind, body = _node(json.loads(text, parse_int=_whole, parse_constant=_refuse_constant), MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise NotWritable(f"not JSON that can be stored: {error}", subject=subject) from error
    return bytes((kind,)) + body


def _whole(text: str) -> float:
    return -0.0 if text == "-0" else int(text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _node(value: Any, depth: int) -> tuple[int, bytes]:
    """Type and bytes of a value; raises ValueError."""
    if value is None:
        return LITERAL, _NULL
    if value is True:
        return LITERAL, _TRUE
    if value is False:
        return LITERAL, _FALSE
    if isinstance(value, str):
        raw = original(value)
        return STRING, _leb128(len(raw)) + raw
    if isinstance(value, int):
        if _INT64_MIN <= value < -_INT64_MIN:
            return INT64, _I64.pack(value)
        if 0 <= value < _UINT64_END:
            return UINT64, _U64.pack(value)
        value = float(value) if abs(value) < 10**309 else math.inf
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number beyond the range of a double")
        return FLOAT64, _F64.pack(value)
    if depth == 0:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        return ARRAY, _container([], value, depth)
    members = sorted(((original(key), member) for key, member in value.items()), key=itemgetter(0))
    return OBJECT, _container([key for key, _ in members], [member for _, member in members], depth)


def _container(keys: list[bytes], members: list[Any], depth: int) -> bytes:
    """Header, key entries, value entries, keys, values; offsets count from the header."""
    nodes = [_node(member, depth - 1) for member in members]
    at = _PAIR.size + _KEY.size * len(keys) + _VALUE_ENTRY * len(nodes)
    entries, bodies = [], []
    for key in keys:
        if len(key) > _KEY_LIMIT:
            raise ValueError(f"a key of {len(key)} bytes")
        entries.append(_KEY.pack(at, len(key)))
        at += len(key)
    for kind, body in nodes:
        if kind == LITERAL:
            entries.append(bytes((kind,)) + body + b"\x00\x00\x00")
        else:
            entries.append(_VALUE.pack(kind, at))
            bodies.append(body)
            at += len(body)
    return b"".join((_PAIR.pack(len(nodes), at), *entries, *keys, *bodies))


def _leb128(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_TOKEN = re.compile(r"\s*([A-Za-z]+|[(),]|[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_EMPTY_POINT = (float("nan"), float("nan"))


class _NotWkt(Exception):
    """The text is not WKT of two dimensions."""


def stored_geometries(texts: pa.Array, oid: int) -> pa.BinaryArray:
    """Each text as WKB, with coordinates of 4 bytes for a geometry32; nulls stay null. What is not WKT, or has an SRID
    before it, is stored as it is, like a value of an older release. Distinct texts are translated once."""
    coded = texts.dictionary_encode()
    width = "f" if oid == types.GEOMETRY32 else "d"
    known = pa.array([_wkb(text, width) for text in coded.dictionary.to_pylist()], pa.binary())
    return pc.take(known, coded.indices)


def _wkb(text: str, width: str) -> bytes:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            return text.encode()
        tokens.append(found[1])
        at = found.end()
    try:
        stored, end = _geometry([*tokens, ""], 0, width)
    except (_NotWkt, ValueError, struct.error, OverflowError):
        return text.encode()
    return stored if end == len(tokens) else text.encode()


def _geometry(tokens: list[str], at: int, width: str, kind: int = 0) -> tuple[bytes, int]:
    """The WKB from a place on, and where it ends. `kind` is given where the type's name is not written."""
    if kind == 0:
        name = tokens[at].upper()
        if name not in NAMES[1:]:
            raise _NotWkt
        kind, at = NAMES.index(name), at + 1
    head = struct.pack("<BI", 1, kind)
    if kind == POINT:
        if tokens[at].upper() == "EMPTY":
            return head + struct.pack(f"<2{width}", *_EMPTY_POINT), at + 1
        bare = tokens[at] != "("  # in a MULTIPOINT
        body, at = _coordinates(tokens, at if bare else at + 1, width)
        return head + body, at if bare else _after(tokens, at, ")")
    if kind == LINE:
        body, at = _line(tokens, at, width)
    elif kind == POLYGON:
        body, at = _list(tokens, at, lambda place: _line(tokens, place, width))
    else:
        body, at = _list(tokens, at, lambda place: _geometry(tokens, place, width, PARTS.get(kind, 0)))
    return head + body, at


def _line(tokens: list[str], at: int, width: str) -> tuple[bytes, int]:
    return _list(tokens, at, lambda place: _coordinates(tokens, place, width))


def _list(tokens: list[str], at: int, part: Callable[[int], tuple[bytes, int]]) -> tuple[bytes, int]:
    """The parts between brackets, their number first."""
    if tokens[at].upper() == "EMPTY":
        return struct.pack("<I", 0), at + 1
    parts, before = [], "("
    while tokens[at] == before:
        body, at = part(at + 1)
        parts.append(body)
        before = ","
    if not parts:
        raise _NotWkt
    return struct.pack("<I", len(parts)) + b"".join(parts), _after(tokens, at, ")")


def _coordinates(tokens: list[str], at: int, width: str) -> tuple[bytes, int]:
    return struct.pack(f"<2{width}", float(tokens[at]), float(tokens[at + 1])), at + 2


def _after(tokens: list[str], at: int, expected: str) -> int:
    if tokens[at] != expected:
        raise _NotWkt
    return at + 1
