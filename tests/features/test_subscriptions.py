"""Subscriptions over the wire: statements and the verbs that do the same, the checks before anything is written,
pausing and dropping."""

import errno
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr.matrixone.client.upstream_snapshots import create_snapshot
from ccpr.mirror import local_store
from ccpr.pipeline.driver import drive, take
from ccpr.pipeline.step_names import Stage
from ccpr.service.workspace import Workspace
from ccpr.state.errors import LeaseLost
from ccpr.state.subscription import Subscription
from ccpr_emulator.serving.faults import CutStatement, FailStatement
from tests.support.mariadb import MariaDb
from tests.support.replica import NAME, Replica, replaying

RECORDING = "other_account"
PUBLICATION = f"pub_{RECORDING}"
pytestmark = pytest.mark.recordings


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / RECORDING, home, strict_publication=True) as replica:
        yield replica


def uri(replica: Replica, login: str = "sys#dump", password: str = "env:UPSTREAM_PASSWORD") -> str:
    return f"mysql://{login}:{password}@127.0.0.1:{replica.emulator.port}"


def sql(replica: Replica, text: str, code: int = 0) -> Any:
    return replica.command("sql", text, code=code)


def created(replica: Replica, name: str = NAME, more: str = "") -> Any:
    return sql(replica, f"CREATE SUBSCRIPTION {name} DATABASE gd_acc FROM '{uri(replica)}' {more}")


def shown(replica: Replica) -> list[dict[str, Any]]:
    return sql(replica, "SHOW SUBSCRIPTIONS")[0]["rows"]


def held_upstream(replica: Replica) -> set[str]:
    return {snapshot.name for snapshot in replica.emulator.snapshots()}


# ---- create


def test_a_statement_without_publication_finds_it_and_replicates(replica: Replica) -> None:
    (result,) = created(replica, more="SYNC_INTERVAL = 5 WITH (RETAIN = 7)")
    assert (result["publication"], result["publisher"]) == (PUBLICATION, "acc1")
    assert replica.run()["point"]
    replica.assert_equal_to_source(1)
    (row,) = shown(replica)
    assert list(row) == [
        "subscription_name",
        "upstream_conn",
        "database",
        "tables",
        "sync_interval",
        "status",
        "create_time",
        "update_time",
    ]
    assert (row["database"], row["tables"], row["sync_interval"], row["status"]) == ("gd_acc", "*", 5, 0)
    assert row["upstream_conn"] == f"mysql://sys#dump:***@127.0.0.1:{replica.emulator.port}"


def test_the_verb_without_publication_finds_it_too(replica: Replica) -> None:
    result = replica.command("subscribe", NAME, "--from", uri(replica), "--database", "gd_acc")
    assert (result["publication"], result["publisher"]) == (PUBLICATION, "acc1")


def test_the_outline_designs_example_gets_the_statements_to_run_as_its_remedy(replica: Replica) -> None:
    """Its login is not a user of account sys, and it names no publication."""
    text = f"CREATE SUBSCRIPTION sub1 DATABASE db1 FROM '{uri(replica, 'acc#user', 'pw')}' SYNC_INTERVAL = 60"
    error = sql(replica, text, code=1)["error"]
    assert error["code"] == "NOT_PERMITTED"
    assert "As admin of account acc: CREATE PUBLICATION `pub_db1` DATABASE `db1` ACCOUNT sys;" in error["remedy"]
    assert (
        f"FROM 'mysql://sys#root:<password>@127.0.0.1:{replica.emulator.port}' PUBLICATION `pub_db1` OF `acc`"
        in error["remedy"]
    )
    assert ":pw@" not in str(error)
    assert replica.command("subscriptions") == []
    assert held_upstream(replica) == set()


