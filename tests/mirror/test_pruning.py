"""What is skipped holds no row asked for, whatever is asked; and what can be skipped is."""

import struct
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import ZERO_DATE
from ccpr.matrixone.objects.object_layout import COLUMN_META_DTYPE, Block
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.schema import Column, SqlType
from ccpr.mirror.filters import Compare, Filter, IsIn, IsNotIn, IsNotNull, IsNull
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.pruning import prune, stats_tell_of
from ccpr.mirror.table_read import TableRead, count_rows, plan_read
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, iterate, subscribed
from tests.support.ci import UNDER_CI
from tests.support.decoded_columns import Decoded, note_decoded
from tests.support.recorded_mirror import mirror_of_recording
from tests.support.spark_fixtures import RecordedMirror
from tests.support.spark_tables import read_table

pytestmark = pytest.mark.integration


def zone(oid: int, low: bytes, high: bytes, *, initialised: bool = True, unbounded: bool = False) -> bytes:
    high_length = bytes([len(high) | (0x80 if unbounded else 0)])
    return (
        low.ljust(30, b"\x77")
        + bytes([len(low)])
        + high.ljust(30, b"\x77")
        + high_length
        + bytes([0x80 if initialised else 0, oid])
    )


def numbers(oid: int, form: str, low: int, high: int) -> bytes:
    return zone(oid, struct.pack(form, low), struct.pack(form, high))


def excluded(
    column: Column, filter_: Filter, zonemap: bytes, *, rows: int = 10, nulls: int = 0, oid: int | None = None
) -> bool:
    metas = np.zeros(column.seqnum + 1, COLUMN_META_DTYPE)
    metas[column.seqnum]["oid"] = column.type.oid if oid is None else oid
    metas[column.seqnum]["nulls"] = nulls
    metas[column.seqnum]["zonemap"] = np.void(zonemap)
    (test,) = prune([filter_], [column]).tests
    return test.excludes_block(Block(0, rows, metas), column.seqnum)


def covered(
    column: Column, filter_: Filter, zonemap: bytes, *, rows: int = 10, nulls: int = 0, oid: int | None = None
) -> bool:
    metas = np.zeros(column.seqnum + 1, COLUMN_META_DTYPE)
    metas[column.seqnum]["oid"] = column.type.oid if oid is None else oid
    metas[column.seqnum]["nulls"] = nulls
    metas[column.seqnum]["zonemap"] = np.void(zonemap)
    (test,) = prune([filter_], [column]).tests
    return test.covers_block(Block(0, rows, metas), column.seqnum)


INT = Column("c", 1, SqlType(types.INT32))
TEXT = Column("c", 1, SqlType(types.VARCHAR, 100))


@pytest.mark.parametrize(
    ("filter_", "skipped"),
    [
        (Compare("c", "=", 9), True), (Compare("c", "=", 10), False), (Compare("c", "=", 20), False),
        (Compare("c", "=", 21), True), (Compare("c", "<", 10), True), (Compare("c", "<", 11), False),
        (Compare("c", "<=", 9), True), (Compare("c", "<=", 10), False), (Compare("c", ">", 20), True),
        (Compare("c", ">", 19), False), (Compare("c", ">=", 21), True), (Compare("c", ">=", 20), False),
        (IsIn("c", (9, 21)), True), (IsIn("c", (9, 15, 21)), False), (IsIn("c", (None, 9)), True),
        (IsIn("c", ()), True), (Compare("c", "=", Decimal("9.5")), True), (Compare("c", "<", Decimal("10.5")), False),
        (Compare("c", ">", 10**40), True), (IsNull("c"), True), (IsNotNull("c"), False),
        (Compare("c", "!=", 15), False), (IsNotIn("c", (15, 30)), False),
        # What cannot be compared for certain is read.
        (Compare("c", "=", 9.0), False), (Compare("c", "=", "9"), False), (Compare("c", "=", True), False),
        (IsIn("c", (9, "x")), False), (Compare("c", "=", Decimal("nan")), False),
        (Compare("c", "=", Decimal("1e999999999")), False),
    ],
)  # fmt: skip
def test_numbers_between_10_and_20(filter_: Filter, skipped: bool) -> None:
    assert excluded(INT, filter_, numbers(types.INT32, "<i", 10, 20)) is skipped


