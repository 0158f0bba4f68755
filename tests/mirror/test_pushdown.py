"""What an expression of Arrow skips in a read is no row that satisfies it, and SQL over a point gives what it
gives over the same rows in memory."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, ZERO_DATE
from ccpr.matrixone.schema import DEFAULT_READING, InvalidText, Reading, ZeroDates
from ccpr.mirror import pushdown
from ccpr.mirror.filters import Compare, Filter, IsIn, IsNotNull, IsNull
from ccpr.mirror.pushdown import OPAQUE, Call, ColumnOf, Constant, columns_of, implied_filters, parts_of, say_all
from ccpr.mirror.sql import PointDatabase
from ccpr.mirror.table_read import TableRead, plan_read
from ccpr_emulator.engine.storage import Storage
from tests.support.simulated_mirror import SimulatedMirror

OBJECT_ROWS, OBJECTS = 8, 6
ODD = "i > 5) and (k"  # the name of a column
COLUMNS = {
    "k": "bigint not null",
    "i": "int",
    "u": "bigint unsigned",
    ODD: "smallint",
    "amount": "decimal(12,3)",
    "wide": "decimal(40,2)",
    "born": "date",
    "at": "datetime(6)",
    "seen": "timestamp(6)",
    "took": "time(6)",
    "name": "varchar(30)",
    "raw": "varbinary(30)",
    "f": "double",
    "b": "bool",
}
READINGS = [
    Reading(text, dates)
    for text in (InvalidText.ESCAPE, InvalidText.REPLACE, InvalidText.BINARY)
    for dates in (ZeroDates.NULL, ZeroDates.KEEP)
]
MINUS, MOST, NONE = Decimal("-1.5"), Decimal(2**64 - 1), pa.scalar(None, pa.bool_())
EPOCH = datetime(2020, 1, 1)
NOT_UTF_8 = "\U0010fe80"  # stands for the byte 0x80


def value(column: str, number: int) -> Any:
    """Ascending with the number, so that objects have values of their own; now and then there is none."""
    if column == "k":
        return number
    if number % 7 == 3:
        return None
    match column:
        case "i" | "u":
            return number * 3 - (0 if column == "u" else 70)
        case "wide":
            return f"{number * 3 - 70}.00"  # text, which has another order than the numbers
        case "amount":
            return Decimal(number * 1375 - 30000) / 1000
        case "born":
            return date(2020, 1, 1) + timedelta(days=number)
        case "at":
            return EPOCH + timedelta(seconds=number * 1.5)
        case "seen":
            return (EPOCH + timedelta(hours=number)).replace(tzinfo=UTC)
        case "took":
            return timedelta(minutes=number - 10)
        case "name":
            return ("", "a", "ab", "a" + NOT_UTF_8, "b", NOT_UTF_8, "é", "~")[number % 8] * (1 + number // 24)
        case "raw":
            return bytes([number * 4, 0])
        case "f":
            return float("nan") if number % 5 == 0 else number / 2
        case "b":
            return number % 2 == 0
    return number


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> SimulatedMirror:
    """One table of six objects, with two zero dates."""
    simulated = SimulatedMirror(Storage(object_rows=OBJECT_ROWS), tmp_path_factory.mktemp("pushdown") / "mirror")
    storage = simulated.storage
    storage.create_database("d")
    storage.create_table("d", "t", COLUMNS, primary_key=["k"])
    for start in range(0, OBJECT_ROWS * OBJECTS, OBJECT_ROWS):
        numbers = range(start, start + OBJECT_ROWS)
        rows: dict[str, Any] = {name: [value(name, number) for number in numbers] for name in COLUMNS}
        if start in (8, 32):
            days = [ZERO_DATE - UNIX_EPOCH_DAYS, *(one and one.toordinal() - 719163 for one in rows["born"][1:])]
            rows["born"] = pa.array(days, pa.int32()).cast(pa.date32())
        with storage.begin() as transaction:
            transaction.insert("d", "t", rows)
        storage.flush("d", "t")
    simulated.take_points()
    point = simulated.points[-1]
    simulated.mirror.point = lambda at=None: point  # pyright: ignore[reportAttributeAccessIssue]
    return simulated


@pytest.fixture(scope="module")
def shown(simulated: SimulatedMirror) -> Callable[[Reading], tuple[TableRead, pa.Table]]:
    """The table, and all its rows."""

    @cache
    def read(reading: Reading) -> tuple[TableRead, pa.Table]:
        planned = plan_read(simulated.mirror, "d.t", reading=reading)
        return planned, rows_of(planned, simulated)

    return read


def rows_of(read: TableRead, simulated: SimulatedMirror) -> pa.Table:
    return pa.Table.from_batches(read.batches(mirror=simulated.mirror), read.schema).sort_by("k")


# ---- expressions


def literal(rows: pa.Table, name: str) -> st.SearchStrategy[pa.Scalar]:
    """A value of the column, or one beside it."""
    known = rows.column(name).combine_chunks().drop_null()
    beside: list[Any] = []
    match known.type:
        case kind if pa.types.is_integer(kind):
            beside = [-71, -1, 0, 1, 100]
        case kind if pa.types.is_decimal(kind) and kind.scale == 0:
            beside = [Decimal(0), Decimal(2**64 - 1)]
        case kind if pa.types.is_decimal(kind):
            beside = [Decimal("0.001"), Decimal("-30.000"), Decimal("999999999.999")]
        case kind if pa.types.is_date32(kind):
            beside = [date(1, 1, 1), date(2020, 1, 9), date(9999, 12, 31)]
        case kind if pa.types.is_string(kind):
            beside = ["", "aa", "a\ufffd", "é", "\x7f", "\U0010ffff"]
        case kind if pa.types.is_binary(kind):
            beside = [b"", b"a\x80", b"\xff"]
    return st.sampled_from([*known, *(pa.scalar(one, known.type) for one in beside)])


def expressions_on(rows: pa.Table) -> st.SearchStrategy[pc.Expression]:
    def comparison(name: str) -> st.SearchStrategy[pc.Expression]:
        field, values = pc.field(name), literal(rows, name)
        tests = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]
        compared = st.builds(lambda test, one: getattr(field, test)(one), st.sampled_from(tests), values)
        several = st.lists(values, min_size=1, max_size=3).map(
            lambda found: pa.array(found, rows.schema.field(name).type)
        )
        listed = several.map(lambda found: pc.if_else(field.is_valid(), field.isin(found), NONE))
        return st.one_of(
            compared, compared, several.map(field.isin), listed, st.just(field.is_null()), st.just(field.is_valid())
        )

    return st.recursive(
        st.sampled_from(rows.column_names).flatmap(comparison),
        lambda inner: st.one_of(
            st.builds(lambda left, right: left & right, inner, inner),
            st.builds(lambda left, right: left & right, inner, inner),
            st.builds(lambda left, right: left | right, inner, inner),
            inner.map(lambda one: ~one),
        ),
        max_leaves=5,
    )


@pytest.mark.in_turn
@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_row_is_lost_of_which_an_expression_is_true(
    simulated: SimulatedMirror, shown: Callable[[Reading], tuple[TableRead, pa.Table]], data: st.DataObject
) -> None:
    reading = data.draw(st.sampled_from(READINGS))
    whole, rows = shown(reading)
    expression = data.draw(expressions_on(rows))
    parts = parts_of(expression, whole.schema)
    filters = implied_filters(parts, whole.columns, reading)
    read = plan_read(simulated.mirror, "d.t", filters=filters, reading=reading)
    expected = rows.filter(expression).column("k")
    found = rows_of(read, simulated)
    assert found.filter(expression).column("k").equals(expected), filters
    if say_all(filters, parts):
        assert found.column("k").equals(expected), filters
    names = columns_of(parts)
    if names is not None:
        assert rows.select(sorted({*names, "k"})).filter(expression).column("k").equals(expected), names


@pytest.mark.parametrize(
    ("expression", "filters"),
    [
        (pc.field("k") > 5, (Compare("k", ">", 5),)),
        ((pc.field("k") > 5) & (pc.field("i") != -7), (Compare("k", ">", 5), Compare("i", "!=", -7))),
        (pc.field(ODD) == pa.scalar(3, pa.int16()), (Compare(ODD, "=", 3),)),
        (pc.field("u") <= pa.scalar(MOST, pa.decimal128(20, 0)), (Compare("u", "<=", MOST),)),
        (pc.field("amount") < pa.scalar(MINUS, pa.decimal128(12, 3)), (Compare("amount", "<", MINUS),)),
        (pc.field("born") >= date(1969, 12, 31), (Compare("born", ">=", date(1969, 12, 31)),)),
        (pc.field("at") < datetime(1960, 1, 1), (Compare("at", "<", datetime(1960, 1, 1)),)),
        (pc.field("seen") == pa.scalar(datetime(2020, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")),
         (Compare("seen", "=", datetime(2020, 1, 1, tzinfo=UTC)),)),
        (pc.field("name") == ') and (k > "100")', (Compare("name", "=", ') and (k > "100")'),)),
        (pc.field("raw") > b"\x80", (Compare("raw", ">", b"\x80"),)),
        (pc.field("k").isin([1, 2]), (IsIn("k", (1, 2)),)),
        ((pc.field("k") == 1) | pc.field("k").isin([2, 3]), (IsIn("k", (1, 2, 3)),)),
        ((pc.field("k") == 1) & pc.field("i").is_valid(), (Compare("k", "=", 1), IsNotNull("i"))),
        (pc.if_else(pc.field("k").is_valid(), pc.field("k").isin([4]), NONE), (IsNotNull("k"), IsIn("k", (4,)))),
        (pc.field("took").is_null(), (IsNull("took"),)),
        # what is not understood, or is of no use, is left to Arrow
        ((pc.field("k") == 1) | (pc.field("i") == 1), ()),
        ((pc.field("k") < 1) | (pc.field("k") > 9), ()),
        (~(pc.field("k") == 1), ()),
        (pc.field("k") == pa.scalar(None, pa.int64()), ()),
        (pc.field("k").isin([1, None]), ()),
        (pc.field("k") + 1 == 5, ()),
        (pc.field("name") == "é", ()),
        (pc.field("f") > 1.5, ()),
        (pc.field("b"), ()),
        (pc.field("k") == pc.field("k"), ()),
        (pc.field("took") > pa.scalar(timedelta(1), pa.duration("us")), ()),
    ],
    ids=str,
)  # fmt: skip
def test_what_an_expression_says_of_single_columns(
    shown: Callable[[Reading], tuple[TableRead, pa.Table]], expression: pc.Expression, filters: tuple[Filter, ...]
) -> None:
    whole, _ = shown(DEFAULT_READING)
    parts = parts_of(expression, whole.schema)
    assert implied_filters(parts, whole.columns, DEFAULT_READING) == filters
    assert say_all(filters, parts) is (len(filters) > 0)


@pytest.mark.parametrize(
    ("expression", "filters"),
    [
        ((pc.field("k") == 1) & (pc.field("f") > 1.5), (Compare("k", "=", 1),)),
        (pc.if_else(pc.field("i") > 3, pc.field("k").isin([1]), NONE) | (pc.field("k") == 2), (IsIn("k", (1, 2)),)),
    ],
    ids=str,
)
def test_filters_that_do_not_say_all_leave_the_rest_to_arrow(
    shown: Callable[[Reading], tuple[TableRead, pa.Table]], expression: pc.Expression, filters: tuple[Filter, ...]
) -> None:
    whole, _ = shown(DEFAULT_READING)
    parts = parts_of(expression, whole.schema)
    assert implied_filters(parts, whole.columns, DEFAULT_READING) == filters
    assert not say_all(filters, parts)


@pytest.mark.parametrize(
    ("expression", "reading"),
    [
        (pc.field("born").is_valid(), Reading(zero_dates=ZeroDates.KEEP)),
        (pc.field("born") < date(2020, 1, 1), Reading(zero_dates=ZeroDates.ERROR)),
        (pc.field("name") == b"a", Reading(InvalidText.BINARY)),
    ],
    ids=str,
)
def test_columns_that_are_shown_otherwise_than_they_are_stored_give_no_filter(
    simulated: SimulatedMirror, expression: pc.Expression, reading: Reading
) -> None:
    whole = plan_read(simulated.mirror, "d.t", reading=reading)
    assert implied_filters(parts_of(expression, whole.schema), whole.columns, reading) == ()


def test_a_text_that_would_be_an_error_is_none_where_nobody_asks_for_it(simulated: SimulatedMirror) -> None:
    whole = plan_read(simulated.mirror, "d.t", reading=(reading := Reading(InvalidText.ERROR)))
    parts = parts_of(pc.field("name") == "a", whole.schema)
    assert implied_filters(parts, whole.columns, reading) == (Compare("name", "=", "a"),)


def test_an_expression_that_is_written_in_an_unknown_way_names_any_column(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("k", pa.int64()), ("i", pa.int32())])
    expression = (pc.field("k") == 1) & (pc.field("i") == 2)
    whole = bytes(expression.to_substrait(schema))
    equal = Call("equal", (ColumnOf("k"), Constant(1))), Call("equal", (ColumnOf("i"), Constant(2)))
    assert parts_of(expression, schema) == Call("and", equal)
    assert columns_of(Call("and", equal)) == {"k", "i"}
    assert columns_of(Call("and", (*equal, OPAQUE))) is None

    class Written:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def to_substrait(self, _: pa.Schema) -> bytes:
            return self.content

    monkeypatch.setattr(pushdown, "_as_written", lambda kind: kind)
    for stop in range(len(whole)):  # cut anywhere it is not another expression
        found = parts_of(Written(whole[:stop]), schema)  # pyright: ignore[reportArgumentType]
        assert implied(found) <= implied(Call("and", equal)), stop
    assert parts_of(Written(b"\xff" * 40), schema) is OPAQUE  # pyright: ignore[reportArgumentType]


def implied(node: Any) -> set[Any]:
    """The comparisons that hold where the node is true."""
    if isinstance(node, Call):
        return {one for part in node.arguments for one in implied(part)} if node.function == "and" else {node}
    return set()


# ---- statements


def condition(rows: pa.Table) -> st.SearchStrategy[str]:
    def comparison(name: str) -> st.SearchStrategy[str]:
        column, values = f'"{name}"', literal(rows, name).map(as_sql)
        compared = st.builds(
            lambda test, one: f"{column} {test} {one}", st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), values
        )
        listed = st.lists(values, min_size=1, max_size=4).map(lambda found: f"{column} IN ({', '.join(found)})")
        between = st.builds(lambda low, high: f"{column} BETWEEN {low} AND {high}", values, values)
        return st.one_of(
            compared, compared, listed, between, st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL"])
        )

    return st.recursive(
        st.sampled_from(rows.column_names).flatmap(comparison),
        lambda inner: st.one_of(
            st.builds(lambda left, right: f"({left} AND {right})", inner, inner),
            st.builds(lambda left, right: f"({left} OR {right})", inner, inner),
            inner.map(lambda one: f"NOT ({one})"),
        ),
        max_leaves=5,
    )


def as_sql(scalar: pa.Scalar) -> str:
    value, kind = scalar.as_py(), scalar.type
    match value:
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case timedelta():
            return f"to_microseconds({value // timedelta(microseconds=1)})"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"'{value.isoformat(sep=' ')}'::{'TIMESTAMPTZ' if kind.tz else 'TIMESTAMP'}"
        case date():
            return f"DATE '{value.isoformat()}'"
        case float() if value != value:
            return "'nan'::DOUBLE"
    return str(value)


@pytest.fixture(scope="module")
def in_memory(shown: Callable[[Reading], tuple[TableRead, pa.Table]]) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same rows as a table of DuckDB."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", shown(DEFAULT_READING)[1])
        connection.execute("CREATE TABLE t AS SELECT * FROM rows")
        yield connection


@pytest.mark.in_turn
@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_statement_gives_what_it_gives_over_the_same_rows_in_memory(
    simulated: SimulatedMirror,
    shown: Callable[[Reading], tuple[TableRead, pa.Table]],
    in_memory: duckdb.DuckDBPyConnection,
    data: st.DataObject,
) -> None:
    sql = f"SELECT k, name FROM t WHERE {data.draw(condition(shown(DEFAULT_READING)[1]))} ORDER BY k"
    with PointDatabase(simulated.mirror, simulated.points[-1], "d") as database:
        assert database.query(sql).read_all().equals(in_memory.sql(sql).to_arrow_table()), sql