@pytest.mark.parametrize(
    ("scope", "rest", "code"),
    [
        ("gd_acc TABLE nothing", "", "TABLE_MISSING"),
        ("nowhere", "", "DATABASE_MISSING"),
        ("gd_acc", "PUBLICATION nothing OF acc1", "PUBLICATION_MISSING"),
        ("gd_acc", "PUBLICATION pub_other_account OF nobody", "ACCOUNT_MISSING"),
        ("gd_acc", "WITH (FLUSH = 'never')", "BAD_SETTING"),
        ("gd_acc", "SYNC_INTERVAL = 0", "BAD_SETTING"),
        ("gd_acc", "WITH (MIRROR = 'ftp://x')", "BAD_NAME"),
    ],
)
def test_an_invalid_subscription_is_refused_before_anything_is_written(
    scope: str, rest: str, code: str, replica: Replica, home: Path
) -> None:
    text = f"CREATE SUBSCRIPTION s DATABASE {scope} FROM '{uri(replica)}' {rest}"
    assert sql(replica, text, code=2 if code.startswith("BAD") else 1)["error"]["code"] == code
    assert replica.command("subscriptions") == []
    assert not (home / "home" / "mirrors").exists()


def test_a_scope_that_is_replicated_already_is_refused_unless_overlap_is_allowed(replica: Replica) -> None:
    created(replica)
    table = next(iter(replica.in_scope(1))).partition(".")[2]
    error = sql(replica, f"CREATE SUBSCRIPTION two DATABASE gd_acc TABLE {table} FROM '{uri(replica)}'", code=1)[
        "error"
    ]
    assert error["code"] == "SCOPE_OVERLAP"
    assert NAME in error["message"]
    sql(
        replica,
        f"CREATE SUBSCRIPTION two DATABASE gd_acc TABLE {table} FROM '{uri(replica)}' WITH (ALLOW_OVERLAP = TRUE)",
    )
    replica.command("subscribe", "three", "--from", uri(replica), "--database", "gd_acc", "--allow-overlap")
    assert [row["subscription_name"] for row in shown(replica)] == [NAME, "three", "two"]


def test_a_script_stops_at_its_first_failure_and_reports_what_was_done(replica: Replica) -> None:
    create = f"CREATE SUBSCRIPTION one DATABASE gd_acc FROM '{uri(replica)}'"
    result = sql(replica, f"{create}; PAUSE SUBSCRIPTION one; PAUSE SUBSCRIPTION nobody; SHOW SUBSCRIPTIONS", code=1)
    assert result["error"]["code"] == "SUBSCRIPTION_MISSING"
    assert [done["statement"] for done in result["done"]] == ["CREATE SUBSCRIPTION", "PAUSE SUBSCRIPTION"]


def test_a_script_with_a_syntax_error_runs_nothing(replica: Replica) -> None:
    error = sql(
        replica,
        f"CREATE SUBSCRIPTION one DATABASE gd_acc FROM '{uri(replica, password='s3cret')}'; DORP SUBSCRIPTION x",
        code=2,
    )["error"]
    assert error["code"] == "SQL_SYNTAX"
    assert "s3cret" not in str(error)
    assert replica.command("subscriptions") == []


def test_statements_come_from_a_file_or_standard_input(replica: Replica, tmp_path: Path) -> None:
    (tmp_path / "one.sql").write_text(f"CREATE SUBSCRIPTION one DATABASE gd_acc FROM '{uri(replica)}';\n")
    replica.command("sql", "--file", str(tmp_path / "one.sql"))
    result = typer.testing.CliRunner().invoke(
        app, ["sql", "--json"], input="SELECT db_name, state, upstream_conn FROM mo_sync_configs"
    )
    (answer,) = json.loads(result.stdout)
    assert answer["rows"] == [
        {"db_name": "gd_acc", "state": 0, "upstream_conn": f"mysql://sys#dump:***@127.0.0.1:{replica.emulator.port}"}
    ]


# ---- alter, pause, resume


