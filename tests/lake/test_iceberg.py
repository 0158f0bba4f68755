"""A lake's tables as Iceberg tables: readers give the mirror's rows at every point, whatever is killed; the commit of
another writer stops the table."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import sqlalchemy as sa
from py4j import java_gateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from ccpr.catalog.warehouses import LiveView, Warehouses
from ccpr.lake import iceberg_jvm
from ccpr.lake.errors import IcebergFailed, IcebergJarMissing
from ccpr.lake.iceberg_jvm import JAR_FOLDER, catalog_properties, find_jars
from ccpr.lake.lake_columns import FIELD_ID, LakeColumn
from ccpr.lake.lake_options import Mapped, TableRules
from ccpr.lake.lake_types import LakeType
from ccpr.mirror.errors import BadName
from ccpr.mirror.kept_points import Hold
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.retention.retention import Retention
from ccpr.state.database import transaction
from ccpr.state.table_pointers import PointerMove, TablePointers
from ccpr.state.tables import points as points_table
from tests.support.iceberg_published import LAKE, NAME, IcebergPublished, jvm, marks
from tests.support.lake_engines import Query, spark_reads
from tests.support.lake_readers import assert_same_rows, truth
from tests.support.lakes import TASK, DyingStore, Killed, Published, source
from tests.support.values import NOW

pytestmark = pytest.mark.slow


@pytest.fixture
def iceberg(mirrored: tuple[Mirror, list[Point]], tmp_path: Path) -> IcebergPublished:
    """Nothing yet."""
    return IcebergPublished(mirrored[0], tmp_path / "lake", readers=("delta-rs",))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("rest", [False, True], ids=["own", "rest"])
def test_pyiceberg_gives_the_rows_of_every_point(
    iceberg: IcebergPublished, points: list[Point], version: int, rest: bool
) -> None:
    iceberg = replace(iceberg, version=version, rest=rest)
    for point in points:
        iceberg.publish(point)
        iceberg.assert_pinned(point)
    iceberg.assert_pinned(*points)
    iceberg.assert_each_version_once()
    assert len(iceberg.commits) == len(points)  # one for all tables of a point
    iceberg.assert_shows(points[-1])
    (keyed,) = (found for (name, _), found in iceberg.snapshots().items() if name == "shop.keyed")
    said = [(marks(one)["ccpr.point"], int(marks(one)["ccpr.at"])) for one in keyed]
    assert said == [(str(one.lsn), one.at.physical) for one in points if str(one.lsn) in dict(said)]


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3])
def test_spark_gives_the_rows_of_every_point(iceberg: IcebergPublished, points: list[Point], version: int) -> None:
    iceberg = replace(iceberg, version=version)
    for point in points:
        iceberg.publish(point)
    there = {(metadata.split("/")[-3], marks(one)["ccpr.version"]): Query(metadata, one.snapshot_id, iceberg=True)
             for (_, metadata), found in iceberg.snapshots().items() for one in found}  # fmt: skip
    wanted = [
        (point, name, there[folder, str(shown)])
        for point in points
        for name, (folder, shown) in iceberg.shown[point.lsn].items()
        if (folder, str(shown)) in there
    ]
    assert len(wanted) > 2 * len(points)
    for (point, name, _), rows in zip(wanted, spark_reads([one for _, _, one in wanted]), strict=True):
        assert_same_rows(rows, truth(iceberg.mirror, point, name), f"Spark: {name} at lsn {point.lsn}")


def test_a_session_of_spark_in_the_process_does_not_change_what_java_said(
    iceberg: IcebergPublished, points: list[Point], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark takes exceptions of this JVM for those of its own."""
    iceberg = replace(iceberg, rest=True)
    given = java_gateway.get_return_value

    def mistaken(*args: Any, **options: Any) -> Any:
        try:
            return given(*args, **options)
        except Py4JJavaError:
            raise Py4JError("exceptionString([class of another JVM]) does not exist") from None

    monkeypatch.setattr(java_gateway, "get_return_value", mistaken)
    iceberg.publish(points[0])
    iceberg.assert_pinned(points[0])


