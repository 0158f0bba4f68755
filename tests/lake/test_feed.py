"""Change data feeds: whoever keeps a copy by them, by the names of columns, has the table's rows, whatever was done to
the table between two points."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ccpr.lake.errors import LakeTableRefused
from ccpr.lake.lake_options import Mapped, TableRules
from ccpr_emulator.engine.storage import Storage
from tests.support.lake_readers import READERS, Consumer
from tests.support.lakes import Published, Source, source

pytestmark = pytest.mark.integration

TABLE = "CREATE TABLE shop.t (id INT PRIMARY KEY, a INT, b INT, word VARCHAR(9))"
FILL = "INSERT INTO shop.t SELECT result, result * 10, result * 10 + 1, 'w' FROM generate_series(1, 40) g"
RENAMES = (("a", "x"), ("b", "a"), ("x", "b"))
SWAP = tuple(f"ALTER TABLE shop.t RENAME COLUMN {one} TO {other}" for one, other in RENAMES)
DELETE = "DELETE FROM shop.t WHERE id % 5 = 0"
CHANGES: dict[str, Sequence[str]] = {
    "names change places": SWAP,
    "a swap, and rows change": (*SWAP, "UPDATE shop.t SET a = 7 WHERE id < 9", DELETE),
    "a column is called otherwise": ("ALTER TABLE shop.t RENAME COLUMN a TO z",),
    "and another one gets its name": (
        "ALTER TABLE shop.t RENAME COLUMN a TO z",
        "ALTER TABLE shop.t ADD COLUMN a INT",
        DELETE,
    ),
    "a column goes and comes back": ("ALTER TABLE shop.t DROP COLUMN a", "ALTER TABLE shop.t ADD COLUMN a INT"),
    "with another type": ("ALTER TABLE shop.t DROP COLUMN a", "ALTER TABLE shop.t ADD COLUMN a VARCHAR(5)", DELETE),
    "a wider type": ("ALTER TABLE shop.t MODIFY a BIGINT", "UPDATE shop.t SET a = a + 1 WHERE id = 1"),
    "text of numbers": ("ALTER TABLE shop.t MODIFY a VARCHAR(20)", "UPDATE shop.t SET a = 'none' WHERE id = 1"),
    "a longer text": ("ALTER TABLE shop.t MODIFY word VARCHAR(50)", "UPDATE shop.t SET word = 'long' WHERE id = 1"),
    "a column comes": ("ALTER TABLE shop.t ADD COLUMN c INT DEFAULT 5", DELETE),
    "a column goes": ("ALTER TABLE shop.t DROP COLUMN b", DELETE),
    "another table's name": ("RENAME TABLE shop.t TO shop.u", "UPDATE shop.u SET a = 0 WHERE id = 2"),
    "no rows": ("TRUNCATE TABLE shop.t",),
    "other rows": ("TRUNCATE TABLE shop.t", "INSERT INTO shop.t VALUES (1, 2, 3, 'x'), (99, 1, 1, 'y')"),
    "another table": (
        "DROP TABLE shop.t",
        "CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(9))",
        "INSERT INTO shop.t VALUES (1, 'one'), (77, 'new')",
    ),
    "another table of which rows went": (
        "DROP TABLE shop.t",
        TABLE,
        "INSERT INTO shop.t VALUES (1, 1, 1, 'one'), (77, 2, 2, 'new'), (78, 2, 2, 'gone')",
        "DELETE FROM shop.t WHERE id = 78",
    ),
    "the same keys again": (DELETE, "INSERT INTO shop.t VALUES (5, 1, 1, 'again')"),
    "no table": ("DROP TABLE shop.t",),
}


def versions(lake: Published) -> list[str]:
    """What each version says that it is."""
    logs = sorted((lake.folder / "shop.t" / "_delta_log").glob("*.json"))
    return [json.loads(log.read_text().partition("\n")[0])["commitInfo"]["operation"] for log in logs]


def assert_follows(lake: Published) -> None:
    uri = str(lake.folder / "shop.t")
    copy = Consumer(uri)
    copy.follow()
    copy.assert_is(READERS["delta-rs"](uri, copy.version))


@pytest.mark.parametrize("rows_went", [False, True], ids=["whole", "rows went before"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_that_is_kept_by_the_feed_has_the_rows(tmp_path: Path, change: str, rows_went: bool) -> None:
    with source(tmp_path, TABLE) as found:
        lake = Published(found.mirror, tmp_path / "lake", rules=TableRules(change_data=True))
        lake.publish(found.point(FILL))
        if rows_went:
            lake.publish(found.point("DELETE FROM shop.t WHERE id = 3", "UPDATE shop.t SET b = 0 WHERE id = 4"))
        lake.publish(found.point(*CHANGES[change]))
        if change not in ("no table", "another table's name"):
            lake.publish(found.point("INSERT INTO shop.t (id) VALUES (1000)", "DELETE FROM shop.t WHERE id = 2"))
        assert_follows(lake)


def deleted(lake: Published, version: int) -> list[dict[str, Any]]:
    """What a version's file of changes has of rows that are gone, under the names of the table."""
    import pyarrow.parquet as pq

    file = lake.folder / "shop.t" / "_change_data" / f"{version:020}.parquet"
    rows = pq.read_table(file).to_pylist()
    return [row for row in rows if row["_change_type"] == "delete"]