@pytest.mark.parametrize(
    ("filter_", "all_of_it"),
    [
        (Compare("c", ">=", 10), True), (Compare("c", ">=", 11), False), (Compare("c", ">", 9), True),
        (Compare("c", ">", 10), False), (Compare("c", "<=", 20), True), (Compare("c", "<=", 19), False),
        (Compare("c", "<", 21), True), (Compare("c", "<", 20), False), (Compare("c", ">", Decimal("9.5")), True),
        (Compare("c", "<", 10**40), True), (Compare("c", "=", 10), False), (IsIn("c", (10, 20)), False),
        (IsIn("c", ()), False), (IsNotNull("c"), True), (IsNull("c"), False),
        # What says less than the filter, or cannot be compared for certain, shows nothing.
        (Compare("c", "!=", 9), False), (IsNotIn("c", (9, 30)), False), (Compare("c", ">=", 9.0), False),
        (Compare("c", ">=", "9"), False), (IsIn("c", (10, "x")), False), (Compare("c", "<", Decimal("nan")), False),
    ],
)  # fmt: skip
def test_numbers_that_all_lie_between_10_and_20(filter_: Filter, all_of_it: bool) -> None:
    bounds = numbers(types.INT32, "<i", 10, 20)
    assert covered(INT, filter_, bounds) is all_of_it
    assert not covered(INT, filter_, bounds, nulls=1), "a null satisfies no comparison, and a value is not null"
    assert not covered(INT, filter_, numbers(types.INT64, "<q", 10, 20), oid=types.INT64), "another type is reported"


def test_a_block_of_one_value_and_one_of_nulls_are_known() -> None:
    seven = numbers(types.INT32, "<i", 7, 7)
    for filter_ in (Compare("c", "=", 7), IsIn("c", (5, 7))):
        assert covered(INT, filter_, seven)
    assert not covered(INT, Compare("c", "=", 8), seven)
    assert covered(INT, IsNull("c"), bytes(64), nulls=10)
    assert covered(INT, IsNull("c"), bytes(64), oid=0), "a column that came after the object"
    assert not covered(INT, IsNotNull("c"), bytes(64), oid=0)


def test_a_zone_with_a_zero_date_is_not_known_since_that_counts_as_null() -> None:
    day = Column("c", 0, SqlType(types.DATE))
    later, zero = numbers(types.DATE, "<i", 0, 700_000), numbers(types.DATE, "<i", ZERO_DATE, 700_000)
    for filter_ in (IsNotNull("c"), Compare("c", "<", date(2026, 1, 1))):
        assert covered(day, filter_, later)
        assert not covered(day, filter_, zero)


def test_texts_are_within_what_30_bytes_can_say() -> None:
    bounds = zone(types.VARCHAR, b"b" * 30, b"d")
    assert covered(TEXT, Compare("c", ">=", "b"), bounds)
    assert covered(TEXT, Compare("c", "<=", "d"), bounds)
    assert not covered(TEXT, Compare("c", ">=", "b" * 31), bounds), "a value may be a prefix longer than the bound"
    for open_end in (zone(types.VARCHAR, b"b", b"\xff" * 30, unbounded=True), zone(types.VARCHAR, b"b", b"\xff" * 30)):
        assert not covered(TEXT, Compare("c", "<", "\U0010ffff" * 20), open_end)
        assert covered(TEXT, Compare("c", ">=", "b"), open_end)


