"""Retention: points that are kept read as before; files of expired ones are deleted after the grace period, and no
others."""

import time
import uuid
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from ccpr.maintenance import verify
from ccpr.mirror.layout import LEDGER_SCHEMA, object_path
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.pipeline.driver import drive
from ccpr.pipeline.step_names import Stage
from ccpr.pipeline.steps import release
from ccpr.retention.sweeping import Swept
from ccpr.service.workspace import Workspace
from ccpr.state.database import transaction
from ccpr.state.ledger import Ledger
from ccpr.state.subscription import Subscription
from tests.support.driving import iterate
from tests.support.replica import Replica, replaying
from tests.support.settings import upstream_goes_on


def sweep(hours_later: float) -> Swept:
    upstream_goes_on(hours_later)
    with Workspace().iteration("replica") as iteration:
        return release.sweep(iteration)


def objects(replica: Replica) -> set[str]:
    return {path.name for path in (replica.mirror / "objects").iterdir()}


@pytest.mark.parametrize("scenario", ["dml", "ddl", "many_tables"])
def test_the_newest_points_are_kept_and_read_as_before(scenario: str, recordings: Path, home: Path) -> None:
    with replaying(recordings / scenario, home) as replica:
        replica.subscribe("--retain", "2")
        last = replica.about.snapshots
        for snapshot in range(1, last + 1):
            replica.run()
            kept = [point["lsn"] for point in replica.command("points", "replica")]
            assert kept == list(range(max(0, snapshot - 2), snapshot))
        before = objects(replica)
        if last > 2:
            assert sweep(0.9).files_deleted == 0, "readers of an expired point have an hour"
            replica.command("export", "replica", "x.y", "--out", str(home / "x.csv"), "--at", "0", code=1)
        for snapshot in (last - 1, last):
            replica.assert_equal_to_source(snapshot, at=snapshot - 1)
        replica.run()  # idle
        assert objects(replica) == before


def test_files_are_deleted_after_the_grace_period_and_only_those_that_no_point_names(
    recordings: Path, home: Path
) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--retain", "1")
        for _ in range(5):
            replica.run()
        before = objects(replica)
        assert sweep(0.9).files_waiting > 0
        swept = sweep(1.1)
        live = {listed.stats.name for listed in newest_manifest(replica)}
        assert objects(replica) == live < before
        assert swept.files_waiting == 0
        replica.assert_equal_to_source(5, at=4)
        replica.run()
        replica.assert_equal_to_source(6)


@pytest.mark.parametrize(("retain_files", "kept", "gone"), [("10m", 0.15, 0.18), ("3h", 2.9, 3.1)])
def test_readers_have_as_long_as_the_subscription_says(
    retain_files: str, kept: float, gone: float, recordings: Path, home: Path
) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--retain", "1", "--retain-files", retain_files)
        for _ in range(5):
            replica.run()
        assert sweep(kept).files_deleted == 0
        assert sweep(gone).files_waiting == 0
        replica.assert_equal_to_source(5, at=4)


