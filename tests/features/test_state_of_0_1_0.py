"""What version 0.1.0 stored is read and continued, and nothing is copied or loaded a second time. The names that are
stored, of tables, columns, files and JSON keys, are the same (tests/fixtures/README.md)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ccpr.base.failure import Failure
from ccpr.base.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.capabilities import Capabilities
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Column, SqlType, Unread
from ccpr.mirror.head import Head, Identity
from ccpr.mirror.layout import LEDGER_SCHEMA, MANIFEST_SCHEMA, object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.mirror.points import LaggingTable, Point, TableRef
from ccpr.pipeline.copying import COPY_OUTPUT, CopyReport
from ccpr.pipeline.results import Listed, StepResults
from ccpr.schema.choices import DdlPolicy
from ccpr.schema.dialects import Dialect
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.log import CcprLog
from ccpr.state.migrations import open_database
from ccpr.state.point_rows import TablePoint
from ccpr.state.states import State
from ccpr.state.tables import checkpoints
from ccpr.state.target_settings import TargetSettings
from ccpr.state.targets import LaggingTargetTable, Target, TargetRecords
from ccpr.targets import source_rows
from ccpr.targets.registry import TARGET_METADATA
from tests.support.mariadb import MariaDb
from tests.support.old_state import (
    Found,
    Old,
    OldState,
    assert_named_by,
    files_in,
    keys_in_catalog,
    keys_in_mirror,
    point_target_to,
    tables_in,
    target_rows_of,
)
from tests.support.publishing import publish
from tests.support.recordings_location import SAMPLE
from tests.support.values import a_subscription, a_table
from tests.targets.target_database import Place

OLD = OldState(
    Path(__file__).resolve().parent.parent / "fixtures" / "state_0_1_0",
    {"cut": SAMPLE / "cut_inside_object", "types": SAMPLE / "all_types", "account": SAMPLE / "other_account"},
)


@pytest.fixture
def old_home(home: Path) -> Path:
    """The state folder that 0.1.0 left, with its object files."""
    return OLD.bring(home)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the load was divided when it was begun."""
    monkeypatch.setattr(source_rows, "LOAD_ROWS", 100)


def going_on(name: str, home: Path) -> AbstractContextManager[Old]:
    return OLD.going_on(name, home)


@pytest.fixture
def targets(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Place]]:
    """The databases of the old targets, with their rows."""
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    with OLD.targets(mariadb) as found:
        yield found


def test_the_old_state_is_shown_and_read(old_home: Path) -> None:
    with going_on("cut", old_home) as old:
        shown = {entry["name"]: entry["state"] for entry in old.command("subscriptions")}
        assert set(shown) == {"cut", "types", "account", "paused"}
        assert [point["lsn"] for point in old.command("points", "cut")] == [0, 1, 2]
        for lsn in range(3):
            old.assert_equal(lsn, lsn + 1)
        assert old.command("verify", "cut", "--deep")["sound"]


def test_an_open_iteration_goes_on_and_fetches_nothing_again(old_home: Path, targets: dict[str, Place]) -> None:
    with going_on("cut", old_home) as old:
        point_target_to(old.name, "report", targets["cut-report"])
        point_target_to(old.name, "loading", targets["cut-loading"])
        outcome = old.run()
        assert (outcome["lsn"], outcome["point"], outcome["objects_copied"] > 0) == (3, True, True)
        assert old.emulator.status().sessions_that_fetched == 0
        old.assert_equal(3, 4)
        found = {target["target"]: target for target in outcome["targets"]}
        report = {table["table"]: table["action"] for table in found["report"]["tables"]}
        assert set(report.values()) == {"changed"}  # nothing is loaded again
        loaded = {table["table"].partition(".")[2]: table for table in found["loading"]["tables"]}
        # Of 641 rows 640 were there. What the newest point changes comes as a delta.
        assert loaded["c"]["upserted"] < 500
        for target in ("cut-report", "cut-loading"):
            for table, file in old.in_scope(4).items():
                assert target_rows_of(targets[target], table.partition(".")[2]) == pq.read_metadata(file).num_rows


