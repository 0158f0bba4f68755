"""The stages of `ccpr follower promote` as a table: which follows which, and what a command does that begins at one of
them, since the one before it was killed when it recorded it."""

import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from ccpr.relay.promoting import TRANSITIONS
from ccpr.state.followers import PROMOTING, FollowerStage
from tests.relay.conftest import Relayed
from tests.relay.test_follow import AFTER, records
from tests.relay.test_promote import assert_promoted, followed, promote
from tests.support.native_client import NativeClient
from tests.support.relayed import assert_has_point

pytestmark = pytest.mark.integration

__all__ = ["followed"]
RELEASE = "DROP CCPR SUBSCRIPTION"
LOAD, CLONE = "CREATE DATABASE `gd_dml_promoted` FROM", "CREATE DATABASE `gd_dml` CLONE `gd_dml_promoted`"
DROP, DROP_COPY = "DROP DATABASE IF EXISTS `gd_dml`", "DROP DATABASE IF EXISTS `gd_dml_promoted`"
CHANGES = (RELEASE, LOAD, CLONE, DROP_COPY, DROP)
# The whole: the copy is loaded; it is released, and what followed is dropped; it gets its name; it is tidied up.
LOADING, LOADED, CLEARED, PLACED = [LOAD], [RELEASE, RELEASE, DROP], [CLONE], [DROP_COPY]
UNFINISHED = [RELEASE, DROP_COPY]  # a copy that may not be whole


@dataclass(frozen=True)
class Killed:
    """`left`: the statements of the next command that change something."""

    recorded: str
    after: bool
    left: list[str]


KILLED = [
    Killed("loading", False, [*LOADING, *LOADED, *CLEARED, *PLACED]),
    Killed("loading", True, [*LOADING, *LOADED, *CLEARED, *PLACED]),
    Killed("loaded", False, [*UNFINISHED, *LOADING, *LOADED, *CLEARED, *PLACED]),
    Killed("loaded", True, [*LOADED, *CLEARED, *PLACED]),
    Killed("cleared", False, [*CLEARED, *PLACED]),
    Killed("cleared", True, [*CLEARED, *PLACED]),
    Killed("placed", False, PLACED),
    Killed("placed", True, PLACED),
    Killed("removed", False, []),
    Killed("removed", True, []),
]
# Kills itself when it records the stage (`removed`: removes the row), before or after.
PROGRAM = """
import os, signal, sys
from ccpr.cli.main import main
from ccpr.state.followers import FollowerRecords
stage, after = sys.argv[1], sys.argv[2] == "after"
def dying(name, is_it):
    record = getattr(FollowerRecords, name)
    def struck(self, follower, **values):
        if is_it(values) and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        record(self, follower, **values)
        if is_it(values):
            os.kill(os.getpid(), signal.SIGKILL)
    setattr(FollowerRecords, name, struck)
dying("change", lambda values: values.get("stage") == stage)
dying("remove", lambda values: stage == "removed")
sys.argv[1:] = sys.argv[3:]
main()
"""


def test_each_stage_leads_to_the_next_and_the_last_to_the_end() -> None:
    assert set(TRANSITIONS) == set(PROMOTING)
    assert [TRANSITIONS[stage].then for stage in PROMOTING] == [*PROMOTING[1:], None]


@pytest.mark.recordings
@pytest.mark.parametrize("killed", [one for one in KILLED if one.after in AFTER], ids=str)
def test_killed_at_the_record_of_a_stage_the_next_command_does_what_is_left(
    followed: Relayed, client: NativeClient, killed: Killed
) -> None:
    when = "after" if killed.after else "before"
    words = [killed.recorded, when, "follower", "promote", "replica", "b"]
    died = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    copies = [copy for copy in client.databases.values() if copy is not None and copy.watermark]
    assert assert_has_point(client, copies[0], followed.workspace.mirror("replica")) > 0, "a whole copy is there"
    client.statements.clear()
    if not records(followed).all():
        assert promote(followed, code=1)["error"]["code"] == "FOLLOWER_MISSING"
    else:
        loaded = promote(followed)["loaded"]
        assert (loaded is not None) == (LOAD in killed.left)
    assert_promoted(followed, client)
    sent = [next((words for words in CHANGES if text.startswith(words)), "") for text in client.statements]
    assert [words for words in sent if words] == killed.left


@pytest.mark.recordings
@pytest.mark.parametrize("stage", [FollowerStage.LOADED, FollowerStage.CLEARED])
def test_a_copy_of_another_number_than_the_recorded_one_is_not_taken_for_it(
    followed: Relayed, client: NativeClient, stage: FollowerStage
) -> None:
    promoted = records(followed)
    promoted.change("b", stage=stage.value, promoted_lsn=followed.workspace.mirror("replica").point().lsn, copy_id=1)
    client.databases["gd_dml_promoted"] = None
    before = dict(client.databases)
    assert promote(followed, code=2)["error"]["code"] == "BAD_SETTING"
    assert (dict(client.databases), promoted.get("b").stage) == (before, stage)
