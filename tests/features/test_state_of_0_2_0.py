"""What version 0.2.0 stored is read and continued, and nothing is copied or loaded a second time. The names that are
stored are the same (tests/fixtures/README.md)."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

import ccpr
from ccpr.matrixone.client.endpoint import format_uri, parse_uri
from ccpr.matrixone.schema import Kind
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.pipeline.driver import drive
from ccpr.pipeline.spark.stored import StoredSpark
from ccpr.pipeline.step_names import Stage
from ccpr.pipeline.steps.release import sweep
from ccpr.relay.follower_watching import ask
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower, FollowerRecords, open_login
from ccpr.state.pins import Pins
from ccpr.state.states import State
from ccpr.targets import source_rows
from ccpr_emulator.engine.databases import SYS
from tests.support.frozen_upstream import FrozenUpstream
from tests.support.mariadb import MariaDb
from tests.support.native_client import NativeClient, NativeTask, UpstreamLogin
from tests.support.old_state import (
    Found,
    OldState,
    assert_named_by,
    export,
    files_in,
    keys_in_catalog,
    keys_in_mirror,
    keys_in_target,
    point_target_to,
    tables_in,
)
from tests.support.recordings_location import SAMPLE
from tests.support.relayed import assert_has_point, relaying
from tests.support.replica import command, source_uri
from tests.support.settings import upstream_goes_on
from tests.support.simulated import rows
from tests.support.target_rows import target_rows
from tests.targets.target_database import Place

SAMPLE_4_2 = SAMPLE.with_name("recordings-4.2")
OLD = OldState(
    Path(__file__).resolve().parent.parent / "fixtures" / "state_0_2_0",
    {
        "cut": SAMPLE / "cut_inside_object",
        "kept": SAMPLE / "dml",
        "recent": SAMPLE / "dml",
        "single": SAMPLE / "table_level",
        "dropped": SAMPLE / "other_account",
        "zero": SAMPLE_4_2 / "zero_dates",
        "vectors": SAMPLE_4_2 / "new_vectors",
    },
)
POINTS = {  # of subscriptions to recordings: which recorded snapshot each point shows
    "cut": {0: 1, 1: 2, 2: 3},
    "kept": {2: 3},
    "recent": {0: 1, 1: 2},
    "single": {0: 1},
    "zero": {0: 1, 1: 2},
    "vectors": {0: 1},
}
BEHIND = {("zero", 1): {"gd_zero.zk"}}
SIMULATED = {"shop": SYS, "orders": SYS, "account": "acc1"}  # with the account of the publisher
ROWS = json.loads((OLD.written / "rows.json").read_text())  # of these, by subscription, point and table
STEPS = 3  # that the simulated upstream had taken


@pytest.fixture
def old_home(home: Path) -> Path:
    """The state folder that 0.2.0 left, with its object files."""
    return OLD.bring(home)


@contextmanager
def simulated() -> Iterator[FrozenUpstream]:
    """The simulated upstream as it was left, with the subscriptions that are there pointed to it."""
    upstream = FrozenUpstream.of(OLD.written)
    with upstream.emulator:
        for _ in range(STEPS):
            upstream.take_step()
        for name in SIMULATED.keys() & {shown["name"] for shown in command("subscriptions")}:
            command("alter", name, "--from", source_uri(upstream.emulator.port))
        yield upstream


@pytest.fixture
def upstream(old_home: Path) -> Iterator[FrozenUpstream]:
    with simulated() as upstream:
        yield upstream


@pytest.fixture
def targets(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Place]]:
    """The databases of the old targets, with their rows."""
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    with OLD.targets(mariadb) as found:
        yield found


def point_to(targets: dict[str, Place], *names: str) -> None:
    """The targets of these subscriptions at their present addresses."""
    for what, place in targets.items():
        name, target = what.split("-")
        if name in names:
            point_target_to(name, target, place)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the load was divided when it was begun."""
    monkeypatch.setattr(source_rows, "LOAD_ROWS", 100)


