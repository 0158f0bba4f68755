"""A login that is not of account sys: rows are read, and the mirror is as any other."""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer.testing

import ccpr
from ccpr.cli.main import app
from ccpr.matrixone.server.upstream import Release
from ccpr.mirror.column_sums import ColumnSum
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline import driver
from ccpr.pipeline.copying import Pace
from ccpr.pipeline.errors import RowsDisagree
from ccpr.pipeline.logical import proof, reading, table_reads
from ccpr.pipeline.logical.table_reads import list_reads
from ccpr.pipeline.step_names import Stage
from ccpr.relay import loading
from ccpr.serve.holding import Holding, KeptSessions
from ccpr.service.workspace import Workspace
from ccpr.state.subscription import Subscription
from ccpr_emulator.serving.faults import FailStatement
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.several_killed import iterate_and_die
from tests.support.lake_readers import read_delta_rs
from tests.support.native_client import NativeClient
from tests.support.relayed import assert_has_point, relaying, subscribe_through
from tests.support.replica import command
from tests.support.scratch_database import Scratch
from tests.support.simulated import asked

pytestmark = pytest.mark.integration

TABLES = (
    "create table d.t (id int primary key, v varchar(20), n decimal(10,2))",
    "create table d.heap (a int, b varchar(5))",
    "create table d.pair (a int, b varchar(5), v int, primary key(b, a))",
    "insert into d.t values (1,'a',1.5),(2,'b',null),(3,'c',3)",
    "insert into d.heap values (1,'x'),(1,'x'),(2,null)",
    "insert into d.pair values (1,'a',1),(2,'a',2)",
)


@pytest.fixture
def upstream(home: Path) -> Iterator[SimulatedUpstream]:
    with SimulatedUpstream() as emulator:
        asked(emulator, "create account acc admin_name 'admin' identified by '111'", user="dump")
        emulator.upgrade("4.2")
        asked(emulator, "create database d", *TABLES)
        yield emulator


def subscribe(emulator: SimulatedUpstream, *options: str, code: int | None = None) -> Any:
    uri = f"mysql://acc#admin:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}"
    return command("subscribe", "s", "--from", uri, "--database", "d", *options, code=code)


def mirror(home: Path) -> ccpr.Mirror:
    return ccpr.open_mirror(home / "home" / "mirrors" / "s")


def assert_equal(home: Path, emulator: SimulatedUpstream, *tables: str) -> None:
    for table in tables:
        expected = Counter(asked(emulator, f"select * from d.{table}"))
        assert Counter(tuple(row.values()) for row in mirror(home).table(f"d.{table}").to_pylist()) == expected, table


def test_what_changed_is_read_and_all_of_what_cannot_be_told(home: Path, upstream: SimulatedUpstream):
    assert subscribe(upstream)["mode"] == "logical"
    assert {table["whole"] for table in command("plan", "s")["tables"]} == {"there is no point before"}
    command("run", "s")
    assert_equal(home, upstream, "t", "heap", "pair")
    asked(
        upstream,
        "update d.t set v='B' where id=2",
        "delete from d.t where id=1",
        "insert into d.t values (9,'i',9)",
        "delete from d.heap where b is null",
        "insert into d.heap values (1,'x')",
        "update d.pair set a=7 where a=1",
        "create table d.late (k int primary key)",
    )
    planned = {table["table"]: (table["rows"], table["whole"]) for table in command("plan", "s")["tables"]}
    assert planned == {"d.t": (3, ""), "d.heap": (2, ""), "d.pair": (2, ""), "d.late": (0, "it is new")}
    command("run", "s")
    assert_equal(home, upstream, "t", "heap", "pair", "late")
    asked(upstream, "update d.heap set b='y' where a=1", "alter table d.t rename to d.u", "truncate table d.pair")
    command("run", "s")
    assert_equal(home, upstream, "heap", "u", "pair")
    assert not command("run", "s")["point"]
    assert len(asked(upstream, "show snapshots")) == 2
    assert command("status", "s")["mode"].startswith("logical")


