"""What the doctor finds on both sides, and that it changes nothing."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ccpr.cli.main import app
from ccpr.doctor import machine_check
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import NAME, Replica, command, replaying, source_uri


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "dml", home) as replica:
        yield replica


def uri(replica: Replica, login: str = "sys#dump") -> str:
    return f"mysql://{login}:env:UPSTREAM_PASSWORD@127.0.0.1:{replica.emulator.port}"


def found(document: dict[str, Any], side: str = "upstream") -> dict[str, dict[str, Any]]:
    return {check["what"]: check for check in document["checks"] if check["side"] == side}


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def results(document: dict[str, Any], side: str = "upstream") -> dict[str, str]:
    return {what: check["result"] for what, check in found(document, side).items()}


def test_before_the_first_subscription_all_checks_pass_and_nothing_is_created(replica: Replica) -> None:
    document = replica.command("doctor", "--from", uri(replica), "--database", replica.about.database)
    assert document["ok"]
    assert set(results(document, "here").values()) <= {"ok", "warning"}
    assert set(results(document, "here")) == {
        "state folder",
        "space",
        "key file",
        "catalog database",
        "file modes",
        "Java for Spark",
    }
    assert results(document) == {
        "login": "ok",
        "encryption": "ok",
        "interface": "ok",
        "version": "ok",
        "capabilities": "ok",
        "role": "ok",
        "clock": "skipped",  # the emulator has no utc_timestamp
        "publication": "ok",
        "tables": "ok",
        "flush on demand": "ok",
        "row rules": "ok",
    }
    assert "pub_dml" in found(document)["publication"]["told"], "looked up"
    assert not (replica.folder / "home").exists()
    assert replica.emulator.status().snapshots == ()


def test_a_state_folder_that_cannot_be_created_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "file" / "home"))
    result = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    assert result.exit_code == 1
    assert found(json.loads(result.stdout), "here")["state folder"]["result"] == "failed"


def test_a_subscription_is_checked_with_its_mirror_and_its_clock(replica: Replica) -> None:
    replica.subscribe()
    assert "clock" in results(replica.command("doctor", NAME))
    replica.run()
    before = files(replica.mirror)
    document = replica.command("doctor", NAME)
    assert document["ok"]
    assert results(document, "here")["mirror"] == "ok"
    assert results(document)["clock"] == "warning", "the recording's clock is of another day"
    assert files(replica.mirror) == before
    replica.run()
    replica.assert_equal_to_source(2)


def test_without_a_database_only_the_login_is_checked(replica: Replica) -> None:
    document = replica.command("doctor", "--from", uri(replica))
    assert document["ok"]
    assert results(document)["publication"] == "skipped"
    assert "tables" not in results(document)


def test_an_upstream_that_is_not_there_is_one_failure(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
    document = replica.command("doctor", NAME, code=1)
    assert results(document) == {"login": "failed", "all else": "skipped"}
    check = found(document)["login"]
    assert check["code"] == "UPSTREAM_UNREACHABLE"
    assert "6001" in check["remedy"]
    assert set(results(document, "here").values()) <= {"ok", "warning"}, "this machine is checked all the same"


@pytest.mark.parametrize(
    ("login", "options", "what", "code"),
    [
        ("acc1#admin", [], "publication", "NOT_PERMITTED"),
        ("sys#dump", ["--database", "nowhere"], "publication", "DATABASE_MISSING"),
        ("sys#dump", ["--publication", "none", "--publisher", "nobody"], "publication", "ACCOUNT_MISSING"),
        ("sys#dump", ["--table", "nothing"], "publication", "TABLE_MISSING"),
    ],
)
def test_what_the_login_may_not_or_does_not_exist_fails_with_a_remedy(
    login: str, options: list[str], what: str, code: str, replica: Replica
) -> None:
    scope = [] if "--database" in options else ["--database", replica.about.database]
    document = replica.command("doctor", "--from", uri(replica, login), *scope, *options, code=1)
    check = found(document)[what]
    assert (check["result"], check["code"]) == ("failed", code)
    assert check["remedy"]
    assert not document["ok"]


@pytest.mark.parametrize(("option", "letters"), [("--database", 1), ("--table", 1)])
def test_a_mistyped_name_is_answered_with_the_one_meant(option: str, letters: int, replica: Replica) -> None:
    names = {"--database": replica.about.database, "--table": "acc"}
    meant = names[option]
    typed = names | {option: meant + "x" * letters}
    words = [word for pair in typed.items() for word in pair]
    document = replica.command("doctor", "--from", uri(replica), *words, code=1)
    assert meant in found(document)["publication"]["remedy"].replace("`", " ").replace("?", " ").split()


def test_where_snapshots_change_what_users_can_alter_it_is_a_hint(replica: Replica) -> None:
    words = ("doctor", "--from", uri(replica), "--database", replica.about.database)
    assert "ALTER TABLE" not in results(replica.command(*words))
    replica.emulator.upgrade("4.2")
    document = replica.command(*words)
    check = found(document)["ALTER TABLE"]
    assert (document["ok"], check["result"]) == (True, "warning")
    assert "DROP COLUMN c, ADD COLUMN c" in check["told"]
    assert "another account than sys" in check["remedy"]


def test_a_database_of_another_account_has_no_limits_from_snapshots(home: Path) -> None:
    storage = Storage()
    storage.create_account("acc1")
    storage.create_database("d", account="acc1")
    storage.create_table("d", "t", {"id": "int"}, primary_key=["id"], account="acc1")
    storage.create_publication("p", "d", account="acc1", accounts=("sys",))
    with SimulatedUpstream(storage, password="111") as emulator:
        emulator.upgrade("4.2")
        document = command("doctor", "--from", source_uri(emulator.port), "--database", "d", "--publisher", "acc1")
    assert results(document)["tables"] == "ok"
    assert "ALTER TABLE" not in results(document)


def test_a_partitioned_table_is_shown(recordings: Path, home: Path) -> None:
    with replaying(recordings / "partitioned", home) as replica:
        document = replica.command("doctor", "--from", uri(replica), "--database", replica.about.database)
    check = found(document)["tables"]
    assert (check["result"], check["code"]) == ("ok", "")
    assert check["told"] == "2 tables, partitioned: part (so all are listed one by one)"


def test_a_role_that_may_not_flush_is_a_warning(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home, may_flush=False) as replica:
        document = replica.command("doctor", "--from", uri(replica), "--database", replica.about.database)
        assert document["ok"]
        assert results(document)["flush on demand"] == "warning"
        replica.subscribe("--flush", "wait")
        assert results(replica.command("doctor", NAME))["flush on demand"] == "skipped"


def test_this_machine_is_checked(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    replica.subscribe()
    home = replica.folder / "home"
    (home / "key").chmod(0o644)
    monkeypatch.setattr(machine_check, "find_java", no_java)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 10**12, 10**6))
    document = replica.command("doctor", code=1)
    assert results(document, "here") == {
        "state folder": "ok",
        "space": "failed",
        "key file": "failed",
        "catalog database": "ok",
        "file modes": "ok",
        "Java for Spark": "warning",
    }
    assert "chmod 600" in found(document, "here")["key file"]["remedy"]
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "catalog.db").write_text("this is no database, " * 100)
    assert results(replica.command("doctor", code=1), "here")["catalog database"] == "failed"


def test_a_machine_without_spark_needs_no_java(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr(machine_check, "find_java", no_java)
    check = found(replica.command("doctor"), "here")["Java for Spark"]
    assert (check["result"], check["code"]) == ("skipped", "")
    assert "Spark is not installed" in check["told"]


def no_java(cache: Path) -> None:
    from ccpr.pipeline.spark.errors import JavaMissing

    raise JavaMissing("there is none", subject="java")


def test_a_folder_that_cannot_be_written_fails(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPR_HOME", "/proc/nothing")
    assert results(replica.command("doctor", code=1), "here")["state folder"] == "failed"


def test_a_mirror_that_cannot_be_written_fails(replica: Replica) -> None:
    replica.subscribe("--mirror", str(replica.folder / "place"))
    (replica.folder / "place").write_text("a file where the folder should be")
    check = found(replica.command("doctor", NAME, code=1), "here")["mirror"]
    assert (check["result"], check["code"]) == ("failed", "STORE_FAILED")


def test_for_people_each_check_is_a_line(replica: Replica) -> None:
    result = CliRunner().invoke(
        app, ["doctor", "--from", uri(replica, "acc1#admin"), "--database", "x"], catch_exceptions=False
    )
    assert result.exit_code == 1
    assert "ok      upstream: login:" in result.stdout
    assert "ccpr explain NOT_PERMITTED" in result.stdout
    assert "failed" in result.stdout.splitlines()[-1]
    assert CliRunner().invoke(app, ["doctor", NAME, "--from", "x"]).exit_code == 2
    assert CliRunner().invoke(app, ["doctor", "nobody"]).exit_code == 1