def test_settings_are_altered_and_a_fixed_one_is_an_error(replica: Replica) -> None:
    created(replica)
    sql(replica, f"ALTER SUBSCRIPTION {NAME} SET (SYNC_INTERVAL = 5, RETAIN = 3)")
    replica.command("alter", NAME, "--retain-for", "1h")
    (row,) = sql(replica, "SELECT sync_config FROM mo_ccpr_log")[0]["rows"]
    config = json.loads(row["sync_config"])
    assert (config["sync_interval"], config["retain"], config["retain_for"]) == (5, 3, 3600)
    assert (
        sql(replica, f"ALTER SUBSCRIPTION {NAME} SET (WITH_INDEXES = TRUE)", code=2)["error"]["code"] == "BAD_SETTING"
    )


def test_a_new_uri_has_to_lead_to_the_same_upstream(recordings: Path, replica: Replica) -> None:
    created(replica)
    replica.run()
    sql(replica, f"ALTER SUBSCRIPTION {NAME} SET (UPSTREAM = '{uri(replica, 'sys#root')}')")
    assert shown(replica)[0]["upstream_conn"].startswith("mysql://sys#root:***@")
    assert replica.run()["point"]
    replica.assert_equal_to_source(2)
    with replaying(recordings / RECORDING, replica.folder, strict_publication=True) as other_cluster:
        error = sql(replica, f"ALTER SUBSCRIPTION {NAME} SET (UPSTREAM = '{uri(other_cluster)}')", code=1)["error"]
        assert error["code"] == "UPSTREAM_DIFFERS"
    error = replica.command("alter", NAME, "--from", "mysql://sys#root:x@127.0.0.1:1", code=1)["error"]
    assert error["code"] == "UPSTREAM_UNREACHABLE"
    assert shown(replica)[0]["upstream_conn"].startswith("mysql://sys#root:***@")


def test_an_upstream_whose_snapshot_has_another_time_is_a_different_one(replica: Replica) -> None:
    """For example a cluster that was restored from a copy and has diverged since."""
    created(replica)
    replica.run()
    with closing(Workspace()) as workspace:
        subscription = Subscription.from_row(workspace.log.row(NAME))
        (name,) = replica.command("status", NAME)["snapshots"]
        replica.emulator.drop_snapshot(name)
        with workspace.connect(subscription) as session:
            create_snapshot(session, name, subscription.publication, subscription.database)
    error = sql(replica, f"ALTER SUBSCRIPTION {NAME} SET (UPSTREAM = '{uri(replica, 'sys#root')}')", code=1)["error"]
    assert (error["code"], "another time" in error["message"]) == ("UPSTREAM_DIFFERS", True)
    assert shown(replica)[0]["upstream_conn"].startswith("mysql://sys#dump:***@")


def test_a_paused_subscription_is_not_run_and_resumes_at_the_same_lsn(replica: Replica) -> None:
    created(replica)
    replica.run()
    replica.command("pause", NAME)
    assert shown(replica)[0]["status"] == 2
    error = replica.run(code=1)["error"]
    assert (error["code"], f"ccpr resume {NAME}" in error["remedy"]) == ("SUBSCRIPTION_PAUSED", True)
    replica.assert_equal_to_source(1)
    assert replica.command("resume", NAME)["iteration_lsn"] == 1
    assert replica.run()["lsn"] == 1
    replica.assert_equal_to_source(2)


def interrupted(replica: Replica, meanwhile: list[str]) -> None:
    """An iteration, and a command in the middle of it."""
    with closing(Workspace()) as workspace, workspace.iteration(NAME) as iteration:
        drive(iteration, until=Stage.COPY)
        replica.command(*meanwhile)
        take(iteration, Stage.APPLY)