@pytest.mark.parametrize(
    ("statements", "row"),
    [
        (("ALTER TABLE shop.t MODIFY a BIGINT",), {"a": 10, "b": 11, "word": "w"}),
        (("ALTER TABLE shop.t MODIFY a VARCHAR(20)",), {"a": "10", "b": 11, "word": "w"}),
        (SWAP, {"a": 10, "b": 11, "word": "w"}),
        (("ALTER TABLE shop.t RENAME COLUMN a TO z",), {"z": 10, "b": 11, "word": "w"}),
    ],
)
def test_deleted_rows_are_whole_under_the_names_of_their_version(
    tmp_path: Path, statements: Sequence[str], row: dict[str, Any]
) -> None:
    with source(tmp_path, TABLE) as found:
        lake = Published(found.mirror, tmp_path / "lake", rules=TableRules(change_data=True))
        lake.publish(found.point(FILL))
        lake.publish(found.point(*statements, "UPDATE shop.t SET b = 0 WHERE id = 1"))
        assert versions(lake) == ["CREATE TABLE", "REPLACE TABLE"]
        rows = {one.pop("id"): one for one in deleted(lake, 1)}
        assert len(rows) == 40
        assert rows[1] == {**row, "_change_type": "delete"}


def test_a_rename_with_column_mapping_has_all_rows_in_the_feed(tmp_path: Path) -> None:
    """No file is written again, but whoever goes by names has other values."""
    import pyarrow.parquet as pq

    storage = Storage()
    with source(tmp_path, TABLE, storage=storage) as found:
        rules = TableRules(change_data=True, mapped=Mapped.NAME)
        lake = Published(found.mirror, tmp_path / "lake", rules=rules, readers=("delta-rs",))
        found.sql(FILL)
        storage.flush("shop", "t")
        lake.publish(found.point())
        last = found.point(*SWAP)
        lake.publish(last)
        lake.assert_shows(last)
        assert not any("add" in action for action in lake.actions("shop.t", 1))
        rows = pq.read_table(lake.folder / "shop.t" / "_change_data" / f"{1:020}.parquet").to_pylist()
        ours = [row for row in rows if row["c1"] == 1]
        assert {row["_change_type"]: (row["c2"], row["c3"]) for row in ours} == {"delete": (11, 10), "insert": (10, 11)}


def test_columns_that_come_and_go_in_place_do_not_begin_a_range(tmp_path: Path) -> None:
    storage = Storage()
    with source(tmp_path, TABLE, storage=storage) as found:
        lake = Published(found.mirror, tmp_path / "lake", rules=TableRules(change_data=True))
        lake.publish(found.point(FILL))
        storage.add_column("shop", "t", "c", "int", in_place=True)
        lake.publish(found.point("UPDATE shop.t SET a = a + 1 WHERE id = 1"))
        storage.drop_column("shop", "t", "b", in_place=True)
        lake.publish(found.point("UPDATE shop.t SET a = a + 1 WHERE id = 1"))
        assert versions(lake) == ["CREATE TABLE", "WRITE", "WRITE"]
        assert_follows(lake)


