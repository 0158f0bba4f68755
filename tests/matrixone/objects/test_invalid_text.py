"""Any bytes are read as text, and the bytes can be had back."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccpr.matrixone.objects.invalid_text import (
    count_escaped,
    escaped,
    original,
    readable_text,
    replaced_text,
    stored_bytes,
)
from ccpr.matrixone.objects.vectors import is_ascii

_PIECES = st.one_of(
    st.binary(max_size=6),
    st.text(max_size=6).map(str.encode),
    st.sampled_from([0x10FE80, 0x10FEFF]).map(chr).map(str.encode),
)
_VALUES = st.lists(st.none() | st.lists(_PIECES, max_size=4).map(b"".join), max_size=12)


@given(_VALUES, st.integers(0, 3))
@example([b"ok", b"\xff\x00\xfe", None, "\U0010fe80".encode(), b"\xf4\x8f\xba"], 0)
def test_bytes_become_text_that_gives_them_back(values: list[bytes | None], skipped: int) -> None:
    array = pa.array(values, pa.binary()).slice(skipped)
    values = values[skipped:]
    texts = readable_text(array)
    texts.validate(full=True)
    assert stored_bytes(texts).to_pylist() == values
    for text, value in zip(texts.to_pylist(), values, strict=True):
        if value is not None:
            assert text == escaped(value)
            assert original(text) == value
            assert len(text) <= len(value)


@given(_VALUES)
def test_utf8_stays_as_it_is_unless_it_has_the_characters_of_escapes(values: list[bytes | None]) -> None:
    for text, value in zip(readable_text(pa.array(values, pa.binary())).to_pylist(), values, strict=True):
        try:
            plain = None if value is None else value.decode()
        except UnicodeDecodeError:
            continue
        if plain is None or not any("\U0010fe80" <= character <= "\U0010feff" for character in plain):
            assert text == plain


@given(_VALUES)
def test_different_bytes_are_different_texts(values: list[bytes | None]) -> None:
    texts = readable_text(pa.array(values, pa.binary())).to_pylist()
    assert len(set(texts)) == len(set(values))


@given(st.lists(st.none() | st.binary(max_size=12), max_size=12))
def test_ascii_is_recognised(values: list[bytes | None]) -> None:
    joined = b"".join(filter(None, values))
    assert is_ascii(pa.py_buffer(joined)) == joined.isascii()


def test_a_byte_that_is_not_part_of_a_character_is_one_private_or_replacement_character() -> None:
    texts = readable_text(pa.array([b"a\xff\x00\xfeb", "größe".encode("latin-1"), "größe".encode(), None], pa.binary()))
    assert texts.to_pylist() == ["a\U0010feff\x00\U0010fefeb", "gr\U0010fef6\U0010fedfe", "größe", None]
    assert replaced_text(texts).to_pylist() == ["a\ufffd\x00\ufffdb", "gr\ufffd\ufffde", "größe", None]
    assert count_escaped(texts) == 2
    assert count_escaped(readable_text(pa.array([b"a", None], pa.binary()))) == 0


def test_half_a_surrogate_pair_has_no_bytes() -> None:
    with pytest.raises(UnicodeEncodeError):
        original("\ud800")
