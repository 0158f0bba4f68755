"""A subscription whose objects come straight from storage: the same rows, and the upstream is asked for no object."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ccpr.cli.main import app
from tests.support.bucket import Bucket, served
from tests.support.disk_files import write_storage
from tests.support.replica import NAME, OLDER, Replica, replaying

pytestmark = pytest.mark.recordings


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "dml", home) as replica:
        yield replica


def shared(replica: Replica, *, disk: bool = True) -> Path:
    return write_storage(replica.about.folder / "objects", replica.folder / "shared", disk=disk)


def checks(replica: Replica, code: int = 0) -> dict[str, dict[str, Any]]:
    return {check["what"]: check for check in replica.command("doctor", NAME, code=code)["checks"]}


@pytest.mark.parametrize("scenario", [path for path in OLDER if path not in ("many_tables", "wide_and_large")])
def test_each_point_has_the_rows_that_were_true_and_the_upstream_is_asked_for_no_object(
    scenario: str, recordings: Path, home: Path
) -> None:
    with replaying(recordings / scenario, home) as replica:
        replica.subscribe("--objects-from", str(shared(replica)))
        copied = 0
        for snapshot in range(1, replica.about.snapshots + 1):
            outcome = replica.run()
            assert outcome["objects_direct"] == outcome["objects_copied"]
            copied += outcome["objects_copied"]
            replica.assert_equal_to_source(snapshot, snapshot - 1)
        assert copied
        assert replica.emulator.status().objects_fetched == 0
        assert replica.command("verify", NAME, "--deep")["damages"] == []


def test_a_bucket_is_read_with_the_credentials_of_the_environment(replica: Replica, s3_credentials: None) -> None:
    folder = replica.about.folder / "objects"
    with served(Bucket({f"server/data/{path.name}": path.read_bytes() for path in folder.iterdir()})) as bucket:
        replica.subscribe("--objects-from", bucket.url())
        replica.run()
        replica.assert_equal_to_source(1)
        assert checks(replica)["storage's bytes"]["result"] == "ok"
        bucket.may_read = False
        error = replica.run(code=1)
        assert (error["error"]["code"], "s3:GetObject" in error["error"]["message"]) == ("STORAGE_REFUSED", True)
        assert checks(replica, 1)["storage's bytes"]["code"] == "STORAGE_REFUSED"
        bucket.may_read = True
        replica.run()
        replica.assert_equal_to_source(2)  # with the same snapshot, and without a resume
    assert "secret" not in (replica.folder / "home" / "catalog.db").read_bytes().decode("latin-1")
    assert replica.emulator.status().objects_fetched == 1, "the doctor compares one"


def test_status_and_run_say_which_way_bytes_came(replica: Replica) -> None:
    replica.subscribe()
    replica.run()
    status = replica.command("status", NAME)
    assert (status["objects_from"], status["objects_direct"]) == ("", 0)
    assert status["objects_copied"] > 0
    folder = shared(replica)
    replica.command("alter", NAME, "--objects-from", str(folder))
    outcome = replica.run()
    status = replica.command("status", NAME)
    assert status["objects_from"] == folder.as_uri()
    assert status["objects_direct"] == status["objects_copied"] == outcome["objects_copied"] > 0
    text = CliRunner().invoke(app, ["status", NAME, "-v"], env={"COLUMNS": "200"}).stdout
    assert f"storage, {folder.as_uri()}" in " ".join(text.split())
    replica.command("alter", NAME, "--objects-from", "")
    assert replica.command("status", NAME)["objects_from"] == ""
    replica.run()
    replica.assert_equal_to_source(3)


def test_the_doctor_reads_one_object_both_ways(replica: Replica) -> None:
    folder = shared(replica)
    replica.subscribe("--objects-from", str(folder))
    assert checks(replica)["storage's bytes"]["result"] == "skipped"
    replica.run()
    found = checks(replica)["storage's bytes"]
    assert (found["result"], "the checksums of a DISK file service" in found["told"]) == ("ok", True)
    name = next(word for word in found["told"].split() if "_0" in word).rstrip(",")
    content = (replica.about.folder / "objects" / name).read_bytes()
    (folder / name).write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    assert checks(replica, 1)["storage's bytes"]["code"] == "OBJECT_MISMATCH"
    (folder / name).unlink()
    assert checks(replica)["storage's bytes"]["result"] == "warning"
    folder.rename(folder.parent / "elsewhere")
    assert checks(replica, 1)["storage"]["code"] == "STORAGE_MISSING"


def test_a_place_that_cannot_be_read_is_no_subscription(replica: Replica) -> None:
    error = replica.subscribe("--objects-from", str(replica.folder / "nowhere"), code=1)
    assert error["error"]["code"] == "STORAGE_MISSING"
    assert replica.subscribe("--objects-from", "nowhere", code=2)["error"]["code"] == "BAD_NAME"
    replica.subscribe()
    for place, code, exit_code in (
        (str(replica.folder / "nowhere"), "STORAGE_MISSING", 1),
        ("s3://a:b@c/d", "BAD_NAME", 2),
    ):
        assert replica.command("alter", NAME, "--objects-from", place, code=exit_code)["error"]["code"] == code


def test_sql_has_the_same_setting(replica: Replica) -> None:
    folder = shared(replica)
    replica.subscribe()
    replica.command("sql", f"ALTER SUBSCRIPTION {NAME} SET (objects_from = '{folder}')")
    replica.run()
    replica.assert_equal_to_source(1)
    assert replica.command("status", NAME)["objects_from"] == folder.as_uri()
    assert replica.emulator.status().objects_fetched == 0


def test_a_storage_that_goes_away_is_waited_for(replica: Replica) -> None:
    folder = shared(replica)
    replica.subscribe("--objects-from", str(folder))
    folder.rename(folder.parent / "unmounted")
    assert replica.run(code=1)["error"]["code"] == "STORAGE_MISSING"
    (folder.parent / "unmounted").rename(folder)
    replica.run()
    replica.assert_equal_to_source(1)
    assert replica.emulator.status().objects_fetched == 0
