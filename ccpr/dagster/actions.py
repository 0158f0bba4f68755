"""What an operator does to a subscription from the UI: jobs of a partition, which do as the commands of the same name.

A job's run ends with the health of the subscription, so that its page shows what has become of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from ccpr.base.loops import unexpected
from ccpr.base.wording import first_names
from ccpr.dagster.checks import check_by_schema
from ccpr.dagster.keys import remember_prefix
from ccpr.dagster.metadata import APPROVE_JOB, SUBSCRIPTION_TAG, WHY_TAG
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication, as_failure
from ccpr.dagster.reporting import health_events, report
from ccpr.dagster.spark_resource import SparkResource
from ccpr.dagster.step import BY_HAND
from ccpr.dagster.target_health import target_events
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.table_read import point_at
from ccpr.pipeline.driver import drive
from ccpr.pipeline.options import IterationOptions, Resync
from ccpr.service import drilling
from ccpr.service.drilling import place_of
from ccpr.service.target_sync import approve_drops, approve_table, rebuild_table
from ccpr.service.verifying import verifier_of
from ccpr.service.workspace import Workspace
from ccpr.state.errors import TargetMissing
from ccpr.state.subscription import Subscription
from ccpr.targets.errors import TargetDropsHeld, TargetTableUnknown

PAUSE, RESUME, VERIFY = "ccpr_pause_job", "ccpr_resume_job", "ccpr_verify_job"
RESYNC, REBUILD, APPROVE, DRILL = "ccpr_resync_job", "ccpr_rebuild_job", APPROVE_JOB, "ccpr_drill_job"
ACTION_JOBS = (PAUSE, RESUME, VERIFY, RESYNC, REBUILD, APPROVE, DRILL)


class VerifyConfig(dg.Config):
    """What `ccpr verify` takes."""

    deep: bool = False
    repair: bool = True


class ResyncConfig(dg.Config):
    """`table`: read the files of this one again, db.table; empty for a full list of all."""

    table: str = ""


class RebuildConfig(dg.Config):
    """`target`: empty for the only one. `table`: its name upstream, db.table."""

    target: str = ""
    table: str = ""


class ApproveConfig(dg.Config):
    """`target`: empty for the only one. `table`: whose waiting statements are run; empty for the tables that the target
    holds back from being dropped."""

    target: str = ""
    table: str = ""


class DrillConfig(dg.Config):
    """As for `ccpr drill`. `into` empty: as the subscription says; `at` empty: a random point."""

    into: str = ""
    at: str = ""


@dg.op
def pause(context: dg.OpExecutionContext, replication: Replication) -> None:
    with _action(context, replication) as (workspace, name):
        workspace.log.pause(name)


@dg.op
def resume(context: dg.OpExecutionContext, replication: Replication) -> None:
    with _action(context, replication) as (workspace, name):
        workspace.log.resume(name)


@dg.op
def verify(context: dg.OpExecutionContext, replication: Replication, config: VerifyConfig) -> None:
    with _action(context, replication) as (workspace, name):
        row = workspace.log.row(name)
        found = verifier_of(workspace, row, repair=config.repair, deep=config.deep).run()
    damages = [f"{one.path}: {one.reason}{' (repaired)' if one.repaired else ''}" for one in found.damages]
    shown = {"objects": found.objects, "bytes": found.bytes, "points": found.points, "damages": len(damages)}
    context.add_output_metadata(shown)
    for text in damages:
        context.log.warning(printable(text))
    if not found.sound:
        raise dg.Failure("damaged files stay: " + printable("; ".join(damages[:20])), shown, allow_retries=False)


@dg.op
def resync(
    context: dg.OpExecutionContext, replication: Replication, spark: SparkResource, config: ResyncConfig
) -> None:
    options = IterationOptions(resync=Resync(config.table or None), check_list=check_by_schema, is_extra=True)
    with _action(context, replication) as (workspace, name), workspace.iteration(name, options) as iteration:
        engine = spark.copy_engine(iteration.note_copier)
        iteration.carry = engine.carry
        outcome = drive(iteration, engine).ended
        context.add_output_metadata({"point": outcome.lsn, "objects_copied": outcome.objects_copied})


@dg.op
def rebuild(context: dg.OpExecutionContext, replication: Replication, config: RebuildConfig) -> None:
    with _action(context, replication) as (workspace, name), workspace.iteration(name) as iteration:
        target = _target(workspace, name, config.target)
        if not config.table:
            history = workspace.of(iteration.subscription).history
            tables = first_names(sorted(one.qualified_name for one in history.known_definitions()), most=20)
            known = f"Name one of {tables}."
            raise TargetTableUnknown("no table is named", subject=f"target {target}", remedy=known)
        _show(context, rebuild_table(workspace, iteration, target, config.table).tables)


@dg.op
def approve(context: dg.OpExecutionContext, replication: Replication, config: ApproveConfig) -> None:
    with _action(context, replication) as (workspace, name), workspace.iteration(name) as iteration:
        target = _target(workspace, name, config.target)
        if config.table:
            result = approve_table(workspace, iteration, target, config.table)
        else:
            result = approve_drops(workspace, iteration, target)
        _show(context, result.tables)


def _target(workspace: Workspace, name: str, wanted: str) -> str:
    """The target that is named, or the only one. Raises TargetMissing."""
    names = [one.name for one in workspace.of(workspace.log.row(name)).targets.all()]
    if wanted or len(names) == 1:
        return wanted or names[0]
    known = f"Name one of {first_names(names)}." if names else "The subscription has none: `ccpr target add`."
    raise TargetMissing("no target is named", subject=f"subscription {name}", remedy=known)


def _behind(home: Path | None, op: str, name: str) -> dict[str, Any]:
    """The config of a partition: the first table that waits in a target, else a target. Where the state cannot be read,
    the run says so."""
    target = table = ""
    with suppress(CcprError), Workspace(home) as workspace:
        targets = workspace.of(workspace.log.row(name)).targets.all()
        if targets:
            one = min(targets, key=lambda one: not one.behind)
            target, waiting = one.name, next(iter(one.behind), None)
            if waiting and not (op == "approve" and waiting.failure.code == TargetDropsHeld.code):
                table = waiting.table
    return {"ops": {op: {"config": {"target": target, "table": table}}}}


@dg.op
def drill(context: dg.OpExecutionContext, replication: Replication, config: DrillConfig) -> None:
    with _action(context, replication) as (workspace, name):
        settings = Subscription.from_row(workspace.log.row(name)).settings
        place = place_of(workspace, config.into or settings.drill_into)
        lsn = point_at(workspace.mirror(name), config.at).lsn if config.at else None
        done = drilling.drill(workspace, name, place, at=lsn)
    shown = {"point": done.lsn, "rows": done.rows, "bytes": done.bytes, "compared": done.compared}
    context.add_output_metadata({**shown, "seconds": done.seconds})
    if done.failure is not None:
        text = f"{done.failure.code}: {printable(done.failure.message)}. {printable(done.failure.remedy)}"
        raise dg.Failure(text, shown, allow_retries=False)
    if done.differences:
        text = "; ".join(f"{printable(table)}: {how}" for table, how in done.differences.items())
        raise dg.Failure(f"the restored point differs: {text:.2000}", shown, allow_retries=False)


def _show(context: dg.OpExecutionContext, tables) -> None:
    context.add_output_metadata({"tables": "; ".join(printable(f"{one.table} {one.action}") for one in tables)})


def build_actions(replication: Replication) -> list[dg.JobDefinition]:
    """The jobs. Their launchpads begin with what there is for them to do in the chosen partition."""
    behind = partial(_behind, Path(replication.home) if replication.home else None)
    return [
        _job(PAUSE, "Pause the subscription: nothing is copied until it is resumed. An iteration ends.", pause),
        _job(RESUME, "Resume a paused or stopped subscription; a wait after failures ends.", resume),
        _job(VERIFY, "Read the whole mirror again; damaged files are fetched again.", verify),
        _job(RESYNC, "Compare with a full list of objects and copy what is missing.", resync),
        _job(
            REBUILD,
            "Rebuild a table of a target from the mirror; its readers see the old one meanwhile.",
            rebuild,
            partial(behind, "rebuild"),
        ),
        _job(
            APPROVE,
            "Run the statements of a target's table that wait, as `target_current` shows them.",
            approve,
            partial(behind, "approve"),
        ),
        _job(
            DRILL,
            "Restore a kept point into a scratch place, and compare it with what was recorded of it.",
            drill,
        ),
    ]


def _job(
    name: str, description: str, op: Callable[[], None], config: Callable[[str], dict[str, Any]] = lambda name: {}
) -> dg.JobDefinition:
    """`config`: what a launchpad begins with, of a partition."""
    by_partition = dg.PartitionedConfig(SUBSCRIPTIONS, run_config_for_partition_key_fn=config)

    @dg.job(name=name, description=description, config=by_partition, executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    return job


@contextmanager
def _action(context: dg.OpExecutionContext, replication: Replication) -> Iterator[tuple[Workspace, str]]:
    """The workspace and the subscription's name. A typed error is a Failure; how it is afterwards is reported."""
    workspace, name, instance = replication.workspace, context.partition_key, context.instance
    remember_prefix(instance, replication.key_prefix)
    instance.add_run_tags(context.run.run_id, {SUBSCRIPTION_TAG: name, WHY_TAG: BY_HAND})
    try:
        with unexpected():
            yield workspace, name
    except CcprError as error:
        raise as_failure(error, name) from error
    finally:
        with suppress(CcprError):
            report(instance, health_events(instance, workspace, [name]))
            report(instance, target_events(instance, workspace, [workspace.log.row(name)]))