def test_a_small_table_whose_rows_lie_where_they_lay_costs_no_difference(
    home: Path, upstream: SimulatedUpstream, monkeypatch: pytest.MonkeyPatch
):
    subscribe(upstream)
    command("run", "s")
    with monkeypatch.context() as patched:
        patched.setattr(table_reads, "changed_rows", None)  # not called
        assert not command("run", "s")["point"]
    monkeypatch.setattr(table_reads, "_FEW_ROWS", -1)
    assert not command("run", "s")["point"]  # by differences
    asked(upstream, "delete from d.heap where b is null", "update d.t set v='B' where id=2")
    command("run", "s")
    assert_equal(home, upstream, "t", "heap", "pair")


def test_where_rows_lay_is_asked_once_in_a_process_and_again_after_any_doubt(
    home: Path, upstream: SimulatedUpstream, monkeypatch: pytest.MonkeyPatch
):
    subscribe(upstream)

    def iterate() -> int:
        """How many statements ask where rows lie."""
        before = len(upstream.log())
        with holding.iteration() as (lease, known), workspace.iteration_under(lease, known=known) as iteration:
            driver.drive(iteration)
        holding.last = iteration.last_read
        return sum("__mo_rowid" in statement.text for statement in upstream.log()[before:])

    with closing(Workspace(home / "home")) as workspace:
        holding = Holding(workspace, workspace.log.row("s"), KeptSessions(time.monotonic))
        assert iterate() == 0  # all of each table is read
        assert [iterate(), iterate(), iterate()] == [6, 3, 3]
        asked(upstream, "update d.t set v='B' where id=2", "delete from d.heap where b is null")
        assert [iterate(), iterate()] == [3, 3]
        assert_equal(home, upstream, "t", "heap", "pair")
        command("run", "s")  # another process
        assert [iterate(), iterate()] == [6, 3]
        with monkeypatch.context() as patched:
            patched.setattr(driver, "apply_if_idle", Mock(side_effect=RowsDisagree("once", subject="table t")))
            with pytest.raises(RowsDisagree):
                iterate()
        asked(upstream, "insert into d.pair values (5,'e',5)")
        assert [iterate(), iterate()] == [6, 3]
        assert_equal(home, upstream, "t", "heap", "pair")


def test_columns_that_cluster_a_table_are_found_though_their_names_are_printed_in_lower_case(
    home: Path, upstream: SimulatedUpstream
):
    rows = "values (3,'c'),(1,'a'),(2,'b')"
    asked(upstream, "create table d.near (Big int, b varchar(5)) cluster by (Big)", f"insert into d.near {rows}")
    asked(upstream, "create table d.by2 (Big int, B varchar(5)) cluster by (B, Big)", f"insert into d.by2 {rows}")
    assert asked(upstream, "show create table d.by2")[0][1].endswith("CLUSTER BY (`b`, `big`)")
    subscribe(upstream)
    command("run", "s")
    asked(upstream, "delete from d.near where Big=2", "insert into d.by2 values (0,'z')")
    command("run", "s")
    assert_equal(home, upstream, "near", "by2")


PARTED = "partition by range(id) (partition a values less than (10), partition b values less than (20))"


