"""Stored geometries as WKT, as `ST_AsText` of the server prints it. docs/format/object-file.md 4.

A column can hold two forms: text (WKT), as releases before 4.0.0-rc3 wrote it, and WKB, as later ones do: a byte that
says the byte order, a type, coordinates of 8 bytes, or of 4 in a geometry32. What is neither reads as `UNKNOWN(0x…)`
with its bytes, which no reader takes for a geometry.

The text of a block is put together of fragments, each with the place in the bytes that it comes from: names and
brackets, and pairs of coordinates, which are all formatted at once. There is no loop over coordinates, nor over
points, lines and polygons of a few rings; of other geometries the rings and parts are found one by one.
"""

from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.errors import ValueRefused
from ccpr.matrixone.objects.invalid_text import readable_text
from ccpr.matrixone.objects.vectors import bounds_of

POINT, LINE, POLYGON, MULTI_POINT, MULTI_LINE, MULTI_POLYGON, COLLECTION = range(1, 8)
NAMES = ("", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION")
PARTS = {MULTI_POINT: POINT, MULTI_LINE: LINE, MULTI_POLYGON: POLYGON}
_DEEPEST = 64  # collections in collections
_WIDTHS = (8, 4)  # of a coordinate, tried in this order
_HEAD, _COUNT = 5, 4  # bytes of byte order and type, and of a count
_FEW_RINGS = 8  # of a polygon; more are found one by one
_BATCH = 32 << 20  # bytes of WKB that are read at once: their text is up to seven times as long

# Fragments at one place come in this order.
_CLOSES, _SEPARATES, _OPENS, _PAIR, _PHASES = range(5)
_LITERALS = (")", ",", "(", "EMPTY", *(f"{name}(" for name in NAMES), *(f"{name} EMPTY" for name in NAMES))
_CLOSE, _COMMA, _OPEN, _EMPTY, _NAMED = range(5)
_NAMED_EMPTY = _NAMED + len(NAMES)


_Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # columns of one length
# Coordinates are printed as Go does it, `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits that read back
# equal, with an exponent of two digits or more below 1e-4 and from 1e6 on.
_PLAIN, _EXPONENT, _ARROWS_EXPONENT = 1e-4, 1e6, 1e10  # where Go writes an exponent, and Arrow does, too
_DIGITS = 2  # of an exponent at least


class _NotWkb(Exception):
    """The bytes are not WKB, or not with coordinates of this width."""


def geometry_text(values: pa.BinaryArray, subject: str = "geometries") -> pa.StringArray:
    """The text of each value; nulls stay null. Raises ValueRefused for more than 2 GiB of text."""
    try:
        return _geometry_text(values)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        message = f"they have too much text: {error!s:.100}"
        raise ValueRefused(message, subject=subject, remedy="Read the other columns.") from error


def _geometry_text(values: pa.BinaryArray) -> pa.StringArray:
    ends, data = bounds_of(values).astype(np.int64), np.frombuffer(values.buffers()[2] or b"", np.uint8)
    starts, ends = ends[:-1], ends[1:]
    filled = np.flatnonzero(ends > starts)
    first = np.full(len(values), 0xFF, np.uint8)
    first[filled] = data[starts[filled]]
    null = values.is_null().to_numpy(zero_copy_only=False)
    is_text = (((first | 0x20) >= ord("a")) & ((first | 0x20) <= ord("z"))) | null
    if is_text.all():
        return readable_text(values)
    found = pa.nulls(len(values), pa.string())
    if is_text.any():
        found = _put(found, is_text, readable_text(values.filter(pa.array(is_text))))
    left = np.flatnonzero((first <= 1) & ~null)
    for width in _WIDTHS:
        for rows in _batches(left, ends - starts):
            texts, good = _texts(data, starts[rows], ends[rows], width)
            found = _put(found, _mask(rows[good], len(values)), texts)
            is_text[rows[good]] = True
        left = left[~is_text[left]]
    unknown = ~is_text
    cells = values.filter(pa.array(unknown)).to_pylist()
    return _put(found, unknown, pa.array([f"UNKNOWN(0x{cell.hex()})" for cell in cells], pa.string()))


def _mask(rows: np.ndarray, count: int) -> np.ndarray:
    mask = np.zeros(count, bool)
    mask[rows] = True
    return mask


def _put(found: pa.Array, rows: np.ndarray, texts: pa.Array) -> pa.Array:
    return pc.replace_with_mask(found, pa.array(rows), texts) if len(texts) else found


def _batches(rows: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    if not len(rows):
        return []
    return np.split(rows, np.flatnonzero(np.diff(np.cumsum(sizes[rows]) // _BATCH)) + 1)


# ---- what there is


@dataclass(slots=True)
class _GeometryTexts:
    """Fragments and coordinates of some rows, as lists of arrays.

    Attributes
    ----------
    literals : place, phase, number in `_LITERALS`.
    runs : pairs of coordinates one after another: place, number of pairs, whether they are big-endian.
    points : place of the geometry, whether its name is written, whether it is big-endian.
    """

    literals: list[_Rows] = field(default_factory=list)
    runs: list[_Rows] = field(default_factory=list)
    points: list[_Rows] = field(default_factory=list)

    def put(self, places: np.ndarray, phase: int, literal: int | np.ndarray) -> None:
        self.literals.append((places, np.full(len(places), phase), np.broadcast_to(literal, len(places))))


@dataclass(frozen=True, slots=True)
class _GeometryBytes:
    """Numbers at any place of the bytes; places must lie inside."""

    data: np.ndarray

    def counts(self, places: np.ndarray, big: np.ndarray) -> np.ndarray:
        """Unsigned numbers of 4 bytes, as int64."""
        numbers = self._at(places, "<u4", 4)
        return np.where(big, numbers.byteswap(), numbers).astype(np.int64)

    def coordinates(self, places: np.ndarray, big: np.ndarray, width: int) -> np.ndarray:
        """Coordinates as doubles."""
        raw = self._at(places, f"<u{width}", width)
        with np.errstate(invalid="ignore"):  # a signalling NaN is made a quiet one
            return np.where(big, raw.byteswap(), raw).view(f"<f{width}").astype(np.float64)

    def _at(self, places: np.ndarray, form: str, width: int) -> np.ndarray:
        count = max(0, len(self.data) - width + 1)
        every = np.ndarray((count,), form, self.data, strides=(1,)) if count else np.empty(0, form)
        return every[places]


def _texts(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, width: int) -> tuple[pa.StringArray, np.ndarray]:
    """The texts of those values that are WKB with such coordinates, and which these are."""
    source, found = _GeometryBytes(data), _GeometryTexts()
    big, good = data[starts] == 0, np.zeros(len(starts), bool)
    whole = np.flatnonzero(ends - starts >= _HEAD + _COUNT)
    kinds = np.zeros(len(starts), np.int64)
    kinds[whole] = source.counts(starts[whole] + 1, big[whole])
    for kind, read in ((POINT, _read_points), (LINE, _read_lines), (POLYGON, _read_polygons)):
        rows = np.flatnonzero(kinds == kind)
        if len(rows):
            good[rows] = read(source, found, starts[rows], ends[rows], big[rows], width)
    rest = np.flatnonzero((kinds >= POLYGON) & (kinds <= COLLECTION) & ~good)
    good[rest] = _read_one_by_one(data, found, starts[rest], ends[rest], width)
    return _joined(source, found, starts[good], width), good


def _read_points(
    source: _GeometryBytes, found: _GeometryTexts, starts: np.ndarray, ends: np.ndarray, big: np.ndarray, width: int
) -> np.ndarray:
    good = ends - starts == _HEAD + 2 * width
    found.points.append((starts[good], np.ones(int(good.sum()), bool), big[good]))
    return good


def _read_lines(
    source: _GeometryBytes, found: _GeometryTexts, starts: np.ndarray, ends: np.ndarray, big: np.ndarray, width: int
) -> np.ndarray:
    counts = source.counts(starts + _HEAD, big)
    good = ends - starts == _HEAD + _COUNT + 2 * width * counts
    empty = good & (counts == 0)
    found.put(starts[empty], _OPENS, _NAMED_EMPTY + LINE)
    filled = good & (counts > 0)
    found.put(starts[filled], _OPENS, _NAMED + LINE)
    found.put(ends[filled], _CLOSES, _CLOSE)
    found.runs.append((starts[filled] + _HEAD + _COUNT, counts[filled], big[filled]))
    return good


def _read_polygons(
    source: _GeometryBytes, found: _GeometryTexts, starts: np.ndarray, ends: np.ndarray, big: np.ndarray, width: int
) -> np.ndarray:
    """Those of a few rings."""
    counts = source.counts(starts + _HEAD, big)
    places = starts + _HEAD + _COUNT
    good, rings = counts <= _FEW_RINGS, _GeometryTexts()
    for number in range(int(min(counts.max(), _FEW_RINGS))):
        there = good & (counts > number)
        good &= ~there | (places + _COUNT <= ends)
        rows = np.flatnonzero(good & there)
        pairs = source.counts(places[rows], big[rows])
        stops = places[rows] + _COUNT + 2 * width * pairs
        inside = stops <= ends[rows]  # else its end could lie in another value
        good[rows] = inside
        rows, pairs, stops = rows[inside], pairs[inside], stops[inside]
        if number:
            rings.put(places[rows], _SEPARATES, _COMMA)
        rings.put(places[rows], _OPENS, _OPEN)
        rings.put(stops, _CLOSES, _CLOSE)
        rings.runs.append((places[rows] + _COUNT, pairs, big[rows]))
        places[rows] = stops
    good &= places == ends
    found.literals += [_kept(starts[good], ends[good], parts) for parts in rings.literals]
    found.runs += [_kept(starts[good], ends[good], parts) for parts in rings.runs]
    empty = good & (counts == 0)
    found.put(starts[empty], _OPENS, _NAMED_EMPTY + POLYGON)
    found.put(starts[good & ~empty], _OPENS, _NAMED + POLYGON)
    found.put(ends[good & ~empty], _CLOSES, _CLOSE)
    return good


def _kept(starts: np.ndarray, ends: np.ndarray, parts: _Rows) -> _Rows:
    """The fragments of some values. A fragment comes after the start of its value, and at its end at most."""
    places, second, third = parts
    row = np.searchsorted(starts, places) - 1
    inside = (row >= 0) & (places <= ends[row]) if len(ends) else np.zeros(len(places), bool)
    return places[inside], second[inside], third[inside]


# ---- parts one by one


def _read_one_by_one(
    data: np.ndarray, found: _GeometryTexts, starts: np.ndarray, ends: np.ndarray, width: int
) -> np.ndarray:
    good, literals, runs, points = [], [], [], []
    raw = data.data
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        parts = _GeometryParts(raw[start:end], start, width)
        try:
            good.append(parts.geometry(0, _DEEPEST, 0) == end - start)
        except (_NotWkb, IndexError):
            good.append(False)
        if good[-1]:
            literals += parts.literals
            runs += parts.runs
            points += parts.points
    for into, rows in ((found.literals, literals), (found.runs, runs), (found.points, points)):
        if rows:
            first, second, third = np.array(rows, np.int64).T
            into.append((first, second, third))
    return np.array(good, bool)


@dataclass(slots=True)
class _GeometryParts:
    """The fragments of one value, which lies at `base` of the bytes."""

    cell: memoryview
    base: int
    width: int
    literals: list[tuple[int, int, int]] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    points: list[tuple[int, int, int]] = field(default_factory=list)

    def geometry(self, at: int, depth: int, wanted: int) -> int:
        """Where the geometry at a place ends. `wanted` is the type that it has to be; 0 = any, and its name is
        written."""
        order = self.cell[at]
        if order > 1 or depth == 0:
            raise _NotWkb
        kind = self._count(at + 1, order)
        if not POINT <= kind <= COLLECTION or (wanted and kind != wanted):
            raise _NotWkb
        if kind == POINT:
            self.points.append((self.base + at, wanted == 0, order == 0))
            return self._inside(at + _HEAD + 2 * self.width)
        count = self._count(at + _HEAD, order)
        head, at = at, at + _HEAD + _COUNT
        if count > len(self.cell) - at:  # each part takes bytes
            raise _NotWkb
        if count == 0:
            self._put(head, _OPENS, _EMPTY if wanted else _NAMED_EMPTY + kind)
            return at
        self._put(head, _OPENS, _OPEN if wanted else _NAMED + kind)
        if kind == LINE:
            at = self._line(at, count, order)
        else:
            for number in range(count):
                if number:
                    self._put(at, _SEPARATES, _COMMA)
                is_ring = kind == POLYGON
                at = self._ring(at, order) if is_ring else self.geometry(at, depth - 1, PARTS.get(kind, 0))
        self._put(at, _CLOSES, _CLOSE)
        return at

    def _ring(self, at: int, order: int) -> int:
        count = self._count(at, order)
        self._put(at, _OPENS, _OPEN)
        at = self._line(at + _COUNT, count, order)
        self._put(at, _CLOSES, _CLOSE)
        return at

    def _line(self, at: int, count: int, order: int) -> int:
        stop = self._inside(at + 2 * self.width * count)
        self.runs.append((self.base + at, count, order == 0))
        return stop

    def _count(self, at: int, order: int) -> int:
        self._inside(at + _COUNT)
        return int.from_bytes(self.cell[at : at + _COUNT], "little" if order else "big")

    def _inside(self, end: int) -> int:
        if end > len(self.cell):
            raise _NotWkb
        return end

    def _put(self, at: int, phase: int, literal: int) -> None:
        self.literals.append((self.base + at, phase, literal))


# ---- together


def _joined(source: _GeometryBytes, found: _GeometryTexts, starts: np.ndarray, width: int) -> pa.StringArray:
    """A text for each value; `starts` ascend."""
    if not len(starts):
        return pa.array([], pa.string())
    at, named, big = _columns(found.points)
    x, y = (source.coordinates(at + _HEAD + shift, big, width) for shift in (0, width))
    empty = np.isnan(x) & np.isnan(y)
    named = named.astype(bool)
    found.put(at[empty], _OPENS, np.where(named, _NAMED_EMPTY + POINT, _EMPTY)[empty])
    found.put(at[~empty & named], _OPENS, _NAMED + POINT)
    found.put(at[~empty & named] + _HEAD + 2 * width, _CLOSES, _CLOSE)
    found.runs.append((at[~empty] + _HEAD, np.ones(int((~empty).sum()), np.int64), big[~empty]))
    at, counts, big = _columns(found.runs)
    pair_of = np.repeat(np.arange(len(at)), counts)
    number = np.arange(len(pair_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    pair_at = at[pair_of] + 2 * width * number
    places, phases, codes = _columns(found.literals)
    texts = pa.concat_arrays(
        [pa.array(_LITERALS).take(pa.array(codes)), _pairs(source, pair_at, number, big[pair_of], width)]
    )
    places = np.concatenate([places, pair_at])
    order = np.argsort(places * _PHASES + np.concatenate([phases, np.full(len(pair_at), _PAIR)]), kind="stable")
    texts, places = texts.take(pa.array(order)), places[order]
    # What closes at the end of a value is at the start of the next one: it belongs to the former.
    closes = np.concatenate([phases, np.full(len(pair_at), _PAIR)])[order] == _CLOSES
    row = np.searchsorted(starts, places - closes, side="right") - 1
    lengths = np.bincount(row, pc.binary_length(texts).to_numpy(zero_copy_only=False), len(starts))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(offsets), texts.buffers()[2]])


def _columns(parts: list[_Rows]) -> _Rows:
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool)
    first, second, third = (np.concatenate(one) for one in zip(*parts, strict=True))
    return first, second, third


def _pairs(
    source: _GeometryBytes, places: np.ndarray, number: np.ndarray, big: np.ndarray, width: int
) -> pa.StringArray:
    """`x y`, with a comma before all but the first of a line."""
    x, y = (number_texts(source.coordinates(places + shift, big, width)) for shift in (0, width))
    comma = pc.if_else(pa.array(number > 0), ",", "")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(comma, x, ""), y, " ")


def number_texts(values: np.ndarray) -> pa.StringArray:
    """The text of each double. Arrow writes the same digits; where it writes them in another form they are moved."""
    texts, sizes = pa.array(values).cast(pa.string()), np.abs(values)
    large = (sizes >= _EXPONENT) & (sizes < _ARROWS_EXPONENT)
    if large.any():
        texts = pc.replace_with_mask(texts, pa.array(large), _with_exponent(texts.filter(pa.array(large))))
    odd = ~np.isfinite(values) | ((sizes < _PLAIN) & (values != 0))
    if odd.any():  # no coordinates of anything
        distinct, places = np.unique(values[odd], return_inverse=True)
        known = pa.array([_odd_text(value) for value in distinct.tolist()], pa.string())
        texts = pc.replace_with_mask(texts, pa.array(odd), known.take(pa.array(places)))
    return texts


def _with_exponent(texts: pa.StringArray) -> pa.StringArray:
    """Of numbers without an exponent, at least 1."""
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    digits = pc.utf8_ltrim(texts, "-")
    point = pc.find_substring(digits, ".")
    whole = pc.if_else(pc.less(point, 0), pc.binary_length(digits), point)
    digits = pc.utf8_rtrim(pc.replace_substring(digits, ".", ""), "0")
    rest = pc.utf8_slice_codeunits(digits, 1)
    dot = pc.if_else(pc.equal(rest, ""), "", ".")
    exponent = pc.utf8_lpad(pc.subtract(whole, 1).cast(pa.string()), _DIGITS, "0")
    return pc.binary_join_element_wise(sign, pc.utf8_slice_codeunits(digits, 0, 1), dot, rest, "e+", exponent, "")


def _odd_text(value: float) -> str:
    if not np.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    sign, digits, power = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    exponent = len(digits) + int(power) - 1
    return f"{'-' if sign else ''}{mantissa}e-{abs(exponent):0{_DIGITS}}"
