"""The comparison on which the other tests rely: it accepts equal rows and finds every difference."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.expected import assert_rows_equal

DAY = datetime.datetime(2000, 2, 29, 1, 2, 3)
ROWS: dict[str, tuple[pa.DataType, int, list[Any], list[bytes | None]]] = {
    "i": (pa.int32(), 3, [-7, None], [b"-7", None]),
    "u": (pa.decimal128(20, 0), 8, [Decimal(2**64 - 1), Decimal(0)], [b"18446744073709551615", b"0"]),
    "bit": (pa.decimal128(20, 0), 16, [Decimal(258), None], [b"\x01\x02", None]),
    "flag": (pa.bool_(), 1, [True, False], [b"1", b"0"]),
    "d": (pa.decimal128(38, 10), 0, [Decimal("0.0000000001"), Decimal(-5)], [b"0.0000000001", b"-5.0000000000"]),
    "f": (pa.float64(), 5, [1e22, -1.5e-9], [b"10000000000000000000000", b"-0.0000000015"]),
    "r": (pa.float32(), 4, [100465.836, 0.0], [b"100465.836", b"0"]),
    "day": (pa.date32(), 10, [datetime.date(1, 1, 1), None], [b"0001-01-01", None]),
    "t": (
        pa.duration("us"),
        11,
        [datetime.timedelta(hours=-838, minutes=-59, seconds=-59), datetime.timedelta(0)],
        [b"-838:59:59", b"00:00:00"],
    ),
    "t6": (pa.duration("us"), 11, [-datetime.timedelta(microseconds=1), None], [b"-00:00:00.000001", None]),
    "dt3": (
        pa.timestamp("us"),
        12,
        [DAY, DAY.replace(microsecond=50_000)],
        [b"2000-02-29 01:02:03", b"2000-02-29 01:02:03.050"],
    ),
    "ts6": (
        pa.timestamp("us", "UTC"),
        7,
        [DAY.replace(tzinfo=datetime.UTC), None],
        [b"2000-02-29 01:02:03.000000", None],
    ),
    "text": (pa.string(), 253, ["é", ""], ["é".encode(), b""]),
    "raw": (pa.binary(), 253, [b"\xff", None], [b"\xff", None]),
    "v": (pa.list_(pa.float32()), 253, [[1.5, -2.0], None], [b"[1.5, -2]", None]),
}


def tables(names: list[str], *, order: list[int] | None = None) -> tuple[pa.Table, pa.Table]:
    order = [0, 1] if order is None else order
    actual = pa.table({name: pa.array([ROWS[name][2][row] for row in order], ROWS[name][0]) for name in names})
    expected = pa.table({name: pa.array(ROWS[name][3], pa.binary()) for name in names})
    return actual, expected.replace_schema_metadata({"mysql_types": json.dumps([ROWS[name][1] for name in names])})


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_equal_rows_are_equal_in_any_order(order: list[int]) -> None:
    assert_rows_equal(*tables(list(ROWS), order=order))


@pytest.mark.parametrize("name", list(ROWS))
def test_a_difference_in_one_cell_of_any_type_is_found(name: str) -> None:
    actual, expected = tables([name])
    for row, text in enumerate(ROWS[name][3]):
        for other in (
            b"" if text else b"0",
            None if text is not None else b"",
            (text or b"") + b"0",
            (text or b"") + b".1",
        ):
            cells = list(ROWS[name][3])
            cells[row] = other
            if name == "dt3" and other == b"2000-02-29 01:02:03.0500":
                continue  # how a datetime(4) of the same value is shown
            changed = pa.table({name: pa.array(cells, pa.binary())}).replace_schema_metadata(expected.schema.metadata)
            with pytest.raises(AssertionError):
                assert_rows_equal(actual, changed)


def test_swapped_cells_missing_rows_repeated_rows_and_other_columns_are_found() -> None:
    actual, expected = tables(["i", "text"])
    for wrong in (
        pa.table({"i": actual["i"], "text": actual["text"].take([1, 0])}),
        actual.slice(0, 1),
        pa.concat_tables([actual.slice(0, 1)] * 2),
        pa.concat_tables([actual, actual.slice(0, 1)]),
        actual.select(["text", "i"]),
        actual.rename_columns(["i", "t"]),
    ):
        with pytest.raises(AssertionError):
            assert_rows_equal(wrong, expected)


def test_fraction_digits_that_the_server_cut_off_must_be_zero() -> None:
    actual = pa.table({"t": pa.array([datetime.timedelta(microseconds=1)], pa.duration("us"))})
    expected = pa.table({"t": pa.array([b"00:00:00"], pa.binary())}).replace_schema_metadata({"mysql_types": "[11]"})
    with pytest.raises(AssertionError):
        assert_rows_equal(actual, expected)
