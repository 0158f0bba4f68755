"""How an iteration ends that fails."""

from ccpr.matrixone.client.errors import HistoryUnreadable
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.mirror.errors import TableMissingInMirror
from ccpr.pipeline.ends import judge
from ccpr.pipeline.errors import PlanOutdated, StepMissing, TableChangedMeanwhile
from ccpr.pipeline.iteration import Iteration
from ccpr.pipeline.steps.release import drop_due_snapshots
from ccpr.state.errors import MirrorDisagrees

# Invalid requests (too early, by an outdated plan, for an unknown table) do not fail the iteration: it stays open.
_INVALID = (StepMissing, PlanOutdated, TableMissingInMirror)


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
