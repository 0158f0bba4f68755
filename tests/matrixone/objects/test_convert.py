import datetime
import struct
import uuid
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, UNIX_EPOCH_US, is_zero_date, without_zero_dates
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ObjectUnsupported, ValueRefused
from ccpr.matrixone.objects.invalid_text import escaped, stored_bytes
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.types import arrow_schema, arrow_type
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from tests.matrixone.objects.building import SIZES, column_entry, json_bytes, nulls_bytes, object_file, varlena_entry

DAY_US = 86_400_000_000
FIRST_DAY = datetime.date(1, 1, 1)
FIRST_MOMENT = datetime.datetime(1, 1, 1)


def column(
    oid: int, width: int = 0, scale: int = 0, labels: tuple[str, ...] = (), name: str = "c", *, hidden: bool = False
) -> Column:
    return Column(name, 0, SqlType(oid, width, scale), hidden=hidden, labels=labels)


def read(entry: bytes, rows: int, what: Column) -> pa.Array:
    array = ObjectFile(object_file([(rows, {0: (what.type.oid, entry)})])).column(0, what)
    array.validate(full=True)
    assert array.type == arrow_type(what)
    assert len(array) == rows
    return array


def fixed(what: Column, cells: Sequence[bytes | None]) -> pa.Array:
    """Cells as slots; a null row's slot holds 0xFF, which must not matter."""
    size = SIZES[what.type.oid]
    slots = b"".join(b"\xff" * size if cell is None else cell for cell in cells)
    nulls = nulls_bytes([cell is None for cell in cells])
    return read(
        column_entry(what.type.oid, slots, len(cells), nulls=nulls, width=what.type.width, scale=what.type.scale),
        len(cells),
        what,
    )


def integers(size: int, *, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if signed else st.integers(0, (1 << 8 * size) - 1)


_NUMBERS = {
    20: True,
    21: True,
    22: True,
    23: True,
    25: False,
    26: False,
    27: False,
    28: False,
    11: False,
    55: True,
    51: True,
}


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(sorted(_NUMBERS)))
def test_whole_numbers_keep_their_value(data: st.DataObject, oid: int) -> None:
    size, signed = SIZES[oid], _NUMBERS[oid]
    values = data.draw(st.lists(st.none() | integers(size, signed=signed), max_size=30))
    array = fixed(
        column(oid, 64, -1),
        [None if value is None else value.to_bytes(size, "little", signed=signed) for value in values],
    )
    if oid == 51:
        array = array.cast(pa.int64())
    assert [None if value is None else int(value) for value in array.to_pylist()] == values


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(((32, 18), (32, 5), (33, 38), (33, 19), (33, 30))), st.integers(0, 5), st.data())
def test_decimals_keep_every_digit(kind: tuple[int, int], scale: int, data: st.DataObject) -> None:
    oid, precision = kind
    bound = 10**precision - 1
    values = data.draw(st.lists(st.none() | st.integers(-bound, bound) | st.sampled_from((bound, -bound)), max_size=20))
    size = SIZES[oid]
    cells = [None if value is None else value.to_bytes(size, "little", signed=True) for value in values]
    array = fixed(column(oid, precision, scale), cells)
    expected = [None if value is None else Decimal(f"{value}e-{scale}") for value in values]
    assert array.to_pylist() == expected
    if bound + 1 < 1 << 8 * size - 1:
        for outside in (bound + 1, -bound - 1):
            with pytest.raises(ValueRefused, match=f"more than the {precision} digits"):
                fixed(column(oid, precision, scale), [*cells, outside.to_bytes(size, "little", signed=True)])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(((32, 4), (33, 20), (33, 38))), st.integers(0, 4), st.data())
