"""Publishing point after point: what happens to tables, what is written for it, and that other programs read the rows
of each point."""

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ccpr.lake import delta_table, publish
from ccpr.lake import lake_sync as sync
from ccpr.lake.commit import visible_rows
from ccpr.lake.errors import LakeAhead, LakeChanged, LakeConflict, LakeForeign
from ccpr.lake.lake_options import Mapped, TableRules
from ccpr.lake.lake_sync import LakeScope
from ccpr.matrixone.schema import Reading, ZeroDates
from ccpr.mirror.points import Point
from ccpr.state.patterns import NamePatterns
from tests.support.lakes import Published, VectorsInLog, source

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("rules", "readers"),
    [
        (TableRules(), ("delta-rs", "polars")),
        (TableRules(mapped=Mapped.NAME), ("delta-rs",)),
        (TableRules(copy_on_write=True), ("delta-rs", "polars")),
    ],
)
def test_every_reader_reads_the_rows_of_every_point(
    published: Published, points: list[Point], rules: TableRules, readers: tuple[str, ...]
) -> None:
    published = replace(published, rules=rules, readers=readers)
    for point in points:
        published.publish(point)
    published.assert_shows(*points)


def test_points_that_were_missed_are_published_one_after_the_other(published: Published, points: list[Point]) -> None:
    published.publish(points[0])
    result = published.publish(points[-1])
    assert result.points == len(points) - 1
    everything = replace(published, folder=published.folder.with_name("each"), shown={})
    for point in points:
        everything.publish(point)
    assert published.version("shop.keyed") == everything.version("shop.keyed")
    published.shown = everything.shown
    published.assert_shows(*points)


def test_a_lake_begins_with_the_newest_point(published: Published, points: list[Point]) -> None:
    assert published.publish(points[4]).points == 1
    published.assert_shows(points[4])
    assert published.version("shop.keyed") == 0


def test_a_renamed_table_keeps_its_folder_and_the_name_is_free_for_another(
    published: Published, points: list[Point]
) -> None:
    for point in points[:6]:
        published.publish(point)
    assert published.shown[3]["shop.elsewhere"][0] == "shop.moved"
    folder, version = published.shown[5]["shop.moved"]
    assert folder == f"shop.moved.{points[5].table('shop.moved').table_id}"
    assert version == 0


def test_a_dropped_tables_folder_is_empty_until_a_new_one_takes_it(published: Published, points: list[Point]) -> None:
    for point in points[:4]:
        published.publish(point)
    dropped = published.version("shop.gone")
    operation = published.actions("shop.gone", dropped)[0]["commitInfo"]["operation"]
    assert operation == "DROP TABLE"
    for point in points[4:6]:
        published.publish(point)
    assert published.shown[5]["shop.gone"] == ("shop.gone", dropped + 1)
    published.assert_shows(points[2], points[5])


def test_a_point_that_changes_a_table_is_one_commit_and_another_is_none(
    published: Published, points: list[Point]
) -> None:
    for point in points[:8]:
        published.publish(point)
    before = {name: version for name, (_, version) in published.shown[7].items()}
    published.publish(points[7])
    assert {name: version for name, (_, version) in published.shown[7].items()} == before
    published.publish(points[8])
    changed = {name for name, (_, version) in published.shown[8].items() if version != before[name]}
    assert {"shop.keyed", "shop.keyless"} <= changed <= {"shop.keyed", "shop.keyless", "shop.elsewhere"}


def test_a_commit_names_its_point_and_its_time(published: Published, points: list[Point]) -> None:
    for point in points[:2]:
        published.publish(point)
    about, *others = published.actions("shop.keyed", 1)
    (transaction,) = (action for action in others if "txn" in action)
    at = points[1].at.physical
    assert about["commitInfo"]["inCommitTimestamp"] == at // 1_000_000
    assert about["commitInfo"]["ccpr"]["lsn"] == points[1].lsn
    assert transaction["txn"]["version"] == at


