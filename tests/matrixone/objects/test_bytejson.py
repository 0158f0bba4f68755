import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.bytejson import MAX_DEPTH, json_text
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectUnsupported
from ccpr.matrixone.objects.invalid_text import escaped
from tests.matrixone.objects.building import json_bytes

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
_documents = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=14), inner, max_size=4)
)


def text_of(value: object) -> str:
    """The server's text of a value, written naively."""
    if isinstance(value, float):
        size = abs(value)
        if value == 0 or 1e-6 <= size < 1e21:
            plain = (
                f"{value:.400f}".rstrip("0").rstrip(".")
                if size < 1e-4 or size >= 1e16
                else repr(value).removesuffix(".0")
            )
            return _shortest_plain(value) if size and (size < 1e-4 or size >= 1e16) else plain
        return repr(value)
    if isinstance(value, str):
        out = json.dumps(value, ensure_ascii=False)
        return out.replace("\x7f", "\x7f")
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(key)}: {text_of(value[key])}" for key in sorted(value, key=str.encode)) + "}"
    return json.dumps(value)


def _shortest_plain(value: float) -> str:
    mantissa, exponent = repr(value).split("e")
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = digits.partition(".")
    point = len(whole) + int(exponent)
    digits = whole + fraction
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits.ljust(point, '0')}"


def decode(*values: bytes | None) -> list[str | None]:
    return json_text(pa.array(values, pa.binary()), subject="test").to_pylist()


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(st.none() | st.tuples(_documents), max_size=8))
def test_a_document_reads_as_the_text_it_was_made_of(documents: list[tuple[object] | None]) -> None:
    encoded = [None if document is None else json_bytes(document[0]) for document in documents]
    assert decode(*encoded) == [
        None if document is None else escaped(text_of(document[0]).encode()) for document in documents
    ]


def test_the_example_of_the_specification() -> None:
    raw = bytes.fromhex(
        "01 01000000 36000000 13000000 0100 03 14000000 78 02000000 22000000 09 12000000 09 1a000000"
        " 0100000000000000 0200000000000000"
    )
    assert json_bytes({"x": [1, 2]}) == raw
    assert decode(raw) == ['{"x": [1, 2]}']


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e10, "10000000000"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-07"),
        (-2.0, "-2"),
        (12345678901.25, "12345678901.25"),
        (5e-324, "5e-324"),
    ],
)
def test_floats_print_as_the_server_prints_them(value: float, text: str) -> None:
    assert decode(json_bytes(value)) == [text]


def test_only_what_must_be_escaped_is_escaped() -> None:
    assert decode(json_bytes({'a"b': "c\\d\n\t\b\f\r\x01\x1f\x7f/é🙂"})) == [
        '{"a\\"b": "c\\\\d\\n\\t\\b\\f\\r\\u0001\\u001f\x7f/é🙂"}'
    ]


def test_a_slice_of_an_array_and_values_in_several_chunks_are_read() -> None:
    array = pa.array([json_bytes("x" * 100), None, json_bytes([1]), json_bytes({})], pa.binary())
    assert json_text(array.slice(1), subject="test").to_pylist() == [None, "[1]", "{}"]
    large = pa.array([json_bytes("y" * (5 << 20)), json_bytes([2]), None] * 3, pa.binary())
    assert [None if text is None else len(text) for text in json_text(large, subject="test").to_pylist()] == [
        (5 << 20) + 2,
        3,
        None,
    ] * 3


def _container(kind: int, entries: bytes, count: int, rest: bytes = b"") -> bytes:
    return bytes([kind]) + struct.pack("<II", count, 8 + len(entries) + len(rest)) + entries + rest


def test_text_in_json_that_is_not_utf8_is_escaped() -> None:
    raws = [b"\x0c\x02\xff\xfe", _container(0x01, struct.pack("<IHBI", 19, 3, 0x04, 1), 1, b"k\xffy")]
    texts = json_text(pa.array(raws), subject="test").to_pylist()
    assert texts == ['"\U0010feff\U0010fefe"', '{"k\U0010feffy": null}']


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01",
        b"\x04\x04",
        b"\x04\x00",
        b"\x05\x00\x00",
        b"\x09" + bytes(7),
        b"\x0b" + struct.pack("<d", float("nan")),
        b"\x0c\x05abc",
        b"\x0c\x80\x80\x80\x80\x80\x01a",
        b"\x0c\xff\xff\xff\xff\x0fa",
        b"\x03" + struct.pack("<II", 0xFFFFFFFF, 8),
        b"\x03" + struct.pack("<II", 1, 8),
        b"\x03" + struct.pack("<II", 1, 0xFFFFFFFF) + bytes(5),
        _container(0x03, struct.pack("<BI", 0x03, 0), 1),  # an array that contains itself
        _container(0x03, struct.pack("<BI", 0x03, 3), 1),
        _container(0x03, struct.pack("<BI", 0x09, 13), 1, bytes(7)),
        _container(0x03, struct.pack("<BI", 0x0C, 0xFFFFFFFF), 1, bytes(7)),
        _container(0x01, struct.pack("<IHBI", 19, 9, 0x04, 1), 1, b"key"),
        _container(0x01, struct.pack("<IHBI", 0, 3, 0x04, 1), 1, b"key"),
    ],
)
def test_what_is_not_json_is_damage(raw: bytes) -> None:
    with pytest.raises(ObjectDamaged):
        decode(raw)


def test_nesting_is_read_to_a_limit_and_refused_beyond() -> None:
    document: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        document = [document]
    assert decode(json_bytes(document)) == ["[" * MAX_DEPTH + "]" * MAX_DEPTH]
    with pytest.raises(ObjectUnsupported):
        decode(json_bytes([document]))


def test_values_that_share_their_bytes_cannot_multiply_the_output() -> None:
    """Thirty levels of arrays whose two entries both point at the next array would be a billion values."""
    raw = bytes(0)
    for _ in range(30):
        raw = (
            struct.pack("<II", 2, 18 + len(raw)) + struct.pack("<BI", 3, 18) * 2 + raw
            if raw
            else struct.pack("<II", 0, 8)
        )
    with pytest.raises(ObjectDamaged, match="more values"):  # without a limit, this would not end
        decode(b"\x03" + raw)
    text = b"\xff\x7f" + b"x" * 16383  # one string under a thousand entries
    entries = struct.pack("<BI", 0x0C, 8 + 5 * 1000) * 1000
    with pytest.raises(ObjectDamaged, match="more text"):
        decode(_container(0x03, entries, 1000, text))
