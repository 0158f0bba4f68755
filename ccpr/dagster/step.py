"""A step of an iteration in a run; one that fails shows in `replica_current` at once."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dagster as dg

from ccpr.dagster.keys import remember_prefix
from ccpr.dagster.metadata import ITERATION_TAG, SUBSCRIPTION_TAG, WHY_TAG
from ccpr.dagster.replication import Replication
from ccpr.dagster.reporting import report_health
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.iteration import Iteration
from ccpr.state.log_rows import LogRow

BY_HAND = "asked for in the UI"


@contextmanager
def step(context: dg.AssetExecutionContext, replication: Replication) -> Iterator[Iteration]:
    """See `Replication.step`. Without its health here, a run that fails would say so too late."""
    subscription = context.partition_key
    remember_prefix(context.instance, replication.key_prefix)
    if is_by_hand(context):
        with suppress(CcprError):  # the step says so
            _tag(context, replication.workspace.log.row(subscription))
    try:
        with replication.step(subscription, is_extra=is_by_hand(context)) as iteration:
            yield iteration
    except dg.Failure:
        with suppress(CcprError):  # what failed may be the catalog database
            report_health(context.instance, replication.workspace, subscription)
        raise


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