def test_nulls_never_satisfy_a_comparison_and_a_block_without_any_has_no_null() -> None:
    nothing = zone(types.INT32, bytes(4), bytes(4), initialised=False)
    comparisons = (
        Compare("c", "=", 1),
        Compare("c", "=", "?"),
        Compare("c", "!=", 1),
        IsIn("c", (1,)),
        IsNotIn("c", ()),
    )
    for filter_ in (*comparisons, IsNotNull("c")):
        assert excluded(INT, filter_, nothing, rows=10, nulls=10)
        assert not excluded(INT, filter_, nothing, rows=10, nulls=9), "not initialised means that nothing is known"
    assert not excluded(INT, IsNull("c"), nothing, rows=10, nulls=1)
    assert excluded(INT, IsNull("c"), nothing, rows=10, nulls=0)


def test_a_column_that_came_after_the_object_is_all_null() -> None:
    assert excluded(INT, Compare("c", "=", 1), bytes(64), oid=0)
    assert not excluded(INT, IsNull("c"), bytes(64), oid=0)
    assert excluded(replace(INT, seqnum=7), IsNotNull("c"), bytes(64), oid=0)


def test_a_file_of_another_type_is_read_and_reported() -> None:
    assert not excluded(INT, Compare("c", "=", 9), numbers(types.INT64, "<q", 10, 20), oid=types.INT64)


def test_texts_are_compared_by_bytes_within_what_30_bytes_can_say() -> None:
    bounds = zone(types.VARCHAR, b"b" * 30, b"d")
    assert excluded(TEXT, Compare("c", "=", "b"), bounds)
    assert not excluded(TEXT, Compare("c", "=", "b" * 40), bounds)
    assert excluded(TEXT, Compare("c", ">", "d"), bounds)
    assert excluded(TEXT, Compare("c", ">", "é"), bounds)
    assert not excluded(TEXT, Compare("c", "<", "é"), bounds)
    for open_end in (zone(types.VARCHAR, b"b", b"\xff" * 30, unbounded=True), zone(types.VARCHAR, b"b", b"\xff" * 30)):
        assert not excluded(TEXT, Compare("c", ">", "\U0010ffff" * 20), open_end)
        assert excluded(TEXT, Compare("c", "<", "b"), open_end)
    raw = Column("c", 0, SqlType(types.VARBINARY, 100, 0))
    assert not excluded(raw, Compare("c", ">", b"\xff" * 30), zone(types.VARBINARY, b"b", b"\xff" * 30)), (
        "may stand for anything greater"
    )
    assert not excluded(TEXT, Compare("c", "=", "\ud800"), bounds)


