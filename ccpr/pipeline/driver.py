"""The order in which an iteration goes: the one place that knows which stage follows which, what an idle iteration
skips, and what has to be there before a stage may be taken. Commands, the service, the sensor's tick, Dagster's runs,
benchmarks and tests all drive an iteration from here.

What a stage found is either asked for again at the same snapshot, which gives the same answer, or kept in the mirror's
work folder. So it does not matter in which process the next stage is taken (docs/architecture.md, "The way of the
data").
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.copying import CopyEngine, copy_in_process
from ccpr.pipeline.errors import NoOpenIteration, StepMissing, TableChangedMeanwhile
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.logical.reading import read_tables
from ccpr.pipeline.logical.table_reads import list_reads
from ccpr.pipeline.results import Listed
from ccpr.pipeline.step_names import Stage, Step
from ccpr.pipeline.steps.apply import apply, apply_if_idle
from ccpr.pipeline.steps.copy import copy_objects, objects_to_copy
from ccpr.pipeline.steps.object_list import check_allowed, list_objects
from ccpr.pipeline.steps.snapshot import diff_catalog, give_up, resume, take_snapshot

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


def drive(
    iteration: Iteration,
    engine: CopyEngine = copy_in_process,
    *,
    until: Stage = Stage.APPLY,
    between: Callable[[], None] = lambda: None,
    may_end_idle: Callable[[], bool] | None = None,
) -> IterationRecord:
    """Take the stages of an iteration, one after the other.

    An iteration in which nothing has changed ends after its object list, without the stages that copy.

    Parameters
    ----------
    until : the last stage to take; the iteration stays open after it.
    between : called between two stages; what it raises leaves the iteration open.
    may_end_idle : asked when the object list is there. Without it the iteration may end idle if all stages are wanted.
    """
    may_end = may_end_idle or (lambda: until is Stage.APPLY)
    stages = list(Stage)

    def drive_once() -> IterationRecord:
        record = take(iteration, Stage.SNAPSHOT)
        for stage in stages[1 : stages.index(until) + 1]:
            between()
            if stage is Stage.OBJECT_LIST and iteration.watermark:
                record = _list_or_end(iteration, may_end)
            else:
                record = take(iteration, stage, engine)
            if record.outcome is not None:
                break
        return record

    return try_twice(iteration, drive_once)


def try_twice(iteration: Iteration, work: Callable[[], _T]) -> _T:
    """Where a table changed between the snapshot and its list, do the work again with a new snapshot; a second time is
    a failure, which waits for the next attempt."""
    try:
        return work()
    except TableChangedMeanwhile as error:
        _logger.info("%s: tried again with a new snapshot: %s", iteration.subject, error)
        give_up(iteration)
        return work()


def take(iteration: Iteration, stage: Stage, engine: CopyEngine = copy_in_process) -> IterationRecord:
    """Take one stage of the open iteration; the first one opens it.

    Raises NoOpenIteration; StepMissing if another stage has to be taken before; and what the stage raises.
    """
    if stage is Stage.SNAPSHOT:
        return take_snapshot(iteration)
    record = resume(iteration)
    match stage:
        case Stage.CATALOG:
            catalog_of(iteration)
        case Stage.OBJECT_LIST:
            _allowed(iteration)
        case Stage.COPY:
            _copy(iteration, record, engine)
        case Stage.APPLY:
            _apply(iteration, record)
    return record


def reach(iteration: Iteration, stage: Stage, engine: CopyEngine = copy_in_process) -> IterationRecord:
    """Take one stage, and before it those that the open iteration lacks. Raises what the stages raise."""
    return try_twice(iteration, lambda: _reach(iteration, stage, engine))


def _reach(iteration: Iteration, stage: Stage, engine: CopyEngine) -> IterationRecord:
    try:
        return take(iteration, stage, engine)
    except (NoOpenIteration, StepMissing):  # before it has done anything
        if stage is Stage.SNAPSHOT:
            raise
        stages = list(Stage)
        _reach(iteration, stages[stages.index(stage) - 1], engine)
        return take(iteration, stage, engine)


def catalog_of(iteration: Iteration) -> CatalogDiff:
    """The catalog at the open snapshot. Raises NoOpenIteration."""
    iteration.lease.check()
    record = resume(iteration)
    if record.catalog is None:
        record.catalog = diff_catalog(iteration, record)
    return record.catalog


def listed_of(iteration: Iteration, *, keep: bool = True) -> Listed:
    """The object list of the open snapshot, whatever it would cost to copy what is in it. Raises NoOpenIteration.

    Parameters
    ----------
    keep : it, for a run that takes this one up.
    """
    iteration.lease.check()
    record = resume(iteration)
    iteration.enter(Step.OBJECT_LIST)
    if record.listed is None:
        ask = list_reads if iteration.subscription.is_logical else list_objects
        record.listed = record.results.listed() or ask(iteration, record, catalog_of(iteration))
    if keep:
        record.results.keep_listed(record.listed)
    return record.listed


def forget_results(iteration: Iteration) -> None:
    """Forget the object list: the next run asks again, at the same snapshot."""
    record = resume(iteration)
    record.listed = None
    record.results.clear()


def _allowed(iteration: Iteration, *, keep: bool = True) -> Listed:
    listed = listed_of(iteration, keep=keep)
    if listed.base_lost:
        check_allowed(iteration, listed, objects_to_copy(iteration.subscription, catalog_of(iteration), listed))
    return listed


def _list_or_end(iteration: Iteration, may_end: Callable[[], bool]) -> IterationRecord:
    """The list is kept when it is certain that there is something to do."""
    listed, record = _allowed(iteration, keep=False), resume(iteration)
    if may_end():
        iteration.lease.check()
        record.outcome = apply_if_idle(iteration, record, catalog_of(iteration), listed)
    if record.outcome is None:
        record.results.keep_listed(listed)
    return record


def _copy(iteration: Iteration, record: IterationRecord, engine: CopyEngine) -> None:
    iteration.lease.check()
    if not record.results.is_listed():
        raise StepMissing("object_diffs has not run for this iteration", subject=iteration.subject)
    listed = _allowed(iteration)
    catalog, started = catalog_of(iteration), time.monotonic()
    if iteration.subscription.is_logical:
        record.listed, record.copied = read_tables(iteration, record, catalog, listed)
    else:
        objects = objects_to_copy(iteration.subscription, catalog, listed)
        record.copied = copy_objects(iteration, record, listed, objects, engine)
    record.copy_seconds = time.monotonic() - started


def _apply(iteration: Iteration, record: IterationRecord) -> None:
    iteration.lease.confirm()
    listed = _allowed(iteration)  # first: what was copied for another list is void
    record.copied = record.copied or record.results.copied()
    if record.copied is None:
        raise StepMissing("copied_objects has not run for this iteration", subject=iteration.subject)
    record.outcome = apply(iteration, record, catalog_of(iteration), listed, record.copied)
