"""Failures as Dagster shows them: a failed run. An iteration that a tick, `ccpr serve` or a command made and that
failed is recorded as a run that failed, once for all failures in a row; a run that fails again what has failed before
ends without (`ccpr.dagster.step`). So the partition, the graph, the timeline and
alerts on failed runs show it, and no process is started for it (decision health-is-not-partitioned).

What ends it is the next materialization of the partition: that of the iteration that succeeds, or, of the assets that
an idle one does not materialize, one by `replica_health_sensor`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg
from dagster._core.events import (
    AssetMaterializationPlannedData,
    DagsterEvent,
    DagsterEventType,
    JobFailureData,
    RunFailureReason,
)
from dagster._core.execution.plan.objects import StepFailureData, UserFailureData
from dagster._core.remote_origin import RemoteJobOrigin
from dagster_shared.error import SerializableErrorInfo

from ccpr.dagster.keys import prefix_of, prefixed
from ccpr.dagster.metadata import HEALTH_SENSOR, SUBSCRIPTION_TAG, SYNC_JOB, WHY_TAG

_PARTITION_TAG, _SENSOR_TAG, _LOCATION_TAG = "dagster/partition", "dagster/sensor_name", ".dagster/repository"
RECORDED = "recorded: it failed without a run"


def record_failed_run(
    instance: dg.DagsterInstance, subscription: str, asset: str, text: str, shown: Mapping[str, Any]
) -> None:
    """A run of the subscription's partition that failed to materialize an asset. `text`: what failed and what to do.
    `shown`: metadata of the failure."""
    origin = _origin(instance)
    tags = {
        SUBSCRIPTION_TAG: subscription,
        WHY_TAG: RECORDED,
        _PARTITION_TAG: subscription,
        _SENSOR_TAG: HEALTH_SENSOR,  # else Dagster says that a person launched it
        "dagster/max_retries": "0",  # the next iteration is the retry
        **({} if origin is None else {_LOCATION_TAG: origin.repository_origin.get_label()}),
    }
    run = instance.create_run_for_job(
        _job_of(asset), status=dg.DagsterRunStatus.NOT_STARTED, tags=tags, remote_job_origin=origin
    )
    failed = dg.Failure(text, dict(shown))
    error = SerializableErrorInfo(text, [], None)
    why = StepFailureData(error, UserFailureData("failed", failed.description, failed.metadata))
    _plan(instance, run, subscription, asset)
    for kind, message, step, data in (
        (DagsterEventType.RUN_START, f"iteration of {subscription}", None, None),
        (DagsterEventType.STEP_START, f"{asset} of {subscription}", asset, None),
        (DagsterEventType.STEP_FAILURE, text, asset, why),
    ):
        event = DagsterEvent(kind.value, SYNC_JOB, step_key=step, message=message, event_specific_data=data)
        instance.report_dagster_event(event, run.run_id)
    instance.report_run_failed(run, text, JobFailureData(error=None, failure_reason=RunFailureReason.STEP_FAILURE))


def keep_failed(instance: dg.DagsterInstance, subscription: str, assets: Iterable[str]) -> bool:
    """Leave the partition of the assets failed after a run that did not end what has failed before: to Dagster it is as
    the run with the newest plan to materialize it. Returns whether there is a failed run."""
    run = newest_failed(instance, subscription)
    if run is not None:
        for asset in assets:
            _plan(instance, run, subscription, asset)
    return run is not None


def newest_failed(instance: dg.DagsterInstance, subscription: str) -> dg.DagsterRun | None:
    """The newest failed run of a subscription, whoever asked for it."""
    wanted = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], tags={SUBSCRIPTION_TAG: subscription})
    return next(iter(instance.get_runs(wanted, limit=1)), None)


def _plan(instance: dg.DagsterInstance, run: dg.DagsterRun, subscription: str, asset: str) -> None:
    key = prefixed(dg.AssetKey(asset), prefix_of(instance))
    planned = AssetMaterializationPlannedData(key, partition=subscription)
    kind = DagsterEventType.ASSET_MATERIALIZATION_PLANNED.value
    instance.report_dagster_event(DagsterEvent(kind, SYNC_JOB, event_specific_data=planned), run.run_id)


def _job_of(asset: str) -> dg.JobDefinition:
    """For Dagster to draw: a job without a plan cannot be shown."""

    @dg.op(name=asset)
    def step() -> None: ...

    @dg.job(name=SYNC_JOB)
    def job() -> None:
        step()

    return job


def _origin(instance: dg.DagsterInstance) -> RemoteJobOrigin | None:
    """Of the job in the code location that this instance knows by its sensor, so that the run is shown among the job's.
    None before the location was first loaded."""
    if instance.schedule_storage is None:  # of one in memory
        return None
    for state in instance.all_instigator_state():
        if state.origin.instigator_name == HEALTH_SENSOR:
            return RemoteJobOrigin(state.origin.repository_origin, SYNC_JOB)
    return None
