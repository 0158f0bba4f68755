"""What `import ccpr` reads equals what the server had, at every point, however the point is named and wherever the
mirror is; and it touches nothing but the mirror."""

import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

import ccpr
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.points import LaggingTable
from tests.api.shop import START, Shop
from tests.support.decoded_columns import note_decoded
from tests.support.expected import assert_rows_equal
from tests.support.publishing import publish
from tests.support.recorded import Snapshot
from tests.support.recorded_mirror import database_of_recording
from tests.support.spark_fixtures import RecordedMirror

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
HEAVY = {"pyspark", "pandas", "polars", "pandera", "dagster", "sqlalchemy", "duckdb", "pymysql"}
MODULES = 350


# ---- points


def test_points_say_what_they_show(mirror: ccpr.Mirror, shop: Shop) -> None:
    points = mirror.points()
    assert [(point.lsn, point.tables) for point in points] == [
        (1, ("shop.orders",)),
        (2, ("shop.orders",)),
        (3, ("shop.customers", "shop.orders")),
    ]
    assert all(point.consistent and not point.lagging for point in points)
    for point, published in zip(points, shop.published, strict=True):
        assert point.time.tzinfo is UTC
        assert point.time == datetime.fromtimestamp(published.at.physical // 1000 / 1e6, UTC)
        assert mirror.point(point.lsn) == point
    assert mirror.point() == points[-1]


def test_a_point_is_found_by_every_way_of_naming_it(mirror: ccpr.Mirror, orders: ccpr.Table) -> None:
    one, two, three = mirror.points()
    between = one.time + timedelta(seconds=1)
    assert two.time > between
    for at in (1, "1", " 1 ", one, one.time, between, between.isoformat(), between.replace(tzinfo=None)):
        assert mirror.point(at) == one, at
    assert mirror.point(between.astimezone(timezone(timedelta(hours=-5))).isoformat()) == one
    for point in (one, two, three):
        for at in (point, point.time, point.time.isoformat()):
            assert mirror.point(at) == point, "a point is found by its own time, though that has no nanoseconds"
    assert mirror.point(two.time - timedelta(microseconds=1)) == one
    assert orders.to_arrow(at=one).num_rows == 2000


@pytest.mark.parametrize(
    ("at", "kind", "said"),
    [
        ("yesterday", ccpr.HoldMissing, "no point is held by that name"),
        ("2026-11-31", ccpr.BadOption, "at = '2026-11-31' is neither a point nor a time"),
        (1.5, ccpr.BadOption, r"at = 1\.5 \(float\) is neither"),
        (True, ccpr.BadOption, r"at = True \(bool\)"),
        (date(2026, 1, 1), ccpr.BadOption, r"\(date\) is neither"),
        (99, ccpr.PointNotReached, "point 99 is not reached; the newest is point 3"),
        (START + timedelta(days=1), ccpr.PointNotReached, "is not reached"),
        (START - timedelta(days=1), ccpr.PointGone, "is before the oldest point, 1"),
        (0, ccpr.PointGone, "point 0 is before the oldest point"),
    ],
)
def test_a_point_that_is_not_there_is_a_typed_error(
    mirror: ccpr.Mirror, orders: ccpr.Table, at: ccpr.At, kind: type[ccpr.CcprError], said: str
) -> None:
    for read in (mirror.point, mirror.tables, orders.to_batches, orders.to_arrow, orders.changes):
        with pytest.raises(kind, match=said):
            read(at)


def test_tables_say_what_they_hold(mirror: ccpr.Mirror, shop: Shop) -> None:
    customers, orders = mirror.tables()
    assert (customers.name, customers.kind, customers.columns) == ("shop.customers", "table", ("name", "since"))
    assert (orders.name, orders.columns) == ("shop.orders", ("id", "customer", "total", "placed"))
    refs = {ref.qualified_name: ref for ref in shop.published[-1].tables.values()}
    assert orders.id == refs["shop.orders"].table_id
    assert (orders.objects, orders.lsn) == (refs["shop.orders"].objects, refs["shop.orders"].lsn)
    assert [table.name for table in mirror.tables(at=1)] == ["shop.orders"]


@pytest.mark.recordings
def test_tables_count_rows_and_bytes_as_they_are_stored(recorded_mirror: RecordedMirror, recordings: Path) -> None:
    found = {table.name: table for table in ccpr.open_mirror(recorded_mirror("dml").store.url).tables(at=1)}
    listed = Snapshot(recordings / "dml/snapshot-001").objects["acc"]
    live = [one.stats for one in listed if one.deleted is None]
    assert found["gd_dml.acc"].rows == sum(stats.rows for stats in live)
    assert found["gd_dml.acc"].bytes == sum(stats.size for stats in live)


def test_a_table_that_lags_is_named_by_its_point(shop: Shop, orders: ccpr.Table, mirror: ccpr.Mirror) -> None:
    shop.publish()
    last = shop.published[-1]
    (table_id,) = [table_id for table_id, ref in last.tables.items() if ref.name == "orders"]
    shown = {other: ref for other, ref in last.tables.items() if other != table_id}
    late = LaggingTable("shop", "orders", 3)
    point = replace(last, lsn=5, tables=shown, behind={table_id: late})
    publish(shop.simulated.mirror, point, {table_id: None})
    newest = mirror.points()[-1]
    assert (newest.consistent, newest.lagging, newest.tables) == (False, (late,), ("shop.customers",))
    for read in (orders.to_arrow, lambda: orders.schema, lambda: orders.changes(1), lambda: orders.changes(None)):
        with pytest.raises(ccpr.PointNotReached, match=r"table shop\.orders at point 5"):
            read()
    assert orders.to_arrow(at=4).num_rows == shop.rows(last).num_rows


# ---- rows


@pytest.mark.recordings
@pytest.mark.parametrize(
    "scenario",
    [
        "all_types", "cut_inside_object", "ddl", "dml", "keys", "many_tables", "other_account", "table_level",
        "wide_and_large",
    ],
)  # fmt: skip
def test_every_recorded_table_has_the_servers_rows_at_every_point(
    recordings: Path, recorded_mirror: RecordedMirror, scenario: str
) -> None:
    mirror = ccpr.open_mirror(recorded_mirror(scenario).store.url)
    database = database_of_recording(recordings / scenario)
    compared = 0
    for point in mirror.points():
        snapshot = Snapshot(recordings / scenario / f"snapshot-{point.lsn:03}")
        names = {table.name for table in mirror.tables(point)}
        for table in snapshot.expected_tables():
            assert f"{database}.{table}" in names
            rows = mirror.table(f"{database}.{table}", at=point).to_arrow()
            assert_rows_equal(rows, snapshot.expected(table))
            compared += 1
    assert compared


def test_rows_are_those_of_the_engine_at_every_point(shop: Shop, orders: ccpr.Table) -> None:
    for point in shop.published:
        assert orders.to_arrow(at=point.lsn).sort_by("id").equals(shop.rows(point))


def test_columns_come_in_the_order_asked_for(orders: ccpr.Table) -> None:
    rows = orders.to_arrow(columns=["total", "id"], filters=[("customer", "=", "customer 3"), ("id", "<", 200)])
    assert rows.column_names == ["total", "id"]
    assert sorted(rows.column("id").to_pylist()) == [53, 103, 153]
    assert orders.schema.names == ["id", "customer", "total", "placed"]
    assert orders.schema.field("placed").type == pa.timestamp("us")
    assert orders.to_batches(at=1, columns=["id"]).schema.names == ["id"]


def test_hidden_columns_come_on_request(mirror: ccpr.Mirror) -> None:
    customers = mirror.table("shop.customers")
    assert customers.to_arrow().column_names == ["name", "since"]
    assert customers.to_arrow(hidden=True).column_names == ["name", "since", "__mo_fake_pk_col"]


def test_what_is_not_there_is_a_typed_error(mirror: ccpr.Mirror, orders: ccpr.Table) -> None:
    with pytest.raises(ccpr.TableMissingInMirror, match=r"no such table.*\[table shop\.nope at point 3\]"):
        mirror.scan("shop.nope")
    with pytest.raises(ccpr.TableMissingInMirror, match="no column colour"):
        orders.to_arrow(columns=["id", "colour"])
    with pytest.raises(ccpr.BadOption, match=r'one text, not a list.*columns=\["id"\]'):
        orders.to_arrow(columns="id")
    with pytest.raises(ccpr.BadFilter, match="no column colour"):
        orders.to_batches(filters=[("colour", "=", "red")])
    with pytest.raises(ccpr.BadFilter, match=r"str '5' cannot be compared.*\[column id of table shop\.orders\]"):
        orders.to_batches(filters=[("id", "=", "5")])


def test_rows_are_streamed_a_block_at_a_time(orders: ccpr.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = note_decoded(monkeypatch)
    reader = orders.to_batches(at=2)
    assert isinstance(reader, pa.RecordBatchReader)
    assert not decoded, "nothing is read before the first batch"
    first = reader.read_next_batch()
    assert len({(one.object_id, one.block) for one in decoded}) == 1
    assert first.num_rows <= 8192
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 2490
    assert len({(one.object_id, one.block) for one in decoded}) > 1


def test_filters_leave_files_unopened(orders: ccpr.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_object = Mirror.open_object

    def counted(mirror: Mirror, name: str, sums: bytes | None) -> ObjectFile:
        opened.append(name)
        return open_object(mirror, name, sums)

    monkeypatch.setattr(Mirror, "open_object", counted)
    assert orders.to_arrow(at=2).num_rows == 2490
    every = set(opened)
    opened.clear()
    assert orders.to_arrow(at=2, filters=[("id", ">", 10**6)]).num_rows == 0
    assert len(set(opened)) == 1 < len(every), "the smallest says by which column the files are sorted"


# ---- where a mirror is


def test_a_mirror_is_opened_by_a_path_or_its_url(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.root.parent)
    for location in (shop.root, str(shop.root), Path("mirror"), shop.root.as_uri()):
        mirror = ccpr.open_mirror(location)
        assert mirror.url == shop.root.as_uri()
        assert mirror.table("shop.orders").to_arrow().num_rows == 2490
    assert repr(mirror) == f"<ccpr.Mirror {mirror.url}>"
    assert repr(mirror.table("shop.orders")) == f"<ccpr.Table shop.orders of {mirror.url}>"


def test_a_place_without_a_mirror_is_a_typed_error(tmp_path: Path) -> None:
    for location in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ccpr.MirrorNotFound, match="no point of a mirror is here"):
            ccpr.open_mirror(location)
    with pytest.raises(ccpr.BadName, match="unknown kind"):
        ccpr.open_mirror("ftp://host/x")
    with pytest.raises(ccpr.BadName, match="AWS_ACCESS_KEY_ID"):
        ccpr.open_mirror("s3://user:secret@bucket/x")


def test_a_mirror_in_a_bucket_reads_the_same(shop: Shop, s3_url: str) -> None:
    store = open_store(s3_url)
    for path in sorted(shop.root.rglob("*")):
        if path.is_file():
            store.put(path.relative_to(shop.root).as_posix(), [path.read_bytes()])
    local, remote = ccpr.open_mirror(shop.root), ccpr.open_mirror(s3_url)
    assert remote.url.startswith("s3://mirrors/")
    assert remote.points() == local.points()
    assert remote.tables(at=2) == local.tables(at=2)
    for at in (1, 2, 3):
        filters = [("id", ">=", 5), ("customer", "is not null")]
        one, two = (mirror.table("shop.orders").to_arrow(at, filters=filters) for mirror in (local, remote))
        assert one.equals(two)
    one, two = (mirror.table("shop.orders").changes(1).to_arrow() for mirror in (local, remote))
    assert one.sort_by("id").equals(two.sort_by("id"))
    with pytest.raises(ccpr.MirrorNotFound):
        ccpr.open_mirror(s3_url.replace("mirrors/", "mirrors/other-"))


def test_a_mirror_that_moves_on_is_read_as_it_is_now(shop: Shop, orders: ccpr.Table, mirror: ccpr.Mirror) -> None:
    reader = orders.to_batches()
    shop.insert(range(5000, 5003))
    shop.publish()
    assert reader.read_all().num_rows == 2490, "the point was fixed by the call"
    assert orders.to_arrow().num_rows == 2493
    assert mirror.point().lsn == 4


# ---- what it touches


READ = """
import json, sys
events = []
def audit(event, arguments):
    if event.startswith(("sqlite3.", "socket.connect")) or event == "open" and "w" in str(arguments[1]):
        events.append([event, str(arguments[0])])
sys.addaudithook(audit)
import ccpr
imported = sorted(module for module in sys.modules if module in set(sys.argv[2:]))
mirror = ccpr.open_mirror(sys.argv[1])
orders = mirror.table("shop.orders")
rows = sum(batch.num_rows for batch in orders.to_batches(filters=[("id", ">=", 100)]))
mirror.points(), mirror.tables()
read = sorted(module for module in sys.modules if module in set(sys.argv[2:]) - {"pandas"})  # which pyarrow imports
changed = orders.changes(1).to_arrow().num_rows
print(json.dumps([imported, read, events, rows, changed]))
"""


def test_reading_touches_neither_a_database_nor_the_network_nor_the_mirror(shop: Shop) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in shop.root.rglob("*")}
    command = [sys.executable, "-c", READ, str(shop.root), *HEAVY]
    done = subprocess.run(command, cwd=shop.root, capture_output=True, text=True, timeout=60, check=True)
    imported, read, events, rows, changed = json.loads(done.stdout)
    assert (imported, read, events) == ([], [], [])
    assert (rows, changed) == (2400, 515)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in shop.root.rglob("*")} == before