def test_a_piece_of_a_load_keeps_its_rows_under_its_new_key(old_home: Path, targets: dict[str, Place]) -> None:
    place = targets["cut-loading"]
    before = place.query("SELECT part, row_count FROM ccpr_load_parts")
    place.query("CREATE TABLE watched (n INT); ")
    place.query(
        "CREATE TRIGGER seen AFTER INSERT ON ccpr_load_parts FOR EACH ROW INSERT INTO watched VALUES (NEW.row_count)"
    )
    assert [rows for _, rows in before] == [640]
    with going_on("cut", old_home) as old:
        point_target_to(old.name, "report", targets["cut-report"])
        point_target_to(old.name, "loading", place)
        old.run()
    ((pieces,),) = place.query("SELECT count(*) FROM watched")
    assert pieces == 2  # the missing one of `c`, and the one of `nokey`
    assert target_rows_of(place, "c") == 482


def test_a_table_in_quarantine_comes_back(old_home: Path) -> None:
    with going_on("types", old_home) as old:
        (behind,) = [point["behind"] for point in old.command("points", "types") if point["lsn"] == 1]
        assert [entry["table"] for entry in behind] == ["gd_types.per_type_notnull"]
        outcome = old.run()
        assert outcome["quarantined"] == []
        old.assert_equal(outcome["lsn"], 2)


def test_a_change_of_definition_that_was_begun_is_brought_to_its_end(old_home: Path, targets: dict[str, Place]) -> None:
    place = targets["account-report"]
    assert len(place.query("SELECT 1 FROM ccpr_intents")) == 1
    with going_on("account", old_home) as old:
        point_target_to(old.name, "report", place)
        outcome = old.run()
        (target,) = outcome["targets"]
        assert (target["error"], target["behind"]) == (None, [])
        assert place.query("SELECT 1 FROM ccpr_intents") == []
        for table, rows in (("p", 333), ("q", 100), ("later", 1)):
            assert target_rows_of(place, table) == rows


def test_paused_and_dropped_ones_are_what_they_were(old_home: Path) -> None:
    with closing(Workspace()) as workspace:
        rows = {row.subscription_name: row for row in workspace.log.rows()}
        assert rows["paused"].state == State.PAUSED
        assert "dropped" not in rows
    assert Mirror(LocalStore(old_home / "mirrors" / "dropped")).lsns() == [0]


# ---- stored names

