"""The assets of an iteration, each made by a function: a step of it, or what it depends on and makes. Each takes one
stage of the iteration that its run has open (`ccpr.dagster.step`); they run in one process, in their order.

`prefix` is of the project's asset keys (`ccpr.dagster.keys`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

from ccpr.dagster import events, metadata
from ccpr.dagster.checks import (
    OBJECT_LIST_VALID,
    OBJECTS_STORED,
    blocking_check,
    not_checked,
    object_list_refused,
    objects_not_stored,
)
from ccpr.dagster.failed_runs import keep_failed
from ccpr.dagster.followers import follower_events
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.dagster.reporting import report, report_health
from ccpr.dagster.spark_resource import SparkResource
from ccpr.dagster.step import fails_its_run, is_by_hand, step
from ccpr.dagster.tables import report_tables
from ccpr.dagster.target_health import TargetHealth, read_targets, reported_failing, target_databases_event
from ccpr.dagster.target_tables import report_target_tables
from ccpr.pipeline.driver import reach
from ccpr.pipeline.errors import BadObjectList, ObjectsNotStored
from ccpr.pipeline.step_names import Stage
from ccpr.service.target_sync import TargetOutcome, sync_targets

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

GROUP = "replication"
BuildStep: TypeAlias = Callable[..., dg.AssetsDefinition]
UPSTREAM_DATABASE = "upstream_database"
_BY_HAND = (
    "Materialize all six assets of a partition to run one iteration of that subscription now: a snapshot upstream, "
    "what has changed since the last point, copied and committed, then the targets. It takes up an iteration that was "
    "interrupted. If it fails, the next attempt is when it would be without it. Choose the partition: at first none is."
)
_ALONE = (
    "Materialize it alone to take the iteration of a partition as far as this step, with the steps before it; the "
    "next run goes on from there."
)


def _key(prefix: Sequence[str], name: str) -> dg.AssetKey:
    return dg.AssetKey([*prefix, name])


def _asset(
    name: str, after: Sequence[str], kinds: set[str], description: str, check: str = ""
) -> "Callable[[Callable[..., object]], BuildStep]":
    """Makes the builder of a step's asset, by the prefix of its key, of the function that takes the step. `after`: the
    steps before it. `check`: the name of the blocking one that it has."""

    def builder(take: Callable[..., object]) -> BuildStep:
        def build(prefix: Sequence[str] = ()) -> dg.AssetsDefinition:
            key = _key(prefix, name)
            return dg.asset(
                key=key,
                partitions_def=SUBSCRIPTIONS,
                deps=[_key(prefix, one) for one in after],
                output_required=False,
                check_specs=[blocking_check(check, key)] if check else None,
                group_name=GROUP,
                kinds=kinds,
                description=description,
            )(take)

        return build

    return builder


def build_upstream_database(prefix: Sequence[str] = ()) -> dg.AssetSpec:
    return dg.AssetSpec(
        _key(prefix, UPSTREAM_DATABASE),
        description="The published MatrixOne database that a subscription replicates. Dagster only looks at it.",
        group_name=GROUP,
        kinds={"matrixone"},
    )


@_asset(
    events.UPSTREAM_SNAPSHOTS,
    [UPSTREAM_DATABASE],
    {"matrixone"},
    "A snapshot of the upstream database, and its time by the upstream's clock. Materializing it opens "
    "the subscription's next iteration, or takes up again the one that was interrupted; the other assets work on "
    f"the open iteration, and open one if there is none. {_BY_HAND}",
)
def build_upstream_snapshots(
    context: dg.AssetExecutionContext, replication: Replication
) -> Iterator[dg.MaterializeResult]:
    """Step 1: a snapshot upstream, which opens the iteration."""
    with step(context, replication) as iteration:
        yield events.snapshot_taken(reach(iteration, Stage.SNAPSHOT)).result()


@_asset(
    events.CATALOG_DDL,
    [events.UPSTREAM_SNAPSHOTS],
    {"matrixone"},
    "The tables at the snapshot against those of the replica's last point: created, altered, renamed, "
    f"replaced (truncated or rewritten) and dropped ones, with their statements as a difference. {_ALONE}",
)
def build_catalog_ddl(context: dg.AssetExecutionContext, replication: Replication) -> Iterator[dg.MaterializeResult]:
    """Step 1, second half: the upstream's catalog at the snapshot, and what changed in it."""
    with step(context, replication) as iteration:
        yield events.catalog_read(reach(iteration, Stage.CATALOG)).result()


