"""A step of an iteration in a run; one that fails shows in `replica_current` at once.

An outage is one failed run. A run that the sensor has asked for again after a failure, and that fails again, ends
without a failure: its step and those after it yield nothing, and their partition stays red. So it is with targets
(`target_databases`)."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dagster as dg

from ccpr.dagster.events import STEPS
from ccpr.dagster.failed_runs import keep_failed
from ccpr.dagster.keys import remember_prefix
from ccpr.dagster.metadata import ITERATION_TAG, SUBSCRIPTION_TAG, WHY_TAG
from ccpr.dagster.replication import Replication, as_failure
from ccpr.dagster.reporting import report_health, was_failing
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.iteration import Iteration
from ccpr.state.log_rows import LogRow

BY_HAND = "asked for in the UI"


@contextmanager
def step(context: dg.AssetExecutionContext, replication: Replication) -> Iterator[Iteration]:
    """See `Replication.step`. A typed error is raised as a Failure, if it is the first; of a later one nothing more of
    the block is done."""
    subscription = context.partition_key
    remember_prefix(context.instance, replication.key_prefix)
    if is_by_hand(context):
        with suppress(CcprError):  # the step says so
            _tag(context, replication.workspace.log.row(subscription))
    try:
        with replication.step(subscription, is_extra=is_by_hand(context)) as iteration:
            yield iteration
    except CcprError as error:
        failure, is_first = as_failure(error, subscription), fails_its_run(context)
        with suppress(CcprError):  # what failed may be the catalog database
            report_health(context.instance, replication.workspace, subscription)  # the run's end would be too late
        left = STEPS[STEPS.index(context.asset_key.path[-1]) :]
        if is_first or not keep_failed(context.instance, subscription, left):
            raise failure from error
        context.log.warning(f"failed again, as before this run: {failure.description}")


def fails_its_run(context: dg.AssetExecutionContext) -> bool:
    """Whether a failure now is the first, or of a run that a person has started."""
    return is_by_hand(context) or not was_failing(context.instance, context.partition_key)


def _tag(context: dg.AssetExecutionContext, row: LogRow) -> None:
    """Give a run the tags that the sensor's runs have, once: later the row is at the next iteration."""
    instance, run_id = context.instance, context.run.run_id
    run = instance.get_run_by_id(run_id)
    if run is None or SUBSCRIPTION_TAG in run.tags:
        return
    tags = {SUBSCRIPTION_TAG: row.subscription_name, WHY_TAG: BY_HAND, ITERATION_TAG: iteration_tag(row)}
    instance.add_run_tags(run_id, tags)


def iteration_tag(row: LogRow) -> str:
    """Of the runs of the iteration that is the row's next."""
    return f"{row.task_id}:{row.iteration_lsn}"


def is_by_hand(context: dg.AssetExecutionContext) -> bool:
    """Whether the sensor has not asked for the run."""
    return ITERATION_TAG not in context.run.tags
