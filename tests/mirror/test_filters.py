"""Filters: how they are written, what they refuse, and that they keep the rows for which Python's own comparison is
true."""

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.types import arrow_type
from ccpr.matrixone.schema import Column, Kind, SqlType, Table
from ccpr.mirror.errors import BadFilter
from ccpr.mirror.filters import (
    Compare,
    Filter,
    IsIn,
    IsNotIn,
    IsNotNull,
    IsNull,
    conditions,
    mask_of,
    parse_filters,
)
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr_emulator.engine.storage import Storage
from tests.histories.values import TYPES
from tests.support.simulated_mirror import SimulatedMirror

INT = Column("c", 0, SqlType(types.INT32))
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def kept(column: Column, values: pa.Array, *filters: Any) -> list[Any]:
    """The values that filters on a column keep."""
    table = Table(1, 1, "d", "t", Kind.TABLE, (column,))
    stored = values.cast(arrow_type(column))
    return stored.filter(mask_of(conditions(parse_filters(filters), table), lambda _: stored)).to_pylist()


# ---- as they are written


@pytest.mark.parametrize(
    ("written", "parsed"),
    [
        (("c", "=", 1), Compare("c", "=", 1)),
        (("c", "==", 1), Compare("c", "=", 1)),
        (("c", "<>", 1), Compare("c", "!=", 1)),
        (["c", " >= ", 1], Compare("c", ">=", 1)),
        (("c", "IN", [1, 2]), IsIn("c", (1, 2))),
        (("c", "not  in", {3}), IsNotIn("c", (3,))),
        (("c", "in", range(2)), IsIn("c", (0, 1))),
        (("c", "in", np.array([1, 2])), IsIn("c", (1, 2))),
        (("c", "in", pa.array([1, 2])), IsIn("c", (1, 2))),
        (("c", "=", np.int64(5)), Compare("c", "=", 5)),
        (("c", "=", pa.scalar("x")), Compare("c", "=", "x")),
        (("c", "is null"), IsNull("c")),
        (("c", "IS NOT NULL"), IsNotNull("c")),
        (Compare("c", "<", 1), Compare("c", "<", 1)),
    ],
)
def test_a_filter_is_a_tuple(written: Any, parsed: Filter) -> None:
    assert parse_filters([written]) == (parsed,)
    assert type(getattr(parse_filters([written])[0], "value", 0)) is type(getattr(parsed, "value", 0))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("c = 1", "a list of tuples, not str"),
        ({"c": 1}, "a list of tuples, not dict"),
        (5, "a list of tuples, not int"),
        (("c", "=", 1), "not one tuple"),
        ([("c",)], "two or three parts"),
        ([("c", "=", 1, 2)], "two or three parts"),
        ([5], "two or three parts"),
        ([(5, "=", 1)], "are texts"),
        ([("c", "like", "x%")], "there is no operator 'like'"),
        ([("c", "=")], "= needs a value"),
        ([("c", "in")], "in needs a value"),
        ([("c", "in", "abc")], "takes a list of values, not str"),
        ([("c", "not in", 5)], "takes a list of values, not int"),
        ([("c", "is null", None)], "is null takes no value"),
    ],
)
def test_what_is_not_a_filter_is_an_error_with_an_example(written: Any, said: str) -> None:
    with pytest.raises(BadFilter, match=said) as refused:
        parse_filters(written)
    assert '("column", "' in refused.value.remedy


def test_no_filters_are_none_or_an_empty_list() -> None:
    assert parse_filters(None) == parse_filters([]) == ()


# ---- what they refuse

WRONG = [
    (SqlType(types.BOOL), [1, "true", None]),
    (SqlType(types.INT32), [1.0, "1", True, Decimal("nan"), Decimal("1e999999999"), date(2026, 1, 1)]),
    (SqlType(types.UINT64), [1.0, b"1"]),
    (SqlType(types.DECIMAL64, 10, 2), [1.5, "1.5", Decimal("inf")]),
    (SqlType(types.DECIMAL256, 60, 5), [1, Decimal(1)]),
    (SqlType(types.FLOAT64), ["1", True, Decimal(1), 10**400]),
    (SqlType(types.DATE), ["2026-01-01", datetime(2026, 1, 1), 5]),
    (SqlType(types.TIME), [5, "01:00:00"]),
    (SqlType(types.DATETIME), ["2026-01-01", date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), pd.NaT]),
    (SqlType(types.TIMESTAMP), ["2026-01-01", datetime(2026, 1, 1), pd.NaT]),
    (SqlType(types.VARCHAR, 9), [5, b"x", "\ud800"]),
    (SqlType(types.UUID), [5, b"x"]),
    (SqlType(types.VARBINARY, 9), ["x", 5]),
    (SqlType(types.VECF32, 3), [[1.0, 2.0, 3.0], 5]),
]


