"""A step of an iteration in a run; one that fails shows in `replica_current` at once."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dagster as dg

from ccpr.dagster.replication import Replication
from ccpr.dagster.reporting import report_health
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.iteration import Iteration


@contextmanager
def step(context: dg.AssetExecutionContext, replication: Replication) -> Iterator[Iteration]:
    """See `Replication.step`. The check itself comes after all steps, and would not be reached."""
    try:
        with replication.step(context.partition_key) as iteration:
            yield iteration
    except dg.Failure:
        with suppress(CcprError):  # what failed may be the catalog database
            report_health(context.instance, replication.workspace, context.partition_key)
        raise