@pytest.mark.parametrize("release", ["4.1", "4.2"])
def test_a_partitioned_table_is_read_as_one_and_as_a_whole_when_its_partitions_change(
    home: Path, upstream: SimulatedUpstream, release: Release
):
    upstream.upgrade(release)
    asked(upstream, f"create table d.parted (id int primary key, v int) {PARTED}")
    asked(upstream, "insert into d.parted values (1,1),(2,2),(11,11)")
    subscribe(upstream)
    command("run", "s")
    for change, whole in (
        ("delete from d.parted where id=2", ""),
        ("alter table d.parted truncate partition a", "it has other partitions"),
        ("alter table d.parted drop partition b", "it has other partitions"),
        ("alter table d.parted add partition (partition c values less than (90))", "it has other partitions"),
    ):
        asked(upstream, change)
        planned = {table["table"]: table["whole"] for table in command("plan", "s")["tables"]}
        assert planned == {
            "d.parted": whole if release == "4.2" or whole else "differences before 4.2 do not tell its changes"
        }
        command("run", "s")
        asked(upstream, "insert into d.parted values (3,3)")
        command("run", "s")
        assert_equal(home, upstream, "parted", "t")
        asked(upstream, "delete from d.parted where id=3")


def test_every_way_out_has_the_rows(home: Path, upstream: SimulatedUpstream, scratch: Scratch):
    lake, copy = home / "lake", home / "copy"
    with closing(scratch.server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"create database `{scratch.name}` character set utf8mb4")
    subscribe(upstream)
    command("run", "s")
    command("target", "add", "s", "db", "--to", scratch.uri)
    command("target", "add", "s", "lake", "--to", lake.as_uri(), "--format", "delta")
    command("run", "s")
    asked(
        upstream,
        "update d.t set v='B' where id=2",
        "delete from d.t where id=1",
        "insert into d.pair values (5,'e',5)",
        "delete from d.heap where b is null",
    )
    outcome = command("run", "s")
    assert [(one["error"], one["behind"], one["lsn"]) for one in outcome["targets"]] == [(None, [], outcome["lsn"])] * 2
    command("copy", "s", "--to", str(copy))
    assert command("drill", "s", "--at", str(outcome["lsn"]))["good"]
    assert command("verify", "s", "--deep")["damages"] == []
    assert command("query", "s", "select count(*) as n from t", "--at", "1")["rows"] == [{"n": 3}]
    for table in ("t", "heap", "pair"):
        expected = Counter(asked(upstream, f"select * from d.{table}"))
        with closing(scratch.server.connect(scratch.name)) as connection, connection.cursor() as cursor:
            cursor.execute(f"select * from `{table}`")
            assert Counter(cursor.fetchall()) == expected, table
        rows = read_delta_rs(str(lake / f"d.{table}"), None).to_pylist()
        assert Counter(tuple(row.values()) for row in rows) == expected, table
        copied = ccpr.open_mirror(copy).table(f"d.{table}").to_pylist()
        assert Counter(tuple(row.values()) for row in copied) == expected, table


def test_a_subscription_goes_from_one_mode_to_the_other_and_back(home: Path, upstream: SimulatedUpstream):
    """What the mirror has is not read again: rows of before are told by a difference."""
    asked(upstream, "create publication p database d account sys")
    login = f"env:UPSTREAM_PASSWORD@127.0.0.1:{upstream.port}"
    sys_login, own_login = f"mysql://sys#dump:{login}", f"mysql://acc#admin:{login}"
    command("subscribe", "s", "--from", sys_login, "--database", "d", "--publication", "p", "--publisher", "acc")
    command("run", "s")
    for number, (uri, options, mode) in enumerate(
        ((own_login, (), "logical"), (sys_login, ("--publication", "p"), "physical")) * 2
    ):
        command("alter", "s", "--from", uri, *options)
        assert command("status", "s")["mode"].startswith(mode)
        assert_equal(home, upstream, "t", "heap", "pair")
        for value in (10 * number + 1, 10 * number + 2):  # the first iteration in this mode, and another one
            asked(
                upstream,
                f"update d.t set n={value} where id=2",
                f"insert into d.heap values ({value},'x')",
                f"delete from d.pair where a={number + 1}",
            )
            if mode == "logical":
                assert {table["whole"] for table in command("plan", "s")["tables"]} == {""}
            outcome = command("run", "s")
            assert outcome["tables_changed"] in {2, 3}
            assert_equal(home, upstream, "t", "heap", "pair")
            changes = mirror(home).table("d.t").changes(outcome["lsn"] - 1, outcome["lsn"])
            assert changes.to_arrow().column("id").to_pylist() == [2]
    assert command("verify", "s", "--deep")["damages"] == []
    assert len(asked(upstream, "show snapshots")) <= 2