def test_a_folder_may_have_a_name_that_addresses_escape(iceberg: IcebergPublished, points: list[Point]) -> None:
    iceberg = replace(iceberg, folder=iceberg.folder.with_name("a lake, 100 % ä"))
    for point in points[:2]:
        iceberg.publish(point)
    iceberg.assert_pinned(*points[:2])


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3])
def test_a_bucket_has_the_rows_of_every_point(
    iceberg: IcebergPublished, points: list[Point], s3_url: str, version: int
) -> None:
    iceberg = replace(iceberg, version=version, url=s3_url)
    for point in points:
        iceberg.publish(point)
    iceberg.assert_pinned(*points)
    iceberg.assert_each_version_once()


RULES = {"mapped": TableRules(Mapped.NAME), "rewritten": TableRules(copy_on_write=True)}


@pytest.mark.long
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_other_rules_give_the_same_rows(iceberg: IcebergPublished, points: list[Point], rules: TableRules) -> None:
    iceberg = replace(iceberg, rules=rules, readers=())
    for point in points:
        iceberg.publish(point)
    iceberg.assert_pinned(*points)


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("rest", [False, True], ids=["own", "rest"])
def test_a_kill_around_the_transaction_repeats_no_commit(
    iceberg: IcebergPublished, points: list[Point], behind: bool, rest: bool
) -> None:
    iceberg = replace(iceberg, rest=rest)

    def dying(commit: Callable[[], None]) -> None:
        if behind:
            commit()
        raise Killed

    for point in points[:3]:
        with pytest.raises(Killed):
            replace(iceberg, wrapped=dying).publish(point)
        iceberg.publish(point)
    iceberg.assert_each_version_once()
    iceberg.assert_pinned(*points[:3])


@pytest.mark.parametrize("rest", [False, True], ids=["own", "rest"])
def test_a_lake_of_delta_becomes_one_of_iceberg_and_is_one_of_delta_again(
    iceberg: IcebergPublished, points: list[Point], rest: bool
) -> None:
    """Its tables show the point at which they come, and all later ones."""

    def dying(commit: Callable[[], None]) -> None:
        commit()
        raise Killed

    iceberg, delta = replace(iceberg, rest=rest), Published(iceberg.mirror, iceberg.folder, readers=())
    for point in points[:4]:
        delta.publish(point)
    with pytest.raises(Killed):
        replace(iceberg, wrapped=dying).publish(points[3])
    for point in points[3:6]:
        iceberg.publish(point)
        iceberg.assert_pinned(point)
    iceberg.assert_each_version_once()
    delta.publish(points[6])
    with iceberg.state() as (workspace, _):
        pointers = TablePointers(workspace.log.engine, TASK, LAKE)
        assert pointers.move([PointerMove(one, None) for one in pointers.all()])
    for point in points[6:8]:
        iceberg.publish(point)
        iceberg.assert_pinned(point)


def test_vectors_in_files_of_an_earlier_release_are_written_anew_before_iceberg_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def former(column: LakeColumn, kind: LakeType) -> pa.Field:
        return pa.field(column.physical, kind.arrow, metadata={FIELD_ID: str(column.id).encode()})

    with source(tmp_path / "m", "CREATE TABLE shop.t (x INT PRIMARY KEY, v VECF32(2))") as found:
        first = found.point("INSERT INTO shop.t VALUES (1, '[1,2]')")
        lake = IcebergPublished(found.mirror, tmp_path / "lake", readers=())
        with monkeypatch.context() as patched:
            patched.setattr("ccpr.lake.lake_columns._file_field", former)
            Published(found.mirror, lake.folder, readers=()).publish(first)
        result = lake.sync(first).run()
        assert [one.failure.code for one in result.behind] == ["LAKE_CHANGED"]
        assert lake.sync(first).rebuild("shop.t").behind == ()
        lake.assert_pinned(first)


def test_a_kill_at_any_file_repeats_no_commit(iceberg: IcebergPublished, points: list[Point]) -> None:
    for at in count(2, 1 if os.environ.get("KILLS") == "all" else 23):
        folder = iceberg.folder.with_name(f"lake{at}")
        lake = replace(iceberg, folder=folder, version=3, shown={})
        dying = DyingStore(LocalStore(folder, shared=True), at, behind=bool(at % 2))
        try:
            for point in points[:4]:
                replace(lake, store=dying).publish(point)
        except Killed:
            pass
        else:
            break
        lake.publish(points[3])
        lake.assert_each_version_once()
        lake.assert_pinned(points[3])
    assert at > 40