def test_a_table_needs_readers_of_vectors_from_its_first_vector_on(published: Published, points: list[Point]) -> None:
    def protocols(table: str, version: int) -> list[dict[str, Any]]:
        return [action["protocol"] for action in published.actions(table, version) if "protocol" in action]

    for point in points[:3]:
        published.publish(point)
    (first,), (later,) = protocols("shop.keyed", 0), protocols("shop.keyed", 1)
    assert "deletionVectors" not in first["readerFeatures"]
    assert "deletionVectors" in later["readerFeatures"]
    assert protocols("shop.gone", 0)[0]["minReaderVersion"] == 1, "every reader of Delta Lake reads it"


def test_an_increment_writes_what_is_new(published: Published, points: list[Point]) -> None:
    for point in points[:8]:
        published.publish(point)
    (keyed,) = [one for one in published.publish(points[8]).tables if one.table == "shop.keyed"]
    assert (keyed.files_added, keyed.files_removed) == (0, 0)
    assert keyed.vectors > 0
    assert keyed.bytes_written < 4_000


def test_deleted_rows_are_no_values_in_the_files_of_a_lake_that_begins_after_them(
    published: Published, points: list[Point]
) -> None:
    import pyarrow.parquet as pq

    published.publish(points[1])
    (file,) = (published.folder / "shop.keyed" / "data").glob("*.parquet")
    stored = pq.read_table(file)
    assert stored.num_rows == 300
    assert {row["id"] for row in stored.to_pylist()} == {None, *(number for number in range(1, 301) if number % 7)}


def test_only_some_tables_are_published(published: Published, points: list[Point]) -> None:
    published = replace(published, scope=LakeScope(tables=NamePatterns.of("key*")))
    published.publish(points[0])
    assert set(published.shown[0]) == {"shop.keyed", "shop.keyless"}


def test_another_reading_of_values_writes_the_files_that_it_concerns_again(
    published: Published, points: list[Point]
) -> None:
    published.publish(points[0])
    other = replace(published, reading=Reading(zero_dates=ZeroDates.KEEP), shown={})
    result = other.publish(points[0])
    assert [table.table for table in result.tables] == ["shop.keyed"]
    other.assert_shows(points[0])


# ---- vectors


def vectors_of(published: Published, table: str, version: int) -> list[dict[str, Any]]:
    adds = [action["add"] for action in published.actions(table, version) if "add" in action]
    return [add["deletionVector"] for add in adds if "deletionVector" in add]


def test_vectors_are_in_files_where_every_reader_of_vectors_finds_them(
    published: Published, points: list[Point]
) -> None:
    for point in points[:2]:
        published.publish(point)
    assert {one["storageType"] for one in vectors_of(published, "shop.keyed", 1)} == {"u"}
    assert len(list((published.folder / "shop.keyed").glob("deletion_vector_*.bin"))) == 1