def test_a_quota_of_snapshots_that_is_used_up_is_said_and_the_next_attempt_goes_on(
    home: Path, upstream: SimulatedUpstream
):
    subscribe(upstream)
    text = "internal error: feature SNAPSHOT with scope database has reached the limit of 50"
    upstream.inject(FailStatement("create_snapshot", 20101, text))
    assert command("run", "s", code=1)["error"]["code"] == "SNAPSHOT_LIMIT"
    command("run", "s")
    assert_equal(home, upstream, "t", "heap", "pair")


def test_whole_reads_and_differences_are_slowed_down_to_the_rate_that_is_allowed(
    home: Path, upstream: SimulatedUpstream, monkeypatch: pytest.MonkeyPatch
):
    waited = list[float]()
    monkeypatch.setattr(reading, "Pace", partial(Pace, clock=lambda: 0.0, sleep=waited.append))
    subscribe(upstream, "--max-mb-s", "0.001", "--max-sessions", "1")
    command("run", "s")
    assert len(waited) == 3  # tables
    asked(upstream, "update d.t set v='B' where id=2")
    command("run", "s")
    assert len(waited) == 4
    assert min(waited) > 0


def test_doctor_says_which_mode_it_is_why_and_what_a_login_lacks(upstream: SimulatedUpstream):
    uri = f"mysql://acc#admin:env:UPSTREAM_PASSWORD@127.0.0.1:{upstream.port}"
    checks = {one["what"]: one for one in command("doctor", "--from", uri, "--database", "d")["checks"]}
    assert checks["role"]["result"] == checks["publication"]["result"] == "ok"
    assert checks["publication"]["told"].startswith("none is needed; logical: rows are read, as the login is of acc")
    assert "flush on demand" not in checks
    upstream.upgrade("3.0")
    assert subscribe(upstream, code=1)["error"]["code"] == "UPSTREAM_TOO_OLD"


def test_a_table_whose_objects_are_damaged_is_read_again(home: Path, upstream: SimulatedUpstream):
    subscribe(upstream)
    command("run", "s")
    for path in (home / "home" / "mirrors" / "s" / "objects").iterdir():
        path.write_bytes(b"?" + path.read_bytes()[1:])
    said = typer.testing.CliRunner().invoke(app, ["verify", "s", "--repair"]).output
    for table in ("t", "heap", "pair"):
        words = f"resync s --table d.{table}"
        assert f"ccpr {words}" in said
        command(*words.split(), "--yes")
    assert_equal(home, upstream, "t", "heap", "pair")
    damages = command("verify", "s", code=1)["damages"]
    assert {lsn for damage in damages for lsn in damage["points"]} == {"0", "1", "2"}


def test_many_small_changes_are_merged_and_change_nothing(home: Path, upstream: SimulatedUpstream):
    subscribe(upstream)
    command("run", "s")
    for number in range(20):
        asked(upstream, f"update d.t set n={number} where id=2", f"insert into d.t values ({100 + number},'n',0)")
        command("run", "s")
    assert_equal(home, upstream, "t")
    assert len(list((home / "home" / "mirrors" / "s" / "objects").iterdir())) > 20
    newest = command("tables", "s")["tables"]
    assert next(table["objects"] for table in newest if table["table"] == "d.t") < 20
    for lsn in range(1, 21):
        changes = mirror(home).table("d.t").changes(lsn - 1, lsn)
        assert sorted(changes.to_arrow().column("id").to_pylist()) == [2, 99 + lsn]


