"""A lost catalog database is restored for its mirror from a state file, and replication goes on as if nothing had
happened."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ccpr.base.errors import Failure
from ccpr.maintenance.state_document import owner_columns
from ccpr.pipeline.driver import drive
from ccpr.pipeline.step_names import Stage
from ccpr.pipeline.steps.release import sweep
from ccpr.schema.choices import Dialect
from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.followers import Follower, FollowerRecords, publication_of
from ccpr.state.history import PointHistory
from ccpr.state.pins import Pin, Pins
from ccpr.state.quarantine import Quarantine
from ccpr.state.settings import TargetSettings
from ccpr.state.tables import METADATA, points
from ccpr.state.targets import Target, TargetRecords
from ccpr.targets.address import format_target_uri, parse_target_uri
from tests.support.replica import NAME, Replica, replaying, source_uri
from tests.support.settings import upstream_goes_on


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--retain", "3")
        for _ in range(3):
            replica.run()
        yield replica


def exported(replica: Replica, name: str = "state.json") -> Path:
    file = replica.folder / name
    result = replica.command("state", "export", NAME, "--out", str(file))
    assert result["bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o077 == 0
    return file


def lose_catalog(replica: Replica, *more: str) -> None:
    for path in (replica.folder / "home").iterdir():
        if path.name.startswith("catalog.db") or path.name in more:
            path.unlink()
    assert replica.command("subscriptions") == []


def refused(replica: Replica, file: Path, *options: str, code: int = 1) -> str:
    error = replica.command("state", "import", str(file), *options, code=code)["error"]
    return error["code"]


def altered(file: Path, **changes: Any) -> Path:
    document = json.loads(file.read_text())
    document["subscription"].update(changes.pop("subscription", {}))
    document.update(changes)
    file.write_text(json.dumps(document))
    return file


def test_a_lost_catalog_is_restored_and_the_next_point_equals_the_source(replica: Replica) -> None:
    before = {what: replica.command(what, NAME) for what in ("points", "tables", "snapshots")}
    file = exported(replica)
    lose_catalog(replica)
    result = replica.command("state", "import", str(file))
    assert result["iteration_lsn"] == 3
    assert {what: replica.command(what, NAME) for what in before} == before
    assert replica.command("status", NAME)["lag_seconds"] < 120, "the age of the last point is still known"
    fetched = replica.emulator.status().object_bytes
    outcome = replica.run()
    assert outcome["lsn"] == 3
    assert replica.emulator.status().object_bytes - fetched == outcome["bytes_copied"], "nothing is copied again"
    for snapshot in (2, 3, 4):
        replica.assert_equal_to_source(snapshot, at=snapshot - 1)
    assert replica.command("verify", NAME, "--deep")["sound"]
    assert [point["lsn"] for point in replica.command("points", NAME)] == [1, 2, 3], "retention goes on"
    upstream_goes_on(2)
    with Workspace().iteration(NAME) as iteration:
        assert sweep(iteration).files_deleted > 0
    replica.assert_equal_to_source(4)
    replica.assert_equal_to_source(2, at=1)
    assert replica.command("verify", NAME)["sound"]
    assert len(replica.emulator.status().snapshots) == 2


def test_all_that_the_catalog_stores_of_a_subscription_is_exported(replica: Replica) -> None:
    of_the_folder = {"mo_ccpr_log", "ccpr_schema", "ccpr_relay_users"}
    assert set(METADATA.tables) - set(owner_columns()) == of_the_folder
    file = exported(replica)
    document = json.loads(file.read_text())
    assert set(document["tables"]) == set(owner_columns())
    lose_catalog(replica)
    replica.command("state", "import", str(file))
    again = json.loads(exported(replica, "again.json").read_text())
    for changing in ("fence", "updated_at", "epoch"):
        del document["subscription"][changing], again["subscription"][changing]
    del document["exported_at"], again["exported_at"]
    assert again == document


def test_a_follower_has_its_snapshots_after_a_file_that_knows_no_logins(replica: Replica) -> None:
    there = "11111111-1111-4111-8111-111111111111"
    with closing(Workspace()) as workspace:
        log, now = workspace.log, datetime(2026, 1, 2, tzinfo=UTC)
        task = log.row(NAME).task_id
        records = FollowerRecords(log.engine, task)
        records.add(Follower(task, "site_b", "mysql://sys#root@127.0.0.1:1", "x", "x", "d", "127.0.0.1:1", now))
        records.change("site_b", downstream_task=there, stage="following")
        point = workspace.mirror(NAME).point()
        for name in (f"ccpr_{there}_7", "other"):
            Pins(log.engine, task).add(Pin(name, point.lsn, point.at.physical, None, now, now))
    file = exported(replica)
    document = json.loads(file.read_text())
    pins = document["tables"]["ccpr_pins"]
    place = pins["columns"].index("login_name")
    for row in (pins["columns"], *pins["rows"]):
        del row[place]
    file.write_text(json.dumps(document))
    lose_catalog(replica)
    replica.command("state", "import", str(file))
    with closing(Workspace()) as workspace:
        owned = {pin.name: pin.owner for pin in Pins(workspace.log.engine, task).all()}
    assert owned == {f"ccpr_{there}_7": publication_of(task, "site_b"), "other": None}


def test_targets_and_tables_in_quarantine_are_imported(replica: Replica) -> None:
    lost = Failure("OBJECT_GONE", "it is gone", "object x", "run it again")
    with closing(Workspace()) as workspace:
        log = workspace.log
        task_id = log.row(NAME).task_id
        table = next(iter(PointHistory(log.engine, task_id).tables(2).values())).table
        address = parse_target_uri("mysql://u@127.0.0.1:3306/shop")[0]
        target = Target(
            task_id,
            "report",
            format_target_uri(address),
            workspace.vault.seal("pw", address.endpoint),
            Dialect.MARIADB,
            TargetSettings(as_text=("t.c",)),
            datetime(2026, 1, 2, tzinfo=UTC),
        )
        records = TargetRecords(log.engine, task_id)
        records.add(target)
        records.change("report", needed_lsn=1)
        kept = records.all()
        with transaction(log.engine) as connection:
            Quarantine(log.engine, task_id).write(
                connection, 2, datetime(2026, 1, 2, tzinfo=UTC), {table.id: (table, lost)}
            )
        entries = Quarantine(log.engine, task_id).entries()
    assert (len(kept), len(entries)) == (1, 1)
    file = exported(replica)
    lose_catalog(replica)
    replica.command("state", "import", str(file))
    with closing(Workspace()) as workspace:
        assert TargetRecords(workspace.log.engine, task_id).all() == kept
        assert workspace.vault.open(kept[0].sealed_password, address.endpoint) == "pw"
        assert Quarantine(workspace.log.engine, task_id).entries() == entries
    status = replica.command("status", NAME, code=1)
    assert [entry["code"] for entry in status["quarantined"]] == ["OBJECT_GONE"]
    assert [entry["name"] for entry in status["targets"]] == ["report"]


def test_an_open_iteration_is_resumed_after_the_import(replica: Replica) -> None:
    with Workspace().iteration(NAME) as iteration:
        ref = drive(iteration, until=Stage.SNAPSHOT).snapshot
        file = exported(replica)
    lose_catalog(replica)
    replica.command("state", "import", str(file))
    assert replica.command("status", NAME)["snapshots"][ref.name] == "open"
    made = replica.emulator.status().snapshots_created
    replica.run()
    assert replica.emulator.status().snapshots_created == made
    replica.assert_equal_to_source(4)


def test_the_password_is_not_in_the_file(replica: Replica) -> None:
    text = exported(replica).read_text()
    assert '"111"' not in text
    assert ":111@" not in text
    assert json.loads(text)["subscription"]["upstream"] == f"mysql://sys#dump@127.0.0.1:{replica.emulator.port}"
    assert replica.command("state", "export", NAME)["subscription"]["task_id"] in text


def test_with_another_key_file_the_import_needs_the_password(replica: Replica) -> None:
    file = exported(replica)
    lose_catalog(replica, "key")
    assert refused(replica, file) == "PASSWORD_NEEDED"
    assert replica.command("subscriptions") == []
    source = source_uri(replica.emulator.port)
    replica.command("state", "import", str(file), "--from", source)
    replica.run()
    replica.assert_equal_to_source(4)


def test_imported_under_another_name_the_mirror_stays_where_it_is(replica: Replica) -> None:
    file = exported(replica)
    lose_catalog(replica)
    assert refused(replica, file, "--name", "no name", code=2) == "BAD_NAME"
    replica.command("state", "import", str(file), "--name", "other")
    assert replica.command("subscriptions")[0]["name"] == "other"
    assert replica.command("run", "other")["lsn"] == 3
    assert not (replica.folder / "home" / "mirrors" / "other").exists()
    assert [point["lsn"] for point in replica.command("points", "other")] == [1, 2, 3]
    assert refused(replica, file) == "MIRROR_CONTRADICTS_STATE", "the mirror has a later point under the other name"


def test_an_existing_subscription_is_not_overwritten(replica: Replica) -> None:
    file = exported(replica)
    assert refused(replica, file) == "SUBSCRIPTION_EXISTS"
    assert refused(replica, file, "--name", "other") == "SUBSCRIPTION_EXISTS", "the same one under two names"
    assert [row["name"] for row in replica.command("subscriptions")] == [NAME]
    replica.run()
    replica.assert_equal_to_source(4)


def test_an_import_writes_all_or_nothing(replica: Replica) -> None:
    file = exported(replica)
    row = Workspace().log.row(NAME)
    lose_catalog(replica)
    engine = Workspace().log.engine
    values = {column.name: 0 for column in points.columns} | {
        "task_id": row.task_id,
        "lsn": 2,
        "snapshot": "s",
        "ledger": "",
    }
    with transaction(engine) as connection:  # a row left over, with which the import conflicts
        connection.execute(points.insert().values(values | {"committed_at": row.created_at}))
    assert refused(replica, file) == "SUBSCRIPTION_EXISTS"
    assert replica.command("subscriptions") == []
    with transaction(engine) as connection:
        for name in owner_columns():
            assert connection.execute(METADATA.tables[name].select()).all() == [] or name == "ccpr_points"


def test_a_mirror_of_another_state_is_refused(replica: Replica) -> None:
    file = exported(replica)
    older = replica.folder / "older"
    shutil.copytree(replica.mirror, older)
    replica.run()
    newer = exported(replica, "newer.json")
    lose_catalog(replica)
    assert refused(replica, file) == "MIRROR_CONTRADICTS_STATE", "the mirror has a later point"
    shutil.rmtree(replica.mirror)
    assert refused(replica, newer) == "MIRROR_CONTRADICTS_STATE", "there is none"
    shutil.copytree(older, replica.mirror)
    assert refused(replica, newer) == "MIRROR_CONTRADICTS_STATE", "a copy from an earlier point"
    manifest = max((replica.mirror / "manifests").rglob("*.arrow"))
    manifest.rename(replica.folder / "hidden")
    assert refused(replica, file) == "MIRROR_CONTRADICTS_STATE", "a manifest is missing"
    (replica.folder / "hidden").rename(manifest)
    assert refused(replica, altered(file, subscription={"watermark": 5})) == "MIRROR_CONTRADICTS_STATE"
    assert replica.command("subscriptions") == []


def test_a_point_that_was_committed_and_not_published_is_published(replica: Replica) -> None:
    before = replica.folder / "before"
    shutil.copytree(replica.mirror, before)
    replica.run()
    file = exported(replica)
    lose_catalog(replica)
    for name in ("head.json", "points"):  # as after a crash between commit and publication
        target = replica.mirror / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        shutil.copytree(before / name, target) if (before / name).is_dir() else shutil.copy(before / name, target)
    replica.command("state", "import", str(file))
    replica.command("verify", NAME, "--repair")
    replica.assert_equal_to_source(4)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"version": 2}, "STATE_FILE_NEWER"),
        ({"catalog_version": 999}, "STATE_FILE_NEWER"),
        ({"version": "1"}, "STATE_FILE_INVALID"),
        ({"format": "other"}, "STATE_FILE_INVALID"),
        ({"tables": []}, "STATE_FILE_INVALID"),
        ({"subscription": {"task_id": "../.."}}, "STATE_FILE_INVALID"),
        ({"subscription": {"context": json.dumps({"to_drop": ["somebody_elses"]})}}, "STATE_FILE_INVALID"),
        ({"subscription": {"upstream": "mysql://a#b:secret@h:1"}}, "STATE_FILE_INVALID"),
        ({"subscription": {"sync_config": '{"mirror": 7}'}}, "STATE_FILE_INVALID"),
        ({"subscription": {"sync_config": '{"sync_interval": -7}'}}, "BAD_SETTING"),
        ({"subscription": {"iteration_lsn": 10**30}}, "STATE_FILE_INVALID"),
        ({"subscription": {"state": 3}}, "STATE_FILE_INVALID"),
        ({"subscription": {"subscription_name": "../x"}}, "STATE_FILE_INVALID"),
        ({"subscription": {"surplus": 1}}, "STATE_FILE_INVALID"),
        ({"sealed_password": "no 'seal'"}, "STATE_FILE_INVALID"),
    ],
)
def test_a_file_that_no_export_would_write_is_refused(change: dict[str, Any], code: str, replica: Replica) -> None:
    file = altered(exported(replica), **change)
    lose_catalog(replica)
    assert refused(replica, file, code=2 if code == "BAD_SETTING" else 1) == code
    assert replica.command("subscriptions") == []


@pytest.mark.parametrize("path", ["objects/{name}", "../../key", "head.json", "{point}"])
def test_a_file_that_would_delete_needed_files_is_refused(path: str, replica: Replica) -> None:
    file = exported(replica)
    document = json.loads(file.read_text())
    referenced = document["tables"]["ccpr_object_references"]
    name = referenced["rows"][0][referenced["columns"].index("object_name")]
    task_id, garbage = document["subscription"]["task_id"], document["tables"]["ccpr_garbage"]
    assert garbage["columns"] == ["task_id", "path", "due_at"]
    points = document["tables"]["ccpr_points"]
    point = points["rows"][-1][points["columns"].index("file")]
    garbage["rows"] = [[task_id, path.format(name=name, point=point), 0]]
    file.write_text(json.dumps(document))
    lose_catalog(replica)
    assert refused(replica, file) == "STATE_FILE_INVALID"


def test_a_state_file_that_is_missing_or_is_not_json_is_an_error(replica: Replica) -> None:
    assert refused(replica, replica.folder / "nothing.json") == "STATE_FILE_INVALID"
    file = replica.folder / "bad.json"
    for content in (b"", b"\xff\xfe", b"[" * 100_000, b'"\\ud800"', b"7"):
        file.write_bytes(content)
        assert refused(replica, file) == "STATE_FILE_INVALID"
    assert replica.command("state", "export", "nobody", code=1)["error"]["code"] == "SUBSCRIPTION_MISSING"
    assert (
        replica.command("state", "export", NAME, "--out", "/proc/nothing/x", code=1)["error"]["code"] == "STORE_FAILED"
    )


def test_an_edited_export_does_not_send_the_password_elsewhere(replica: Replica) -> None:
    file = exported(replica)
    text = file.read_text()
    elsewhere = text.replace("@127.0.0.1:", "@127.0.0.2:")
    assert elsewhere != text
    lose_catalog(replica)
    file.write_text(elsewhere)
    assert refused(replica, file) == "PASSWORD_NEEDED"
    file.write_text(text)
    replica.command("state", "import", str(file))
