"""What is known of one iteration of one subscription. What its steps do is in `ccpr.pipeline.steps`, one file each, and
their order in `ccpr.pipeline.driver`. Each can be killed and taken again (docs/requirements.md N2;
docs/architecture.md, "The way of the data")."""

import logging
from dataclasses import dataclass
from pathlib import Path

from ccpr.base.carrying import Carry, carry_here
from ccpr.base.clock import Clock, wall_clock
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.committing import IterationOutcome, Last, PointCommitter
from ccpr.pipeline.copying import CopyReport
from ccpr.pipeline.lag import LagMeter
from ccpr.pipeline.memory import Memory
from ccpr.pipeline.options import DEFAULT_OPTIONS, IterationOptions, Sessions
from ccpr.pipeline.results import Listed, StepResults
from ccpr.pipeline.step_names import Step
from ccpr.pipeline.temporary_snapshots import TemporarySnapshots
from ccpr.state.lease import Lease
from ccpr.state.subscription import Subscription

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class IterationRecord:
    """What the stages of an iteration have found in this process. All of it is derived from one snapshot, and void when
    that is.

    Attributes
    ----------
    watermark : that of the iteration before, in nanoseconds of the upstream's clock; 0 if there was none.
    temporary : the snapshots that are taken beside it.
    results : what the mirror's work folder keeps of it, for a run that takes the iteration up.
    catalog, listed, copied : None until their stages are taken; of an idle iteration nothing is copied.
    copy_seconds : how long copying took.
    outcome : None as long as the iteration is open.
    """

    subscription: str
    watermark: int
    snapshot: SnapshotRef
    temporary: TemporarySnapshots
    results: StepResults
    catalog: CatalogDiff | None = None
    listed: Listed | None = None
    copied: CopyReport | None = None
    copy_seconds: float = 0.0
    outcome: IterationOutcome | None = None

    @property
    def ended(self) -> IterationOutcome:
        """The outcome of an iteration that is not open any more."""
        assert self.outcome is not None
        return self.outcome


class Iteration:
    """The open or next iteration of a subscription whose lease we hold. One thread uses it.

    Parameters
    ----------
    clock : seconds since 1970.
    key_file : opens the sealed password where this process copies; None to find the file by CCPR_KEY_FILE.
    known : the last point as an earlier iteration of this process read it, if no other executor had the lease since.

    Attributes
    ----------
    watermark : that of the iteration before, in nanoseconds of the upstream's clock; 0 if there was none.
    record : of the open snapshot; None until that is taken or taken up here, and after the commit.
    allow_resync : whether a full list may take the place of a lost snapshot, whatever it costs.
    carry : who reads the ranges of a table in logical mode: this process, unless a carrier of tasks is given.
    last_read : the last point as this iteration has read it, before its own; None if it has not. For `known` of the
        next.
    known_places : `Last.places` of `known`.
    """

    def __init__(
        self,
        lease: Lease,
        mirror: Mirror,
        sessions: Sessions,
        options: IterationOptions = DEFAULT_OPTIONS,
        clock: Clock = wall_clock,
        key_file: Path | None = None,
        known: Last | None = None,
    ) -> None:
        self.lease, self.mirror, self.sessions, self.options = lease, mirror, sessions, options
        self.clock, self.key_file, self._known = clock, key_file, known
        row = lease.claim.row
        self.subscription = Subscription.from_row(row)
        self.lsn, self.watermark = row.iteration_lsn, row.watermark
        self.memory = Memory(lease, clock)
        self.committer = PointCommitter(lease, mirror, clock)
        self.lag = LagMeter(clock)
        self.allow_resync = options.allow_resync
        self.carry: Carry = carry_here
        self.record: IterationRecord | None = None
        self.last_read: Last | None = None
        self.known_places = {} if known is None else known.places
        self._step: Step | None = None
        self.enter(Step.INIT)

    @property
    def last(self) -> Last:
        """The last point, before this iteration's own."""
        if self.last_read is None:
            self.last_read = self.committer.last(self._known)
        return self.last_read

    @property
    def pause_seconds(self) -> float:
        """How long before this iteration's snapshot the last one's was taken, by the upstream's clock; 0 if one of them
        is missing."""
        context = self.memory.context
        known = (context.open, context.current, context.previous)
        times = [ref.physical for ref in known if ref is not None and ref.physical is not None]
        return (times[0] - times[1]) / 1e9 if len(times) > 1 else 0.0

    @property
    def subject(self) -> str:
        return f"subscription {self.subscription.name}, iteration {self.lsn}"

    def open_at(self, ref: SnapshotRef) -> IterationRecord:
        """The iteration's snapshot is this one. What was derived from another one is void."""
        known, subscription = self.record, self.subscription
        if known is not None and (known.snapshot.name, known.snapshot.physical) == (ref.name, ref.physical):
            known.snapshot = ref
            return known
        temporary = TemporarySnapshots(self.sessions, subscription, self.options, self.memory)
        results = StepResults(self.mirror, ref, self.options.resync, subscription.chosen)
        self.record = IterationRecord(subscription.name, self.watermark, ref, temporary, results)
        return self.record

    def enter(self, step: Step) -> None:
        """A step begins; to look again at what an earlier one left is none."""
        if self._step is None or step.comes_after(self._step):
            self._step = step
            _logger.info("%s: step %s, %s", self.subject, step.value, step.label)
            self.options.progress.on_step(step)

    def note_copier(self, text: str) -> None:
        """Who copies and why, for those who watch."""
        assert self.record is not None  # what copies has been given its objects
        self.record.results.keep_copier(text)

    def confirm(self) -> None:
        """For what is done under our lease after the commit. Raises LeaseLost if it is another's."""
        self.lease.confirm()