def test_an_iteration_that_was_left_while_rows_are_read_goes_on(home: Path, upstream: SimulatedUpstream):
    subscribe(upstream)
    with closing(Workspace(home / "home")) as workspace:
        with workspace.iteration("s") as iteration:
            driver.drive(iteration, until=Stage.COPY)
        objects = home / "home" / "mirrors" / "s" / "objects"
        written = {path.name for path in objects.iterdir()}
        (lost,) = (home / "home" / "mirrors" / "s" / "work").glob("*/copied.arrow")
        lost.unlink()
        with workspace.iteration("s") as iteration:
            driver.drive(iteration)
    assert {path.name for path in objects.iterdir()} == written
    assert_equal(home, upstream, "t", "heap", "pair")


def test_a_table_whose_sums_differ_is_read_as_a_whole(
    home: Path, upstream: SimulatedUpstream, monkeypatch: pytest.MonkeyPatch
):
    subscribe(upstream)
    command("run", "s")
    monkeypatch.setattr(proof, "PROVEN_EVERY", 1)
    # The emulator has no CRC32(), and what cannot be proven is no reason to stop.
    assert not command("run", "s")["point"]
    monkeypatch.setattr(ColumnSum, "is_summed", property(lambda self: self.type.name == "none"))
    assert not command("run", "s")["point"]
    monkeypatch.setattr(ColumnSum, "of", lambda self, values: (0,))
    with closing(Workspace(home / "home")) as workspace, workspace.iteration("s") as iteration:
        record = driver.drive(iteration, until=Stage.CATALOG)
        reads = list_reads(iteration, record, driver.catalog_of(iteration)).reads
    assert {read.whole for read in reads.values()} == {
        f"column {name} has other values than upstream" for name in ("id", "a")
    }


def test_what_logical_mode_does_not_have_is_refused(upstream: SimulatedUpstream):
    assert subscribe(upstream, "--with-indexes", code=2)["error"]["code"] == "BAD_SETTING"
    assert subscribe(upstream, "--publication", "p", code=1)["error"]["code"] == "NOT_PERMITTED"


def test_before_4_2_a_table_with_a_type_that_no_difference_tells_is_read_as_a_whole(
    home: Path, upstream: SimulatedUpstream
):
    upstream.upgrade("4.1")
    asked(upstream, "create table d.kinds (id int primary key, e enum('x','y'), y year, b bit(3))")
    subscribe(upstream)
    command("run", "s")
    asked(upstream, "insert into d.kinds values (1,'y',2026,5),(2,null,null,null)", "update d.t set v='B' where id=2")
    planned = {table["table"]: (table["rows"], table["whole"]) for table in command("plan", "s")["tables"]}
    assert planned == {"d.t": (1, ""), "d.kinds": (2, "differences before 4.2 do not tell its changes")}
    command("run", "s")
    assert_equal(home, upstream, "t", "heap", "pair")
    asked(upstream, "delete from d.t where id=1", "alter table d.t rename to d.u")
    assert next(table for table in command("plan", "s")["tables"] if table["table"] == "d.u")["whole"]
    command("run", "s")
    assert_equal(home, upstream, "u", "heap", "pair")
    rows = sorted(mirror(home).table("d.kinds").to_pylist(), key=lambda row: row["id"])
    assert [tuple(row.values())[:3] for row in rows] == [(1, "y", 2026), (2, None, None)]


def test_before_4_2_a_table_whose_name_needs_quotes_is_read_as_a_whole(home: Path, upstream: SimulatedUpstream):
    upstream.upgrade("4.1")
    asked(upstream, "create table d.`a-b` (id int primary key)", "insert into d.`a-b` values (1),(2)")
    subscribe(upstream)
    command("run", "s")
    asked(upstream, "delete from d.`a-b` where id=1")
    planned = {table["table"]: table["whole"] for table in command("plan", "s")["tables"]}
    assert planned == {"d.a-b": "its difference is not given (STATEMENT_UNKNOWN)"}
    command("run", "s")
    assert [row["id"] for row in mirror(home).table("d.a-b").to_pylist()] == [2]