def test_a_lake_of_a_former_release_is_mended_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors in its log, bounds that were rounded inwards, escaped letters; although no row has changed."""
    import polars as pl

    def former_stats(found: dict[str, Any]) -> str:
        found["maxValues"]["d"] = 562949953421312.2
        return json.dumps(found)

    def former_metadata(*about: Any, **more: Any) -> dict[str, Any]:
        found = delta_table.metadata(*about, **more)
        del found["configuration"][delta_table.FORMAT]
        return found

    schema = "CREATE TABLE shop.t (id INT PRIMARY KEY, d DECIMAL(17,1), word VARCHAR(9))"
    with source(tmp_path, schema) as found:
        fill = "INSERT INTO shop.t VALUES (1, 562949953421312.3, '\U00020bb7'), (2, 5, '\U00020bb7')"
        points = [found.point(fill), found.point("DELETE FROM shop.t WHERE id = 2")]
        published = Published(found.mirror, tmp_path / "lake")
        with monkeypatch.context() as former:
            former.setattr(publish, "CommitVectors", VectorsInLog)
            former.setattr(publish, "stats_text", former_stats)
            former.setattr(publish, "metadata", former_metadata)
            former.setattr(sync, "NEWEST", "1")
            for point in points:
                published.publish(point)
        uri = str(published.folder / "shop.t")

        def seen() -> list[int]:
            table = pl.scan_delta(uri)
            conditions = (pl.col("d") > Decimal("562949953421312.2"), pl.col("word") == "\U00020bb7")
            return [table.filter(condition).collect().height for condition in conditions]

        assert {one["storageType"] for one in vectors_of(published, "shop.t", 1)} == {"i"}
        assert seen() == [0, 0], "what the former release wrote is as wrong as it was"
        published.publish(points[1])
        assert seen() == [1, 1]
        (add,) = [one["add"] for one in published.actions("shop.t", 2) if "add" in one]
        assert (add["deletionVector"]["storageType"], add["dataChange"]) == ("u", False)
        published.assert_shows(*points)
        published.publish(points[1])
        assert published.version("shop.t") == 2


def test_a_file_whose_rows_are_all_hidden_is_not_there(tmp_path: Path) -> None:
    with source(tmp_path, "CREATE TABLE shop.t (id INT PRIMARY KEY)") as found:
        points = [found.point("INSERT INTO shop.t VALUES (1), (2)"), found.point("INSERT INTO shop.t VALUES (3)")]
        points.append(found.point("DELETE FROM shop.t WHERE id < 3"))
        points.append(found.point("INSERT INTO shop.t VALUES (1)"))
        late = Published(found.mirror, tmp_path / "late")
        late.publish(points[2])
        published = Published(found.mirror, tmp_path / "lake")
        for point in points:
            published.publish(point)
        for lake in (published, late):
            for log in (lake.folder / "shop.t" / "_delta_log").glob("*.json"):
                adds = [json.loads(line).get("add") for line in log.read_text().splitlines()]
                assert all(visible_rows(add) > 0 for add in adds if add is not None), log
        late.publish(points[3])
        late.assert_shows(points[2], points[3])
        published.assert_shows(*points)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"\1" * 400)])
def test_a_file_of_vectors_that_is_gone_or_damaged_is_noticed_and_a_rebuild_goes_on(
    published: Published, points: list[Point], damage: Callable[[Path], None]
) -> None:
    for point in points[:2]:
        published.publish(point)
    (path,) = (published.folder / "shop.keyed").glob("deletion_vector_*.bin")
    damage(path)
    for point in points[2:6]:
        published.sync(point).run()
    result = published.sync(points[8]).run()
    assert [(one.table, one.failure.code) for one in result.behind] == [("shop.keyed", LakeChanged.code)]
    again = published.sync(points[8])
    assert again.rebuild("keyed").behind == ()
    published.note(again.contents)
    published.assert_shows(points[8])


def test_what_cleans_a_table_elsewhere_finds_its_files_of_vectors_named(
    published: Published, points: list[Point]
) -> None:
    """delta-rs, which would delete what it does not know."""
    from deltalake import DeltaTable

    for point in points[:2]:
        published.publish(point)
    table = DeltaTable(str(published.folder / "shop.keyed"))
    gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
    assert not [name for name in gone if "deletion_vector" in name]


# ---- others


def test_what_another_program_commits_is_noticed_and_a_rebuild_goes_on(
    published: Published, points: list[Point]
) -> None:
    published.publish(points[0])
    folder = published.folder / "shop.keyed"
    _commit_of_others(folder, 1)
    sync = published.sync(points[1])
    result = sync.run()
    assert [(one.table, one.failure.code, one.again) for one in result.behind] == [
        ("shop.keyed", LakeChanged.code, False)
    ]
    assert sync.contents.newest is not None
    assert sync.contents.newest.lsn == points[1].lsn, "the others go on"
    again = published.sync(points[1])
    assert again.rebuild("keyed").behind == ()
    published.note(again.contents)
    published.assert_shows(points[1])
    published.publish(points[2])
    published.assert_shows(points[2])


def test_a_file_that_is_gone_is_noticed_after_a_failure_and_written_again_by_a_rebuild(
    published: Published, points: list[Point]
) -> None:
    published.publish(points[0])
    for file in (published.folder / "shop.keyed" / "data").iterdir():
        file.unlink()
    sync = published.sync(points[0])
    sync.contents = sync.catalog.read()
    again = published.sync(points[0])
    assert again.rebuild("shop.keyed").behind == ()
    published.note(again.contents)
    published.assert_shows(points[0])


def test_a_table_that_somebody_made_is_not_touched(published: Published, points: list[Point]) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    folder = published.folder / "shop.keyed"
    folder.mkdir(parents=True)
    write_deltalake(str(folder), pa.table({"theirs": [1]}))
    result = published.sync(points[0]).run()
    assert [(one.table, one.failure.code) for one in result.behind] == [("shop.keyed", LakeForeign.code)]
    assert [path.name for path in (folder / "_delta_log").iterdir()] == [f"{0:020}.json"]


def test_a_lake_of_another_subscription_is_refused(published: Published, points: list[Point]) -> None:
    published.publish(points[0])
    sync = published.sync(points[1])
    sync.lake.task = sync.catalog.log.task = "another"
    with pytest.raises(LakeForeign):
        sync.run()


def test_a_mirror_that_was_restored_waits_until_it_is_as_new_as_the_lake(
    published: Published, points: list[Point]
) -> None:
    for point in points[:3]:
        published.publish(point)
    with pytest.raises(LakeAhead):
        published.sync(points[1]).run()
    published.assert_shows(points[2])


def test_a_folder_of_the_lake_that_was_deleted_is_noticed(published: Published, points: list[Point]) -> None:
    import shutil

    published.publish(points[0])
    shutil.rmtree(published.folder / "shop.keyed")
    result = published.sync(points[1]).run()
    assert [one.failure.code for one in result.behind] == [LakeChanged.code]
    sync = published.sync(points[1])
    assert sync.rebuild("keyed").behind == ()
    published.note(sync.contents)
    published.assert_shows(points[1])


def test_of_two_publishers_one_fails_and_loses_nothing(published: Published, points: list[Point]) -> None:
    published.publish(points[0])
    late = published.sync(points[1])
    late.contents = late.catalog.read()
    published.publish(points[1])
    with pytest.raises(LakeConflict):
        late._publish(points[1])
    published.publish(points[2])
    published.assert_shows(points[0], points[1], points[2])


def _commit_of_others(folder: Path, version: int) -> None:
    """As Spark's VACUUM writes it; delta-rs refuses to write to a table with in-commit timestamps."""
    about = {"timestamp": 1, "operation": "VACUUM START", "engineInfo": "Apache-Spark", "operationParameters": {}}
    path = folder / "_delta_log" / f"{version:020}.json"
    path.write_text(json.dumps({"commitInfo": about}))


