"""A reader of geometries that takes one value after the other and its parts by recursion: the oracle for
`ccpr.matrixone.objects.geometry`, with which it shares no code."""

import struct
from collections.abc import Callable
from decimal import Decimal
from math import isfinite

import pyarrow as pa

from ccpr.matrixone.objects.invalid_text import readable_text

POINT, LINE, POLYGON, MULTI_POINT, MULTI_LINE, MULTI_POLYGON, COLLECTION = range(1, 8)
NAMES = ("", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION")
PARTS = {MULTI_POINT: POINT, MULTI_LINE: LINE, MULTI_POLYGON: POLYGON}
_DEEPEST = 64  # collections in collections
_WIDTHS = ("d", "f")  # of a coordinate, tried in this order
_LEAST_PLAIN, _FIRST_WITH_EXPONENT = -4, 6  # powers of ten that are written without an exponent
_REPR_PLAIN = 1e-4  # from which on Python writes none either


class _NotWkb(Exception):
    """The bytes are not WKB, or not with coordinates of this width."""


def geometry_text(values: pa.BinaryArray) -> pa.StringArray:
    """The text of each value; nulls stay null. Values are read one by one if there is one that is not text: their
    parts lie behind each other without offsets."""
    cells = values.to_pylist()
    if all(cell is None or cell[:1].isalpha() for cell in cells):
        return readable_text(values)
    return pa.array([None if cell is None else _text(cell) for cell in cells], pa.string())


def _text(cell: bytes) -> str:
    if cell[:1].isalpha():
        return readable_text(pa.array([cell]))[0].as_py()
    for width in _WIDTHS:
        try:
            text, end = _geometry(cell, 0, width, _DEEPEST, 0)
        except (_NotWkb, struct.error):
            continue
        if end == len(cell):
            return text
    return f"UNKNOWN(0x{cell.hex()})"


def _geometry(cell: bytes, at: int, width: str, depth: int, wanted: int) -> tuple[str, int]:
    """The text of the geometry at a place, and where it ends. `wanted` is the type that it has to be; 0 = any, and the
    text begins with its name."""
    order = {0: ">", 1: "<"}.get(cell[at] if at < len(cell) else 2)
    if order is None or depth == 0:
        raise _NotWkb
    (kind,) = struct.unpack_from(order + "I", cell, at + 1)
    if not POINT <= kind <= COLLECTION or (wanted and kind != wanted):
        raise _NotWkb
    at += 5
    name = "" if wanted else NAMES[kind]
    if kind == POINT:
        body, at = _points(cell, at, order + width, 1)
        body = "EMPTY" if body == "NaN NaN" else body if wanted else f"({body})"
        return (f"{name} EMPTY".strip() if body == "EMPTY" else name + body), at
    (count,) = struct.unpack_from(order + "I", cell, at)
    at += 4
    if kind == LINE:
        body, at = _points(cell, at, order + width, count)
        return (f"{name}({body})" if count else f"{name} EMPTY".strip()), at
    if kind == POLYGON:
        return _parts(cell, at, count, name, lambda place: _ring(cell, place, order, width))
    inner = PARTS.get(kind, 0)
    return _parts(cell, at, count, name, lambda place: _geometry(cell, place, width, depth - 1, inner))


def _parts(cell: bytes, at: int, count: int, name: str, part: Callable[[int], tuple[str, int]]) -> tuple[str, int]:
    if count > len(cell) - at:  # each part takes bytes
        raise _NotWkb
    texts = []
    for _ in range(count):
        text, at = part(at)
        texts.append(text)
    return (f"{name}({','.join(texts)})" if texts else f"{name} EMPTY".strip()), at


def _ring(cell: bytes, at: int, order: str, width: str) -> tuple[str, int]:
    (count,) = struct.unpack_from(order + "I", cell, at)
    body, at = _points(cell, at + 4, order + width, count)
    return f"({body})", at


def _points(cell: bytes, at: int, form: str, count: int) -> tuple[str, int]:
    size = struct.calcsize(form)
    if 2 * size * count > len(cell) - at:
        raise _NotWkb
    numbers = struct.unpack_from(f"{form[0]}{2 * count}{form[1]}", cell, at)
    texts = [_number(number) for number in numbers]
    pairs = (" ".join(pair) for pair in zip(texts[::2], texts[1::2], strict=True))
    return ",".join(pairs), at + 2 * size * count


def _number(value: float) -> str:
    """As Go's `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits that read back equal, with an exponent of
    two digits or more below 1e-4 and from 1e6 on."""
    if not isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    sign, digits, power = Decimal(repr(value)).normalize().as_tuple()
    exponent = len(digits) + int(power) - 1
    if value == 0 or _LEAST_PLAIN <= exponent < _FIRST_WITH_EXPONENT:
        return (
            repr(value).removesuffix(".0") if abs(value) >= _REPR_PLAIN or value == 0 else f"{Decimal(repr(value)):f}"
        )
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
