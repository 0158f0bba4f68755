"""WKT as the WKB that MatrixOne stores since 4.0.0-rc3: the inverse of `ccpr.matrixone.objects.geometry`."""

import re
import struct
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.geometry import LINE, NAMES, PARTS, POINT, POLYGON

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