def all_rows(mirror: Mirror, table: str) -> Counter[str]:
    _, batches = mirror.read(mirror.point(), table)
    return Counter(repr(row) for batch in batches for row in batch.to_pylist())


def test_a_relay_serves_what_was_read_and_a_restore_loads_it(
    home: Path, upstream: SimulatedUpstream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DOWN", "111")
    monkeypatch.setattr(loading, "POLL_SECONDS", 0.02)
    asked(upstream, "create table d.other (id int primary key)", "insert into d.other values (1)")
    subscribe(upstream)
    command("run", "s")
    with closing(Workspace(home / "home")) as workspace, relaying(workspace) as relay, NativeClient() as client:
        ours, source = workspace.mirror("s"), Subscription.from_row(workspace.log.row("s"))
        again = subscribe_through(relay.port, home / "again", source)
        into = ("--into", f"mysql://sys#root:env:DOWN@127.0.0.1:{client.port}")
        address = ("--relay-address", f"127.0.0.1:{relay.port}")
        refused = command("follower", "add", "s", "b", *into, *address, code=1)["error"]
        assert refused["code"] == "FOLLOW_UNFIT"
        assert refused["remedy"].startswith("Copy its rows there: ccpr target add s ")
        for statements in (
            ("update d.t set v='B' where id=2", "delete from d.t where id=1", "insert into d.heap values (1,'x')"),
            ("delete from d.heap where b is null", "delete from d.pair where a=1", "alter table d.t add column w int"),
            ("drop table d.other", *(f"insert into d.t values ({n},'n',0,{n})" for n in range(50, 60))),
        ):
            asked(upstream, *statements)
            command("run", "s")
            with again.iteration("again") as iteration:
                driver.drive(iteration)
            theirs = again.mirror("again")
            for ref in ours.point().tables.values():
                assert all_rows(theirs, ref.qualified_name) == all_rows(ours, ref.qualified_name) != Counter()
        again.close()
        shown = [*ours.point(1).tables.values(), *ours.point().tables.values()]
        client.definitions = {ref.name: ours.manifest(ref).table for ref in shown}
        for lsn in ("1", "3"):
            point = ours.point(int(lsn))
            done = command("restore", "s", *into, "--as", f"back{lsn}", "--at", lsn, "--check", "sum")
            assert (done["lsn"], done["tables"]) == (point.lsn, len(point.tables))
            task = client.databases[f"back{lsn}"]
            assert task is not None
            assert assert_has_point(client, task, ours, point) == done["rows"]


STRUCK = 1 if os.environ.get("KILLS") == "all" else 5  # each such place of an iteration


@pytest.mark.in_turn
@pytest.mark.kills
def test_an_iteration_killed_at_any_file_or_statement_is_gone_on_with(home: Path, upstream: SimulatedUpstream):
    subscribe(upstream)
    command("run", "s")
    context, place, process = multiprocessing.get_context("forkserver"), 0, None
    while process is None or process.exitcode:
        asked(
            upstream,
            f"update d.t set n={place} where id=2",
            f"insert into d.t values ({100 + place},'n',0)",
            f"insert into d.heap values ({place},'x')",
            "delete from d.heap where a=1",
            "truncate table d.pair",
            f"insert into d.pair values ({place},'p',1)",
        )
        process = context.Process(target=iterate_and_die, args=(home / "home", place, "s"))
        process.start()
        process.join(60)
        assert process.exitcode in {0, -signal.SIGKILL}
        command("run", "s")
        assert_equal(home, upstream, "t", "heap", "pair")
        assert len(asked(upstream, "show snapshots")) <= 2
        folder = home / "home" / "mirrors" / "s"
        assert not [*folder.glob("work/*"), *folder.glob(".unfinished/*")]
        place += STRUCK
    assert place > 60
    assert command("verify", "s", "--deep")["damages"] == []
