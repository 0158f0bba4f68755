"""`ccpr lake`: after each run other programs read the rows of the point, of real recordings and of SQL."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from tests.support.lake_readers import READERS, assert_same_rows, read_delta_rs, truth
from tests.support.replica import NAME, SIZED_SCENARIOS, Replica, replaying


def add(replica: Replica, *options: str, code: int = 0) -> Any:
    place = ("--to", (replica.folder / "lake").as_uri(), "--format", "delta")
    return replica.command("target", "add", NAME, "lake", *place, *options, code=code)


def status(replica: Replica) -> Any:
    (found,) = replica.command("target", "status", NAME)
    return found


def assert_shows(replica: Replica, lsn: int, found: Any, readers: tuple[str, ...] = tuple(READERS)) -> None:
    """Each table of the point, in the version that the status named when it was new."""
    mirror = Mirror(open_store(str(replica.mirror)))
    point = mirror.point(lsn)
    tables = {table["table"]: table for table in found["tables"]}
    assert set(tables) == {ref.qualified_name for ref in point.tables.values() if ref.kind.value == "table"}
    for name, table in tables.items():
        for reader in readers:
            rows = READERS[reader](table["uri"], table["version"])
            assert_same_rows(rows, truth(mirror, point, name), f"{reader}: {name} at lsn {lsn}")
            assert rows.num_rows == table["rows"]


@pytest.mark.recordings
@pytest.mark.parametrize("scenario", SIZED_SCENARIOS)
def test_every_recorded_table_is_read_at_every_point(scenario: str, recordings: Path, home: Path) -> None:
    with replaying(recordings / scenario, home) as replica:
        replica.subscribe()
        add(replica)
        seen = []
        for _ in range(replica.about.snapshots):
            outcome = replica.run()
            (lake,) = outcome["targets"]
            assert (lake["error"], lake["behind"], lake["lsn"]) == (None, [], outcome["lsn"])
            seen.append((outcome["lsn"], status(replica)))
            assert_shows(replica, *seen[-1])
        shown = {point["lsn"]: point["lakes"]["lake"] for point in replica.command("points", NAME, "--lake")}
        for lsn, found in seen:
            assert_shows(replica, lsn, found, ("delta-rs",))
            told = {one["table"]: {"uri": one["uri"], "version": one["version"]} for one in found["tables"]}
            assert shown[lsn] == told


def test_the_folder_is_named_after_the_table(replica: Replica) -> None:
    add(replica)
    replica.run()
    for table in status(replica)["tables"]:
        assert table["uri"] == f"{(replica.folder / 'lake').as_uri()}/{table['table']}"
        uri = str(replica.folder / "lake" / table["table"])
        mirror = Mirror(open_store(str(replica.mirror)))
        assert_same_rows(read_delta_rs(uri, table["version"]), truth(mirror, mirror.point(), table["table"]), uri)


def test_a_lake_that_is_added_later_begins_with_the_newest_point(replica: Replica) -> None:
    replica.run()
    add(replica)
    outcome = replica.command("target", "sync", NAME, "lake")
    assert outcome["lsn"] == 1
    assert_shows(replica, 1, status(replica))


def test_a_lake_in_a_bucket(replica: Replica, s3_url: str) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    replica.command("target", "add", NAME, "lake", "--to", s3_url)
    for _ in range(3):
        replica.run()
    mirror = Mirror(open_store(str(replica.mirror)))
    endpoint = s3_url.partition("endpoint_override=")[2].partition("&")[0]
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    for table in status(replica)["tables"]:
        found = DeltaTable(table["uri"], version=table["version"], storage_options=options)
        rows = pa.table(QueryBuilder().register("t", found).execute("SELECT * FROM t"))
        assert_same_rows(rows, truth(mirror, mirror.point(), table["table"]), table["uri"])


def test_lakes_are_listed_and_dropped_and_their_tables_stay_unless_purged(replica: Replica) -> None:
    add(replica)
    replica.run()
    (listed,) = replica.command("target", "list", NAME)
    assert (listed["lake"], listed["format"], listed["lsn"]) == ("lake", "delta", 1)
    assert (listed["target"], listed["kind"]) == ("lake", "lake")
    assert replica.command("target", "list", NAME, "--kind", "database") == []
    replica.command("target", "remove", NAME, "lake")
    assert replica.command("target", "list", NAME) == []
    add(replica)
    assert status(replica)["lsn"] == 1, "it is taken up again"
    assert replica.command("target", "remove", NAME, "lake", "--purge", code=4)["error"]["code"] == "NOT_CONFIRMED"
    replica.command("target", "remove", NAME, "lake", "--purge", "--yes")
    assert [path.name for path in (replica.folder / "lake").iterdir()] == [".unfinished"]


def test_lakes_are_added_shown_and_dropped_in_sql(replica: Replica) -> None:
    place = (replica.folder / "lake").as_uri()
    script = f"CREATE LAKE lake OF {NAME} TO '{place}' WITH (FORMAT = 'delta', KEEP = 7, COPY_ON_WRITE = TRUE)"
    (created,) = replica.command("sql", script)
    assert (created["statement"], created["name"], created["uri"]) == ("CREATE LAKE", "lake", place)
    replica.run()
    (listed,) = replica.command("target", "list", NAME)
    assert (listed["keep"], listed["copy_on_write"], listed["lsn"]) == (7, True, 1)
    (shown,) = replica.command("sql", f"SHOW LAKES OF {NAME}")
    assert shown["rows"] == [{"lake": "lake", "uri": place, "format": "delta", "lsn": 1, "tables_behind": 0}]
    assert_shows(replica, 1, status(replica))
    drop = f"DROP LAKE IF EXISTS lake OF {NAME}"
    assert replica.command("sql", f"{drop} PURGE", code=4)["error"]["code"] == "NOT_CONFIRMED"
    (dropped,) = replica.command("sql", f"{drop} PURGE", "--yes")
    assert (dropped["existed"], dropped["purged"]) == (True, True)
    (again,) = replica.command("sql", drop)
    assert again["existed"] is False
    for wrong in ("FORMAT = 'orc'", "COLUMNS = 'id'", "DATABASE = 'nobodys'"):
        refused = replica.command("sql", f"CREATE LAKE lake OF {NAME} TO '{place}' WITH ({wrong})", code=2)
        assert refused["error"]["code"] == "BAD_SETTING"


def test_a_subscription_with_a_lake_can_be_dropped(replica: Replica) -> None:
    add(replica)
    replica.run()
    replica.command("drop", NAME)
    assert (replica.folder / "lake" / "ccpr.points").is_dir()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--format", "orc"), "BAD_SETTING"),
        (("--columns", "id"), "BAD_SETTING"),
        (("--tables", "a,,b"), "BAD_SETTING"),
        (("--database", "nobodys"), "BAD_SETTING"),
        (("--keep", "-1"), "BAD_SETTING"),
        (("--iceberg-version", "3"), "BAD_SETTING"),
        (("--format", "iceberg", "--iceberg-version", "4"), "BAD_SETTING"),
        (("--format", "iceberg", "--catalog", "https://host?token=secret"), "BAD_NAME"),
        (("--to", "https://x/y"), "BAD_TARGET_URI"),
        (("--to", "s3://key:secret@bucket/x"), "BAD_NAME"),
    ],
)
def test_what_cannot_be_is_refused(replica: Replica, options: tuple[str, ...], code: str) -> None:
    assert add(replica, *options, code=2)["error"]["code"] == code
    assert replica.command("target", "list", NAME) == []


def test_a_place_is_of_one_lake_and_of_no_mirror(replica: Replica) -> None:
    add(replica)
    other = ("target", "add", NAME, "other", "--to")
    for place, code in (
        (replica.folder / "lake" / "below", "TARGET_EXISTS"),
        (replica.folder, "MIRROR_IN_USE"),
        (replica.mirror, "MIRROR_IN_USE"),
    ):
        assert replica.command(*other, place.as_uri(), code=1)["error"]["code"] == code
    again = replica.command("target", "add", NAME, "lake", "--to", (replica.folder / "x").as_uri(), code=1)
    assert again["error"]["code"] == "TARGET_EXISTS"


def test_a_table_that_others_wrote_to_is_behind_until_it_is_rebuilt(replica: Replica) -> None:
    add(replica)
    replica.run()
    table = status(replica)["tables"][0]
    folder = replica.folder / "lake" / table["uri"].rpartition("/")[2]
    foreign = {"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE", "engineInfo": "Spark"}}
    (folder / "_delta_log" / f"{table['version'] + 1:020}.json").write_text(json.dumps(foreign))
    behind: list[Any] = []
    for _ in range(4):
        behind = replica.run()["targets"][0]["behind"]
        if behind:
            break
    assert [(one["table"], one["failure"]["code"]) for one in behind] == [(table["table"], "LAKE_CHANGED")]
    assert replica.command("target", "rebuild", NAME, "lake", table["table"])["behind"] == []
    (point, *_) = [point["lsn"] for point in replica.command("points", NAME)][::-1]
    assert_shows(replica, point, status(replica))
    wrong = replica.command("target", "rebuild", NAME, "lake", "nobodys", code=1)
    assert wrong["error"]["code"] == "LAKE_TABLE_UNKNOWN"


def test_a_plan_says_what_becomes_of_the_lake(replica: Replica) -> None:
    add(replica)
    planned = replica.command("plan", NAME)["lakes"]["lake"]
    assert planned["error"] is None
    assert {table["action"] for table in planned["tables"]} == {"create"}
    replica.run()
    assert {table["folder"] for table in planned["tables"]} == {
        table["uri"].rpartition("/")[2] for table in status(replica)["tables"]
    }
    again = replica.command("plan", NAME)["lakes"]["lake"]["tables"]
    assert {table["action"] for table in again} <= {"change", "rename", "drop", "create", "rewrite"}


def test_a_folder_that_cannot_be_written_to_is_a_failure_of_the_lake_alone(replica: Replica) -> None:
    add(replica)
    shutil.rmtree(replica.folder / "lake", ignore_errors=True)
    (replica.folder / "lake").write_text("a file where the folder was")
    outcome = replica.run(code=1)
    assert outcome["point"] is True
    assert outcome["targets"][0]["error"]["code"] == "STORE_FAILED"
    (replica.folder / "lake").unlink()
    replica.run()
    assert_shows(replica, 2, status(replica))
