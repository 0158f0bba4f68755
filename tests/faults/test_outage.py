"""An upstream that is down: a run by hand soon fails with a typed error, the failure is in the log, and replication
goes on when the upstream is back."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from ccpr.matrixone.client.upstream_snapshots import create_snapshot, snapshot_timestamp
from ccpr.pipeline.driver import drive
from ccpr.pipeline.step_names import Stage
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import Failures
from ccpr.state.states import State
from ccpr_emulator.serving.faults import CutStatement, FailStatement
from tests.support.replica import NAME, Replica, replaying


def failures() -> Failures | None:
    row = Workspace().log.row(NAME)
    assert (row.state, row.lease_expires_at) == (State.RUNNING, 0)
    return Failures.of(row.error_message)


def test_a_run_against_an_upstream_that_is_down_fails_in_bounded_time_and_is_counted(
    recordings: Path, home: Path
) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
    for count in (1, 2):
        assert replica.run(code=1)["error"]["code"] == "UPSTREAM_UNREACHABLE"
        found = failures()
        assert found is not None
        assert (found.count, found.text.partition(":")[0]) == (count, "UPSTREAM_UNREACHABLE")
        assert found.first <= found.last <= time.time() + 1
    status = replica.command("status", NAME, code=1)
    assert status["last_error"]["attempts"] == 2
    assert status["next_attempt"] >= status["last_error"]["last"] + 120, "twice the interval"
    assert status["lag_seconds"] > 0
    replica.assert_equal_to_source(1)


@pytest.mark.parametrize("after_effect", [False, True])
def test_a_snapshot_whose_creation_was_cut_off_is_looked_up_by_its_recorded_name(
    after_effect: bool, replica: Replica
) -> None:
    made = replica.emulator.status().snapshots_created
    replica.emulator.inject(CutStatement("create_snapshot", after_effect=after_effect, times=0))
    assert replica.run(code=1)["error"]["code"] == "SNAPSHOT_OUTCOME_UNKNOWN"
    found = failures()
    assert found is not None, "it is tried again: no action is required"
    assert found.count == 1
    (name,) = (name for name, role in replica.command("status", NAME, code=1)["snapshots"].items() if role == "open")
    replica.emulator.clear_faults()
    replica.run()
    assert replica.emulator.status().snapshots_created == made + 1, "one, with the recorded name"
    assert name in replica.emulator.status().snapshots
    assert failures() is None
    replica.assert_equal_to_source(2)


def test_results_derived_from_a_snapshot_are_dropped_when_somebody_re_created_it(
    replica: Replica,
) -> None:
    with closing(Workspace()) as workspace, workspace.iteration(NAME) as iteration:
        ref = drive(iteration, until=Stage.OBJECT_LIST).snapshot
        replica.emulator.drop_snapshot(ref.name)
        with workspace.connect(iteration.subscription) as session:
            create_snapshot(session, ref.name, iteration.subscription.publication, iteration.subscription.database)
            assert snapshot_timestamp(session, ref.name, iteration.subscription.publication) != ref.at
    assert replica.run()["point"]
    assert ref.name not in replica.command("status", NAME)["snapshots"]
    assert ref.name not in replica.emulator.status().snapshots
    replica.assert_equal_to_source(4)  # snapshots: the first run's, the open iteration's, somebody's, the second run's


def test_a_busy_upstream_is_asked_again_within_the_iteration(replica: Replica) -> None:
    replica.emulator.inject(FailStatement("create_snapshot", times=2, number=1040, text="Too many connections"))
    replica.run()
    assert failures() is None
    replica.assert_equal_to_source(2)