def test_a_killed_jvm_is_started_again(iceberg: IcebergPublished, points: list[Point]) -> None:
    def killed(commit: Callable[[], None]) -> None:
        os.kill(jvm().pid, signal.SIGKILL)
        commit()

    iceberg.publish(points[0])
    before = jvm().pid
    with pytest.raises(IcebergFailed):
        replace(iceberg, wrapped=killed).publish(points[1])
    iceberg.publish(points[1])
    assert jvm().pid != before
    iceberg.assert_pinned(*points[:2])


def test_a_foreign_commit_stops_the_table_alone_until_it_is_rebuilt(
    iceberg: IcebergPublished, points: list[Point]
) -> None:
    iceberg.publish(points[0])
    with iceberg.catalog() as at:
        found = RestCatalog("lake", uri=at.uri, token=at.token, warehouse=at.warehouse)
        table = found.load_table("shop.keyed")
        table.append(table.scan(limit=1).to_arrow())
    result = iceberg.sync(points[1]).run()
    assert [(one.table, one.failure.code) for one in result.behind] == [("shop.keyed", "LAKE_CHANGED")]
    result = iceberg.sync(points[1]).run()
    assert [one.table for one in result.behind] == ["shop.keyed"]
    assert iceberg.sync(points[1]).rebuild("shop.keyed").behind == ()
    iceberg.assert_pinned(points[1])
    iceberg.publish(points[2])
    iceberg.assert_pinned(points[2])


def test_tables_of_an_older_state_are_brought_to_where_the_lake_is(
    iceberg: IcebergPublished, points: list[Point], tmp_path: Path
) -> None:
    """Also those that no later point changes."""
    iceberg = replace(iceberg, home=tmp_path / "home", version=3)
    iceberg.publish(points[0])
    shutil.copytree(tmp_path / "home", tmp_path / "older")
    for point in points[1:5]:
        iceberg.publish(point)
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "older").rename(tmp_path / "home")
    iceberg.publish(points[5])
    iceberg.assert_pinned(points[5])


@pytest.mark.parametrize("content", [None, b"{"], ids=["gone", "damaged"])
def test_a_lost_metadata_file_is_written_anew_once_a_reader_has_missed_it(
    iceberg: IcebergPublished, points: list[Point], content: bytes | None
) -> None:
    iceberg.publish(points[0])
    for path in iceberg.folder.glob("shop.keyed/metadata/*.metadata.json"):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    with pytest.raises(NoSuchTableError, match="keyed"):
        iceberg.assert_pinned(points[0])
    iceberg.publish(points[0])
    iceberg.assert_pinned(points[0])


def test_a_table_whose_manifests_are_lost_stops_alone_until_it_is_rebuilt(
    iceberg: IcebergPublished, points: list[Point]
) -> None:
    iceberg.publish(points[0])
    for path in iceberg.folder.glob("shop.keyed/metadata/*.avro"):
        path.write_bytes(b"")
    for _ in range(2):
        result = iceberg.sync(points[1]).run()
        assert [(one.table, one.failure.code) for one in result.behind] == [("shop.keyed", "ICEBERG_FAILED")]
    assert iceberg.live("shop.keyless").num_rows == 200
    assert iceberg.sync(points[1]).rebuild("shop.keyed").behind == ()
    iceberg.assert_pinned(points[1])
    iceberg.publish(points[2])
    iceberg.assert_pinned(points[2])


def test_old_snapshots_leave_with_the_points(iceberg: IcebergPublished, points: list[Point]) -> None:
    iceberg = replace(iceberg, retention=Retention(points=2), version=3, readers=())
    hours = 3 * 3600 * 10**9
    for point in points:
        iceberg.publish(point, point.at.physical + hours)
    iceberg.assert_pinned(*points[-2:])
    replace(iceberg, retention=Retention(points=1)).publish(points[-1], points[-1].at.physical + 2 * hours)
    iceberg.assert_pinned(points[-1])
    (keyed,) = (found for (name, _), found in iceberg.snapshots().items() if name == "shop.keyed")
    assert [marks(one)["ccpr.point"] for one in keyed] == [str(points[-1].lsn)]


