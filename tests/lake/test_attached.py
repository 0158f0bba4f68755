"""Trino and Spark attached to the catalog as docs/how-to/attach-engines.md has it: the rows of points, and changes."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ccpr.lake.lake_options import TableRules
from ccpr.mirror.kept_points import Hold
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr_emulator.engine.storage import Storage
from tests.support.iceberg_lake import hold, served
from tests.support.iceberg_published import IcebergPublished, marks
from tests.support.lake_engines import NotRead, Query, spark_reads
from tests.support.lake_readers import assert_same_rows, changes_of, rows, truth
from tests.support.lakes import source
from tests.support.trino import Trino, trino_server
from tests.support.values import NOW

pytestmark = pytest.mark.long
FOLDER = {"fs.native-local.enabled": "true", "local.location": "/"}


@pytest.fixture(scope="module")
def trino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    with trino_server(tmp_path_factory.mktemp("trino")) as found:
        yield found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_trino_gives_the_rows_of_every_point(
    trino: Trino,
    mirrored: tuple[Mirror, list[Point]],
    points: list[Point],
    tmp_path: Path,
    version: int,
    place: str,
    request: pytest.FixtureRequest,
) -> None:
    mirror, url = mirrored[0], request.getfixturevalue("s3_url") if place == "bucket" else ""
    lake = IcebergPublished(mirror, tmp_path / "lake", readers=(), version=version, url=url)
    for point in points:
        lake.publish(point)
    live = f"{place}{version}"

    def assert_is(found: str, point: Point, name: str) -> None:
        expected = truth(mirror, point, name)
        assert_same_rows(trino.table(found, expected.schema), expected, f"Trino: {found} at lsn {point.lsn}")

    def listed(schema: str) -> set[str]:
        return {f"shop.{name}" for (name,) in trino.ask(f"SHOW TABLES FROM {schema}")}

    def tables(point: Point) -> set[str]:
        return {ref.qualified_name for ref in point.tables.values() if ref.kind.value == "table"}

    with lake.state() as (workspace, _), served(workspace) as port:
        hold(workspace, Hold("eve", points[1].lsn, None, NOW))
        newest, second = f"{live}_newest", f"{live}_2"
        for name, at in ((live, ""), (newest, "@newest"), (second, f"@{points[2].lsn}")):
            trino.attach(name, f"http://{port.address}", f"shop.lake{at}", _files(url))
        assert ["shop"] in trino.ask(f"SHOW SCHEMAS FROM {live}")
        for catalog, point in ((live, points[-1]), (newest, points[-1]), (second, points[2])):
            assert listed(f"{catalog}.shop") == tables(point)
            for name in tables(point):
                assert_is(f"{catalog}.{name}", point, name)
        for point in points:
            for name in tables(point):
                assert_is(f'{live}."shop@{point.lsn}".{name.partition(".")[2]}', point, name)
        assert_is(f"{live}.shop.keyed FOR VERSION AS OF 'eve'", points[1], "shop.keyed")
        (keyed,) = (found for (name, _), found in lake.snapshots().items() if name == "shop.keyed")
        assert len(keyed) > 3
        for one in keyed:
            point = next(point for point in points if str(point.lsn) == marks(one)["ccpr.point"])
            assert_is(f"{live}.shop.keyed FOR VERSION AS OF {one.snapshot_id}", point, "shop.keyed")
        for refused in (f"INSERT INTO {live}.shop.gone VALUES (7, 'x')", f"DROP TABLE {live}.shop.gone"):
            with pytest.raises(AssertionError, match="does not support endpoint"):
                trino.ask(refused)
        assert trino.table(f"{live}.shop.gone", pa.schema({"id": pa.int64(), "again": pa.string()})).num_rows == 1


def _files(url: str) -> dict[str, str]:
    """How Trino finds the files of a bucket, or of a folder."""
    if not url:
        return FOLDER
    endpoint = url.partition("endpoint_override=")[2].partition("&")[0]
    about = {"endpoint": endpoint, "region": "us-east-1", "path-style-access": "true"}
    keys = {"aws-access-key": "nobody", "aws-secret-key": "any"}
    return {"fs.native-s3.enabled": "true"} | {f"s3.{name}": value for name, value in (about | keys).items()}


@pytest.mark.timeout(900)
def test_spark_finds_the_changes_of_deltas_feed_in_a_lake_that_copies_on_write(tmp_path: Path) -> None:
    """docs/how-to/lake.md, "What has changed"; in other lakes it refuses."""
    storage = Storage()
    schema = ("CREATE TABLE shop.keyed (id INT PRIMARY KEY, word VARCHAR(9))", "CREATE TABLE shop.keyless (n INT)")
    with source(tmp_path / "m", *schema, storage=storage) as found:
        points = [
            found.point(
                "INSERT INTO shop.keyed SELECT result, concat('w', result) FROM generate_series(1, 100) g",
                "INSERT INTO shop.keyless SELECT result % 10 FROM generate_series(1, 60) g",
            ),
            found.point("DELETE FROM shop.keyed WHERE id % 7 = 0", "DELETE FROM shop.keyless WHERE n = 3"),
        ]
        storage.merge("shop", "keyed")
        points.append(
            found.point("UPDATE shop.keyed SET word = 'new' WHERE id < 9", "INSERT INTO shop.keyless VALUES (1), (1)")
        )
        points.append(found.point("DELETE FROM shop.keyed WHERE id > 90", "TRUNCATE TABLE shop.keyless"))
        rules = TableRules(copy_on_write=True, change_data=True)
        lake = IcebergPublished(found.mirror, tmp_path / "lake", readers=(), rules=rules)
        vectors = IcebergPublished(found.mirror, tmp_path / "vectors", readers=(), version=3)
        for point in points:
            lake.publish(point)
            vectors.publish(point)
    queries, steps, feeds = [], [], []
    for (name, _), snapshots in lake.snapshots().items():
        for former, one in pairwise(snapshots):
            between = f"map('start-snapshot-id', '{former.snapshot_id}', 'end-snapshot-id', '{one.snapshot_id}')"
            queries.append(Query(before=_changelog(name, between)))
            version = int(marks(one)["ccpr.version"])
            assert version == int(marks(former)["ccpr.version"]) + 1
            table = DeltaTable(str(lake.folder / name), version=version)
            feeds.append(pa.table(table.load_cdf(starting_version=version, ending_version=version)))
            steps.append((name, *(int(marks(snapshot)["ccpr.point"]) for snapshot in (former, one))))
    assert {name for name, *_ in steps} == {"shop.keyed", "shop.keyless"}
    seen = [Query(sql="SELECT * FROM lake.shop.keyed"), Query(sql=f"SELECT * FROM lake.`shop@{points[1].lsn}`.keyed")]
    with lake.state() as (workspace, _), served(workspace) as port:
        *answers, now, then = spark_reads([*queries, *seen], f"http://{port.address}")
    for (name, *both), feed, log in zip(steps, feeds, answers, strict=True):
        former, after = (Counter(rows(truth(lake.mirror, lake.mirror.point(lsn), name))) for lsn in both)
        for gone, come in (changes_of(feed), changes_of(log)):
            assert (gone - come, come - gone) == (former - after, after - former), (name, both)
    for answer, point in ((now, points[-1]), (then, points[1])):
        assert_same_rows(answer, truth(lake.mirror, point, "shop.keyed"), f"Spark: keyed at lsn {point.lsn}")
    with (
        vectors.state() as (workspace, _),
        served(workspace) as port,
        pytest.raises(NotRead, match="Delete files are currently not supported in changelog scans"),
    ):
        spark_reads([Query(before=_changelog("shop.keyed", "map()"))], f"http://{port.address}")


def _changelog(table: str, options: str) -> str:
    names = f"table => '{table}', changelog_view => 't'"
    return f"CALL lake.system.create_changelog_view({names}, options => {options})"