def test_decimals_longer_than_declared_keep_every_digit(kind: tuple[int, int], scale: int, data: st.DataObject) -> None:
    oid, precision = kind
    size = SIZES[oid]
    values = data.draw(st.lists(st.none() | integers(size, signed=True), max_size=20))
    cells = [None if value is None else value.to_bytes(size, "little", signed=True) for value in values]
    digits = max((len(str(abs(value))) for value in values if value is not None), default=0)
    what = replace(column(oid, precision, scale), digits=digits)
    found = [None if value is None else Decimal(value) for value in fixed(what, cells).to_pylist()]
    with localcontext(prec=60):
        assert found == [None if value is None else Decimal(value).scaleb(-scale) for value in values]
    widest = max(precision, digits)
    assert arrow_type(what) == (pa.string() if widest > 38 else pa.decimal128(widest, scale))
    assert what == column(oid, precision, scale)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 30), st.lists(st.none() | st.integers(-(10**65) + 1, 10**65 - 1) | st.integers(-50, 50), max_size=20)
)
def test_decimals_beyond_38_digits_are_text_with_all_their_fraction_digits(
    scale: int, values: list[int | None]
) -> None:
    array = fixed(
        column(34, 65, scale),
        [None if value is None else value.to_bytes(32, "little", signed=True) for value in values],
    )
    for text, value in zip(array.to_pylist(), values, strict=True):
        if value is None:
            assert text is None
            continue
        digits = str(abs(value)).rjust(scale + 1, "0")
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
        assert text == ("-" if value < 0 else "") + whole + ("." + fraction if scale else "")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.dates(), max_size=20))
def test_dates_count_from_the_first_day_of_year_one(values: list[datetime.date | None]) -> None:
    cells = [None if value is None else struct.pack("<i", (value - FIRST_DAY).days) for value in values]
    assert fixed(column(50), cells).to_pylist() == values


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.datetimes(), max_size=20))
def test_moments_count_microseconds_from_there(values: list[datetime.datetime | None]) -> None:
    cells = [
        None if value is None else struct.pack("<q", (value - FIRST_MOMENT) // datetime.timedelta(microseconds=1))
        for value in values
    ]
    assert fixed(column(52, 6, 6), cells).to_pylist() == values
    utc = fixed(column(53, 6, 6), cells)
    assert utc.type.tz == "UTC"
    assert [None if value is None else value.replace(tzinfo=None) for value in utc.to_pylist()] == values


@pytest.mark.parametrize(
    ("oid", "cell"),
    [
        (50, struct.pack("<i", -(2**31))),
        (50, struct.pack("<i", -(2**31) + UNIX_EPOCH_DAYS - 1)),
        (52, struct.pack("<q", -(2**63))),
        (53, struct.pack("<q", -(2**63) + UNIX_EPOCH_US - 1)),
    ],
)
def test_a_moment_that_arrow_has_not_is_refused_and_no_damage_unless_its_row_is_null(oid: int, cell: bytes) -> None:
    with pytest.raises(ValueRefused, match="row 1 is before every date") as raised:
        fixed(column(oid), [bytes(len(cell)), cell])
    assert raised.value.subject.startswith("column ")
    entry = column_entry(oid, cell * 2, 2, nulls=nulls_bytes([True, True]))
    assert read(entry, 2, column(oid)).null_count == 2
    ObjectFile(object_file([(2, {0: (oid, column_entry(oid, cell * 2, 2))})])).check(deep=True)


@pytest.mark.parametrize(
    ("oid", "cell", "text"),
    [
        (50, struct.pack("<i", -2), "0000-12-30"),
        (50, struct.pack("<i", 3_652_059), "10000-01-01"),
        (52, struct.pack("<q", -2), "0000-12-31 23:59:59.999998"),
        (52, struct.pack("<q", 3_652_059 * DAY_US), "10000-01-01 00:00:00.000000"),
        (53, struct.pack("<q", 3_652_060 * DAY_US), "10000-01-02 00:00:00.000000Z"),
    ],
)
def test_a_moment_outside_the_calendar_is_read(oid: int, cell: bytes, text: str) -> None:
    assert fixed(column(oid), [cell, None]).cast(pa.string()).to_pylist() == [text, None]


@pytest.mark.parametrize(("oid", "form"), [(50, "<i"), (52, "<q"), (53, "<q")])
def test_a_zero_date_is_the_value_before_the_first_one(oid: int, form: str) -> None:
    values = fixed(column(oid), [struct.pack(form, -1), None, struct.pack(form, 0), struct.pack(form, 1)])
    assert is_zero_date(values).to_pylist() == [True, None, False, False]
    assert without_zero_dates(values).is_null().to_pylist() == [True, True, False, False]
    assert without_zero_dates(values.slice(1)).equals(values.slice(1))


def test_bool_float_uuid_and_raw_types() -> None:
    assert fixed(column(10), [b"\x01", None, b"\x00"] * 5).to_pylist() == [True, None, False] * 5
    assert fixed(column(30), [struct.pack("<f", 1.5), None]).to_pylist() == [1.5, None]
    assert fixed(column(31), [struct.pack("<d", -1e-300), None]).to_pylist() == [-1e-300, None]
    value = uuid.uuid4()
    assert fixed(column(63), [value.bytes, None]).to_pylist() == [str(value), None]
    for oid in (100, 101, 102):
        assert fixed(column(oid), [bytes(range(SIZES[oid])), None]).to_pylist() == [bytes(range(SIZES[oid])), None]


def test_an_enum_is_its_label_and_zero_is_empty_text() -> None:
    what = column(66, labels=("red", "größe", "blue"))
    assert fixed(what, [b"\x01\x00", None, b"\x03\x00", b"\x00\x00", b"\x02\x00"]).to_pylist() == [
        "red",
        None,
        "blue",
        "",
        "größe",
    ]
    unlabelled = [b"\x04\x00", b"\x01\x00", None, b"\xff\xff", b"\x05\x00", b"\x04\x00", b"\x00\x00"]
    assert fixed(what, unlabelled).to_pylist() == ["#4", "red", None, "#65535", "#5", "#4", ""]
    assert fixed(column(66), [b"\x01\x00", None, b"\x00\x00"]).to_pylist() == ["#1", None, ""], "the schema has none"


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 64), st.data())
def test_a_set_is_its_members_in_the_order_of_the_labels(size: int, data: st.DataObject) -> None:
    labels = tuple(f"m{number}" for number in range(size))
    masks = data.draw(st.lists(st.none() | st.integers(0, (1 << size) - 1), max_size=20))
    array = fixed(column(28, labels=labels), [None if mask is None else struct.pack("<Q", mask) for mask in masks])
    assert array.to_pylist() == [
        None if mask is None else ",".join(label for bit, label in enumerate(labels) if mask >> bit & 1)
        for mask in masks
    ]
    if size < 64:
        beyond = fixed(column(28, labels=labels), [struct.pack("<Q", 1 << size | 1), None, struct.pack("<Q", 1 << 63)])
        assert beyond.to_pylist() == [f"m0,#{size + 1}", None, "#64"]