@pytest.mark.in_turn
def test_a_held_point_stays_readable_by_its_tag_until_it_is_released(tmp_path: Path) -> None:
    """Though the points around it have left, and the table of it was dropped; and whatever is killed."""
    hours = 3 * 3600 * 10**9

    def dying(commit: Callable[[], None]) -> None:
        nonlocal kills
        kills -= 1
        if not kills:
            commit()
            raise Killed
        commit()

    schema = tuple(f"CREATE TABLE shop.{name} (x INT PRIMARY KEY)" for name in ("t", "gone"))
    with source(tmp_path / "m", *schema) as found:
        all_points = [found.point("INSERT INTO shop.t VALUES (100), (101), (102)", "INSERT INTO shop.gone VALUES (1)")]
        all_points += [found.point(f"DELETE FROM shop.t WHERE x = {100 + turn}") for turn in range(2)]
        statements = [("INSERT INTO shop.t VALUES (1)", "DROP TABLE shop.gone"), ("TRUNCATE TABLE shop.t",)]
        statements += [(f"INSERT INTO shop.t VALUES ({turn})",) for turn in range(2, 30)]
        all_points += [found.point(*one) for one in statements]
        held = all_points[1]
        lake = IcebergPublished(found.mirror, tmp_path / "lake", retention=Retention(points=2), readers=())
        lake = replace(lake, held=frozenset([held.at.physical]))
        with lake.state() as (workspace, _), transaction(workspace.log.engine) as connection:
            columns = {"task_id": TASK, "lsn": held.lsn, "snapshot_ts": held.at.physical, "snapshot": "s"}
            rest = {one.name: 0 if isinstance(one.type, sa.Integer) else "" for one in points_table.columns}
            rest["committed_at"] = NOW
            connection.execute(points_table.insert().values(rest | columns))
            kept = workspace.of(NAME).kept
            before = kept.state()
            holds = (Hold("eve", held.lsn, None, NOW),)
            kept.write(connection, before, replace(before, revision=before.revision + 1, holds=holds))

        def tagged() -> list[int] | None:
            with lake.state() as (workspace, target):
                warehouses = Warehouses(workspace.log)
                warehouse = warehouses.of(NAME, target)
                view = LiveView(warehouse, lambda: warehouses.held(warehouse))
                tag = json.loads(view.load(("shop", "t")))["metadata"]["refs"].get("eve")
            if tag is None:
                return None
            with lake.catalog() as at:
                table = RestCatalog("lake", uri=at.uri, token=at.token, warehouse=at.warehouse).load_table("shop.t")
                return sorted(table.scan(snapshot_id=tag["snapshot-id"]).to_arrow()["x"].to_pylist())

        for number, point in enumerate(all_points):
            kills = number % 3  # the second commit of a sync is that of a table's cleaning
            try:
                replace(lake, wrapped=dying).publish(point, point.at.physical + hours)
            except Killed:
                lake.publish(point, point.at.physical + hours)
        assert tagged() == [101, 102]
        lake.assert_pinned(held)
        (snapshots,) = (found for (name, _), found in lake.snapshots().items() if name == "shop.t")
        assert len(snapshots) < 20
        assert marks(snapshots[0])["ccpr.point"] == str(held.lsn)
        stored = set(lake.folder.glob("*/data/*.parquet"))
        released = replace(lake, held=frozenset(), retention=Retention(points=1))
        released.publish(all_points[-1], all_points[-1].at.physical + 2 * hours)
        assert tagged() is None
        assert not (lake.folder / "shop.gone").exists()
        left = stored - set(lake.folder.glob("*/data/*.parquet"))
        assert {path.parent.parent.name for path in left} >= {"shop.gone", "shop.t"}
        assert str(held.lsn) not in {marks(one)["ccpr.point"] for one in next(iter(lake.snapshots().values()))}


def test_metadata_that_nothing_names_go_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    def killed(*_: Any) -> None:
        raise Killed

    with source(tmp_path / "m", "CREATE TABLE shop.t (x INT PRIMARY KEY)") as found:
        all_points = [found.point(f"INSERT INTO shop.t VALUES ({number})") for number in range(12)]
        lake = IcebergPublished(found.mirror, tmp_path / "lake", retention=Retention(points=3), readers=())
        lake.publish(all_points[0])
        metadata = lake.folder / "shop.t" / "metadata"
        (metadata / "killed-m0.avro").write_bytes(b"of a commit that was not made")
        later = metadata / f"00099-{uuid4()}.metadata.json"
        later.write_bytes(b"of a commit that may still be made")
        with monkeypatch.context() as patched:
            patched.setattr(TablePointers, "move", killed)
            with pytest.raises(Killed):
                lake.publish(all_points[1])
        left = set(metadata.glob("00001-*.metadata.json"))
        assert len(left) == 1
        lake.publish(all_points[-1], all_points[-1].at.physical + 3 * 3600 * 10**9)
        lake.assert_pinned(*all_points[-2:])
        ((_, snapshots),) = lake.snapshots().items()
        assert len(snapshots) < 6
        named = {one.manifest_list for one in snapshots}
        named |= {each.manifest_path for one in snapshots for each in one.manifests(PyArrowFileIO())}
        stored = {path.name for path in metadata.glob("*.avro")}
        assert {path.rpartition("/")[2] for path in named} <= stored
        assert "killed-m0.avro" not in stored
        assert len(stored) < 30  # of 36
        assert not any(path.exists() for path in left)
        ((_, location),) = lake.snapshots()
        logged = json.loads(Path(location.removeprefix("file://")).read_text())["metadata-log"]
        named = {location, *(one["metadata-file"] for one in logged)}
        assert set(metadata.glob("*.json")) == {Path(one.removeprefix("file://")) for one in named} | {later}


