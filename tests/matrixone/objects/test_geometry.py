"""WKB of every kind as the text that `ST_AsText` prints; what is neither WKB nor text is shown as bytes."""

import struct

import pyarrow as pa
import pytest

from matrixone.objects.geometry import geometry_text


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
