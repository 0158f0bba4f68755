"""The texts of defaults in cells of `att_default`: recorded ones, and any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.client.catalog_cells import default_cell, default_text

QUOTED = b"\x12\x06'd;--'\x18\x01"  # the text as it was typed, and that the column may be NULL
TYPE = b"\x0a\x06\x08\x3d\x10\x01\x20\x0a"


def literal(text: bytes) -> bytes:
    """As the server writes `DEFAULT '…'` of a VARCHAR(10)."""
    value = b"\x5a" + bytes([len(text)]) + text
    expression = TYPE + b"\x12" + bytes([len(value)]) + value
    return b"\x0a" + bytes([len(expression)]) + expression + QUOTED


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (bytes.fromhex("0a1" + "00a06083d1001200a12065a04643b2d2d") + QUOTED, "d;--"),  # recorded
        (literal(b"it's"), "it's"),
        (literal(b"it''s"), "it''s"),
        (literal("a\\b\n\x00é".encode()), "a\\b\n\x00é"),
        (literal(b""), ""),
        (literal(b"\xff"), None),
        (bytes.fromhex("0a120a0808201001200a280212068a010308de021204332e35301801"), None),  # recorded: decimal 3.50
        (b"\n\n\n\x04\b= P\x12\x02\b\x01\x12\x04null\x18\x01", None),  # recorded: NULL
        (b"\x18\x01", None),
        (b"", None),
        (None, None),
    ],
)
def test_a_default_is_the_text_that_the_server_has_computed(cell: bytes | None, text: str | None) -> None:
    assert default_text(cell) == text


@pytest.mark.parametrize("length", range(len(literal(b"it's"))))
def test_a_default_that_was_cut_says_nothing_wrong(length: int) -> None:
    cut = len(literal(b"it's")) - len(QUOTED)
    assert default_text(literal(b"it's")[:length]) == ("it's" if length in (cut, cut + 8, cut + 10) else None)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_not(cell: bytes) -> None:
    assert default_text(cell) is None or isinstance(default_text(cell), str)


@given(st.none() | st.text())
def test_a_cell_that_is_written_is_read_as_the_same_text(text: str | None) -> None:
    assert default_text(default_cell(text)) == text