@pytest.mark.parametrize("verb", ["pause", "drop", "alter"])
def test_an_iteration_that_a_command_interrupts_cannot_commit(verb: str, replica: Replica) -> None:
    created(replica)
    replica.run()
    meanwhile = [verb, NAME, *(["--from", uri(replica, "sys#root")] if verb == "alter" else [])]
    with pytest.raises(LeaseLost) as raised:
        interrupted(replica, meanwhile)
    assert {"pause": "paused", "drop": "dropped", "alter": "altered"}[verb] in raised.value.message
    if verb == "drop":
        assert held_upstream(replica) == set()
        return
    if verb == "pause":
        (row,) = sql(replica, "SELECT state, iteration_state, iteration_lsn FROM mo_ccpr_log")[0]["rows"]
        assert row == {"state": 2, "iteration_state": 4, "iteration_lsn": 1}
        replica.command("resume", NAME)
    assert replica.run()["lsn"] == 1
    replica.assert_equal_to_source(2)
    assert len(held_upstream(replica)) == 2


def test_resume_clears_an_error(replica: Replica) -> None:
    created(replica)
    replica.run()
    text = "internal error: external table is not supported"  # what no retry can help
    replica.emulator.inject(FailStatement("get_ddl", number=20101, text=text, times=0))
    replica.emulator.inject(FailStatement("select_mo_tables", number=20101, text=text, times=0))
    replica.run(code=1)
    assert shown(replica)[0]["status"] == 1
    replica.emulator.clear_faults()
    assert replica.command("resume", NAME) == {
        "name": NAME,
        "state": "idle",
        "iteration_state": "complete",
        "iteration_lsn": 1,
    }
    assert replica.run()["lsn"] == 1


# ---- drop


def test_a_drop_leaves_nothing_upstream_and_the_mirror_readable(replica: Replica) -> None:
    created(replica)
    replica.run()
    replica.run()
    assert len(held_upstream(replica)) == 2
    dropped = sql(replica, f"DROP SUBSCRIPTION {NAME}")[0]
    assert (dropped["snapshots_dropped"], dropped["snapshots_left"]) == (2, [])
    assert held_upstream(replica) == set()
    assert replica.command("subscriptions") == []
    assert (replica.mirror / "head.json").exists()
    (row,) = sql(replica, "SELECT state, drop_at, upstream_conn, iteration_lsn FROM mo_ccpr_log")[0]["rows"]
    assert (row["state"], row["iteration_lsn"], row["drop_at"] is None) == (3, 2, False)
    assert replica.command("drop", NAME, code=1)["error"]["code"] == "SUBSCRIPTION_MISSING"
    assert sql(replica, f"DROP SUBSCRIPTION IF EXISTS {NAME}")[0]["existed"] is False


def test_an_old_mirror_is_not_taken_over_and_a_purge_deletes_it(replica: Replica) -> None:
    created(replica)
    replica.run()
    replica.command("drop", NAME)
    error = sql(replica, f"CREATE SUBSCRIPTION {NAME} DATABASE gd_acc FROM '{uri(replica)}'", code=1)["error"]
    assert (error["code"], f"ccpr drop {NAME} --purge" in error["remedy"]) == ("MIRROR_IN_USE", True)
    assert replica.command("drop", NAME, "--purge", "--yes")["purged"]
    assert not replica.mirror.exists()
    created(replica)
    assert replica.run()["lsn"] == 0
    replica.assert_equal_to_source(2)


def test_a_drop_without_its_upstream_keeps_the_names_and_can_be_finished_later(replica: Replica) -> None:
    created(replica)
    replica.run()
    (name,) = held_upstream(replica)
    replica.emulator.inject(CutStatement("drop_snapshot", times=0))
    dropped = replica.command("drop", NAME)
    assert dropped["snapshots_left"] == [name]
    assert dropped["statements"] == [f"DROP SNAPSHOT IF EXISTS `{name}` FROM `acc1` PUBLICATION `{PUBLICATION}`;"]
    assert [held["role"] for held in replica.command("snapshots", NAME)] == ["orphan"]
    replica.emulator.clear_faults()
    assert replica.command("snapshots", NAME, "--orphans") == []
    assert held_upstream(replica) == set()
    assert replica.command("drop", NAME, code=1)["error"]["code"] == "SUBSCRIPTION_MISSING"


