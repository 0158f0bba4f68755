"""Looks after followers: asks each cluster about its subscription, keeps the answer for `ccpr status`, and, where the
relay serves in the same process, resumes what has stopped for a reason that is gone (decision followers-are-rows).
"""

import logging
import re
from collections.abc import Callable
from datetime import datetime
from functools import partial

from ccpr.base.errors import Failure
from ccpr.base.loops import Loop, unexpected
from ccpr.matrixone.client.retry import NO_RETRY, doubled
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.options import Timeouts
from ccpr.relay.brake import held_back
from ccpr.relay.downstream import Task, TaskState
from ccpr.relay.errors import FollowerFailing, FollowerGone, FollowerPaused, FollowerStopped
from ccpr.relay.following import find_task, open_downstream
from ccpr.relay.offers import Quiet
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower, FollowerStage, TaskSeen, all_followers
from ccpr.state.log_rows import LogRow

ASK_SECONDS = 10.0
QUIET_SECONDS = 120.0
QUIET_FIRST_SECONDS = 3600.0  # the first load may be long in writing what it has fetched
QUIET_AFTER_START_SECONDS = 45.0  # the relay was away: what was under way has lost its connections
FIRST_RESUME_SECONDS, LONGEST_RESUME_SECONDS = 30.0, 3600.0
STOP_SECONDS = 5.0
_TIMEOUTS = Timeouts(connect=5.0, read=30.0, retry=NO_RETRY)
# What a MatrixOne says of a relay that it did not reach, or that was busy: FollowerFailing. Any other error that has
# stopped it is FollowerStopped, which an operator should see.
_PASSING = re.compile(
    "connect|dial tcp|eof|time ?out|timed out|deadline|broken pipe|reset by peer|unreachable|no such host|"
    "service unavailable|sessions are open|too many|stale read|find 0 snapshot",
    re.IGNORECASE,
)
_MARK = re.compile(r"(?:R:\d+:\d+:\d+|N:\d+|[RN]):")  # before its messages: whether it tries again, how often, when
_ASKED = Quiet()
_log = logging.getLogger(__name__)


class Watcher:
    """A component of a service (`ccpr.serve.listening.Component`) that asks all followers, in a thread of its
    own.

    Parameters
    ----------
    quiet : says how long a publication has not been asked for; None where no relay serves in this process: then nothing
        is resumed.
    asked : called with the row of the subscription and the follower after each answer, and after each failure to get
        one; from the thread.
    """

    def __init__(
        self,
        workspace: Workspace,
        quiet: Callable[[str], Quiet] | None = None,
        *,
        asked: Callable[[LogRow, Follower], None] = lambda row, follower: None,
        seconds: float = ASK_SECONDS,
    ) -> None:
        self._workspace, self._quiet, self._asked, self._seconds = workspace, quiet, asked, seconds
        self.loop = Loop("followers", self._run)

    def start(self) -> None:
        self.loop.start()

    def stop(self) -> None:
        """A question that is under way is not waited for: its end is that of a process that is killed."""
        self.loop.stop(STOP_SECONDS)

    def _run(self) -> None:
        while not self.loop.ending.wait(self._seconds):
            self.loop.attempt("followers cannot be looked after", self._round)

    def _round(self) -> None:
        found, bad = all_followers(self._workspace.log.engine)
        for error in bad:
            self.loop.failed(f"{error.subject} is not looked after", error)
        asked = [one for one in found if one.stage in (FollowerStage.STARTING, FollowerStage.FOLLOWING)]
        rows = {row.task_id: row for row in self._workspace.log.all_rows()[0]} if asked else {}
        for follower in asked:
            if self.loop.ending.is_set():
                return
            if row := rows.get(follower.task_id):
                self.loop.attempt(
                    f"follower {follower.name} of {row.subscription_name} cannot be looked after",
                    partial(self._look, row, follower),
                )

    def _waits(self, follower: Follower) -> bool:
        """Whether its cluster did not answer just now; the longer it does not, the less often it is asked."""
        failing, seen = follower.failing, follower.seen
        if failing is None or (seen is not None and seen.asked_at >= failing.last):
            return False
        since = self._workspace.clock() - failing.last.timestamp()
        return 0 <= since < doubled(self._seconds, failing.attempts - 1, 300.0)

    def _look(self, row: LogRow, follower: Follower) -> None:
        if self._waits(follower):
            return
        quiet = None if self._quiet is None else self._quiet(follower.publication)
        ask(self._workspace, follower, quiet)
        after = self._workspace.of(follower).followers.find(follower.name)
        if after is not None:
            self._asked(row, after)


