"""What an operator does to a subscription from the UI: jobs of a partition, which do as the commands of the same name.

A job's run ends with the health of the subscription, so that its page shows what has become of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import dagster as dg

from ccpr.base.loops import unexpected
from ccpr.dagster.keys import remember_prefix
from ccpr.dagster.metadata import SUBSCRIPTION_TAG, WHY_TAG
from ccpr.dagster.object_list_schema import check_by_schema
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
from ccpr.service import drilling, subscriptions
from ccpr.service.drilling import place_of
from ccpr.service.target_sync import approve_drops, approve_table, rebuild_table
from ccpr.service.verifying import verifier_of
from ccpr.service.workspace import Workspace
from ccpr.state.subscription import Subscription

PAUSE, RESUME, VERIFY = "ccpr_pause_job", "ccpr_resume_job", "ccpr_verify_job"
RESYNC, REBUILD, APPROVE, DRILL = "ccpr_resync_job", "ccpr_rebuild_job", "ccpr_approve_job", "ccpr_drill_job"
ACTION_JOBS = (PAUSE, RESUME, VERIFY, RESYNC, REBUILD, APPROVE, DRILL)


class VerifyConfig(dg.Config):
    """What `ccpr verify` takes."""

    deep: bool = False
    repair: bool = True


class ResyncConfig(dg.Config):
    """`table`: read the files of this one again, db.table; empty for a full list of all."""

    table: str = ""


class RebuildConfig(dg.Config):
    """`table`: its name upstream, db.table."""

    target: str
    table: str


class ApproveConfig(dg.Config):
    """`table`: whose waiting statements are run; empty for the tables that the target holds back from being
    dropped."""

    target: str
    table: str = ""


class DrillConfig(dg.Config):
    """As for `ccpr drill`. `into` empty: as the subscription says; `at` empty: a random point."""

    into: str = ""
    at: str = ""


def build_actions() -> list[dg.JobDefinition]:
    """The jobs."""
    return [_pause(), _resume(), _verify(), _resync(), _rebuild(), _approve(), _drill()]


def _pause() -> dg.JobDefinition:
    @dg.op(name="pause")
    def pause(context: dg.OpExecutionContext, replication: Replication) -> None:
        with _action(context, replication) as (workspace, name):
            subscriptions.pause(workspace, name)

    return _job(PAUSE, "Pause the subscription: nothing is copied until it is resumed. An iteration ends.", pause)


def _resume() -> dg.JobDefinition:
    @dg.op(name="resume")
    def resume(context: dg.OpExecutionContext, replication: Replication) -> None:
        with _action(context, replication) as (workspace, name):
            subscriptions.resume(workspace, name)

    return _job(RESUME, "Resume a paused or stopped subscription; a wait after failures ends.", resume)


def _verify() -> dg.JobDefinition:
    @dg.op(name="verify")
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

    return _job(VERIFY, "Read the whole mirror again; damaged files are fetched again.", verify)


def _resync() -> dg.JobDefinition:
    @dg.op(name="resync")
    def resync(
        context: dg.OpExecutionContext, replication: Replication, spark: SparkResource, config: ResyncConfig
    ) -> None:
        options = IterationOptions(resync=Resync(config.table or None), check_list=check_by_schema, is_extra=True)
        with _action(context, replication) as (workspace, name), workspace.iteration(name, options) as iteration:
            outcome = drive(iteration, spark.copy_engine(iteration.note_copier)).ended
            context.add_output_metadata({"point": outcome.lsn, "objects_copied": outcome.objects_copied})

    return _job(RESYNC, "Compare with a full list of objects and copy what is missing.", resync)


def _rebuild() -> dg.JobDefinition:
    @dg.op(name="rebuild")
    def rebuild(context: dg.OpExecutionContext, replication: Replication, config: RebuildConfig) -> None:
        with _action(context, replication) as (workspace, name), workspace.iteration(name) as iteration:
            _show(context, rebuild_table(workspace, iteration, config.target, config.table).tables)

    return _job(REBUILD, "Rebuild a table of a target from the mirror; its readers see the old one meanwhile.", rebuild)


def _approve() -> dg.JobDefinition:
    @dg.op(name="approve")
    def approve(context: dg.OpExecutionContext, replication: Replication, config: ApproveConfig) -> None:
        with _action(context, replication) as (workspace, name), workspace.iteration(name) as iteration:
            if config.table:
                result = approve_table(workspace, iteration, config.target, config.table)
            else:
                result = approve_drops(workspace, iteration, config.target)
            _show(context, result.tables)

    return _job(APPROVE, "Run the statements of a target's table that wait, as `target_current` shows them.", approve)


def _drill() -> dg.JobDefinition:
    @dg.op(name="drill")
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

    return _job(DRILL, "Restore a kept point into a scratch place, and compare it with what was recorded of it.", drill)


def _show(context: dg.OpExecutionContext, tables) -> None:
    context.add_output_metadata({"tables": "; ".join(printable(f"{one.table} {one.action}") for one in tables)})


def _job(name: str, description: str, op: Callable[[], None]) -> dg.JobDefinition:
    @dg.job(name=name, description=description, partitions_def=SUBSCRIPTIONS, executor_def=dg.in_process_executor)
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
        raise as_failure(error) from error
    finally:
        with suppress(CcprError):
            report(instance, health_events(instance, workspace, [name]))
            report(instance, target_events(instance, workspace, [workspace.log.row(name)]))
