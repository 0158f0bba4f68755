"""What Dagster keeps of iterations for ever by itself: runs with their events and logs, and what is reported without a
run (idle iterations, `ccpr serve`, tables, health, checks).

Deleted is what is older than CCPR_DAGSTER_DAYS and was made by this program: finished runs of our jobs and those that a
person started on our assets, and events without a run that name a subscription in the tag `ccpr/subscription`, or
evaluate our checks. What the UI shows as an asset's present state stays, however old: of each partition of each asset
the run with the newest materialization and the one that failed since, and the newest event of each kind without a run.
Points, mirrors and `mo_ccpr_log` have nothing to do with it.

For a run Dagster has `delete_run`, which forgets the run's file (SQLite), its checks and its captured output; these
follow here. For events without a run it has nothing, so they are deleted in its tables.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import sqlalchemy as sa
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from ccpr.base.clock import utc_now
from ccpr.dagster.actions import ACTION_JOBS
from ccpr.dagster.events import APPLIED_TABLES
from ccpr.dagster.health import HEALTH, REPLICA_CURRENT, TARGET_CURRENT
from ccpr.dagster.metadata import RETENTION_SENSOR, SUBSCRIPTION_TAG, SYNC_JOB

DAYS_VARIABLE = "CCPR_DAGSTER_DAYS"
DEFAULT_DAYS = 14.0
TICK_SECONDS = 20.0  # of a tick's 60; what is left is the next tick's
_PAGE = 500
_MOST_DAYS = 36_500
_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_BY_HAND_JOB = "__ASSET_JOB"  # of runs that an operator starts on assets; ours have our tag
_OUR_CHECKS = (REPLICA_CURRENT, TARGET_CURRENT)
_EVENT = SqlEventLogStorageTable.c
_OF_ASSETS = [dg.DagsterEventType.ASSET_MATERIALIZATION.value, dg.DagsterEventType.ASSET_OBSERVATION.value]
_OF_CHECKS = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value


@dataclass(frozen=True, slots=True)
class Purged:
    """What was deleted; `is_all` is False if the time was over before."""

    runs: int
    events: int
    is_all: bool


def build_retention_sensor() -> dg.SensorDefinition:
    """The sensor that deletes what Dagster would keep for ever."""

    @dg.sensor(
        name=RETENTION_SENSOR,
        minimum_interval_seconds=3600,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Deletes Dagster's records of iterations that are older than CCPR_DAGSTER_DAYS (14), but for those "
        "that tell an asset's present state. Nothing of a replica is touched.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        days = kept_days(os.environ.get(DAYS_VARIABLE, ""))
        if days is None:
            return dg.SkipReason(f"nothing deleted: {DAYS_VARIABLE} has to be a number of days, 0 or more")
        purged = purge(context.instance, utc_now() - timedelta(days=days), time.monotonic() + TICK_SECONDS)
        left = "" if purged.is_all else "; more is left for the next tick"
        return dg.SkipReason(
            f"deleted {purged.runs} runs and {purged.events} events without a run older than {days:g} days{left}"
        )

    return sensor


def kept_days(text: str) -> float | None:
    """Days from the setting; None if it cannot be one."""
    try:
        days = float(text) if text else DEFAULT_DAYS
    except ValueError:
        return None
    return days if 0 <= days <= _MOST_DAYS else None  # neither is NaN


def purge(instance: dg.DagsterInstance, before: datetime, end: float = math.inf) -> Purged:
    """Delete what was last changed before a time, oldest first, until `end` by the monotonic clock."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return Purged(0, 0, True)
    runs, is_all = 0, True
    kept = _runs_of_present_state(storage)
    for run in _finished(instance, before):
        if time.monotonic() >= end:
            is_all = False
            break
        if run.run_id not in kept:
            _delete_run(instance, storage, run.run_id)
            runs += 1
    events = 0
    connections = [storage.index_connection()]
    if isinstance(
        storage, SqliteEventLogStorage
    ):  # which keeps events of assets twice: by run, and for queries over all
        connections.append(storage.run_connection(RUNLESS_RUN_ID))
    for number, connection in enumerate(connections):
        deleted, done = _delete_events(connection, before, end)
        events += deleted if number == 0 else 0
        is_all = is_all and done
    with storage.index_connection() as connection:
        _delete_evaluations(connection, before)
    return Purged(runs, events, is_all)


def _finished(instance: dg.DagsterInstance, before: datetime) -> Iterator[dg.DagsterRun]:
    """Finished runs, oldest first, a page at a time; the caller may delete what it is given."""
    for job in (SYNC_JOB, *ACTION_JOBS, _BY_HAND_JOB):
        wanted = dg.RunsFilter(job_name=job, statuses=_FINISHED, updated_before=before)
        kept = None
        while page := instance.get_runs(wanted, limit=_PAGE, ascending=True, cursor=kept):
            yield from (run for run in page if job != _BY_HAND_JOB or SUBSCRIPTION_TAG in run.tags)
            kept = next((run.run_id for run in reversed(page) if instance.has_run(run.run_id)), kept)


