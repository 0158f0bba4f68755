"""Step 1, second half: the upstream's catalog at the snapshot, compared with the last point by table id. Asked again it
gives the same answer (decision catalog-by-checksum)."""

from dataclasses import replace
from functools import partial

from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.databases import still_there
from ccpr.pipeline.ends import check_gone
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.known_catalog import catalog_inputs, known_catalog
from ccpr.pipeline.scope import diff_scope
from ccpr.pipeline.step_names import Step


def diff_catalog(iteration: Iteration, record: IterationRecord) -> CatalogDiff:
    """Raises what `diff_scope` and `check_gone` raise."""
    iteration.enter(Step.CATALOG)
    session, subscription, last = iteration.sessions.session, iteration.subscription, iteration.last
    context, at = iteration.memory.context, record.snapshot.at
    inputs, whole = catalog_inputs(session, subscription, context.capabilities, at)
    if iteration.options.resync is None:
        known = known_catalog(session, subscription, context, last, at, inputs, whole=whole)
        if known is not None:
            return known
    with still_there(subscription):
        found = diff_scope(
            session, subscription, record.snapshot, last.tables, partial(record.temporary.of_databases, record.snapshot)
        )
    databases = {number: ref.database for number, ref in last.tables.refs.items()}
    check_gone(session, subscription, found.catalog, databases)
    return replace(found, inputs=inputs)
