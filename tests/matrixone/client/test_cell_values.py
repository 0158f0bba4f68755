"""Values as MatrixOne prints them, read as Arrow arrays: what comes out is what went in."""

import datetime as dt
import io
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccpr.matrixone.client.cell_values import cell_values, not_carried
from ccpr.matrixone.client.column_stream import AnswerColumns, read_columns
from ccpr.matrixone.client.errors import BadAnswer
from ccpr.matrixone.client.table_rows import FLAG, read_differences, read_rows
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, UNIX_EPOCH_US
from ccpr.matrixone.objects.errors import ValueRefused
from ccpr.matrixone.objects.invalid_text import escaped
from ccpr.matrixone.objects.writing.column_encoding import encode
from ccpr.matrixone.schema import Column, SqlType
from tests.support.packets import answer, row

LABELS = ("red", "it's", "naïve 🦆", "")
MEMBERS = ("x", "y y", "ü")
_WIDE = Context(prec=80)


def column(oid: int, width: int = 0, scale: int = 0, name: str = "v", **more: Any) -> Column:
    return Column(name, 0, SqlType(oid, width, scale), **more)


def shortest(number: float) -> str:
    return format(Decimal(repr(number)), "f") if np.isfinite(number) else _not_finite(number)


def shortest_single(number: Any) -> str:
    if not np.isfinite(number):
        return _not_finite(float(number))
    return np.format_float_positional(np.float32(number), unique=True, trim="-")


def _not_finite(number: float) -> str:
    return "NaN" if np.isnan(number) else "+Infinity" if number > 0 else "-Infinity"


def clock(micros: int, scale: int) -> str:
    size = abs(micros)
    fraction = f".{size % 1_000_000:06}"[: 1 + scale] if scale else ""
    hours, minutes, seconds = size // 3_600_000_000, size // 60_000_000 % 60, size // 1_000_000 % 60
    return f"{'-' * (micros < 0)}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


def moment(value: dt.datetime) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02} {value:%H:%M:%S.%f}"


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def _decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(1 - 10**digits, 10**digits - 1).map(lambda number: Decimal(number).scaleb(-scale, _WIDE))


def _plain(scale: int) -> Any:
    return lambda value: f"{value:.{scale}f}"


def _text(value: Any) -> str:
    return str(value)


