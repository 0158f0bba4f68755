"""An executor that was believed dead and is not: whatever it still does, its successor's work is kept
(docs/requirements.md O5)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ccpr.mirror.layout import Head
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.driver import drive, take
from ccpr.pipeline.iteration import Iteration
from ccpr.pipeline.step_names import Stage
from ccpr.pipeline.steps.release import sweep
from ccpr.pipeline.steps.snapshot import sweep_work
from ccpr.service.workspace import Workspace
from ccpr.state.errors import LeaseLost
from ccpr.state.history import PointHistory
from tests.support.replica import NAME, Replica
from tests.support.settings import setting, upstream_goes_on


@contextmanager
def stale() -> Iterator[Iteration]:
    """An iteration whose lease expires because nothing renews it; its executor does not notice."""
    workspace = Workspace()
    with workspace.iteration(NAME) as iteration:
        iteration.lease._ended.set()
        yield iteration
    workspace.close()


@contextmanager
def successor() -> Iterator[Iteration]:
    with Workspace(clock=lambda: time.time() + 60).iteration(NAME) as iteration:
        yield iteration


def work(replica: Replica) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in replica.mirror.glob("work/*/*")}


def test_it_can_neither_commit_nor_sweep_its_successors_work(replica: Replica) -> None:
    with stale() as old:
        old_ref = drive(old, until=Stage.COPY).snapshot
        with successor() as new:
            drive(new)
        with successor() as new:
            drive(new, until=Stage.COPY)
            before = work(replica)
            assert before
            for stage in (Stage.APPLY, Stage.SNAPSHOT):
                with pytest.raises(LeaseLost):
                    take(old, stage)
            with pytest.raises(LeaseLost):
                sweep_work(old, old_ref)
            assert work(replica) == before
            take(new, Stage.APPLY)
    replica.assert_equal_to_source(2, at=1)
    replica.assert_equal_to_source(3)


def test_a_sweep_without_a_lease_check_keeps_results_of_a_later_iteration(replica: Replica) -> None:
    from ccpr.pipeline.results import sweep_results

    with stale() as old:
        ref = drive(old, until=Stage.SNAPSHOT).snapshot
        with successor() as new:
            drive(new)
        with successor() as new:
            drive(new, until=Stage.COPY)
            before = work(replica)
            sweep_results(replica_mirror(), ref)
            assert work(replica) == before
            take(new, Stage.APPLY)
    replica.assert_equal_to_source(3)


def replica_mirror() -> Mirror:
    return Workspace().mirror(NAME, published=False)


def test_the_head_that_it_publishes_late_is_replaced(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has committed, and stops right before it publishes; meanwhile a successor commits and publishes the next
    point."""
    publish, stopped = Mirror.publish_head, []

    def late(self: Mirror, head: Head) -> None:
        if not stopped:
            stopped.append(head)
            with successor() as new:
                drive(new)
        publish(self, head)

    with stale() as old:
        drive(old, until=Stage.COPY)
        monkeypatch.setattr(Mirror, "publish_head", late)
        take(old, Stage.APPLY)
    (head,) = stopped
    assert head.iteration_lsn == 2
    workspace = Workspace()
    published = replica_mirror().published_head()
    assert published == PointHistory(workspace.log.engine, workspace.log.row(NAME).task_id).head()
    assert published is not None
    assert published.iteration_lsn == 3
    replica.assert_equal_to_source(3)
    replica.assert_equal_to_source(2, at=1)


def test_a_lost_head_is_published_again_and_points_are_not_rewritten(replica: Replica) -> None:
    for _ in range(2):
        replica.run()
    points = {path: path.stat().st_mtime_ns for path in (replica.mirror / "points").iterdir()}
    (replica.mirror / "head.json").unlink()
    replica.assert_equal_to_source(3)
    assert {path: path.stat().st_mtime_ns for path in (replica.mirror / "points").iterdir()} == points
    for path in points:
        path.unlink()
    (replica.mirror / "head.json").unlink()
    assert replica.command("verify", NAME, "--repair")["sound"]
    for snapshot in range(1, 4):
        replica.assert_equal_to_source(snapshot, at=snapshot - 1)


def test_it_deletes_no_file_that_its_successor_may_need(replica: Replica) -> None:
    setting("retain", 1)
    for _ in range(3):
        replica.run()
    upstream_goes_on(2)  # all garbage is due
    with stale() as old, successor() as new:
        drive(new, until=Stage.SNAPSHOT)
        before = {path.name for path in (replica.mirror / "objects").iterdir()}
        with pytest.raises(LeaseLost):
            sweep(old)
        assert {path.name for path in (replica.mirror / "objects").iterdir()} == before
    replica.run()
    replica.assert_equal_to_source(5)