CATALOG = {
    "mo_ccpr_log": "task_id subscription_name subscription_account_name sync_level account_id db_name table_name "
    "upstream_conn sync_config state iteration_state iteration_lsn watermark context cn_uuid error_message created_at "
    "drop_at updated_at publication_name fence lease_expires_at live_name",
    "mo_sync_configs": "task_id subscription_name sync_level db_name table_name upstream_conn sync_config state "
    "iteration_state iteration_lsn context cn_uuid error_message created_at updated_at",
    "ccpr_schema": "version",
    "ccpr_points": "task_id lsn snapshot_ts snapshot committed_at ledger tables_changed objects_copied bytes_copied",
    "ccpr_table_points": "task_id table_id lsn gone database_name table_name kind table_schema manifest objects "
    "appendable row_count bytes",
    "ccpr_objects": "task_id object_name size sha256",
    "ccpr_object_references": "task_id object_name table_id from_lsn until_lsn",
    "ccpr_garbage": "task_id path due_at",
    "ccpr_quarantine": "task_id table_id database_name table_name since_lsn first_failed_at last_failed_at attempts "
    "code message subject remedy",
    "ccpr_behind": "task_id lsn table_id database_name table_name stands_at",
    "ccpr_targets": "task_id target_name uri sealed_password dialect ddl_policy as_text state created_at lsn "
    "snapshot_ts needed_lsn behind attempts first_failed_at last_failed_at failure",
    "ccpr_checkpoints": "id table_id table_schema table_name lsn snapshot_ts exit_safe_lsn exit_safe_ts table_info "
    "is_finished is_global create_time update_time",
}
TARGET = {
    "ccpr_checkpoints": CATALOG["ccpr_checkpoints"],
    "ccpr_registry": "task_id table_id table_schema table_name state source create_text erased suspended columns_there",
    "ccpr_intents": "id task_id change next_statement before problem",
    "ccpr_loads": "task_id table_id lsn snapshot_ts definition fence",
    "ccpr_load_parts": "task_id table_id part row_count",
}
FILES = (  # of format 1
    r"head\.json",
    r"ledger/\d+-\d+\.arrow",
    r"manifests/\d+/\d+-\d+\.arrow",
    r"points/\d{12}\.json",
    r"work/\d+-\d+/about\.json",
    r"work/\d+-\d+/added\.arrow",
    r"work/\d+-\d+/copied\.arrow",
    r"work/\d+-\d+/refetched\.arrow",
    r"work/\d+-\d+/removed\.arrow",
)
_DIGEST = "-[0-9a-f]{16}"
FILES_2 = (
    r"head\.json",
    r"mirror\.json",
    rf"ledger/\d+-\d+{_DIGEST}\.arrow",
    rf"manifests/\d+/\d+-\d+{_DIGEST}\.arrow",
    rf"points/\d{{12}}{_DIGEST}\.json",
    *(pattern for pattern in FILES if pattern.startswith("work/")),
)
_LISTED = (
    "table_id name stats stats_bytes name_agrees size rows blocks appendable create_physical create_logical "
    "delete_physical delete_logical is_tombstone"
)
_POINT = "format lsn snapshot_ts snapshot committed_at ledger base tables"
_COLUMN = "name seqnum type hidden labels nullable"
KEYS = {
    "head.json": {"format oldest_point newest_point iteration_lsn watermark"},
    "points": {_POINT, f"{_POINT} behind"},
    "points: tables": {"database name kind lsn manifest objects rows bytes"},
    "points: behind": {"database name lsn"},
    "manifests": {"stats create_physical create_logical is_tombstone"},
    "manifests: metadata": {"ccpr"},
    "manifests: ccpr": {"format table"},
    "table": {"id logical_id database name kind columns ddl comment"},
    "table: columns": {_COLUMN},
    "ledger": {"name size sha256"},
    "work/about.json": {"is_of failures rebuilt base_lost"},
    "work/added.arrow": {_LISTED},
    "work/refetched.arrow": {_LISTED},
    "work/removed.arrow": {_LISTED},
    "work/copied.arrow": {"name size sha256 fetched failure"},
    "context": {"open current previous to_drop attempts"},
    "context: snapshots": {"name lsn attempt physical taken_at"},
    "sync_config": {
        "sync_interval retain retain_for with_indexes flush max_sessions max_mb_s mirror consistency resync_limit"
    },
    "failure": {"code message subject remedy"},
    "ccpr_targets: behind": {"table failure statements"},
}
# What later versions write where 0.1.0 wrote less; they read both.
SINCE_0_1_0 = {
    "table: columns": {_COLUMN, f"{_COLUMN} digits unread default_text"},
    "head.json": {"format oldest_point newest_point iteration_lsn watermark point snapshots digest"},
    "head.json: snapshots": {"name lsn attempt physical taken_at age"},
    "context: snapshots": {"name lsn attempt physical taken_at age"},
    "mirror.json": {"format task_id subscription epoch digest"},
    "points": {f"{(_POINT_2 := _POINT.replace('base', 'complete earlier'))}", f"{_POINT_2} behind"},
    "manifests": {"stats create_physical create_logical is_tombstone sha256 sums"},
    "table": {"id logical_id database name kind columns ddl comment indexes"},
    "context": {
        "open current previous to_drop attempts capabilities list_rows unreplicated copied_last relations doubt late "
        "settled row_rules"
    },
    "work/about.json": {"is_of failures rebuilt base_lost sequences"},
    "context: capabilities": {"version zero_dates flush early_creates abort_column relay checksums"},
    "sync_config": {
        "sync_interval retain retain_for keep drill_every drill_into verify_within copy_to copy_every retain_files "
        "with_indexes flush max_sessions max_mb_s mirror encrypt consistency resync_limit shared invalid_text "
        "zero_dates max_lag objects_from databases tables exclude_tables allow_overlap"
    },
    "work/copied.arrow": {"name size sha256 fetched failure found direct sums"},
    "ccpr_targets: behind": {"table failure statements again"},
}