@pytest.mark.parametrize("rest", [False, True], ids=["own", "rest"])
def test_names_that_are_exchanged_are_exchanged(tmp_path: Path, rest: bool) -> None:
    schema = tuple(f"CREATE TABLE shop.{name} INT PRIMARY KEY)" for name in ("a (x", "b (y", "`an odd+name` (z"))
    with source(tmp_path / "m", *schema) as found:
        first = found.point("INSERT INTO shop.a VALUES (1)", "INSERT INTO shop.b VALUES (2)")
        lake = IcebergPublished(found.mirror, tmp_path / "lake", readers=(), rest=rest)
        lake.publish(first)
        statements = ("RENAME TABLE shop.a TO shop.c", "RENAME TABLE shop.b TO shop.a", "RENAME TABLE shop.c TO shop.b")
        second = found.point(*statements)
        lake = replace(lake, mirror=found.mirror)
        lake.publish(second)
        assert lake.live("shop.a").to_pydict() == {"y": [2]}
        assert lake.live("shop.b").to_pydict() == {"x": [1]}
        lake.assert_pinned(first, second)


def test_names_change_with_the_point_and_a_dropped_table_is_listed_no_more(tmp_path: Path) -> None:
    def killed(commit: Callable[[], None]) -> None:
        raise Killed

    def listed() -> set[str]:
        return {name for name, _ in lake.snapshots()}

    schema = tuple(f"CREATE TABLE shop.{name} (x INT PRIMARY KEY)" for name in ("a", "b", "c"))
    with source(tmp_path / "m", *schema) as found:
        first = found.point(*(f"INSERT INTO shop.{name} VALUES (1)" for name in ("a", "b", "c")))
        lake = IcebergPublished(found.mirror, tmp_path / "lake", readers=())
        lake.publish(first)
        second = found.point("RENAME TABLE shop.a TO shop.d", "DROP TABLE shop.b", "INSERT INTO shop.c VALUES (2)")
        lake = replace(lake, mirror=found.mirror)
        with pytest.raises(Killed):
            replace(lake, wrapped=killed).publish(second)
        assert listed() == {"shop.a", "shop.b", "shop.c"}
        assert lake.live("shop.c").to_pydict() == {"x": [1]}
        lake.publish(second)
        assert listed() == {"shop.c", "shop.d"}
        lake.assert_pinned(first, second)
        third = found.point("CREATE TABLE shop.b (y INT PRIMARY KEY)", "INSERT INTO shop.b VALUES (3)")
        lake = replace(lake, mirror=found.mirror)
        lake.publish(third)
        assert lake.live("shop.b").to_pydict() == {"y": [3]}
        lake.assert_pinned(first, second, third)


def test_a_jar_that_is_missing_or_another_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAR_FOLDER, str(tmp_path))
    with pytest.raises(IcebergJarMissing, match="is not there"):
        find_jars(s3=False)
    (tmp_path / iceberg_jvm.ICEBERG.file).write_bytes(b"another")
    with pytest.raises(IcebergJarMissing, match="is another file than"):
        find_jars(s3=False)


def test_the_url_of_a_catalog_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_TOKEN", "s3cret")
    found = catalog_properties("https://host:8181/iceberg?warehouse=w&token=env:LAKE_TOKEN")
    assert found == {"uri": "https://host:8181/iceberg", "warehouse": "w", "token": "s3cret"}
    for wrong in ("https://host?token=s3cret", "https://me:s3cret@host", "s3://bucket", "https://host?token=env:NONE"):
        with pytest.raises(BadName) as raised:
            catalog_properties(wrong)
        assert "s3cret" not in str(raised.value)