@pytest.mark.parametrize("oid", [60, 61, 71, 72])
def test_text_is_a_string_whatever_its_bytes_are(oid: int) -> None:
    values = ["", "ab", None, "ünï", "🙂" * 20]
    entry = varlena_entry(oid, [None if value is None else value.encode() for value in values])
    assert read(entry, 5, column(oid, 100)).to_pylist() == values
    for bad in (b"\xff", b"\xc3", b"ok\xed\xa0\x80", b"x" * 30 + b"\x80"):
        array = read(varlena_entry(oid, [b"fine", bad, None]), 3, column(oid, 100))
        assert array.to_pylist() == ["fine", escaped(bad), None]
        assert stored_bytes(array).to_pylist() == [b"fine", bad, None]


@pytest.mark.parametrize("oid", [64, 65, 70])
def test_binary_types_are_bytes(oid: int) -> None:
    values = [b"", b"\xff\x00", None, b"\x80" * 30]
    assert read(varlena_entry(oid, values), 4, column(oid, 100)).to_pylist() == values


def test_packed_keys_are_bytes_although_declared_as_varchar() -> None:
    """The server's hidden columns, and those that it named in an index table; a user's column may have their names."""
    packed = bytes.fromhex("3a1826f8020a46ff")
    hidden = replace(column(61, 65535, name="__mo_cbkey_003abc"), hidden=True)
    assert read(varlena_entry(61, [packed]), 1, hidden).to_pylist() == [packed]
    for name in ("__mo_index_idx_col", "__mo_cbkey_003abc", "word"):
        for kind in (Kind.INDEX, Kind.TABLE):
            (stored,) = Table(1, 1, "d", "t", kind, (column(61, 65535, name=name),)).columns
            (found,) = read(varlena_entry(61, [b"text"]), 1, stored).to_pylist()
            assert found == (b"text" if kind is Kind.INDEX and name != "word" else "text")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.lists(st.floats(width=32, allow_nan=False), max_size=9), max_size=12))