def test_the_import_is_light() -> None:
    """By what is imported: seconds say more about the machine. It was 300, most of them numpy's and Arrow's."""
    code = "import sys, ccpr; print(len(sys.modules), *(name for name in sys.argv[1:] if name in sys.modules))"
    command = [sys.executable, "-c", code, *HEAVY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    modules, *heavy = done.stdout.split()
    assert int(modules) < MODULES
    assert heavy == []


def test_what_is_public_is_listed_documented_and_typed() -> None:
    assert (ROOT / "ccpr" / "py.typed").exists()
    reference = (ROOT / "docs" / "reference" / "python.md").read_text()
    for name in ccpr.__all__:
        public = getattr(ccpr, name)
        if name not in ("At", "Location", "FilterTuple", "__version__"):  # aliases of types, a text
            assert public.__doc__, name
        assert f"`{name}" in reference or f".{name}" in reference, f"{name} is not in docs/reference/python.md"
    for kind in (ccpr.Mirror, ccpr.Table, ccpr.Scan, ccpr.Changes, ccpr.Point, ccpr.TableInfo):
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert member.__doc__, f"{kind.__name__}.{name}"
                assert name in reference, f"{kind.__name__}.{name} is not in docs/reference/python.md"


def test_the_version_is_that_of_the_distribution() -> None:
    assert ccpr.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


ERRORS_BEFORE = (
    "BadFilter", "BadName", "BadOption", "CcprError", "ExtraMissing", "KeyChanged", "MirrorDamaged", "MirrorNotFound",
    "ObjectDamaged", "ObjectMismatch", "ObjectUnsupported", "PointGone", "PointNotReached", "StoreFailed",
    "StoreNotShared", "TableMissingInMirror", "ValueRefused",
)  # fmt: skip


def test_errors_are_in_a_module_of_their_own_and_where_they_were_before() -> None:
    reference = (ROOT / "docs" / "reference" / "python.md").read_text()
    for name in ccpr.errors.__all__:
        error = getattr(ccpr.errors, name)
        assert issubclass(error, ccpr.CcprError)
        assert error.__doc__
        assert f"`{name}`" in reference, f"{name} is not in docs/reference/python.md"
    for name in ERRORS_BEFORE:
        assert getattr(ccpr, name) is getattr(ccpr.errors, name)
    with pytest.raises(AttributeError, match="no attribute 'PointLost'"):
        ccpr.PointLost  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]