def _runs_of_present_state(storage: SqlEventLogStorage) -> set[str]:
    """Runs that hold the newest materialization of some partition of some asset, or failed to make one since."""
    kinds = [dg.DagsterEventType.ASSET_MATERIALIZATION.value, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED.value]
    newest = (
        sa.select(sa.func.max(_EVENT.id))
        .where(_EVENT.dagster_event_type.in_(kinds))
        .group_by(_EVENT.asset_key, _EVENT.partition, _EVENT.dagster_event_type)
    )
    chosen = sa.select(_EVENT.run_id, _EVENT.id, _EVENT.asset_key, _EVENT.partition, _EVENT.dagster_event_type)
    kept: dict[tuple[str, str | None], tuple[int, str]] = {}
    made = set[str]()
    with storage.index_connection() as connection:
        for row in connection.execute(chosen.where(_EVENT.id.in_(newest))):
            if row.dagster_event_type == kinds[0]:
                made.add(row.run_id)
            name = row.asset_key, row.partition
            kept[name] = max(kept.get(name, (0, "")), (row.id, row.run_id))
    return made | {run_id for _, run_id in kept.values()}


def _delete_run(instance: dg.DagsterInstance, storage: SqlEventLogStorage, run_id: str) -> None:
    instance.delete_run(run_id)
    with storage.index_connection() as connection:
        connection.execute(AssetCheckExecutionsTable.delete().where(AssetCheckExecutionsTable.c.run_id == run_id))
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    if isinstance(storage, SqliteEventLogStorage):
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(storage.path_for_shard(run_id) + suffix).unlink(missing_ok=True)


def _delete_events(opened: AbstractContextManager[sa.Connection], before: datetime, end: float) -> tuple[int, bool]:
    """How many events without a run were deleted from one of Dagster's databases, and whether these were all."""
    runless = _EVENT.run_id == RUNLESS_RUN_ID
    old_keys = [dg.AssetKey(name).to_string() for name in (APPLIED_TABLES, HEALTH)]
    mine = _EVENT.event.like(f'%"{SUBSCRIPTION_TAG}"%') | _EVENT.asset_key.in_(old_keys)
    of_assets = sa.and_(_EVENT.dagster_event_type.in_(_OF_ASSETS), mine)
    of_checks = sa.and_(  # which are kept in a table of their own; see below
        _EVENT.dagster_event_type == _OF_CHECKS, sa.or_(*(_EVENT.event.like(f'%"{name}"%') for name in _OUR_CHECKS))
    )
    same = (_EVENT.asset_key, _EVENT.partition, _EVENT.dagster_event_type)
    deleted = 0
    with opened as connection:
        newest = set(connection.scalars(sa.select(sa.func.max(_EVENT.id)).where(runless).group_by(*same)))
        old = sa.select(_EVENT.id).where(runless, _EVENT.timestamp < _without_zone(before), of_assets | of_checks)
        ids = [event_id for event_id in connection.scalars(old.order_by(_EVENT.id)) if event_id not in newest]
        for start in range(0, len(ids), _PAGE):
            page = ids[start : start + _PAGE]
            if time.monotonic() >= end:
                return deleted, False
            connection.execute(AssetEventTagsTable.delete().where(AssetEventTagsTable.c.event_id.in_(page)))
            connection.execute(SqlEventLogStorageTable.delete().where(_EVENT.id.in_(page)))
            deleted += len(page)
    return deleted, True


def _delete_evaluations(connection: sa.Connection, before: datetime) -> None:
    """Dagster keeps evaluations of checks a second time."""
    rows = AssetCheckExecutionsTable.c
    newest = set(connection.scalars(sa.select(sa.func.max(rows.id)).group_by(rows.asset_key, rows.check_name)))
    mine = (rows.run_id == RUNLESS_RUN_ID, rows.check_name.in_(_OUR_CHECKS))
    old = sa.select(rows.id).where(*mine, rows.evaluation_event_timestamp < _without_zone(before))
    ids = [row for row in connection.scalars(old.order_by(rows.id)) if row not in newest]
    for start in range(0, len(ids), _PAGE):
        connection.execute(AssetCheckExecutionsTable.delete().where(rows.id.in_(ids[start : start + _PAGE])))


def _without_zone(when: datetime) -> datetime:
    """UTC, as Dagster stores it."""
    return when.astimezone(UTC).replace(tzinfo=None)