def test_a_shorter_time_holds_for_files_that_wait_already(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--retain", "1", "--retain-files", "7d")
        for _ in range(5):
            replica.run()
        assert sweep(1.1).files_deleted == 0
        replica.command("alter", "replica", "--retain-files", "10m")
        assert sweep(1.2).files_waiting > 0, "ten minutes from now on"
        assert sweep(1.5).files_waiting == 0
        replica.assert_equal_to_source(5, at=4)


def newest_manifest(replica: Replica):
    mirror = Workspace().mirror("replica")
    return mirror.manifest(mirror.point().table(f"{replica.about.database}.acc")).listed_objects()


def test_points_younger_than_retain_for_are_kept(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--retain-for", "2h")
        for _ in range(3):
            replica.run()
        sweep(1.9)
        assert [point["lsn"] for point in replica.command("points", "replica")] == [0, 1, 2]
        sweep(2.1)
        kept = [point["lsn"] for point in replica.command("points", "replica")]
        assert kept == [2], "the newest is kept however old it is"
        replica.assert_equal_to_source(3)


def test_the_point_before_a_change_is_kept_for_the_time_asked_for_however_old_it_is(
    recordings: Path, home: Path
) -> None:
    """After a mistake somebody wants the state before it."""
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--retain-for", "2h")
        for _ in range(2):
            replica.run()
        upstream_goes_on(24)
        replica.run()
        assert [point["lsn"] for point in replica.command("points", "replica")] == [1, 2]
        replica.assert_equal_to_source(2, at=1)
        sweep(2.1)
        assert [point["lsn"] for point in replica.command("points", "replica")] == [2]


def test_an_object_of_two_tables_is_deleted_with_the_last_of_them(home: Path) -> None:
    workspace = Workspace()
    ledger = Ledger(workspace.log.engine, "task")
    shared = pa.table([["o"], [1], [bytes(32)]], schema=LEDGER_SCHEMA)
    nothing = LISTED_SCHEMA.empty_table()

    def in_tables(*ids: int) -> pa.Table:
        rows = [{"table_id": table_id, "name": "o"} for table_id in ids]
        return pa.Table.from_pylist(rows, schema=LISTED_SCHEMA)

    with transaction(ledger.engine) as connection:
        ledger.record(connection, 0, shared, ObjectDiff(in_tables(1, 2), nothing), {1, 2}, [])
        ledger.record(connection, 1, shared.slice(0, 0), ObjectDiff(nothing, in_tables(1)), {1, 2}, [])
        assert ledger.end_references(connection, 1) == []
        ledger.record(connection, 2, shared.slice(0, 0), ObjectDiff(nothing, nothing), {1}, [2])
        assert ledger.end_references(connection, 1) == [], "point 1 still shows table 2"
        assert ledger.end_references(connection, 2) == ["o"]


@pytest.mark.parametrize("hours", [-48, -1, 1, 48, 24 * 365])
def test_a_wrong_reading_of_our_clock_drops_nothing(hours: int, recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe("--retain-for", "2h", "--retain", "1")
        for _ in range(3):
            replica.run()
        before = objects(replica)
        iterate(Workspace(clock=lambda: time.time() + hours * 3600), "replica")
        assert [point["lsn"] for point in replica.command("points", "replica")] == [0, 1, 2, 3]
        assert objects(replica) >= before
        for snapshot in (1, 2, 3, 4):
            replica.assert_equal_to_source(snapshot, at=snapshot - 1)


def test_objects_of_attempts_that_came_to_nothing_are_deleted(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
        abandoned = objects(replica)
        for _ in range(3):  # each copies, and then fails for good: its snapshot is given up
            with closing(Workspace()) as workspace:
                orphan = workspace.mirror_of(Subscription.from_row(workspace.log.row("replica"))).store
                orphan.put(object_path(f"{uuid.uuid4()}_00001"), [b"left by an attempt"])
            with Workspace().iteration("replica") as iteration:
                drive(iteration, until=Stage.SNAPSHOT)
                iteration.memory.remember(iteration.memory.context.abandoned(0.0))
        left = objects(replica) - abandoned
        assert len(left) == 3
        replica.run()
        assert left <= objects(replica), "they have an hour"
        assert sweep(1.1).files_deleted == 3
        assert not left & objects(replica)
        for snapshot, lsn in ((1, 0), (5, 1)):
            replica.assert_equal_to_source(snapshot, at=lsn)


def test_what_is_committed_while_verify_looks_for_orphans_is_not_recorded(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
        committed = [f"objects/{name}" for name in objects(replica)]
        with patch.object(verify, "find_orphans", lambda *_: iter([[*committed, "objects/left-by-nobody"]])):
            assert replica.command("verify", "replica", "--repair")["strays"] == 1
        assert sweep(1.1).files_deleted == 1
        replica.run()
        for snapshot, lsn in ((1, 0), (2, 1)):
            replica.assert_equal_to_source(snapshot, at=lsn)


def test_verify_finds_files_that_nothing_names(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        for _ in range(2):
            replica.run()
        orphan = replica.mirror / "manifests" / "1" / "1-1-0123456789abcdef.arrow"
        orphan.parent.mkdir()
        orphan.write_bytes(b"of a killed run")
        assert replica.command("verify", "replica")["strays"] == 1
        assert replica.command("verify", "replica", "--repair")["strays"] == 1
        assert replica.command("verify", "replica")["strays"] == 0, "it is recorded for deletion"
        assert sweep(1.1).files_deleted == 1
        assert not orphan.exists()
        replica.assert_equal_to_source(2)
