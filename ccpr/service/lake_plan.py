"""What the open iteration means for each lake."""

from ccpr.base.failure import Failure
from ccpr.lake.lake_plan import PlannedLakeTable, plan_lake
from ccpr.lake.lake_sync import LakeScope
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.driver import catalog_of, listed_of
from ccpr.pipeline.iteration import Iteration
from ccpr.pipeline.plan import sums_by_table
from ccpr.service.lakes import lake_of, options_of
from ccpr.service.workspace import Workspace
from ccpr.state.targets import TargetRecords


def plan_lakes(workspace: Workspace, iteration: Iteration) -> dict[str, list[PlannedLakeTable] | Failure]:
    """By the lake's name. The lakes are read; the iteration's catalog and list are those of its plan."""
    records = TargetRecords(workspace.log.engine, iteration.subscription.task_id)
    found: dict[str, list[PlannedLakeTable] | Failure] = {}
    lakes = records.lakes()
    if not lakes:
        return found
    catalog, added = catalog_of(iteration), sums_by_table(listed_of(iteration).diff.added)
    for target in lakes:
        try:
            lake, scope = lake_of(target, iteration), LakeScope(target.source_database, options_of(target).patterns)
            found[target.name] = plan_lake(lake, scope, catalog.tables.values(), added, catalog.failures)
        except CcprError as error:
            found[target.name] = Failure.of(error)
    return found