@pytest.mark.parametrize(
    ("kind", "inside", "outside", "low", "high"),
    [
        (SqlType(types.DECIMAL64, 10, 2), Decimal("1.5"), Decimal("2.001"),
         struct.pack("<q", 150), struct.pack("<q", 200)),
        (SqlType(types.DECIMAL128, 38, 2), 2, Decimal("1.499"),
         (150).to_bytes(16, "little"), (200).to_bytes(16, "little")),
        (SqlType(types.DATE), date(1970, 1, 1), date(1970, 1, 2),
         struct.pack("<i", 719_162), struct.pack("<i", 719_162)),
        (SqlType(types.TIME, 0, 6), timedelta(microseconds=-5), timedelta(0),
         struct.pack("<q", -5), struct.pack("<q", -1)),
        (SqlType(types.DATETIME), datetime(1, 1, 1), datetime(1, 1, 1, 0, 0, 1), bytes(8), bytes(8)),
        (SqlType(types.UINT64), 2**63, 0, struct.pack("<Q", 1), struct.pack("<Q", 2**64 - 1)),
        (SqlType(types.BLOB), b"\xff", b"\x00", b"\x01", b"\xff"),
        (SqlType(types.UUID), str(uuid.UUID(int=1)), "zz", uuid.UUID(int=0).bytes, uuid.UUID(int=2).bytes),
        (
            SqlType(types.TIMESTAMP),
            datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
            datetime(1970, 1, 1, 1, tzinfo=UTC),
            struct.pack("<q", 62_135_596_800_000_000),
            struct.pack("<q", 62_135_596_800_000_000),
        ),
    ],
    ids=lambda value: str(value.oid) if isinstance(value, SqlType) else "",
)  # fmt: skip
def test_every_comparable_type_is_compared_in_its_stored_form(
    kind: SqlType, inside: Any, outside: Any, low: bytes, high: bytes
) -> None:
    column = Column("c", 0, kind)
    assert not excluded(column, Compare("c", "=", inside), zone(kind.oid, low, high))
    assert excluded(column, Compare("c", "=", outside), zone(kind.oid, low, high))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (Column("c", 0, SqlType(types.BOOL)), True),
        (Column("c", 0, SqlType(types.FLOAT64)), 5.0),
        (Column("c", 0, SqlType(types.ENUM), labels=("a", "b")), "a"),
        (Column("c", 0, SqlType(types.UINT64), labels=("a", "b")), "a"),
        (Column("c", 0, SqlType(types.JSON)), "{}"),
        (Column("c", 0, SqlType(types.DECIMAL256, 60, 0)), "5"),
        (Column("c", 0, SqlType(types.VECF32)), [1.0]),
        (Column("c", 0, SqlType(types.DATETIME)), datetime(2020, 1, 1, tzinfo=UTC)),
        (Column("c", 0, SqlType(types.TIMESTAMP)), datetime(2020, 1, 1)),
        (Column("c", 0, SqlType(types.DATE)), datetime(2020, 1, 1)),
    ],
    ids=lambda value: str(value.type.oid) if isinstance(value, Column) else "",
)
def test_what_is_not_certain_from_zone_maps_is_read(column: Column, value: Any) -> None:
    compared = [Compare("c", operator, value) for operator in ("=", "!=", "<", ">")]
    for filter_ in (*compared, IsIn("c", (value,)), IsNotIn("c", (value,))):
        assert not excluded(column, filter_, zone(column.type.oid, bytes(8), bytes(8)))
        assert not covered(column, filter_, zone(column.type.oid, bytes(8), bytes(8)))


def test_with_a_hole_below_the_sort_key_the_stats_say_nothing() -> None:
    columns = [Column(name, seqnum, SqlType(types.INT32)) for name, seqnum in (("a", 0), ("b", 2), ("c", 3))]
    assert stats_tell_of(0, columns)
    assert not stats_tell_of(2, columns)


