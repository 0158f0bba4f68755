"""Step 6: what is not needed any more goes, upstream and in the mirror. And how an iteration ends that fails."""

import logging

from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.errors import HistoryUnreadable
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.mirror.errors import TableMissingInMirror
from ccpr.pipeline.ends import judge
from ccpr.pipeline.errors import PlanOutdated, StepMissing, TableChangedMeanwhile
from ccpr.pipeline.iteration import Iteration
from ccpr.retention.sweeping import Swept
from ccpr.state.errors import MirrorDisagrees

_logger = logging.getLogger(__name__)
# Invalid requests (too early, by an outdated plan, for an unknown table) do not fail the iteration: it stays open.
_INVALID = (StepMissing, PlanOutdated, TableMissingInMirror)


def drop_due_snapshots(iteration: Iteration) -> None:
    """Drop recorded snapshots that are no longer needed; one that cannot be dropped now stays recorded for the next
    time. One that was given up before the upstream answered may be made later, when a lock is free: it is dropped each
    time, for as long as that may happen."""
    memory, publication = iteration.memory, iteration.subscription.publication
    dropped, now, context = set[str](), iteration.clock(), memory.context
    unanswered = [name for name, _ in context.late if name not in context.to_drop]
    for name in (*context.to_drop, *unanswered):
        try:
            upstream_snapshots.drop_snapshot(iteration.sessions.session, name, publication)
            dropped.add(name)
        except CcprError as error:
            _logger.warning("snapshot %s could not be dropped upstream, it will be tried again: %s", name, error)
            if not isinstance(error, Terminal):
                break  # the upstream is away: each of the others would be waited for as long, in vain
    left = context.dropped(dropped, now, memory.answered)
    if left != context:
        memory.remember(left)


def sweep(iteration: Iteration, *, orphans: bool = False) -> Swept:
    """Drop points that need not stay, delete files that nothing has named for long enough. `orphans`: look for what
    attempts left that came to nothing."""
    age = iteration.lag.read(iteration.subscription.task_id, iteration.memory.context).seconds or 0.0
    return iteration.committer.sweep(iteration.subscription.settings, age, orphans=orphans)


def fail(iteration: Iteration, error: CcprError) -> None:
    """Write a failure down. A terminal one gives the snapshot up, so that the next attempt takes a new one, and so do
    TableChangedMeanwhile and HistoryUnreadable; after another the iteration resumes."""
    memory = iteration.memory
    if not memory.is_running or isinstance(error, _INVALID):
        return
    # Where the state may be an old copy, what it has recorded may be needed by its successors.
    # What the snapshot shows of a table that has changed since cannot be listed any more.
    void = isinstance(error, Terminal | TableChangedMeanwhile | HistoryUnreadable)
    gives_up = void and not isinstance(error, MirrorDisagrees)
    connect, sleep = iteration.sessions.connect, iteration.options.sleep
    ends, context = judge(error, iteration.subscription, memory.context, connect, iteration.clock, sleep)
    context = context.abandoned(iteration.clock()) if gives_up else context
    memory.failed(context, error, ends=ends, is_extra=iteration.options.is_extra)
    if gives_up:
        drop_due_snapshots(iteration)
