"""All steps of an iteration in their order, and what each of them found, as a value: for whoever runs whole iterations
in one go and reports on them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ccpr.base.snapshot_ref import SnapshotRef
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import ObjectDiff
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.committing import Outcome
from ccpr.pipeline.copying import CopyEngine, CopyReport
from ccpr.pipeline.iteration import Iteration
from ccpr.service.target_sync import TargetOutcome


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """What the steps of one iteration found.

    Attributes
    ----------
    watermark : that of the iteration before, in nanoseconds of the upstream's clock; 0 if there was none.
    copied : None if nothing had changed, and nothing was copied or applied.
    copy_seconds : how long copying took.
    targets : how each target was synced; none where that is done apart from the iteration.
    """

    subscription: str
    snapshot: SnapshotRef
    watermark: int
    catalog: CatalogDiff
    listed: ObjectDiff
    copied: CopyReport | None
    copy_seconds: float
    outcome: Outcome
    targets: tuple[TargetOutcome, ...] = ()


def run_whole(iteration: Iteration, engine: CopyEngine, between: Callable[[], None] = lambda: None) -> IterationRecord:
    """Take all steps. An iteration in which nothing has changed is ended without those that copy. `between` is called
    between two steps, and may raise; the iteration then stays open.
    """
    watermark = iteration.watermark
    snapshot = iteration.take_snapshot()
    between()
    catalog = iteration.diff_catalog()
    between()
    listed = iteration.diff_objects(keep=not watermark)
    between()
    outcome = iteration.apply_if_idle() if watermark else None
    report, seconds = None, 0.0
    if outcome is None:
        started = time.monotonic()
        report = iteration.copy_objects(engine)
        seconds = time.monotonic() - started
        between()
        check_stored(iteration.mirror, report)
        outcome = iteration.apply()
    name = iteration.subscription.name
    return IterationRecord(name, snapshot, watermark, catalog, listed, report, seconds, outcome)


def objects_missing(mirror: Mirror, report: CopyReport) -> list[str]:
    """Names of copied objects that the store does not have in their size."""
    names, sizes = (report.rows.column(name).to_pylist() for name in ("name", "size"))
    return [name for name, size in zip(names, sizes, strict=True) if mirror.store.size(object_path(name)) != size]


def check_stored(mirror: Mirror, report: CopyReport, missing: Sequence[str] | None = None) -> None:
    """Raises MirrorDamaged if the store does not have what was copied. `missing` is what `objects_missing` found."""
    missing = objects_missing(mirror, report) if missing is None else missing
    if missing:
        raise MirrorDamaged(
            f"{len(missing)} copied objects are not in the store as copied", subject=f"object {missing[0]}"
        )
