"""kill -9 at every step, then a plain re-run: equal to the source, nothing left over. And two runs at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ccpr_emulator.serving.faults import Delay
from tests.support.replica import Replica, replaying
from tests.support.waiting import until

RECORDING = "other_account"
pytestmark = pytest.mark.kills

# Runs `ccpr run` and kills itself right before or right after a named function, called for a file if one is named.
DRIVER = """
import os, signal, sys
from ccpr.cli.main import main
from tests.support.patching import replaced

module, path, files, when = sys.argv[1:5]

def kills(original):
    def function(*args, **options):
        if files and not any(isinstance(argument, str) and argument.startswith(files) for argument in args):
            return original(*args, **options)
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        original(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    return function

sys.argv = ["ccpr", "run", "replica"]
with replaced(module, path, kills):
    main()
"""
PLACES = {
    "the name recorded": ("ccpr.state.log", "CcprLog.start", ""),
    "snapshot created": ("ccpr.matrixone.client.upstream_snapshots", "create_snapshot", ""),
    "snapshot time read": ("ccpr.matrixone.client.upstream_snapshots", "snapshot_timestamp", ""),
    "catalog read": ("ccpr.pipeline.scope", "read_catalog", ""),
    "flushed": ("ccpr.matrixone.client.upstream_snapshots", "wait_until_flushed", ""),
    "list compared": ("ccpr.pipeline.steps.object_list", "diff_objects", ""),
    "first object stored": ("ccpr.mirror.local_store", "LocalStore._place", "objects/"),
    "objects copied": ("ccpr.pipeline.steps.copy", "copy_known", ""),
    "first manifest written": ("ccpr.pipeline.building", "write_table", ""),
    "point written": ("ccpr.mirror.mirror", "Mirror.write_point", ""),
    "committed": ("ccpr.pipeline.committing", "PointCommitter.commit", ""),
    "head published": ("ccpr.mirror.mirror", "Mirror.publish_head", ""),
    "snapshots dropped": ("ccpr.pipeline.steps.apply", "drop_due_snapshots", ""),
}


@pytest.fixture
def replica(recordings: Path, home: Path):
    with replaying(recordings / RECORDING, home) as replica:
        replica.subscribe()
        replica.run()
        yield replica


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", PLACES)
def test_a_run_killed_anywhere_is_finished_by_the_next(place: str, when: str, replica: Replica) -> None:
    before = len(objects_of(replica))
    killed = subprocess.run(
        [sys.executable, "-c", DRIVER, *PLACES[place], when], capture_output=True, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    if place == "first object stored":
        arrived = len(objects_of(replica)) - before
        assert arrived == 0 if when == "before" else 0 < arrived < 4, "of the four small ones that come"
    outcome = replica.run()
    assert outcome["lsn"] in (1, 2)
    replica.assert_equal_to_source(2)
    replica.assert_equal_to_source(1, at=0)
    assert replica.emulator.status().statements["create_snapshot"] <= 3
    assert_nothing_left(replica)


def test_a_run_killed_while_an_object_arrives_is_finished_by_the_next(replica: Replica) -> None:
    replica.emulator.inject(Delay("get_object", seconds=60, times=0))
    process = subprocess.Popen(
        [sys.executable, "-m", "ccpr.cli", "run", "replica"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: replica.emulator.status().statements.get("get_object", 0) > 2, "objects are asked for", pause=0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    replica.emulator.clear_faults()
    replica.run()
    replica.assert_equal_to_source(2)
    assert_nothing_left(replica)


def test_of_two_runs_at_once_one_runs_and_the_other_says_so(replica: Replica) -> None:
    replica.emulator.inject(Delay("get_object", seconds=600, times=0))
    before = replica.emulator.status().statements.get("get_object", 0)
    process = subprocess.Popen(
        [sys.executable, "-m", "ccpr.cli", "run", "replica"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(
        lambda: replica.emulator.status().statements.get("get_object", 0) > before, "objects are asked for", pause=0.01
    )
    error = replica.run(code=1)["error"]
    assert error["code"] == "SUBSCRIPTION_BUSY"
    replica.emulator.clear_faults()
    assert process.wait(timeout=60) == 0
    replica.assert_equal_to_source(2)
    assert [point["lsn"] for point in replica.command("points", "replica")] == [0, 1]


def objects_of(replica: Replica) -> list[Path]:
    return list(replica.mirror.glob("objects/*"))


def assert_nothing_left(replica: Replica) -> None:
    assert len(replica.emulator.status().snapshots) <= 2
    mirror = replica.mirror
    assert list(mirror.glob("work/*")) == []
    assert list(mirror.glob(".unfinished/*")) == []