@pytest.mark.parametrize(("kind", "values"), WRONG, ids=lambda value: str(getattr(value, "oid", "")))
def test_a_value_of_another_type_is_an_error_that_names_the_column(kind: SqlType, values: list[Any]) -> None:
    for value in values:
        for written in (("c", "=", value), ("c", "<", value), ("c", "in", [value]), ("c", "not in", [value])):
            with pytest.raises(BadFilter) as refused:
                kept(Column("c", 0, kind), pa.array([]), written)
            assert refused.value.subject == "column c of table d.t", written


def test_a_column_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(BadFilter, match=r"no column x \[column x of table d\.t\] Its columns are c\."):
        kept(INT, pa.array([1]), ("x", "=", 1))


def test_none_is_compared_by_is_null() -> None:
    with pytest.raises(BadFilter, match=r'cannot be compared with None.*\("column", "is null"\)'):
        kept(INT, pa.array([1]), ("c", "=", None))


def test_a_decimal_that_is_text_has_no_order() -> None:
    wide = Column("c", 0, SqlType(types.DECIMAL256, 60, 0))
    assert kept(wide, pa.array(["10", "9"]), ("c", "!=", "9")) == ["10"]
    with pytest.raises(BadFilter, match="its order is not that of the numbers"):
        kept(wide, pa.array(["10", "9"]), ("c", "<", "9"))


# ---- what they keep


@pytest.mark.parametrize(
    ("operator", "value", "wanted"),
    [
        ("<", Decimal("1.5"), [0, 1]), ("<=", Decimal("1.5"), [0, 1]), (">", Decimal("1.5"), [2]),
        (">=", Decimal("1.5"), [2]), ("=", Decimal("1.5"), []), ("!=", Decimal("1.5"), [0, 1, 2]),
        ("<", 2**40, [0, 1, 2]), (">", 2**40, []), ("=", 2**40, []), ("!=", 2**40, [0, 1, 2]),
        (">", -(2**40), [0, 1, 2]), ("<=", -(2**40), []), ("in", [2**40, Decimal("0.5"), 1], [1]),
        ("not in", [2**40, Decimal("0.5"), 1], [0, 2]), ("in", [], []), ("not in", [], [0, 1, 2]),
    ],
)  # fmt: skip
def test_numbers_are_compared_exactly_whatever_the_column_can_hold(
    operator: str, value: Any, wanted: list[int]
) -> None:
    assert kept(INT, pa.array([0, 1, 2, None]), ("c", operator, value)) == wanted


def test_floats_follow_ieee_754() -> None:
    column, nan = Column("c", 0, SqlType(types.FLOAT32)), float("nan")
    values = pa.array([0.0, -0.0, 1.5, nan, None], pa.float32())
    assert kept(column, values, ("c", "<", 1)) == [0.0, -0.0]
    assert kept(column, values, ("c", "=", 0.0)) == kept(column, values, ("c", "in", [-0.0, nan])) == [0.0, -0.0]
    assert [math.isnan(value) for value in kept(column, values, ("c", "!=", 0))] == [False, True]
    assert len(kept(column, values, ("c", "not in", [nan]))) == 4
    assert kept(column, values, ("c", "=", nan)) == kept(column, values, ("c", ">=", nan)) == []
    assert kept(column, pa.array([0.1], pa.float32()), ("c", "=", 0.1)) == [], "a float of 32 bits has other digits"


def test_a_null_satisfies_is_null_alone() -> None:
    values = pa.array([1, None])
    for written in (
        ("c", "!=", 5),
        ("c", "not in", [5]),
        ("c", "not in", []),
        ("c", "is not null"),
        ("c", "<", 10**30),
    ):
        assert kept(INT, values, written) == [1]
    assert kept(INT, values, ("c", "is null")) == [None]


def test_times_of_pandas_and_numpy_are_times() -> None:
    column = Column("c", 0, SqlType(types.DATETIME))
    values = pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)])
    for value in (pd.Timestamp("2026-01-02"), np.datetime64("2026-01-02", "us"), datetime(2026, 1, 2)):
        assert kept(column, values, ("c", ">=", value)) == [datetime(2026, 1, 2)]


# ---- against a table of all types


@pytest.fixture(scope="module")
def all_types(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Mirror, Point, list[dict[str, Any]], dict[str, Column]]:
    """A table with a column of every type, in objects of several kinds; its rows and columns."""
    rng = random.Random(7)
    storage = Storage(cn_rows=100, object_rows=8192, now=iter(range(10**18, 2 * 10**18, 10**9)).__next__)
    storage.create_database("d")
    names = {f"c{number}": kind for number, kind in enumerate(TYPES)}
    storage.create_table("d", "t", {"n": "int", **names}, primary_key=["n"])
    for start, count in ((0, 5), (10, 300), (400, 20), (500, 150)):
        rows = [
            {"n": number, **{name: None if rng.random() < 0.15 else TYPES[kind](rng) for name, kind in names.items()}}
            for number in range(start, start + count)
        ]
        with storage.begin() as transaction:
            transaction.insert("d", "t", rows)
        storage.flush("d", "t")
    simulated = SimulatedMirror(storage, tmp_path_factory.mktemp("all") / "mirror")
    simulated.take_points()
    (point,) = simulated.points
    (ref,) = point.tables.values()
    columns = {column.name: column for column in simulated.mirror.manifest(ref).table.user_columns}
    schema, batches = simulated.mirror.read(point, "d.t")
    rows = pa.Table.from_batches(batches, schema).to_pylist()
    assert len(rows) == 475
    return simulated.mirror, point, rows, columns