def plain(table: pa.Table) -> list[Any]:
    """Rows as rows.json has them."""
    return json.loads(json.dumps(sorted(table.to_pylist(), key=repr), default=str))


def newest(name: str) -> tuple[Mirror, Point]:
    with closing(Workspace()) as workspace:
        mirror = workspace.mirror(name)
        return mirror, mirror.point()


def assert_equal_to_upstream(upstream: FrozenUpstream, name: str, tables: set[str]) -> None:
    """The newest point of a subscription has these tables, with the rows that were true at its time."""
    mirror, point = newest(name)
    shown = {ref.qualified_name for ref in point.tables.values() if ref.kind is Kind.TABLE}
    assert shown == tables
    for table in tables:
        true = upstream.storage.rows_at(*table.split("."), point.at, account=SIMULATED[name])
        assert rows(ccpr.open_mirror(mirror.store.url).table(table).to_arrow()) == rows(true), table


def assert_target_equal(place: Place, name: str, database: str) -> None:
    """A target has the tables of the newest point, with their rows, and nothing that was begun."""
    mirror, point = newest(name)
    refs = [ref for ref in point.tables.values() if ref.kind is Kind.TABLE and ref.database == database]
    there = {table for (table,) in place.query("SHOW TABLES") if not table.startswith("ccpr_")}
    assert there == {ref.name for ref in refs}
    for ref in refs:
        columns = mirror.manifest(ref).table.user_columns
        ours = ccpr.open_mirror(mirror.store.url).table(ref.qualified_name).to_arrow()
        assert rows(target_rows(place.server, place.database, ref.name, columns)) == rows(ours), ref.name
    for table in ("ccpr_intents", "ccpr_loads", "ccpr_load_parts"):
        assert place.query(f"SELECT 1 FROM {table}") == []


def synced(outcome: Any) -> None:
    for target in outcome["targets"]:
        assert (target["error"], target["behind"]) == (None, [])


def assert_well(name: str) -> None:
    assert command("verify", name, "--deep")["sound"]
    assert command("status", name)["ok"]


# ---- read


def test_the_simulated_upstream_is_the_one_of_then(old_home: Path, upstream: FrozenUpstream) -> None:
    """Else what follows would fail for another reason than the state."""
    for name in SIMULATED:
        files = list((old_home / "mirrors" / name / "objects").iterdir())
        assert files
        true = upstream.storage.files
        assert [file.name for file in files if true.read(file.name) != file.read_bytes()] == []


def test_the_old_state_is_shown(old_home: Path) -> None:
    shown = {entry["name"]: entry["state"] for entry in command("subscriptions")}
    assert set(shown) == {*POINTS, *SIMULATED, "paused"}
    with closing(Workspace()) as workspace:
        assert workspace.log.row("paused").state == State.PAUSED
    wrong = {status["name"] for status in command("status", code=1) if not status["ok"]}
    assert wrong == {"zero", "orders", "account", "shop"}  # quarantine, two targets, a follower
    assert StoredSpark.of(old_home) == StoredSpark("local[2]", "", {"spark.ui.enabled": "false"})
    dropped = ccpr.open_mirror(old_home / "mirrors" / "dropped")
    assert [point.lsn for point in dropped.points()] == [0]
    assert dropped.table("gd_acc.p").to_arrow().num_rows == 500


@pytest.mark.parametrize("name", POINTS)
def test_each_point_of_a_recording_is_read_row_by_row(name: str, old_home: Path) -> None:
    with OLD.going_on(name, old_home) as old:
        assert [point["lsn"] for point in command("points", name)] == list(POINTS[name])
        for lsn, snapshot in POINTS[name].items():
            behind = BEHIND.get((name, lsn), set())
            shown = command("tables", name, "--at", str(lsn))
            assert {late["table"] for late in shown["behind"]} == behind
            assert {table["table"] for table in shown["tables"]} == set(old.in_scope(snapshot)) - behind
            old.assert_equal(lsn, snapshot, but=behind)
        assert command("verify", name, "--deep")["sound"]


