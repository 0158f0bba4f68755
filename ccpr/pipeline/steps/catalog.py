"""Step 1, second half: the upstream's catalog at the snapshot, compared with the last point by table id. Asked again it
gives the same answer (decision catalog-asked-again)."""

from functools import partial

from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.databases import still_there
from ccpr.pipeline.ends import check_gone
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.scope import diff_scope
from ccpr.pipeline.step_names import Step


def diff_catalog(iteration: Iteration, record: IterationRecord) -> CatalogDiff:
    """Raises what `diff_scope` and `check_gone` raise."""
    iteration.enter(Step.CATALOG)
    session, subscription, before = iteration.sessions.session, iteration.subscription, iteration.last.tables
    with still_there(subscription):
        found = diff_scope(
            session, subscription, record.snapshot, before, partial(record.temporary.of_databases, record.snapshot)
        )
    databases = {number: point.table.database for number, point in before.items()}
    check_gone(session, subscription, found.catalog, databases)
    return found