def write_everything(folder: Path) -> None:
    """A mirror and a catalog database with a value of each kind."""
    mirror, now = Mirror(LocalStore(folder / "mirror")), datetime(2026, 1, 2, tzinfo=UTC)
    failure = Failure("OBJECT_GONE", "it is gone", "object x", "look")
    of_now = Column("v", 9, SqlType(61), digits=1, unread=Unread("r", "0.2"), default_text="d")
    table = replace(a_table(), indexes=(("PRIMARY", "", ""),))
    table = replace(table, columns=(*table.columns, of_now))
    name = mirror.write_manifest(table, MANIFEST_SCHEMA.empty_table(), 0, 1)
    ref = TableRef(1, "db", "t", table.kind, 0, name, 0, 0, 0)
    snapshot = SnapshotRef("xr_a_0_0", 0, 0, 7, 7.0)
    mirror.write_ledger(LEDGER_SCHEMA.empty_table(), 0, 1)
    point = Point(0, Timestamp(7), snapshot.name, now, "", {1: ref})
    publish(mirror, point, {1: ref})
    path = publish(mirror, replace(point, lsn=1, behind={2: LaggingTable("db", "u", None)}), {})
    mirror.publish_head(Head(0, 1, 2, 7, path, (snapshot,)))
    mirror.write_identity(Identity("4f2c", "shop", "0a1b2c3d"))
    results = StepResults(mirror, snapshot, None)
    nothing = LISTED_SCHEMA.empty_table()
    results.keep_listed(Listed(ObjectDiff(nothing, nothing), failures={1: failure}))
    results.keep_copied(CopyReport(COPY_OUTPUT.empty_table()))

    engine = open_database(f"sqlite:///{folder / 'catalog.db'}")
    row = a_subscription().to_row(now)
    context = Context(snapshot, snapshot, snapshot, ("xr_a_9_0",), 1, Capabilities("8.0.30-MatrixOne", zero_dates=True))
    CcprLog(engine).insert(replace(row, context=context.to_text()))
    with transaction(engine) as connection:
        brought = GlobalPoint(0, Timestamp(7), snapshot.name, now, "", 1, 0, 0)
        PointHistory(engine, row.task_id).write(connection, brought, [TablePoint(table, ref, 0)])
    records = TargetRecords(engine, row.task_id)
    target = Target(row.task_id, "report", "mysql://h/d", "", Dialect.MARIADB, TargetSettings(DdlPolicy.FULL), now)
    records.add(target)
    records.record_sync(records.get("report"), 0, 7, 0, [LaggingTargetTable("db.t", failure)], now)
    records.record_failure(target, failure, now)
    engine.dispose()


def test_tables_and_columns_keep_their_names(tmp_path: Path) -> None:
    """The catalog's in the old state and in a new one, which may have more; a target's in the old one and now."""
    assert tables_in(OLD.catalog) == CATALOG
    open_database(f"sqlite:///{tmp_path}/catalog.db").dispose()
    now = tables_in(tmp_path / "catalog.db")
    assert [name for name, columns in CATALOG.items() if not set(columns.split()) <= set(now[name].split())] == []
    in_target = {**TARGET_METADATA.tables, checkpoints.name: checkpoints}
    assert {name: " ".join(table.columns.keys()) for name, table in in_target.items()} == TARGET
    dumped = OLD.tables_in_dump("cut-loading")
    assert {name: dumped[name] for name in TARGET} == TARGET


def test_files_keep_their_names(tmp_path: Path) -> None:
    write_everything(tmp_path)
    assert_named_by(FILES, files_in(OLD.written / "home" / "mirrors"))
    assert_named_by(FILES_2, files_in(tmp_path))
    name = "018f0000-0000-7000-8000-000000000000_00000"
    assert object_path(name) == f"objects/{name}"


def test_json_keys_and_columns_of_files_keep_their_names(tmp_path: Path) -> None:
    old, new = Found(set), Found(set)
    for folder in (OLD.written / "home" / "mirrors").iterdir():
        keys_in_mirror(folder, old)
    keys_in_catalog(OLD.catalog, old)
    assert old == {what: keys for what, keys in KEYS.items() if what != "ccpr_targets: behind"}  # it had none
    write_everything(tmp_path)
    keys_in_mirror(tmp_path / "mirror", new)
    keys_in_catalog(tmp_path / "catalog.db", new)
    assert new == {**KEYS, **SINCE_0_1_0}