def is_true(row: dict[str, Any], filter_: Filter) -> bool:
    """What a filter means, by Python's own comparison."""
    value = row[filter_.column]
    match filter_:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case IsIn(_, values):
            return value is not None and any(eq(value, wanted) for wanted in values)
        case IsNotIn(_, values):
            return value is not None and all(ne(value, wanted) for wanted in values)
        case Compare(_, operator, wanted):
            left, right = (one.encode() if isinstance(one, str) else one for one in (value, wanted))
            return left is not None and OPERATORS[operator](left, right)


def close_to(value: Any, data: st.DataObject) -> Any:
    """A value, or one that is a little different."""
    step = data.draw(st.sampled_from([0, 0, 1, -1]))
    match value:
        case bool():
            return value
        case int():
            return data.draw(st.sampled_from([value + step, Decimal(value) + Decimal("0.5"), value * 10**12]))
        case Decimal():
            return value + Decimal(step).scaleb(data.draw(st.sampled_from([-12, -2, 0])))
        case float():
            return math.nextafter(value, step * math.inf) if step else value
        case str():
            return value[: data.draw(st.integers(0, len(value)))] + "\x00" if step else value
        case bytes():
            return value[: data.draw(st.integers(0, len(value)))] + b"\x00" if step else value
        case timedelta():
            return value + timedelta(microseconds=step)
        case date():
            unit = timedelta(microseconds=1) if isinstance(value, datetime) else timedelta(days=1)
            return value + step * unit if 1 < value.year < 9999 else value
    raise AssertionError(type(value))


def a_filter(column: Column, rows: list[dict[str, Any]], data: st.DataObject) -> Filter:
    known = [row[column.name] for row in rows if row[column.name] is not None]
    ordered = [] if column.type.oid == types.DECIMAL256 else ["<", "<=", ">", ">="]
    compared = [] if isinstance(known[0], list) else ["=", "!=", *ordered, "in", "not in"]
    operator = data.draw(st.sampled_from([*compared, "null", "not null"]))
    if operator in ("null", "not null"):
        return IsNull(column.name) if operator == "null" else IsNotNull(column.name)
    values = [close_to(data.draw(st.sampled_from(known)), data) for _ in range(data.draw(st.integers(1, 5)))]
    if operator in ("in", "not in"):
        return IsIn(column.name, tuple(values)) if operator == "in" else IsNotIn(column.name, tuple(values))
    return Compare(column.name, operator, values[0])  # pyright: ignore[reportArgumentType]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_rows_are_kept_where_pythons_comparison_is_true(
    all_types: tuple[Mirror, Point, list[dict[str, Any]], dict[str, Column]], data: st.DataObject
) -> None:
    mirror, point, rows, columns = all_types
    chosen = data.draw(st.lists(st.sampled_from(list(columns)), min_size=1, max_size=3))
    filters = [a_filter(columns[name], rows, data) for name in chosen]
    wanted = data.draw(st.lists(st.sampled_from(list(columns)), max_size=3, unique=True))
    schema, batches = mirror.read(point, "d.t", columns=["n", *wanted], filters=filters)
    read = pa.Table.from_batches(batches, schema).to_pylist()
    expected = [row for row in rows if all(is_true(row, filter_) for filter_ in filters)]
    assert read == [{name: row[name] for name in ("n", *wanted)} for row in expected], filters


def test_rows_can_be_counted_without_columns(
    all_types: tuple[Mirror, Point, list[dict[str, Any]], dict[str, Column]],
) -> None:
    mirror, point, rows, _ = all_types
    for filters in ((), (Compare("n", ">=", 100),)):
        count = sum(batch.num_rows for batch in mirror.read(point, "d.t", columns=[], filters=filters)[1])
        assert count == sum(all(is_true(row, filter_) for filter_ in filters) for row in rows)


def test_what_filters_refuse_they_refuse_before_a_row_is_read(tmp_path: Path) -> None:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int"}, primary_key=["n"])
    simulated = SimulatedMirror(storage, tmp_path / "mirror")
    simulated.take_points()
    with pytest.raises(BadFilter):
        simulated.mirror.read(simulated.points[0], "d.t", filters=[Compare("n", "=", "x")])