@pytest.mark.parametrize("name", SIMULATED)
def test_each_point_of_the_simulated_upstream_is_read_row_by_row(name: str, old_home: Path) -> None:
    assert [str(point["lsn"]) for point in command("points", name)] == list(ROWS[name])
    mirror = ccpr.open_mirror(old_home / "mirrors" / name)
    for lsn in ROWS[name]:
        shown = command("tables", name, "--at", lsn)["tables"]
        assert {table["table"] for table in shown if table["kind"] == "table"} == set(ROWS[name][lsn])
        for table, true in ROWS[name][lsn].items():
            assert plain(mirror.table(table, at=int(lsn)).to_arrow()) == true, (lsn, table)
            assert plain(export(name, table, old_home.parent, int(lsn))) == true, (lsn, table)
    assert command("verify", name, "--deep")["sound"]


def test_a_held_point_and_a_drill_are_known(old_home: Path) -> None:
    with OLD.going_on("recent", old_home) as old:
        held = {point["lsn"]: [hold["name"] for hold in point["held"]] for point in command("points", "recent")}
        assert held == {0: ["audit"], 1: []}
        old.run()
        assert [point["lsn"] for point in command("points", "recent")] == [0, 1, 2]
        assert command("drill", "recent", "--at", "audit")["good"]
        old.assert_equal(0, 1)
        assert_well("recent")


def statements(document: Any, kind: str) -> list[str]:
    return [one["statements"][-1] for one in document[kind]]


def test_definitions_are_those_of_each_point(old_home: Path) -> None:
    first, second = (command("tables", "shop", "--ddl", "--at", lsn) for lsn in ("1", "2"))
    cheap = "CREATE VIEW `shop`.`cheap` AS select id from shop.item where price < 5"
    dear = "CREATE VIEW `shop`.`dear` AS select id from shop.item where price > 100"
    assert (statements(first, "views"), statements(second, "views")) == ([cheap, dear], [cheap])
    for document in (first, second):
        (sequence,) = document["sequences"]
        assert [sequence[key] for key in ("name", "last", "start", "increment", "called")] == ["sq", 12, 10, 2, True]
        assert statements(document, "functions") == [
            "CREATE FUNCTION `shop`.`py` () RETURNS int LANGUAGE python AS 'def f(): ...' HANDLER 'f'",
            "CREATE FUNCTION `shop`.`twice` (`x` float) RETURNS float LANGUAGE sql AS 'select $1 * 2'",
        ]
        assert statements(document, "grants") == [
            "GRANT create view ON DATABASE `shop` TO `public`",
            "GRANT all ON TABLE `shop`.* TO `r1` WITH GRANT OPTION",
            "GRANT select ON TABLE `shop`.`item` TO `r1`",
        ]
        assert [(one["kind"], one["name"]) for one in document["unreadable"]] == [("function", "file")]
    for lsn in ("0", "1"):  # of several databases
        assert statements(command("tables", "account", "--ddl", "--at", lsn), "views") == [
            "CREATE VIEW `crm`.`short` AS select id from crm.person",
            "CREATE VIEW `shop_1`.`some` AS select v from shop_1.item",
        ]
    assert command("schema", "orders")["views"] == []


# ---- continued


def test_open_iterations_go_on_and_fetch_nothing_again(
    old_home: Path, upstream: FrozenUpstream, targets: dict[str, Place]
) -> None:
    point_to(targets, "cut", "account")
    with OLD.going_on("cut", old_home) as old:
        outcome = old.run()
        assert (outcome["lsn"], outcome["point"], outcome["objects_copied"] > 0) == (3, True, True)
        assert old.emulator.status().sessions_that_fetched == 0
        old.assert_equal(3, 4)
        synced(outcome)
        actions = {target["target"]: {table["action"] for table in target["tables"]} for target in outcome["targets"]}
        assert actions == {"report": {"changed"}, "loading": {"created"}}
        for target in ("report", "loading"):
            assert_target_equal(targets[f"cut-{target}"], "cut", "gd_cut")
        assert_well("cut")
    upstream.take_step()
    outcome = command("run", "account")
    assert (outcome["lsn"], outcome["point"], outcome["objects_copied"] > 0) == (2, True, True)
    assert upstream.emulator.status().sessions_that_fetched == 0
    assert_equal_to_upstream(upstream, "account", {"crm.person", "shop_1.item", "shop_2.item"})
    synced(outcome)
    assert_target_equal(targets["account-crm"], "account", "crm")
    assert_well("account")