def test_vectors_are_lists_of_floats(values: list[list[float] | None]) -> None:
    for oid, form in ((224, "f"), (225, "d")):
        cells = [None if value is None else struct.pack(f"<{len(value)}{form}", *value) for value in values]
        assert read(varlena_entry(oid, cells), len(values), column(oid, 3)).to_pylist() == values


def test_vectors_in_one_piece_of_the_area_are_lists_too() -> None:
    values = np.arange(100 * 16, dtype="<f4").reshape(100, 16)
    assert (
        read(varlena_entry(224, [row.tobytes() for row in values]), 100, column(224, 16)).to_pylist() == values.tolist()
    )
    with pytest.raises(ObjectDamaged, match="multiple"):
        read(varlena_entry(225, [bytes(12)]), 1, column(225, 1))


def test_json_is_the_servers_text() -> None:
    values: list[Any] = [{"b": [1, 2.5, None]}, "x", True]
    entry = varlena_entry(62, [*map(json_bytes, values), None])
    assert read(entry, 4, column(62)).to_pylist() == ['{"b": [1, 2.5, null]}', '"x"', "true", None]


@pytest.mark.parametrize("oid", sorted(SIZES))
def test_constant_columns_and_empty_blocks_of_every_type(oid: int) -> None:
    what = column(oid, 20 if oid == 33 else 10, 0, labels=("x",) if oid == 66 else ())
    assert read(column_entry(oid, b"", 0), 0, what).to_pylist() == []
    assert read(column_entry(oid, b"", 700, constant=True), 700, what).null_count == 700
    if oid != 62:
        slot = bytes(SIZES[oid]) if oid != 66 else b"\x01\x00"
        assert len(set(map(str, read(column_entry(oid, slot, 700, constant=True), 700, what).to_pylist()))) == 1


def test_unknown_types_and_impossible_decimals_are_refused() -> None:
    for what in (
        column(24),
        column(29),
        column(54),
        column(201),
        column(32, 19, 0),
        column(33, 38, 39),
        column(33, 0, 0),
        column(33, 39, 0),
    ):
        with pytest.raises(ObjectUnsupported):
            arrow_schema([what])
    with pytest.raises(ObjectUnsupported):
        ObjectFile(object_file([(1, {0: (24, column_entry(33, bytes(16), 1))})])).column(0, column(24))
    with pytest.raises(ObjectMismatch, match="fraction digits"):
        read(column_entry(32, bytes(8), 1, width=10, scale=2), 1, column(32, 10, 3))


@pytest.mark.parametrize(
    ("what", "cells"),
    [
        (column(52), [bytes(8), struct.pack("<q", -(2**63)), None, bytes(8)]),
        (column(53), [bytes(8), struct.pack("<q", -(2**63)), None, bytes(8)]),
        (column(32, 2, 0), [bytes(8), struct.pack("<q", 100), None, struct.pack("<q", -99)]),
        (column(33, 20, 0), [bytes(16), bytes(15) + b"\x70", None, bytes(16)]),
        (column(50), [bytes(4), struct.pack("<i", -(2**31)), None, bytes(4)]),
    ],
)
def test_what_is_wrong_with_rows_that_were_not_asked_for_is_no_error(what: Column, cells: list[bytes | None]) -> None:
    size = SIZES[what.type.oid]
    slots = b"".join(b"\xff" * size if cell is None else cell for cell in cells)
    nulls = nulls_bytes([cell is None for cell in cells])
    entry = column_entry(what.type.oid, slots, len(cells), nulls=nulls, width=what.type.width, scale=what.type.scale)
    file = ObjectFile(object_file([(len(cells), {0: (what.type.oid, entry)})]))
    with pytest.raises((ObjectDamaged, ValueRefused)):
        file.column(0, what)
    with pytest.raises((ObjectDamaged, ValueRefused)):
        file.column(0, what, np.array([0, 1]))
    sound = file.column(0, what, np.array([0, 2, 3]))
    assert sound.to_pylist() == [*fixed(what, [cells[0], None, cells[3]]).to_pylist()]