def test_a_range_of_versions_is_read_as_the_page_says(tmp_path: Path) -> None:
    """docs/how-to/lake.md, "What has changed": from one REPLACE TABLE to the next, in columns of the last version."""
    from deltalake import DeltaTable

    with source(tmp_path, TABLE) as found:
        lake = Published(found.mirror, tmp_path / "lake", rules=TableRules(change_data=True))
        lake.publish(found.point(FILL))
        lake.publish(found.point("UPDATE shop.t SET a = a + 1 WHERE id = 1"))
        lake.publish(found.point("ALTER TABLE shop.t MODIFY a VARCHAR(20)", "UPDATE shop.t SET a = 'x' WHERE id = 2"))
        lake.publish(found.point("UPDATE shop.t SET a = 'y' WHERE id = 3"))
        uri = str(lake.folder / "shop.t")
        history = DeltaTable(uri).history()
        starts = sorted(one["version"] for one in history if one["operation"] in ("CREATE TABLE", "REPLACE TABLE"))
        assert starts == [0, 2]
        for first, last, kind in ((0, 1, pa.int32()), (2, 3, pa.string_view())):
            feed = pa.table(DeltaTable(uri, version=last).load_cdf(starting_version=first, ending_version=last))
            assert feed.schema.field("a").type == kind
            assert feed.column("a").null_count == 0


@pytest.mark.parametrize("name", ["_change_type", "_COMMIT_version", "_commit_Timestamp"])
def test_a_table_with_a_column_that_the_feed_has_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with source(tmp_path, f"CREATE TABLE shop.t (id INT PRIMARY KEY, {name} INT)", "CREATE TABLE shop.o (n INT)") as it:
        point = it.point("INSERT INTO shop.t VALUES (1, 2)", "INSERT INTO shop.o VALUES (1)")
        lake = Published(it.mirror, tmp_path / "lake", rules=TableRules(change_data=True))
        sync = lake.sync(point)
        ((table, failure),) = [(one.table, one.failure) for one in sync.run().behind]
        assert (table, failure.code) == ("shop.t", LakeTableRefused.code)
        assert name in failure.message
        plain = replace(lake, folder=tmp_path / "plain", rules=TableRules(), shown={})
        plain.publish(point)
        plain.assert_shows(point)


def _interrupted(found: Source, lake: Published) -> None:
    """A commit whose point the table of points does not have, and the mirror has not any more."""
    late = lake.sync(found.point("UPDATE shop.t SET a = 1 WHERE id = 1"))
    late.catalog.record = lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)  # pyright: ignore
    with pytest.raises(KeyboardInterrupt):
        late.run()


def test_where_the_version_before_is_not_known_its_files_say_what_was_there(tmp_path: Path) -> None:
    with source(tmp_path, TABLE) as found:
        lake = Published(found.mirror, tmp_path / "lake", rules=TableRules(change_data=True))
        lake.publish(found.point(FILL))
        _interrupted(found, lake)
        sync = lake.sync(found.point(DELETE))
        points = list(sync.later(0))
        sync.later = lambda at: [points[-1]]
        sync.run()
        assert_follows(lake)


def test_a_rebuild_is_followed(tmp_path: Path) -> None:
    with source(tmp_path, TABLE) as found:
        lake = Published(found.mirror, tmp_path / "lake", rules=TableRules(change_data=True))
        for statements in ((FILL,), (DELETE,)):
            lake.publish(found.point(*statements))
        lake.sync(found.mirror.point()).rebuild("t")
        assert versions(lake)[-1] == "REPLACE TABLE"
        assert_follows(lake)
        for file in (lake.folder / "shop.t" / "data").iterdir():
            file.unlink()
        assert lake.sync(found.mirror.point()).rebuild("t").behind == ()
        assert deleted(lake, len(versions(lake)) - 1) == [], "nobody knows them any more"