def test_a_piece_of_a_load_is_not_loaded_again(old_home: Path, targets: dict[str, Place]) -> None:
    place = targets["cut-loading"]
    loaded = dict(place.query("SELECT part, row_count FROM ccpr_load_parts"))
    assert len(loaded) == 1
    place.query("CREATE TABLE ccpr_watched (part TEXT)")
    place.query(
        "CREATE TRIGGER seen AFTER INSERT ON ccpr_load_parts FOR EACH ROW INSERT INTO ccpr_watched VALUES (NEW.part)"
    )
    point_to(targets, "cut")
    with OLD.going_on("cut", old_home) as old:
        old.run()
    pieces = [part for (part,) in place.query("SELECT part FROM ccpr_watched")]
    assert len(pieces) == 2  # the other one of `c`, and the one of `nokey`
    assert not loaded.keys() & set(pieces)


def test_the_next_points_equal_the_upstream_and_its_targets_follow(
    upstream: FrozenUpstream, targets: dict[str, Place]
) -> None:
    assert len(targets["shop-report"].query("SELECT 1 FROM ccpr_intents")) == 1  # a table is renamed there already
    point_to(targets, *SIMULATED)
    upstream.take_step()
    before = upstream.emulator.status().object_bytes
    outcome = command("run", "shop")
    assert (outcome["lsn"], outcome["point"]) == (STEPS, True)
    assert upstream.emulator.status().object_bytes - before == outcome["bytes_copied"]
    assert_equal_to_upstream(upstream, "shop", {"shop.item", "shop.part", "shop.remark"})
    synced(outcome)
    actions = {table["table"].removeprefix("shop."): table["action"] for table in outcome["targets"][0]["tables"]}
    assert actions == {"item": "changed", "part": "changed", "remark": "altered"}, "none is built anew"
    assert_target_equal(targets["shop-report"], "shop", "shop")
    assert command("verify", "shop", "--deep")["sound"]
    (sequence,) = command("tables", "shop", "--ddl")["sequences"]
    assert sequence["last"] == 14

    outcome = command("run", "orders")
    assert_equal_to_upstream(upstream, "orders", {"orders.order_1", "orders.order_2", "orders.order_3"})
    (target,) = outcome["targets"]
    assert {late["table"]: late["failure"]["code"] for late in target["behind"]} == dict.fromkeys(
        ("orders.order_2", "orders.item"), "TARGET_DDL_WAITS"
    )
    command("target", "alter", "orders", "report", "--ddl-policy", "full")
    synced(command("run", "orders"))
    assert_target_equal(targets["orders-report"], "orders", "orders")
    assert_well("orders")

    for lsn in (2, STEPS):
        synced(command("run", "account"))
        assert newest("account")[1].lsn == lsn
    assert_equal_to_upstream(upstream, "account", {"crm.person", "shop_1.item", "shop_2.item"})
    assert_target_equal(targets["account-crm"], "account", "crm")
    assert_well("account")
    for name in SIMULATED:  # and what came before is as it was
        mirror, _ = newest(name)
        before = [*ROWS[name]][-1]
        for table, true in ROWS[name][before].items():
            assert plain(ccpr.open_mirror(mirror.store.url).table(table, at=int(before)).to_arrow()) == true


def test_a_table_in_quarantine_comes_back(old_home: Path) -> None:
    with OLD.going_on("zero", old_home) as old:
        outcome = old.run()
        assert (outcome["lsn"], outcome["quarantined"]) == (2, [])
        old.assert_equal(2, 2)
        assert_well("zero")