@_asset(
    events.OBJECT_DIFFS,
    [events.CATALOG_DDL],
    {"matrixone"},
    "The upstream's object list of the snapshot, checked and compared with the replica's last point: "
    "objects that came and objects that went. A list that fails its check stops the iteration before anything is "
    f"copied. {_ALONE}",
    OBJECT_LIST_VALID,
)
def build_object_diffs(
    context: dg.AssetExecutionContext, replication: Replication
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
    """Step 2: which objects came and went since the last point."""
    with step(context, replication) as iteration:
        try:
            record = reach(iteration, Stage.OBJECT_LIST)
        except BadObjectList as error:
            if fails_its_run(context):  # a blocking check fails it
                yield object_list_refused(error, context.partition_key)
            raise
        yield events.objects_listed(record).result()
        return
    yield not_checked(OBJECT_LIST_VALID, context.partition_key)


@_asset(
    events.COPIED_OBJECTS,
    [events.OBJECT_DIFFS],
    {"matrixone"},
    "The new object files, byte for byte, in the replica's store: fetched by Spark tasks, or by the "
    "run itself where that is done sooner; each object is checked on arrival. What an interrupted run brought is "
    f"not fetched again. {_ALONE}",
    OBJECTS_STORED,
)
def build_copied_objects(
    context: dg.AssetExecutionContext, replication: Replication, spark: SparkResource
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
    """Step 3: the new objects, copied by Spark or by the run's own process into the replica's store."""
    with step(context, replication) as iteration:
        try:
            engine = spark.copy_engine(iteration.note_copier)
            iteration.carry = engine.carry
            record = reach(iteration, Stage.COPY, engine)
        except ObjectsNotStored as error:
            if fails_its_run(context):
                yield objects_not_stored(error)
            raise
        yield events.objects_copied(record).result()
        return
    yield not_checked(OBJECTS_STORED, context.partition_key)


@_asset(
    events.APPLIED_TABLES,
    [events.COPIED_OBJECTS],
    {"mirror"},
    "The replica's tables at the snapshot: a manifest for each changed table, then one commit of the "
    "point. An iteration in which nothing changed moves the time that the replica shows, and makes no point. A "
    "partition is red while the subscription's iterations fail, in runs, commands and services; "
    "`replication_health/<name>` says why, and when it is tried again. Materialize it alone to try a whole "
    "iteration of that subscription now, without its targets.",
)
def build_applied_tables(context: dg.AssetExecutionContext, replication: Replication) -> Iterator[dg.MaterializeResult]:
    """Steps 4 to 6: the copied objects become a point of the replica."""
    subscription = context.partition_key
    with step(context, replication) as iteration:
        outcome = reach(iteration, Stage.APPLY).ended
        for made in events.mirror_made(outcome):
            report(context.instance, made.runless(subscription))
        report_tables(context.instance, replication.workspace, subscription)
        report(context.instance, follower_events(context.instance, replication.workspace))
        report_health(context.instance, replication.workspace, subscription)
        yield events.applied(outcome, iteration.mirror).result()


def build_mirror(prefix: Sequence[str] = (), more: str = "") -> dg.AssetSpec:
    """`more` is added to the description."""
    return dg.AssetSpec(
        _key(prefix, events.MIRROR),
        partitions_def=SUBSCRIPTIONS,
        deps=[_key(prefix, events.APPLIED_TABLES)],
        description="The physical replica in the state folder: object files and manifests, readable by `ccpr export` "
        f"and by Spark at every point that is kept. {more}".strip(),
        group_name=GROUP,
        kinds={"mirror"},
    )


@_asset(
    events.TARGET_DATABASES,
    [events.APPLIED_TABLES, events.MIRROR],
    set(),
    "The databases and lakes that are synced from the mirror, if the subscription has any (`ccpr "
    "target add`). A partition is red while one of them fails: the run in which that began is the failed one, and "
    "what the others have got, and each table that waits, is on the pages `replication_health/<name>/<target>`. "
    "Materialize it to sync the targets of a partition to the newest point now, and to ask each of them where it "
    "is.",
)
def build_target_databases(
    context: dg.AssetExecutionContext, replication: Replication, spark: SparkResource
) -> Iterator[dg.MaterializeResult]:
    """Step 7: each target is synced to the newest point."""
    workspace, subscription, asked = replication.workspace, context.partition_key, is_by_hand(context)
    started, failed_before = workspace.now(), set[str]()
    found, outcomes = list[TargetHealth](), list[TargetOutcome]()
    with step(context, replication) as iteration:
        names = [target.name for target in workspace.of(iteration.subscription).targets.all()]
        failed_before = reported_failing(context.instance, subscription, names)
        outcomes = sync_targets(workspace, iteration, ask=asked, carry=spark.copy_engine().carry)
        report_target_tables(context.instance, workspace, subscription)
        report_health(context.instance, workspace, subscription)
        found = read_targets(workspace, workspace.log.row(subscription))
    failing = [one for one in found if one.is_failing]
    made = target_databases_event(subscription, found, outcomes)
    is_first = asked or any(one.target not in failed_before for one in failing)
    if failing and (is_first or not keep_failed(context.instance, subscription, [events.TARGET_DATABASES])):
        raise dg.Failure("; ".join(one.trouble for one in failing), dict(made.metadata), allow_retries=False)
    if (outcomes or asked) and not failing:
        verified = {metadata.VERIFIED_AT: dg.MetadataValue.timestamp(started)} if asked else {}
        yield dg.MaterializeResult(metadata={**made.metadata, **verified})


def build_sync_job(steps: Sequence[dg.AssetsDefinition]) -> "UnresolvedAssetJobDefinition":
    """The job that the sensor starts: one iteration of one subscription."""
    return dg.define_asset_job(
        metadata.SYNC_JOB,
        selection=list(steps),
        description="Synchronise one subscription once: all steps of an iteration, in one process.",
        executor_def=dg.in_process_executor,
    )
