"""Failures as Dagster shows them: a failed run. An iteration that a tick, `ccpr serve` or a command made and that
failed is recorded as a run that failed, once for all failures in a row. So the partition, the graph, the timeline and
alerts on failed runs show it, and no process is started for it (decision health-is-not-partitioned).

What ends it is the next materialization of the partition.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster._core.events import (
    AssetMaterializationPlannedData,
    DagsterEvent,
    DagsterEventType,
    EngineEventData,
    JobFailureData,
    RunFailureReason,
)
from dagster._core.remote_origin import RemoteJobOrigin

from ccpr.dagster.keys import prefix_of, prefixed
from ccpr.dagster.metadata import HEALTH_SENSOR, SUBSCRIPTION_TAG, SYNC_JOB, WHY_TAG

_PARTITION_TAG, _LOCATION_TAG = "dagster/partition", ".dagster/repository"
RECORDED = "recorded: it failed without a run"


def record_failed_run(
    instance: dg.DagsterInstance, subscription: str, asset: str, text: str, shown: Mapping[str, Any]
) -> None:
    """A run of the subscription's partition that failed to materialize an asset.

    Parameters
    ----------
    text : what failed and what to do.
    shown : metadata of the failure.
    """
    key = prefixed(dg.AssetKey(asset), prefix_of(instance))
    origin = _origin(instance)
    tags = {
        SUBSCRIPTION_TAG: subscription,
        WHY_TAG: RECORDED,
        _PARTITION_TAG: subscription,
        "dagster/max_retries": "0",  # the next iteration is the retry
        **({} if origin is None else {_LOCATION_TAG: origin.repository_origin.get_label()}),
    }
    run = dg.DagsterRun(
        SYNC_JOB, str(uuid4()), status=dg.DagsterRunStatus.NOT_STARTED, tags=tags, remote_job_origin=origin
    )
    instance.add_run(run)
    planned = AssetMaterializationPlannedData(key, partition=subscription)
    for kind, message, data in (
        (DagsterEventType.ASSET_MATERIALIZATION_PLANNED, None, planned),
        (DagsterEventType.RUN_START, f"iteration of {subscription}", None),
        (DagsterEventType.ENGINE_EVENT, text, EngineEventData(dict(shown))),
    ):
        event = DagsterEvent(kind.value, SYNC_JOB, message=message, event_specific_data=data)
        instance.report_dagster_event(event, run.run_id)
    failure = JobFailureData(error=None, failure_reason=RunFailureReason.STEP_FAILURE)
    instance.report_run_failed(run, text, failure)


def _origin(instance: dg.DagsterInstance) -> RemoteJobOrigin | None:
    """Of the job in the code location that this instance knows by its sensor, so that the run is shown among the job's.
    None before the location was first loaded."""
    if instance.schedule_storage is None:  # of one in memory
        return None
    for state in instance.all_instigator_state():
        if state.origin.instigator_name == HEALTH_SENSOR:
            return RemoteJobOrigin(state.origin.repository_origin, SYNC_JOB)
    return None