def test_a_column_that_could_not_be_read_is_read_and_not_reported_any_more(old_home: Path) -> None:
    with OLD.going_on("vectors", old_home) as old:
        assert set(command("status", "vectors")["unreadable_columns"]) == {"gd_vec.v"}
        assert old.run()["point"]
        assert command("status", "vectors")["unreadable_columns"] == {}
        old.assert_equal(1, 2)
        assert_well("vectors")


def test_files_of_expired_points_are_deleted_when_they_are_due_and_no_others(old_home: Path, home: Path) -> None:
    mirror = old_home / "mirrors" / "kept"
    with OLD.going_on("kept", old_home) as old:
        expired = ("gd_dml.acc", "--out", str(home / "expired.parquet"), "--at", "1")
        assert command("export", "kept", *expired, code=1)["error"]["code"] == "POINT_GONE"
        before = {path for path in mirror.rglob("*") if path.is_file()}
        upstream_goes_on(2.1)
        with closing(Workspace()) as workspace, workspace.iteration("kept") as iteration:
            swept = sweep(iteration)
        gone = before - {path for path in mirror.rglob("*") if path.is_file()}
        assert (len(gone), swept.files_deleted, swept.files_waiting) == (5, 5, 0)
        assert {path.parent.name for path in gone} == {"ledger", "273539", "objects"}
        old.assert_equal(2, 3)
        outcome = old.run()
        assert (outcome["lsn"], [point["lsn"] for point in command("points", "kept")]) == (3, [3])
        old.assert_equal(3, 4)
        assert_well("kept")


def test_a_table_alone_goes_on(old_home: Path) -> None:
    with OLD.going_on("single", old_home) as old:
        assert old.run()["lsn"] == 1
        old.assert_equal(1, 2)
        assert_well("single")


def test_the_relay_serves_a_user_and_a_follower_that_it_had(old_home: Path, upstream: FrozenUpstream) -> None:
    upstream.take_step()
    with NativeClient() as client, closing(Workspace()) as workspace, relaying(workspace) as relay:
        task_id = workspace.log.row("shop").task_id
        records = FollowerRecords(workspace.log.engine, task_id)
        follower = moved(workspace, records, client.port)
        pins = {pin.name: (pin.lsn, pin.owner) for pin in Pins(workspace.log.engine, task_id).all()}
        snapshots = [f"ccpr_{follower.downstream_task}_{number}" for number in (0, 1)]
        assert pins == {name: (lsn, follower.publication) for name, lsn in zip(snapshots, (1, 2), strict=True)}
        command("run", "shop", code=1)  # its target is not there
        with pymysql.connect(host="127.0.0.1", port=relay.port, user="sys#reader", password="relay-111") as session:
            cursor = session.cursor()
            cursor.execute("SHOW PUBLICATION COVERAGE `shop`")
            assert ("shop", "*") in cursor.fetchall()
        login = UpstreamLogin(
            "127.0.0.1", relay.port, f"sys#{follower.publication}", open_login(workspace.vault, follower)
        )
        task = NativeTask(str(follower.downstream_task), follower.database, follower.publication, login)
        times = []
        client.before_iteration = lambda: times.append(task.watermark)
        client.databases[task.database] = client.tasks[task.id] = task
        mirror = workspace.mirror("shop")
        client.wait_for(mirror.point().at.physical)
        assert_has_point(client, task, mirror)
        shown = dict.fromkeys([*times, task.watermark])
        assert list(shown) == [0, *(mirror.point(lsn).at.physical for lsn in (1, 2, STEPS))]
        ask(workspace, follower)
        assert [one["last_error"] for one in command("status", "shop", code=1)["followers"]] == [None]


def moved(workspace: Workspace, records: FollowerRecords, port: int) -> Follower:
    """The follower, whose cluster has another address than then."""
    endpoint, _ = parse_uri(f"mysql://sys#root@127.0.0.1:{port}")
    records.change("b", uri=format_uri(endpoint), sealed_password=workspace.vault.seal("111", endpoint))
    return records.get("b")