_BEYOND = st.integers(-(2**127), 2**127 - 1).map(lambda number: Decimal(number).scaleb(-10, _WIDE))
_TIMES = st.integers(1 - 3_600_000_000 * 10**9, 3_600_000_000 * 10**9 - 1)
SINGLES, DOUBLES = st.floats(width=32), st.floats()
MOMENTS = st.datetimes()
RAW = st.binary(max_size=30)
VECTORS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=4)
# Each type with values, how the server prints one, and what Arrow has for it.
CASES: list[tuple[Column, st.SearchStrategy[Any], Any, Any]] = [
    (column(types.BOOL), st.booleans(), lambda value: str(int(value)), bool),
    *(
        (column(types.BIT, width), _integers(width, signed=False), lambda v, w=width: v.to_bytes((w + 7) // 8), Decimal)
        for width in (1, 10, 64)
    ),
    *(
        (column(oid), _integers(bits, signed=True), _text, int)
        for oid, bits in ((types.INT8, 8), (types.INT16, 16), (types.INT32, 32), (types.INT64, 64))
    ),
    *(
        (column(oid), _integers(bits, signed=False), _text, int)
        for oid, bits in ((types.UINT8, 8), (types.UINT16, 16), (types.UINT32, 32))
    ),
    (column(types.UINT64), _integers(64, signed=False), _text, Decimal),
    (column(types.FLOAT32), SINGLES, shortest_single, float),
    (column(types.FLOAT64), DOUBLES, shortest, float),
    (column(types.DECIMAL64, 12, 2), _decimals(12, 2), _plain(2), lambda value: value),
    (column(types.DECIMAL128, 38, 0), _decimals(38, 0), _plain(0), lambda value: value),
    (column(types.DECIMAL128, 38, 10), _decimals(38, 10), _plain(10), lambda value: value),
    (column(types.DECIMAL128, 38, 10, digits=39), _BEYOND, _plain(10), _plain(10)),
    (column(types.DECIMAL256, 65, 30), _decimals(65, 30), _plain(30), _plain(30)),
    (column(types.DATE), st.dates(), lambda value: f"{moment(dt.datetime(*value.timetuple()[:3])):.10}", lambda v: v),
    (column(types.DATETIME, 6, 6), MOMENTS, moment, lambda value: value),
    (column(types.DATETIME), MOMENTS.map(lambda v: v.replace(microsecond=0)), lambda v: moment(v)[:19], lambda v: v),
    (column(types.TIMESTAMP, 6, 6), MOMENTS, moment, lambda value: value.replace(tzinfo=dt.UTC)),
    (column(types.TIME, 6, 6), _TIMES, lambda value: clock(value, 6), np.int64),
    (column(types.TIME, 3, 3), _integers(40, signed=True).map(lambda v: v * 1000), lambda v: clock(v, 3), np.int64),
    (column(types.TIME), _integers(40, signed=True).map(lambda v: v * 1_000_000), lambda v: clock(v, 0), np.int64),
    (column(types.YEAR, 4), st.sampled_from([0, 1901, 2155]), lambda value: f"{value:04}", int),
    *((column(oid), RAW, bytes, escaped) for oid in types.TEXT_TYPES),
    *((column(oid), RAW, bytes, bytes) for oid in types.BINARY_TYPES),
    (column(types.JSON), st.sampled_from(['{"a": [1, null]}', '"ü"', "-0"]), _text, str),
    (column(types.UUID), st.uuids(), _text, str),
    (column(types.ENUM, labels=LABELS), st.sampled_from(LABELS), _text, str),
    (column(types.UINT64, labels=MEMBERS), st.sampled_from(["", "x", "x,ü", "x,y y,ü"]), _text, str),
    (column(types.GEOMETRY), st.just("POINT(1 2)"), _text, str),
    (column(types.VECF32), VECTORS, lambda value: f"[{', '.join(map(shortest_single, value))}]", list),
    (column(types.VECF64), VECTORS, lambda value: f"[{', '.join(map(shortest, value))}]", list),
    (column(types.VECINT8), st.lists(st.integers(-128, 127), min_size=1), str, list),
    (column(types.VECUINT8), st.lists(st.integers(0, 255), min_size=1), str, list),
]  # fmt: skip


def cells(*values: bytes | str | None) -> pa.BinaryArray:
    return pa.array([value.encode() if isinstance(value, str) else value for value in values], pa.binary())


class Answers:
    """A session that gives one answer."""

    def __init__(self, content: bytes) -> None:
        self.content, self.asked = content, []

    def query(self, sql: str) -> None:
        self.asked.append(sql)

    def stream(self, sql: str, *, longest: int) -> Iterator[AnswerColumns]:
        self.asked.append(sql)
        return read_columns(io.BufferedReader(io.BytesIO(self.content)), longest, 300)  # type: ignore[arg-type]


def over_the_wire(columns: Sequence[Column], rows: list[tuple[bytes | None, ...]]) -> pa.Table:
    session = cast("Session", Answers(answer([one.name for one in columns], *(row(*cells) for cells in rows))))
    return pa.Table.from_batches(list(read_rows(session, "SELECT", columns)))


def same(found: pa.Array, expected: list[Any], kind: pa.DataType) -> bool:
    if kind == pa.duration("us"):
        return found.view(pa.int64()).to_pylist() == expected
    return repr(found.to_pylist()) == repr(pa.array(expected, kind).to_pylist())  # NaN is equal, -0.0 is not 0.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].type.oid} {case[0].type.width}")
@settings(max_examples=25)
@given(data=st.data())
def test_a_value_of_each_type_comes_over_the_wire(case: Any, data: st.DataObject):
    one, values, printed, expected = case
    drawn = data.draw(st.lists(st.none() | values, max_size=8))
    texts = [None if value is None else printed(value) for value in drawn]
    rows = [(text.encode() if isinstance(text, str) else text,) for text in texts]
    found = over_the_wire([one], rows).column(0).combine_chunks()
    kind = types.arrow_type(one)
    found = found if isinstance(found, pa.Array) else pa.array([], kind)
    assert found.type == kind
    assert same(found, [None if value is None else expected(value) for value in drawn], kind)
    encode(found, one, wkb=True)  # which checks each value


def test_the_zero_date_is_what_is_stored_for_it():
    days = cell_values(cells("0000-00-00", None, "0001-01-01"), column(types.DATE))
    assert days.view(pa.int32()).to_pylist() == [-1 - UNIX_EPOCH_DAYS, None, -UNIX_EPOCH_DAYS]
    for oid in (types.DATETIME, types.TIMESTAMP):
        moments = cell_values(cells("0000-00-00 00:00:00.000000", "0000-00-00 00:00:00", None), column(oid, 6, 6))
        assert moments.view(pa.int64()).to_pylist() == [-1 - UNIX_EPOCH_US, -1 - UNIX_EPOCH_US, None]


def test_a_difference_has_enums_and_sets_by_number():
    columns = [column(types.ENUM, name="E", labels=LABELS), column(types.UINT64, name="s", labels=MEMBERS)]
    names = ["diff t against t", "flag", "e", "s"]
    rows = [(b"t", b"INSERT", b"2", b"5"), (b"t", b"UPDATE", b"0", b"0"), (b"t", b"DELETE", None, None)]
    session = cast("Session", Answers(answer(names, *(row(*one) for one in rows))))
    found = pa.Table.from_batches(list(read_differences(session, "DATA BRANCH DIFF", columns)))
    assert found.to_pydict() == {
        FLAG: ["INSERT", "UPDATE", "DELETE"],
        "E": ["it's", "", None],
        "s": ["x,ü", "", None],
    }


def test_an_answer_with_other_columns_is_refused():
    columns = [column(types.INT32, name="a"), column(types.INT32, name="b")]
    for names in (["a"], ["a", "b", "c"]):
        with pytest.raises(BadAnswer, match="other columns came than a, b"):
            list(read_rows(cast("Session", Answers(answer(names))), "SELECT", columns))
    for names in (["x", "flag", "b", "a"], ["flag", "a", "b"]):
        with pytest.raises(BadAnswer, match="other columns came than a, b"):
            list(read_differences(cast("Session", Answers(answer(names))), "DIFF", columns))
    odd = answer(["x", "flag", "a", "b"], row(b"t", b"REPLACE", b"1", b"2"))
    with pytest.raises(BadAnswer, match="neither INSERT"):
        list(read_differences(cast("Session", Answers(odd)), "DIFF", columns))


def test_an_empty_answer_has_the_types():
    columns = [one for one, _, _, _ in CASES]
    found = over_the_wire(columns, [])
    assert (found.num_rows, found.schema) == (0, types.arrow_schema(columns))


def test_a_timestamp_is_asked_for_in_utc_and_nothing_else_is():
    for oid, asked in ((types.TIMESTAMP, ["SET time_zone = '+00:00'", "SELECT"]), (types.DATETIME, ["SELECT"])):
        session = Answers(answer(["v"]))
        list(read_rows(cast("Session", session), "SELECT", [column(oid, 6, 6)]))
        assert session.asked == asked


def test_more_digits_than_the_schema_says_are_refused_and_read_as_more():
    one = column(types.DECIMAL64, 4, 2)
    with pytest.raises(ValueRefused, match="more than the 4 digits"):
        cell_values(cells("1.00", "100.00", None), one)
    wider = column(types.DECIMAL64, 4, 2, digits=19)
    assert cell_values(cells("1.00", "100.00"), wider).to_pylist() == [Decimal("1.00"), Decimal("100.00")]


WRONG = [
    (column(types.BOOL), "2x"),
    (column(types.BIT, 10), b"\1"),
    (column(types.BIT, 10), b""),
    (column(types.INT8), "128"),
    (column(types.UINT8), "-1"),
    (column(types.UINT64), "18446744073709551616"),
    (column(types.INT32), b"\xff"),
    (column(types.FLOAT64), "1.5x"),
    (column(types.DECIMAL64, 4, 2), "one"),
    (column(types.DECIMAL256, 65, 30), "1.5"),
    (column(types.DATE), "2026-02-30"),
    (column(types.DATE), "10000-01-01"),
    (column(types.DATETIME, 6, 6), "2026-01-01 24:00:00"),
    (column(types.TIMESTAMP, 6, 6), "2026-01-01 00:00:00+05:00"),
    *(
        (column(types.TIME, 6, 6), text)
        for text in ("", "-", "1:2:3", ":00:00.000000", "00:00:00.5", "0000000000:00:00")
    ),
    *((column(types.TIME, 6, 6), text) for text in ("00-00:00.000000", "00:0x:00.000000", "-:00:00.000000")),
    (column(types.YEAR, 4), "40000"),
    (column(types.ENUM, labels=LABELS), "70000"),
    *((column(types.VECF32), text) for text in ("", "[", "1, 2", "[]", "[1,2]", "[1, x]")),
    (column(types.VECUINT8), "[256]"),
]


@pytest.mark.parametrize(("one", "text"), WRONG, ids=lambda value: str(getattr(value, "type", value)))
def test_what_is_no_value_of_the_type_is_refused(one: Column, text: bytes | str):
    with pytest.raises(BadAnswer, match="column v"):
        cell_values(cells(None, text), one, numbered=True)


@pytest.mark.parametrize("one", [case[0] for case in CASES], ids=lambda one: f"{one.type.oid} {one.type.width}")
@settings(max_examples=25)
@given(raw=st.lists(st.none() | st.binary(max_size=12) | st.text("0123456789-:. ,[]", max_size=30), max_size=4))
def test_hostile_cells_are_values_or_refused(one: Column, raw: list[bytes | str | None]):
    for numbered in (False, True):
        try:
            values = cell_values(cells(*raw), one, numbered=numbered)
        except (BadAnswer, ValueRefused):
            continue
        assert (values.type, len(values)) == (types.arrow_type(one), len(raw))
        values.validate(full=True)


def test_columns_that_only_objects_have_are_named():
    columns = [
        column(types.ROWID, name="r"),
        column(types.INT32, name="i"),
        column(types.VARCHAR, name="k", hidden=True),
    ]
    assert list(not_carried(columns)) == ["r", "k"]
    assert not_carried([one for one, _, _, _ in CASES]) == {}