def test_a_forced_drop_forgets_the_snapshots_that_it_could_not_drop(replica: Replica) -> None:
    created(replica)
    replica.run()
    replica.emulator.inject(CutStatement("drop_snapshot", times=0))
    assert len(replica.command("drop", NAME, "--force")["statements"]) == 1
    (row,) = sql(replica, "SELECT context FROM mo_ccpr_log")[0]["rows"]
    assert json.loads(row["context"])["to_drop"] == []


def test_a_drop_after_the_publication_was_dropped_prints_the_form_that_works_without_it(replica: Replica) -> None:
    created(replica)
    replica.run()
    (name,) = held_upstream(replica)
    gone = f"internal error: publication acc1.{PUBLICATION} does not exist"
    replica.emulator.inject(FailStatement("drop_snapshot", text=gone, times=0))
    dropped = replica.command("drop", NAME)
    assert dropped["snapshots_left"] == [name]
    assert dropped["statements"] == [f"DROP SNAPSHOT IF EXISTS `{name}`; -- as account acc1"]


def test_a_purge_beside_a_run_deletes_what_the_run_goes_on_writing(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(replica)
    replica.run()
    rmtree, calls = local_store.shutil.rmtree, 0

    def beaten(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            return rmtree(path)
        rmtree(path)
        path.mkdir()  # what a writer does that finds the folder gone
        (path / "late").write_bytes(b"x")
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))

    monkeypatch.setattr(local_store.shutil, "rmtree", beaten)
    assert replica.command("drop", NAME, "--purge", "--yes")["purged"]
    assert not replica.mirror.exists()


def test_a_purge_that_a_run_outruns_says_to_repeat_it(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    created(replica)
    replica.run()

    def beaten(path: Path) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))

    with monkeypatch.context() as during:
        during.setattr(local_store.shutil, "rmtree", beaten)
        error = replica.command("drop", NAME, "--purge", "--yes", code=1)["error"]
    assert error["code"] == "MIRROR_IN_USE"
    assert "Repeat the same command" in error["remedy"]
    assert replica.command("drop", NAME, "--purge", "--yes")["purged"]
    assert not replica.mirror.exists()


def test_a_purge_says_that_a_run_was_under_way(replica: Replica) -> None:
    created(replica)
    replica.run()
    with closing(Workspace()) as workspace, workspace.iteration(NAME) as iteration:
        drive(iteration, until=Stage.OBJECT_LIST)
        assert replica.command("drop", NAME, "--purge", "--yes")["running"]
        (replica.mirror / "work").mkdir(parents=True)  # what a run does whose file comes after the purge
    assert replica.mirror.exists()
    assert not replica.command("drop", NAME, "--purge", "--yes")["running"]
    assert not replica.mirror.exists()


# ---- another catalog database


def test_a_mariadb_can_be_the_catalog_database(
    recordings: Path, home: Path, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"catalog_{uuid.uuid4().hex[:8]}"
    mariadb.create_database(name)
    url = mariadb.url(name)
    monkeypatch.setenv("CCPR_CATALOG", url)
    with replaying(recordings / RECORDING, home, strict_publication=True) as replica:
        created(replica)
        assert replica.run()["point"]
        replica.assert_equal_to_source(1)
        assert replica.run()["point"]
        replica.assert_equal_to_source(2)
        replica.assert_equal_to_source(1, at=0)
        assert not (home / "home" / "catalog.db").exists()
        with mariadb.connect(name) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT subscription_name, iteration_lsn FROM mo_ccpr_log")
            assert cursor.fetchall() == ((NAME, 2),)
        replica.command("pause", NAME)
        replica.run(code=1)
        replica.command("drop", NAME, "--purge", "--yes")
        assert held_upstream(replica) == set()
        monkeypatch.setenv("CCPR_CATALOG", url.replace(mariadb.password, "wr0ng-secret"))
        error = replica.command("subscriptions", code=1)["error"]
        assert error["code"] == "STATE_UNREADABLE"
        assert "wr0ng-secret" not in str(error)