def test_a_state_file_is_imported_into_a_new_state_folder(old_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = json.loads((OLD.written / "shop.state.json").read_text())
    new = old_home.parent / "new"
    shutil.copytree(old_home / "mirrors" / "shop", new / "mirrors" / "shop")
    shutil.copyfile(old_home / "key", new / "key")
    (new / "key").chmod(0o600)
    monkeypatch.setenv("CCPR_HOME", str(new))
    command("state", "import", str(OLD.written / "shop.state.json"))
    file = old_home.parent / "again.json"
    command("state", "export", "shop", "--out", str(file))
    again = json.loads(file.read_text())
    for name, table in exported["tables"].items():
        places = [again["tables"][name]["columns"].index(column) for column in table["columns"]]
        assert [[row[place] for place in places] for row in again["tables"][name]["rows"]] == table["rows"], name
    with simulated() as upstream:
        upstream.take_step()
        assert command("run", "shop", code=1)["lsn"] == STEPS  # its target is not there
        assert_equal_to_upstream(upstream, "shop", {"shop.item", "shop.part", "shop.remark"})


# ---- stored names

CATALOG = {
    "mo_ccpr_log": "task_id subscription_name subscription_account_name sync_level account_id db_name table_name "
    "upstream_conn sync_config state iteration_state iteration_lsn watermark context cn_uuid error_message "
    "created_at drop_at updated_at publication_name fence lease_expires_at live_name epoch mirror_url",
    "ccpr_checkpoints": "id table_id table_schema table_name lsn snapshot_ts exit_safe_lsn exit_safe_ts table_info "
    "is_finished "
    "is_global create_time update_time",
    "ccpr_points": "task_id lsn snapshot_ts snapshot committed_at ledger file tables_changed objects_copied "
    "bytes_copied",
    "ccpr_point_definitions": "task_id lsn file",
    "ccpr_table_points": "task_id table_id lsn gone database_name table_name kind table_schema manifest objects "
    "appendable "
    "row_count bytes parts",
    "ccpr_quarantine": "task_id table_id database_name table_name since_lsn first_failed_at last_failed_at attempts "
    "code message "
    "subject remedy",
    "ccpr_behind": "task_id lsn table_id database_name table_name stands_at",
    "ccpr_targets": "task_id target_name uri sealed_password dialect ddl_policy as_text state created_at lsn "
    "snapshot_ts "
    "needed_lsn behind attempts first_failed_at last_failed_at failure duplicate_keys source_database "
    "max_drop lake verified_at",
    "ccpr_objects": "task_id object_name size sha256",
    "ccpr_object_references": "task_id object_name table_id from_lsn until_lsn",
    "ccpr_garbage": "task_id path due_at",
    "ccpr_pins": "task_id snapshot_name lsn snapshot_ts scope table_name created_at seen_at login_name",
    "ccpr_relay_users": "user_name sealed_digest created_at publications",
    "ccpr_followers": "task_id follower_name uri sealed_password sealed_login database_name relay_address stage "
    "created_at "
    "downstream_task asked_at downstream_state iterations watermark downstream_error resumes resumed_at "
    "attempts first_failed_at last_failed_at failure promoted_lsn database_id copy_id approved_lsn",
    "ccpr_schema": "version",
    "ccpr_holds": "task_id hold_name lsn held_until created_at",
    "ccpr_kept_points": "task_id lsn next_lsn next_ts",
    "ccpr_kept": "task_id revision file chain_from",
    "ccpr_figures": "task_id table_id lsn row_count row_sum basis made_by made_at",
    "ccpr_drills": "task_id started_at ended_at lsn snapshot_ts place tables row_count bytes compared "
    "differences failure",
    "ccpr_copies": "task_id copy_id place encrypt started_at copied_at lsn snapshot_ts attempts failure",
    "ccpr_scrubs": "task_id position began_at last_began_at repaired damaged",
    "ccpr_copy_scrubs": "task_id copy_id position began_at last_began_at repaired damaged",
    "mo_sync_configs": "task_id subscription_name sync_level db_name table_name upstream_conn sync_config state "
    "iteration_state "
    "iteration_lsn context cn_uuid error_message created_at updated_at",
}
TARGET = {
    "ccpr_checkpoints": CATALOG["ccpr_checkpoints"],
    "ccpr_registry": "task_id table_id table_schema table_name state source create_text erased suspended columns_there",
    "ccpr_intents": "id task_id change next_statement before problem",
    "ccpr_loads": "task_id table_id lsn snapshot_ts definition fence",
    "ccpr_load_parts": "task_id table_id part row_count",
}
_DIGEST = "-[0-9a-f]{16}"
FILES = (
    r"head\.json",
    r"mirror\.json",
    rf"ledger/\d+-\d+{_DIGEST}\.arrow",
    rf"manifests/\d+/\d+-\d+{_DIGEST}\.arrow",
    rf"points/\d{{12}}{_DIGEST}\.json",
    rf"kept/\d{{12}}{_DIGEST}\.json",
    rf"definitions/\d+-\d+{_DIGEST}\.json",
    *(
        rf"work/\d+-\d+-[0-9a-f]{{6,7}}/{name}"
        for name in (
            r"about\.json",
            r"added\.arrow",
            r"copied\.arrow",
            r"copier\.txt",
            r"refetched\.arrow",
            r"removed\.arrow",
        )
    ),
)
KEYS = {
    "ccpr_checkpoints: table_info": {
        "columns comment database ddl id indexes kind logical_id name",
        ("columns comment database ddl id indexes kind logical_id name partitions"),
        "columns comment database ddl id kind logical_id name",
    },
    "ccpr_intents: change": {"kind statements names tables state points gone loaded optional"},
    "ccpr_targets: behind": {"table failure statements"},
    "context": {
        ("open current previous to_drop attempts capabilities list_rows unreplicated copied_last relations"),
        (
            "open current previous to_drop attempts capabilities list_rows unreplicated copied_last relations doubt "
            "late settled row_rules"
        ),
    },
    "context: capabilities": {
        "version zero_dates flush early_creates abort_column",
        "version zero_dates flush early_creates abort_column relay checksums",
    },
    "context: snapshots": {"name lsn attempt physical taken_at", "name lsn attempt physical taken_at age"},
    "definitions": {"format database databases", "format database views sequences functions grants unreadable"},
    "definitions: databases": {"database views sequences functions grants unreadable"},
    "definitions: functions": {"name arguments returns language body handler"},
    "definitions: grants": {"role privilege on object with_option"},
    "definitions: sequences": {"name type last minimum maximum start increment cycle called"},
    "definitions: unreadable": {"kind name reason"},
    "definitions: views": {"name query columns default_database"},
    "failure": {"code message subject remedy"},
    "head.json": {
        "format oldest_point newest_point iteration_lsn watermark point snapshots digest",
        "format oldest_point newest_point iteration_lsn watermark point snapshots kept digest",
    },
    "head.json: snapshots": {"name lsn attempt physical taken_at", "name lsn attempt physical taken_at age"},
    "kept": {"format points holds"},
    "ledger": {"name size sha256"},
    "manifests": {
        "stats create_physical create_logical is_tombstone sha256",
        "stats create_physical create_logical is_tombstone sha256 sums",
    },
    "manifests: ccpr": {"format table"},
    "manifests: metadata": {"ccpr"},
    "mirror.json": {"format task_id subscription epoch digest"},
    "points": {
        "format lsn snapshot_ts snapshot committed_at ledger complete earlier tables",
        "format lsn snapshot_ts snapshot committed_at ledger complete earlier tables behind",
        "format lsn snapshot_ts snapshot committed_at ledger complete earlier tables definitions",
    },
    "points: behind": {"database name lsn"},
    "points: tables": {"database name kind lsn manifest objects rows bytes"},
    "sync_config": {
        (
            "sync_interval retain retain_for keep drill_every drill_into verify_within copy_to copy_every "
            "retain_files with_indexes flush max_sessions max_mb_s mirror encrypt consistency resync_limit shared "
            "invalid_text zero_dates max_lag objects_from databases tables exclude_tables allow_overlap"
        ),
        (
            "sync_interval retain retain_for retain_files with_indexes flush max_sessions max_mb_s mirror consistency "
            "resync_limit shared invalid_text zero_dates max_lag objects_from databases tables exclude_tables"
        ),
    },
    "table": {
        "id logical_id database name kind columns ddl comment",
        "id logical_id database name kind columns ddl comment indexes",
        "id logical_id database name kind columns ddl comment indexes partitions",
    },
    "table: columns": {
        "name seqnum type hidden labels nullable",
        "name seqnum type hidden labels nullable digits",
        "name seqnum type hidden labels nullable unread",
        "name seqnum type hidden labels nullable zero_dates",
    },
    "target table": {"source database name create erased suspended"},
    "work/about.json": {"is_of failures rebuilt base_lost"},
    "work/added.arrow": {
        "table_id name stats stats_bytes name_agrees size rows blocks appendable create_physical create_logical "
        "delete_physical delete_logical is_tombstone"
    },
    "work/copied.arrow": {"name size sha256 fetched failure found direct"},
    "work/refetched.arrow": {
        "table_id name stats stats_bytes name_agrees size rows blocks appendable create_physical create_logical "
        "delete_physical delete_logical is_tombstone"
    },
    "work/removed.arrow": {
        "table_id name stats stats_bytes name_agrees size rows blocks appendable create_physical create_logical "
        "delete_physical delete_logical is_tombstone"
    },
}
# What no step below writes: of tables that are behind, of columns that cannot be read, of what a target has begun.
NOT_WRITTEN = {"mirror.json", "points: behind", "ccpr_intents: change", "target table", "kept"}
NOT_AMONG = {"points": {"behind"}, "table: columns": {"unread"}, "head.json": {"kept"}}


def test_tables_and_columns_keep_their_names(old_home: Path) -> None:
    """Those of then are in a state folder that today's code has opened."""
    catalog = old_home / "catalog.db"
    assert tables_in(catalog) == CATALOG
    command("subscriptions")
    now = tables_in(catalog)
    assert [name for name, columns in CATALOG.items() if not set(columns.split()) <= set(now[name].split())] == []
    for what in json.loads((OLD.written / "databases.json").read_text()):
        dumped = OLD.tables_in_dump(what)
        assert {name: dumped[name] for name in TARGET} == TARGET


def test_files_keep_their_names() -> None:
    assert_named_by(FILES, files_in(OLD.written / "home" / "mirrors"))


def test_json_keys_and_columns_of_files_are_those_of_then(old_home: Path, targets: dict[str, Place]) -> None:
    found = Found(set)
    for folder in (old_home / "mirrors").iterdir():
        keys_in_mirror(folder, found)
    keys_in_catalog(old_home / "catalog.db", found)
    for place in targets.values():
        keys_in_target(place, found)
    assert found == KEYS


def test_what_is_written_today_has_the_names_of_then(
    old_home: Path, upstream: FrozenUpstream, targets: dict[str, Place]
) -> None:
    before = {path: path.read_bytes() for path in (old_home / "mirrors").rglob("*") if path.is_file()}
    point_to(targets, "cut", *SIMULATED)
    upstream.take_step()
    with OLD.going_on("cut", old_home) as cut, OLD.going_on("kept", old_home):
        cut.run()
        for name in (*SIMULATED, "account"):
            command("run", name)
        with closing(Workspace()) as workspace, workspace.iteration("kept") as iteration:  # it stays open
            drive(iteration, until=Stage.COPY)
    found = Found(set)
    for folder in (old_home / "mirrors").iterdir():
        keys_in_mirror(folder, found, but=before)
    keys_in_catalog(old_home / "catalog.db", found, {"cut", "kept", *SIMULATED}, since=STEPS)
    for place in targets.values():
        keys_in_target(place, found)
    assert KEYS.keys() - found.keys() == NOT_WRITTEN
    missing = {what: names_in(KEYS[what]) - names_in(found[what]) for what in KEYS.keys() - NOT_WRITTEN}
    assert {what: names for what, names in missing.items() if names} == NOT_AMONG


def names_in(keys: set[str]) -> set[str]:
    return {name for one in keys for name in one.split()}