@pytest.mark.parametrize("added", ["int", "bigint", "varchar(20)", "timestamp(6)"])
def test_a_column_added_in_place_is_null_in_objects_whose_special_columns_stand_at_its_number(
    tmp_path: Path, added: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rowids and commit times are never null, and have zone maps: neither says anything of the new column."""
    storage = Storage(cn_rows=100)
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int"}, primary_key=["n"])
    storage.create_publication("p", "d")
    values = {
        "int": [5, None],
        "bigint": [5, None],
        "varchar(20)": ["v", None],
        "timestamp(6)": [datetime(2026, 1, 1, tzinfo=UTC), None],
    }[added]

    def insert(**columns: list[Any]) -> None:
        with storage.begin() as transaction:
            transaction.insert("d", "t", columns)
        storage.flush("d", "t")

    insert(n=[1, 2])
    insert(n=list(range(100, 300)))  # by a compute node: without special columns
    insert(n=[3])
    storage.merge("d", "t", newest=1)  # commit times alone
    insert(n=[4])
    storage.add_column("d", "t", "a", added, in_place=True)
    storage.add_column("d", "t", "b", added, in_place=True)  # one number is that of rowids, the other of commit times
    insert(n=[11, 12], a=values, b=values[::-1])
    with SimulatedUpstream(storage) as emulator, closing(subscribed(emulator.port, tmp_path, "d")) as workspace:
        iterate(workspace)
        url = workspace.mirror(NAME).store.url

    truth = storage.rows_at("d", "t", storage.now)
    read = plan_read(url, "d.t")
    for name in ("a", "b"):
        known: list[tuple[Filter, ...]] = [(IsNull(name),), (IsNotNull(name),), (IsNull(name), Compare("n", "<", 200))]
        for filters in (*known, (Compare(name, "=", values[0]),), (Compare(name, "<=", values[0]),)):
            rows = rows_of(replace(read, filters=filters))
            expected = satisfying(truth, filters)
            assert rows.sort_by("n").equals(expected.sort_by("n")), filters
    monkeypatch.setattr("ccpr.mirror.mirror._satisfying", lambda run, columns, schema, _: run.batch(columns, schema))
    pruned = rows_of(replace(read, filters=(IsNotNull("a"),)))
    assert pruned.num_rows == 2, "objects that are older than the column are not read for its values"


# ---- against recorded tables


@pytest.fixture(scope="module")
def reads(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> list[TableRead]:
    """Every table of some recorded points that has rows."""
    found: list[TableRead] = []
    for scenario, lsn in (("dml", 4), ("dml", 5), ("keys", 1), ("all_types", 2)):
        if not (recordings / scenario).is_dir():
            assert not UNDER_CI, f"no recording {scenario}"
            continue
        mirror = mirror_of_recording(recordings / scenario, tmp_path_factory.mktemp("pruned") / scenario)
        names = [ref.qualified_name for ref in mirror.point(lsn).tables.values() if ref.rows and ref.kind == "table"]
        found += [plan_read(mirror.store.url, name, lsn, hidden=True) for name in names]
    if not found:
        pytest.skip("no recording to read")
    return found


@pytest.fixture(scope="module")
def whole() -> dict[TableRead, pa.Table]:
    """Tables read without filters."""
    return {}


@pytest.mark.recordings
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_filters_give_the_same_rows_with_and_without_pruning(
    reads: list[TableRead], whole: dict[TableRead, pa.Table], data: st.DataObject
) -> None:
    read = data.draw(st.sampled_from(reads), label="table")
    if read not in whole:
        whole[read] = rows_of(read)
    everything = whole[read]
    columns = [column for column in read.columns if kind_of(everything, column.name) is not None]
    filters = tuple(
        a_filter(everything, data.draw(st.sampled_from(columns)), data) for _ in range(data.draw(st.integers(1, 3)))
    )
    expected = satisfying(everything, filters)
    pruned = rows_of(replace(read, filters=filters))
    assert pruned.equals(expected), filters
    mirror = Mirror(open_store(read.store_url))
    assert count_rows(mirror, mirror.manifest(read.ref), read.at, filters) == expected.num_rows, filters


def rows_of(read: TableRead) -> pa.Table:
    return pa.Table.from_batches(read.batches(read.shares().column("name").combine_chunks()), read.schema)


def kind_of(rows: pa.Table, name: str) -> pa.DataType | None:
    """The type of a column, None for lists, which nothing compares."""
    kind = rows.schema.field(name).type
    return None if pa.types.is_list(kind) else kind


def a_filter(rows: pa.Table, column: Column, data: st.DataObject) -> Filter:
    """A filter on values of the table, or values close to them."""
    values = rows.column(column.name)
    ordered = [] if column.type.oid == types.DECIMAL256 else ["<", "<=", ">", ">="]  # text, which has another order
    kind = data.draw(st.sampled_from(["=", "!=", *ordered, "in", "not in", "null", "not null"]))
    if kind in ("null", "not null") or values.null_count == len(values):
        return IsNull(column.name) if kind == "null" else IsNotNull(column.name)
    known = values.drop_null()
    picked = [
        near(known[data.draw(st.integers(0, len(known) - 1))].as_py(), data) for _ in range(3 if "in" in kind else 1)
    ]
    if kind in ("in", "not in"):
        return IsIn(column.name, tuple(picked)) if kind == "in" else IsNotIn(column.name, tuple(picked))
    return Compare(column.name, kind, picked[0])  # pyright: ignore[reportArgumentType]


def near(value: Any, data: st.DataObject) -> Any:
    if not data.draw(st.booleans()):
        return value
    match value:
        case str():
            return value[: data.draw(st.integers(0, len(value)))] + data.draw(st.sampled_from(["", "a", "\x00", "é"]))
        case bytes():
            return value[: data.draw(st.integers(0, len(value)))] + data.draw(st.sampled_from([b"", b"\x00", b"\xff"]))
    return value


def satisfying(rows: pa.Table, filters: tuple[Filter, ...]) -> pa.Table:
    """The rows that satisfy all filters, by Arrow's comparison."""
    masks = [pc.fill_null(satisfies(rows.column(filter_.column), filter_), False) for filter_ in filters]
    return rows.filter(reduce(pc.and_, masks))


def satisfies(values: pa.ChunkedArray, filter_: Filter) -> pa.ChunkedArray:
    match filter_:
        case IsNull():
            return values.is_null()
        case IsNotNull():
            return values.is_valid()
        case IsIn(_, wanted):
            return reduce(pc.or_, (satisfies(values, Compare(filter_.column, "=", value)) for value in wanted))
        case IsNotIn(_, wanted):
            return reduce(pc.and_, (satisfies(values, Compare(filter_.column, "!=", value)) for value in wanted))
        case Compare(_, operator, value):
            names = {
                "=": "equal",
                "!=": "not_equal",
                "<": "less",
                "<=": "less_equal",
                ">": "greater",
                ">=": "greater_equal",
            }
            return getattr(pc, names[operator])(values, pa.scalar(value, values.type))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the objects that are opened."""
    names: set[str] = set()
    open_object = Mirror.open_object

    def noted(mirror: Mirror, name: str, sums: bytes | None) -> ObjectFile:
        names.add(name)
        return open_object(mirror, name, sums)

    monkeypatch.setattr(Mirror, "open_object", noted)
    return names


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> set[Decoded]:
    return note_decoded(monkeypatch)


@pytest.mark.recordings
def test_objects_are_skipped_unopened_by_the_sort_key_and_blocks_undecoded_by_their_zone_maps(
    recorded_mirror: RecordedMirror, opened: set[str], decoded: set[Decoded]
) -> None:
    keys = plan_read(recorded_mirror("keys").store.url, "gd_keys.decpk")
    (key,) = [column.name for column in keys.columns if column.type.oid == types.DECIMAL128]
    values = rows_of(keys).column(key)
    if keys.shares().num_rows < 2 and not UNDER_CI:
        pytest.skip("the recordings at hand have one object of it")
    assert keys.shares().num_rows == 2
    opened.clear()
    decoded.clear()
    least = replace(keys, filters=(Compare(key, "=", pc.min(values).as_py()),))
    (name,) = least.shares().column("name").to_pylist()
    assert rows_of(least).num_rows == 1
    assert len({one.object_id for one in decoded}) == 1
    assert replace(keys, filters=(Compare(key, ">", pc.max(values).as_py()),)).shares().num_rows == 0
    assert name in opened


@pytest.mark.recordings
def test_blocks_are_skipped_undecoded(recorded_mirror: RecordedMirror, decoded: set[Decoded]) -> None:
    mirror = recorded_mirror("wide_and_large")
    (ref,) = [ref for ref in mirror.point().tables.values() if ref.rows]
    read = plan_read(mirror.store.url, ref.qualified_name)
    name = read.columns[0].name  # leads the primary key
    whole = rows_of(plan_read(mirror.store.url, ref.qualified_name, columns=[name]))
    middle = pc.approximate_median(whole.column(name)).as_py()
    filters = (Compare(name, ">=", int(middle)), Compare(name, "<", int(middle) + 10))
    all_blocks = len(decoded)
    decoded.clear()
    pruned = rows_of(replace(read, columns=read.columns[:1], filters=filters))
    assert all_blocks > 30
    assert len(decoded) <= 4
    assert pruned.num_rows == satisfying(whole, filters).num_rows > 0


@pytest.mark.spark
@pytest.mark.recordings
def test_read_table_skips_by_its_filters_and_keeps_the_rows_they_are_true_of(
    spark: SparkSession, recorded_mirror: RecordedMirror, tmp_path: Path
) -> None:
    """Objects that the filters rule out are not there at all, so a query that would open them fails."""
    source = recorded_mirror("keys")
    table = "gd_keys.decpk"
    read = plan_read(source.store.url, table)
    (key,) = [column.name for column in read.columns if column.type.oid == types.DECIMAL128]
    everything = rows_of(read)
    least = pc.min(everything.column(key)).as_py()
    (kept,) = replace(read, filters=(Compare(key, "=", least),)).shares().column("name").to_pylist()
    folder = Path(source.store.url.removeprefix("file://"))
    for part in ("points", "manifests", "head.json"):
        (tmp_path / part).symlink_to(folder / part)
    (tmp_path / "objects").mkdir()
    dropped = set(read.shares().column("name").to_pylist()) - {kept}
    for path in (folder / "objects").iterdir():
        if path.name not in dropped:
            (tmp_path / "objects" / path.name).symlink_to(path)

    last = read.columns[-1].name
    for filters in ([Compare(key, "=", least)], [IsIn(key, (least, least - 1)), IsNotNull(key)]):
        ours = read_table(spark, str(tmp_path), table, columns=[last], filters=filters)
        assert (ours.columns, ours.count()) == ([last], 1)
    with pytest.raises(Exception, match="MIRROR_DAMAGED"):
        read_table(spark, str(tmp_path), table).count()


@pytest.mark.spark
@pytest.mark.recordings
def test_filters_mean_the_same_to_spark_whatever_the_zone_of_its_session(
    spark: SparkSession, recorded_mirror: RecordedMirror
) -> None:
    mirror = recorded_mirror("all_types")
    url, seen = mirror.store.url, set()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for ref in mirror.point(2).tables.values():
            read = plan_read(url, ref.qualified_name, 2)
            everything = rows_of(read)
            for column in read.columns:
                kind, values = kind_of(everything, column.name), everything.column(column.name).drop_null()
                if kind is None or not len(values) or str(kind) in seen or pa.types.is_floating(kind):
                    continue
                if column.type.oid == types.DECIMAL256:  # text without an order
                    continue
                seen.add(str(kind))
                middle = sorted(values.to_pylist())[len(values) // 2]
                counts = []
                for filters in ((Compare(column.name, "<=", middle),), (IsIn(column.name, (middle,)),)):
                    counts.append((satisfying(everything, filters).num_rows, filters))
                    frame = read_table(spark, url, ref.qualified_name, 2, columns=[column.name], filters=filters)
                    assert frame.count() == counts[-1][0], (column.name, filters)
                assert counts[0][0] >= counts[1][0] > 0
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert {"timestamp[us]", "timestamp[us, tz=UTC]", "date32[day]", "duration[us]", "string", "binary", "bool"} <= seen


@pytest.mark.spark
@pytest.mark.recordings
@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_query_with_filters_leaves_later_ones_of_the_same_frame_whole(
    spark: SparkSession, recorded_mirror: RecordedMirror, pushdown: str
) -> None:
    """What Spark 4.1.4 breaks for a source that takes filters, whatever the setting says."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        url = recorded_mirror("keys").store.url
        read = plan_read(url, "gd_keys.decpk")
        key = read.columns[0].name
        values = rows_of(read).column(key)
        frame = spark.read.format("matrixone").options(mirror=url, table="gd_keys.decpk").load()
        assert frame.where(frame[key] > pc.max(values).as_py()).count() == 0
        assert frame.count() == len(values)
        assert frame.where(frame[key] == pc.min(values).as_py()).count() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