def ask(workspace: Workspace, follower: Follower, quiet: Quiet | None = _ASKED) -> None:
    """Ask a follower's cluster, and keep the answer. What has stopped and may go on is resumed, where a relay serves
    here (`quiet` is not None); it may have stopped silently if its cluster has asked for nothing for long. Raises
    StateUnavailable, StateUnreadable."""
    records = workspace.of(follower).followers
    now = workspace.now()
    subject = f"follower {follower.name}"
    try:
        with unexpected(), open_downstream(workspace, follower, _TIMEOUTS) as downstream:
            task = find_task(downstream, follower.publication)
            if task is None:
                if follower.stage is FollowerStage.FOLLOWING:
                    raise FollowerGone("that cluster has no such subscription", subject=subject)
                return
            seen = TaskSeen(now, task.state, task.iterations, task.watermark, task.error)
            failure = _failure(task, subject) or _until_progress(follower, seen)
            records.record_seen(follower, task.id, seen, failure or held_back(workspace, follower, seen))
            follower = records.get(follower.name)
            if follower.stage is FollowerStage.STARTING:
                records.change(follower.name, stage=FollowerStage.FOLLOWING.value)
            resumable = quiet is not None and helps(task, quiet) and _is_due(follower, now)
            if resumable and records.claim_resume(follower, now):
                downstream.resume(task.id)
                _log.info("follower %s is resumed", follower.name)
    except CcprError as error:
        records.record_failure(follower, Failure.of(error), now)


def helps(task: Task, quiet: Quiet = _ASKED) -> bool:
    """Whether to resume it is right: an error has stopped it, or it has stopped without a word, as a MatrixOne does if
    it does not reach its upstream when an iteration begins (docs/upstream.md, "A MatrixOne behind the relay")."""
    if task.state == TaskState.ERROR:
        return True
    if not task.iterations:
        longest = QUIET_FIRST_SECONDS
    else:
        longest = QUIET_AFTER_START_SECONDS if quiet.since_start else QUIET_SECONDS
    return task.state == TaskState.RUNNING and quiet.seconds > longest


def _is_due(follower: Follower, now: datetime) -> bool:
    if follower.resumed_at is None:
        return True
    wait = doubled(FIRST_RESUME_SECONDS, follower.resumes - 1, LONGEST_RESUME_SECONDS)
    return not 0 <= (now - follower.resumed_at).total_seconds() < wait


def _failure(task: Task, subject: str) -> Failure | None:
    message = _MARK.sub("", task.error, count=1).strip() or "it does not say why"
    if task.state == TaskState.PAUSED:
        return Failure.of(FollowerPaused("its subscription was paused there", subject=subject))
    if task.state == TaskState.ERROR:
        kind = FollowerFailing if _PASSING.search(task.error) else FollowerStopped
        return Failure.of(kind(message, subject=subject))
    return Failure.of(FollowerFailing(message, subject=subject)) if task.error else None


def _until_progress(follower: Follower, now: TaskSeen) -> Failure | None:
    """What it failed with, if it was resumed and has not ended an iteration since: otherwise each resume in vain would
    be shown as an end of the failure."""
    before = follower.seen
    if follower.failing is None or not follower.resumes or before is None:
        return None
    return follower.failing.failure if before.iterations == now.iterations else None
