"""Tables of a mirror, read through Spark, equal what the server answered; and the errors of a reader who asks for what
is not there."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ccpr.mirror.errors import BadOption, PointNotReached, TableMissingInMirror
from ccpr.mirror.table_read import plan_read
from ccpr.pipeline.spark.errors import StoreNotShared
from tests.support.expected import assert_rows_equal
from tests.support.recorded import Snapshot
from tests.support.recorded_mirror import database_of_recording
from tests.support.spark_fixtures import RecordedMirror
from tests.support.spark_tables import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.recordings]

SMALL = 4096  # bytes of a task, so that a few small objects make several tasks


def load(spark: "SparkSession", **options: str) -> "DataFrame":
    return spark.read.format("matrixone").options(**options).load()


@pytest.mark.parametrize(
    ("scenario", "lsn"), [("dml", 2), ("dml", 4), ("dml", 5), ("cut_inside_object", 2), ("keys", 1), ("all_types", 2)]
)
def test_every_table_at_a_point_has_the_servers_rows(
    spark: "SparkSession", recordings: Path, recorded_mirror: RecordedMirror, scenario: str, lsn: int
) -> None:
    mirror = recorded_mirror(scenario)
    snapshot = Snapshot(recordings / scenario / f"snapshot-{lsn:03}")
    for table in snapshot.expected_tables():
        name = f"{database_of_recording(recordings / scenario)}.{table}"
        frame = read_table(spark, mirror.store.url, name, lsn, task_bytes=SMALL)
        assert_rows_equal(frame.toArrow(), snapshot.expected(table))


def test_all_types_arrive_as_spark_types_with_nulls_and_extremes(
    spark: "SparkSession", recordings: Path, recorded_mirror: RecordedMirror
) -> None:
    mirror = recorded_mirror("all_types")
    snapshot = Snapshot(recordings / "all_types" / "snapshot-002")
    database = database_of_recording(recordings / "all_types")
    kinds: dict[str, set[str]] = {}
    for table in snapshot.expected_tables():
        frame = load(spark, mirror=mirror.store.url, table=f"{database}.{table}", at="2")
        rows = frame.toArrow()
        ours = mirror.read(mirror.point(2), f"{database}.{table}")[0]
        assert (rows.schema.names, rows.schema.types) == (ours.names, ours.types)
        assert_rows_equal(rows, snapshot.expected(table))
        for column, kind in zip(snapshot.tables[table].user_columns, frame.dtypes, strict=True):
            kinds.setdefault(kind[1], set()).add(column.name)
    assert {
        "boolean", "tinyint", "smallint", "int", "bigint", "decimal(20,0)", "float", "double", "date", "timestamp",
        "timestamp_ntz", "string", "binary", "interval day to second", "array<float>", "array<double>",
    } <= kinds.keys()  # fmt: skip
    assert any(kind.startswith("decimal(38,") for kind in kinds)


def test_the_format_is_found_without_registration_and_reads_a_path_at_a_time(
    spark: "SparkSession", recordings: Path, recorded_mirror: RecordedMirror
) -> None:
    mirror = recorded_mirror("dml")
    folder = mirror.store.url.removeprefix("file://")
    second, third = Snapshot(recordings / "dml/snapshot-002"), Snapshot(recordings / "dml/snapshot-003")
    between = datetime.fromtimestamp((second.at.physical + third.at.physical) / 2e9, UTC)
    frame = load(spark, mirror=folder, table="gd_dml.acc", at=between.isoformat(), task_bytes=str(SMALL))
    assert_rows_equal(frame.toArrow(), second.expected("acc"))


def test_columns_are_chosen_by_an_option_or_a_schema(
    spark: "SparkSession", recordings: Path, recorded_mirror: RecordedMirror
) -> None:
    mirror = recorded_mirror("dml")
    columns = [column.name for column in Snapshot(recordings / "dml/snapshot-002").tables["acc"].user_columns]
    first, last = columns[0], columns[-1]
    expected = Snapshot(recordings / "dml/snapshot-002").expected("acc")
    assert expected.num_rows
    options = {"mirror": mirror.store.url, "table": "gd_dml.acc", "at": "2"}
    chosen = load(spark, **options, columns=f"{last}, {first}")
    assert_rows_equal(chosen.toArrow(), _select(expected, [last, first]))
    kind = dict(chosen.dtypes)[first]
    narrow = spark.read.format("matrixone").options(**options).schema(f"`{first}` {kind}").load()
    assert_rows_equal(narrow.toArrow(), _select(expected, [first]))
    with pytest.raises(Exception, match=r"BAD_OPTION.*is asked for as binary"):
        spark.read.format("matrixone").options(**options).schema(f"`{first}` binary").load().count()


def test_hidden_key_columns_come_on_request(spark: "SparkSession", recorded_mirror: RecordedMirror) -> None:
    mirror = recorded_mirror("keys")
    tables = [(ref, mirror.manifest(ref).table) for ref in mirror.point().tables.values() if ref.rows]
    ref = next(ref for ref, table in tables if len(table.columns) > len(table.user_columns))
    shown = load(spark, mirror=mirror.store.url, table=ref.qualified_name, hidden="true").toArrow()
    schema, batches = mirror.read(mirror.point(), ref.qualified_name, hidden=True)
    assert shown.sort_by(shown.column_names[-1]) == pa.Table.from_batches(batches, schema).sort_by(
        shown.column_names[-1]
    )


def test_what_is_not_there_is_an_error_with_code_subject_and_remedy(
    spark: "SparkSession", recorded_mirror: RecordedMirror
) -> None:
    url = recorded_mirror("dml").store.url
    with pytest.raises(
        Exception, match=r"TABLE_NOT_IN_POINT: no such table.*\[table gd_dml\.nope at point .*\] Its tables are"
    ):
        load(spark, mirror=url, table="gd_dml.nope")
    with pytest.raises(Exception, match=r"POINT_NOT_REACHED: point 999 is not reached.*See `ccpr points"):
        load(spark, mirror=url, table="gd_dml.acc", at="999")
    with pytest.raises(Exception, match=r"BAD_OPTION: the options mirror and table are needed"):
        load(spark, mirror=url)
    with pytest.raises(Exception, match=r"BAD_OPTION: there is no option as_of \[table gd_dml\.acc\]"):
        load(spark, mirror=url, table="gd_dml.acc", as_of="2")
    with pytest.raises(TableMissingInMirror, match="no column nope"):
        read_table(spark, url, "gd_dml.acc", columns=["nope"])
    with pytest.raises(PointNotReached):
        read_table(spark, url, "gd_dml.acc", datetime.now(UTC) + timedelta(days=36_500))
    with pytest.raises(BadOption, match="neither a point nor a time"):
        plan_read(url, "gd_dml.acc", "2026-11-31")


def test_a_missing_object_is_an_error_with_its_name(
    spark: "SparkSession", recordings: Path, recorded_mirror: RecordedMirror, tmp_path: Path
) -> None:
    source = Path(recorded_mirror("dml").store.url.removeprefix("file://"))
    broken = tmp_path / "broken"
    broken.mkdir()
    for part in ("points", "manifests", "head.json"):
        (broken / part).symlink_to(source / part)
    (broken / "objects").mkdir()
    frame = read_table(spark, str(broken), "gd_dml.acc", 2)
    with pytest.raises(
        Exception,
        match=r"MIRROR_DAMAGED: a file of the mirror is missing \[table gd_dml\.acc, file:.*/objects/.*\] "
        r".*`ccpr verify",
    ):
        frame.toArrow()


def test_shares_hold_every_object_once_and_about_the_same_bytes(
    recordings: Path, recorded_mirror: RecordedMirror
) -> None:
    read = plan_read(recorded_mirror("dml").store.url, "gd_dml.acc", 4)
    live = [listed.stats for listed in Snapshot(recordings / "dml/snapshot-004").objects["acc"] if not listed.tombstone]
    whole, single = read.shares(), read.shares(1)
    assert sorted(whole.column("name").to_pylist()) == sorted(stats.name for stats in live)
    assert set(whole.column("task").to_pylist()) == {0}
    assert single.num_rows == len(live)
    numbers = single.column("task").to_pylist()
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(max(numbers) + 1))


def test_a_local_mirror_is_refused_where_the_executors_are_elsewhere(recorded_mirror: RecordedMirror) -> None:
    class Conf:
        def get(self, name: str, default: str) -> str:
            return "spark://far:7077"

    class Session:
        conf = Conf()

    with pytest.raises(StoreNotShared, match="spark://far:7077"):
        read_table(Session(), recorded_mirror("dml").store.url, "gd_dml.acc")  # pyright: ignore[reportArgumentType]


def _select(expected: pa.Table, names: list[str]) -> pa.Table:
    """Some columns of the expected rows; the types in the metadata follow."""
    kinds = json.loads((expected.schema.metadata or {}).get(b"mysql_types", b"null"))
    chosen = expected.select(names)
    if kinds is None:
        return chosen.replace_schema_metadata(None)
    places = [expected.column_names.index(name) for name in names]
    return chosen.replace_schema_metadata({b"mysql_types": json.dumps([kinds[place] for place in places])})