# ---- the upstream


def test_rows_of_an_appendable_object_appear_although_the_manifest_is_the_same(tmp_path: Path) -> None:
    from ccpr_emulator.engine.storage import Storage

    storage = Storage()
    with source(tmp_path, "CREATE TABLE shop.t (id INT PRIMARY KEY)", storage=storage) as found:
        first = found.point("INSERT INTO shop.t VALUES (1), (2)")
        published = Published(found.mirror, tmp_path / "lake")
        published.publish(first)
        second = found.point("INSERT INTO shop.t VALUES (3)", "DELETE FROM shop.t WHERE id = 1")
        published.publish(second)
        published.assert_shows(first, second)


def test_digits_beyond_the_declared_are_room_in_the_type(tmp_path: Path) -> None:
    with source(tmp_path, "CREATE TABLE shop.t (id INT PRIMARY KEY, d DECIMAL(4,2))") as found:
        point = found.point("INSERT INTO shop.t VALUES (1, 12.34)")
        published = Published(found.mirror, tmp_path / "lake")
        published.publish(point)
        (metadata,) = [one["metaData"] for one in published.actions("shop.t", 0) if "metaData" in one]
        types = {field["name"]: field["type"] for field in json.loads(metadata["schemaString"])["fields"]}
        assert types == {"id": "integer", "d": "decimal(18,2)"}


def test_columns_whose_names_other_writers_refuse_are_read(tmp_path: Path) -> None:
    with source(tmp_path, "CREATE TABLE shop.`t (x), y` (id INT PRIMARY KEY, `a b` INT, `c;d=e` INT)") as found:
        point = found.point("INSERT INTO shop.`t (x), y` VALUES (1, 2, 3)")
        published = Published(found.mirror, tmp_path / "lake")
        published.publish(point)
        published.assert_shows(point)
