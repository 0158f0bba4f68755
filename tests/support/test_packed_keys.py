import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects.errors import ObjectDamaged
from tests.support.packed_keys import Element, unpack_key


def varint(value: int) -> bytes:
    if value == 0:
        return b"\x14"
    size = (abs(value).bit_length() + 7) // 8
    if value > 0:
        return bytes([0x14 + size]) + value.to_bytes(size, "big")
    return bytes([0x14 - size]) + (value + 256**size - 1).to_bytes(size, "big")


def ordered(form: str, value: float) -> bytes:
    raw = struct.pack(form, value)
    return bytes(byte ^ 0xFF for byte in raw) if raw[0] & 0x80 else bytes([raw[0] ^ 0x80]) + raw[1:]


def packed(element: Element) -> bytes:
    code, value = element.code, element.value
    head = bytes([code])
    if value is None or isinstance(value, bool):
        return head
    if isinstance(value, bytes):
        return head + b"\x01" + value.replace(b"\x00", b"\x00\xff") + b"\x00"
    if isinstance(value, float):
        return head + ordered(">f" if code == 0x20 else ">d", value)
    if isinstance(value, uuid.UUID):
        return head + value.bytes
    if isinstance(value, tuple):
        return head + value[0].bytes + varint(value[1])
    if code in (0x44, 0x45, 0x48):
        size = {0x44: 8, 0x45: 16, 0x48: 32}[code]
        return head + (value + (1 << 8 * size - 1)).to_bytes(size, "big")
    return head + (b"\x3d" if code == 0x50 else b"") + varint(value)


_signed = st.sampled_from((0x28, 0x29, 0x3A, 0x3B, 0x41, 0x42, 0x43, 0x47, 0x54))
_unsigned = st.sampled_from((0x3C, 0x3D, 0x3E, 0x40, 0x50, 0x51))
_elements = st.one_of(
    st.just(Element(0x00, None)),
    st.booleans().map(lambda value: Element(0x27 if value else 0x26, value)),
    st.builds(Element, _signed, st.integers(-(2**63), 2**63 - 1)),
    st.builds(Element, _unsigned, st.integers(0, 2**64 - 1)),
    st.builds(Element, st.just(0x20), st.floats(width=32, allow_nan=False)),
    st.builds(Element, st.just(0x21), st.floats(allow_nan=False)),
    st.builds(Element, st.just(0x44), st.integers(-(2**63), 2**63 - 1)),
    st.builds(Element, st.just(0x45), st.integers(-(2**127), 2**127 - 1)),
    st.builds(Element, st.just(0x48), st.integers(-(2**255), 2**255 - 1)),
    st.builds(Element, st.just(0x46), st.binary(max_size=20) | st.text("\x00\x01a", max_size=6).map(str.encode)),
    st.builds(Element, st.just(0x52), st.uuids()),
    st.builds(Element, st.just(0x53), st.tuples(st.uuids(), st.integers(0, 65535))),
)


@given(st.lists(_elements, max_size=6))
def test_a_packed_key_unpacks_to_its_elements(elements: list[Element]) -> None:
    assert list(unpack_key(b"".join(map(packed, elements)))) == elements


@given(st.lists(st.builds(Element, st.just(0x3B), st.integers(-(2**63), 2**63 - 1)), min_size=2, max_size=2))
def test_the_bytes_order_as_the_numbers(pair: list[Element]) -> None:
    left, right = pair
    assert (packed(left) < packed(right)) == (left.value < right.value)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("3a 18 26 f8 02 0a", 653787658),
        ("3a 10 ab e0 f3 92", -1411320941),
        ("46 01 31 33 32 00", b"132"),
        ("44 7f ff ff ff fe 7d 9a 18", -25322984),
        ("42 1b e2 94 8f a7 51 d3 40", 63776689445000000),
        ("3b 13 fe", -1),
        ("3b 13 00", -255),
        ("3b 12 fe ff", -256),
    ],
)
def test_the_examples_of_the_specification(raw: str, value: object) -> None:
    assert [element.value for element in unpack_key(bytes.fromhex(raw))] == [value]


@given(st.binary(max_size=30))
def test_any_bytes_are_a_key_or_damage(raw: bytes) -> None:
    try:
        unpack_key(raw)
    except ObjectDamaged:
        return


@pytest.mark.parametrize(
    "raw",
    [
        "3a",
        "3a 18 01",
        "3a 1d 01",
        "46",
        "46 02",
        "46 01 31",
        "46 01 00 ff",
        "50 14",
        "52 00",
        "53 00",
        "99",
        "3c 13 fe",
        "44 00",
    ],
)
def test_what_is_cut_short_or_unknown_is_damage(raw: str) -> None:
    with pytest.raises(ObjectDamaged):
        unpack_key(bytes.fromhex(raw))
