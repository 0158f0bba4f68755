"""WKB of every kind as the text that `ST_AsText` prints; what is neither WKB nor text is shown as bytes."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.geometry import geometry_text, number_texts
from ccpr.matrixone.objects.writing.json_and_geometry import stored_geometries
from tests.support.wkb_by_row import _number as number_by_row
from tests.support.wkb_by_row import geometry_text as by_row


def wkb(kind: int, *body: bytes, order: str = "<") -> bytes:
    return bytes((order == "<",)) + struct.pack(order + "I", kind) + b"".join(body)


def points(*numbers: float, order: str = "<", width: str = "d", counted: bool = True) -> bytes:
    count = struct.pack(order + "I", len(numbers) // 2) if counted else b""
    return count + struct.pack(f"{order}{len(numbers)}{width}", *numbers)


def one(*numbers: float, **options: str) -> bytes:
    return points(*numbers, counted=False, **options)


def count(number: int, order: str = "<") -> bytes:
    return struct.pack(order + "I", number)


RING = (0.0, 0.0, 4.0, 0.0, 4.0, 4.0, 0.0, 0.0)
NAN = float("nan")
CASES = {
    "POINT(-31 40.5)": wkb(1, one(-31, 40.5)),
    "POINT(1 2)": wkb(1, one(1, 2, order=">"), order=">"),
    "POINT(0.10000000149011612 -3)": wkb(1, one(0.1, -3, width="f")),
    "POINT EMPTY": wkb(1, one(NAN, NAN)),
    "POINT(1e+06 1e-05)": wkb(1, one(1e6, 1e-5)),
    "POINT(999999.5 0.0001)": wkb(1, one(999999.5, 1e-4)),
    "POINT(-1.234567e+06 -0)": wkb(1, one(-1234567, -0.0)),
    "POINT(5e-324 1.7976931348623157e+308)": wkb(1, one(5e-324, 1.7976931348623157e308)),
    "LINESTRING(1 2,3 4)": wkb(2, points(1, 2, 3, 4)),
    "LINESTRING EMPTY": wkb(2, count(0)),
    "POLYGON((0 0,4 0,4 4,0 0))": wkb(3, count(1), points(*RING)),
    "POLYGON((0 0,4 0,4 4,0 0),(1 1,2 1,2 2,1 1))": wkb(3, count(2), points(*RING), points(1, 1, 2, 1, 2, 2, 1, 1)),
    "POLYGON EMPTY": wkb(3, count(0)),
    "MULTIPOINT(1 2,3 4)": wkb(4, count(2), wkb(1, one(1, 2)), wkb(1, one(3, 4))),
    "MULTIPOINT(1 2,EMPTY)": wkb(4, count(2), wkb(1, one(1, 2)), wkb(1, one(NAN, NAN))),
    "MULTILINESTRING((1 2,3 4),EMPTY)": wkb(5, count(2), wkb(2, points(1, 2, 3, 4)), wkb(2, count(0))),
    "MULTIPOLYGON(((0 0,4 0,4 4,0 0)))": wkb(6, count(1), wkb(3, count(1), points(*RING))),
    "GEOMETRYCOLLECTION(POINT(1 2),GEOMETRYCOLLECTION EMPTY)": wkb(7, count(2), wkb(1, one(1, 2)), wkb(7, count(0))),
    "LINESTRING(1.5 2,3 4)": wkb(2, points(1.5, 2, 3, 4, width="f")),
    "SRID=4326;POINT(1 2)": b"SRID=4326;POINT(1 2)",
}


@pytest.mark.parametrize("text", CASES)
def test_a_geometry_is_its_text(text: str) -> None:
    assert geometry_text(pa.array([CASES[text], None, b"POINT(1 2)"])).to_pylist() == [text, None, "POINT(1 2)"]


@pytest.mark.parametrize("raw", [b"", b"\x01", b"\x02" * 21, b"\xff\xfe", *(case[:-1] for case in CASES.values())])
def test_what_is_neither_is_shown_as_bytes(raw: bytes) -> None:
    (text,) = geometry_text(pa.array([raw])).to_pylist()
    assert text == f"UNKNOWN(0x{raw.hex()})" or raw[:1].isalpha()


def test_a_count_that_the_bytes_cannot_hold_costs_nothing() -> None:
    for kind in range(2, 8):
        raw = wkb(kind, count(0xFFFFFFFF), bytes(40))
        assert geometry_text(pa.array([raw])).to_pylist() == [f"UNKNOWN(0x{raw.hex()})"]
    nested = wkb(7, count(1)) * 100_000
    assert geometry_text(pa.array([nested]))[0].as_py().startswith("UNKNOWN")


def test_texts_alone_stay_as_they_are() -> None:
    values = pa.array([b"POINT(1 2)", None, b"LINESTRING(0 0,1 1)"])
    assert geometry_text(values).to_pylist() == ["POINT(1 2)", None, "LINESTRING(0 0,1 1)"]


@pytest.mark.parametrize("text", CASES)
def test_what_is_written_as_wkb_reads_as_it_was(text: str) -> None:
    stored = stored_geometries(pa.array([text, None, text]), types.GEOMETRY)
    assert geometry_text(stored).to_pylist() == [text, None, text]
    assert stored[0].as_py()[:1] == (b"S" if text.startswith("SRID") else b"\x01")


def test_a_geometry32_has_coordinates_of_four_bytes() -> None:
    stored = stored_geometries(pa.array(["POINT(-31 40.5)", "LINESTRING(1.5 2,3 4)"]), types.GEOMETRY32)
    assert stored.to_pylist() == [wkb(1, one(-31, 40.5, width="f")), CASES["LINESTRING(1.5 2,3 4)"]]


@pytest.mark.parametrize(
    "text",
    ["", "POINT", "POINT(", "POINT(1)", "POINT(1 2", "POINT(1 2)x", "CIRCLE(1 2)", "LINESTRING()", "UNKNOWN(0x00)"],
)
def test_what_is_not_wkt_is_stored_as_it_is(text: str) -> None:
    assert stored_geometries(pa.array([text]), types.GEOMETRY).to_pylist() == [text.encode()]


# ---- against a reader that takes one value after the other

_COORDINATES = st.floats(width=32, allow_nan=False) | st.floats() | st.integers(-20_000_000, 20_000_000).map(float)
_ORDERS = st.sampled_from("<>")


@st.composite
def geometries(draw: st.DrawFn, width: str = "d", kind: int = 0, depth: int = 3) -> bytes:
    """WKB of any kind, whose parts have byte orders of their own."""
    kind = kind or draw(st.sampled_from((1, 1, 2, 3, 3, 4, 5, 6, 7) if depth else (1, 2, 3)))
    order = draw(_ORDERS)

    def line() -> bytes:
        return points(*[draw(_COORDINATES) for _ in range(2 * draw(st.integers(0, 3)))], order=order, width=width)

    if kind == 1:
        pair = (NAN, NAN) if draw(st.booleans()) and draw(st.booleans()) else [draw(_COORDINATES) for _ in range(2)]
        return wkb(1, struct.pack(f"{order}2{width}", *(as_width(number, width) for number in pair)), order=order)
    if kind == 2:
        return wkb(2, line(), order=order)
    parts = draw(st.sampled_from((0, 1, 2, 3, 10)))
    if kind == 3:
        return wkb(3, count(parts, order), *(line() for _ in range(parts)), order=order)
    inner = {4: 1, 5: 2, 6: 3}.get(kind, 0)
    found = [draw(geometries(width, inner, depth - 1)) for _ in range(min(parts, 3))]
    return wkb(kind, count(len(found), order), *found, order=order)


def as_width(number: float, width: str) -> float:
    """A number that a coordinate of this width can be."""
    limit = 3.0e38
    return max(-limit, min(limit, number)) if width == "f" and number == number else number


@st.composite
def cells(draw: st.DrawFn) -> bytes | None:
    """Geometries, as they are or damaged; texts, nulls and other bytes."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.none() | st.binary(max_size=30) | st.sampled_from((b"POINT(1 2)", b"", "Ä".encode())))
    try:
        raw = draw(geometries(draw(st.sampled_from("ddf"))))
    except OverflowError:  # a line of floats
        return None
    if kind == 1 and raw:
        at = draw(st.integers(0, len(raw) - 1))
        return raw[:at] + bytes((draw(st.integers(0, 255)),)) + raw[at + 1 :]
    return raw[: draw(st.integers(0, len(raw)))] if kind == 2 else raw


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(cells(), max_size=12), st.integers(0, 3))
def test_a_block_reads_as_its_values_do_one_by_one(values: list[bytes | None], skipped: int) -> None:
    stored = pa.array([b"\x01skipped"] * skipped + values, pa.binary()).slice(skipped)
    found = geometry_text(stored)
    found.validate(full=True)
    assert found.to_pylist() == by_row(pa.array(values, pa.binary())).to_pylist()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats() | st.floats(1e5, 1e16) | st.integers(-(10**16), 10**16).map(float), max_size=30))
def test_numbers_have_the_digits_of_the_server(numbers: list[float]) -> None:
    assert number_texts(np.array(numbers, float)).to_pylist() == [number_by_row(number) for number in numbers]


def test_a_polygon_that_is_cut_off_leaves_the_next_value_alone() -> None:
    """The end of its ring, by its count, lies in the next value."""
    cut = wkb(3, count(1), count(3), bytes(16))
    whole = CASES["POLYGON((0 0,4 0,4 4,0 0))"]
    found = geometry_text(pa.array([cut, whole, cut])).to_pylist()
    assert found == [f"UNKNOWN(0x{cut.hex()})", "POLYGON((0 0,4 0,4 4,0 0))", f"UNKNOWN(0x{cut.hex()})"]
