"""Targets as assets, `replication_health/<subscription>/<target>`: each has a check `target_current`: whether it
shows the newest point, and if not, why, since when, and what to do. Lakes are targets.

Ticks, runs and iterations of the service report what has changed since it was reported last. What fails as a whole
makes the subscription's partition of `target_databases` fail, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.base.wording import filled, first_names
from ccpr.dagster import metadata
from ccpr.dagster.events import TARGET_DATABASES, StepEvent
from ccpr.dagster.failed_runs import record_failed_run
from ccpr.dagster.health import (
    FAILING,
    TARGET_CURRENT,
    Health,
    clock,
    error_shown,
    health_key,
    is_failing,
    objective_of,
    says_of,
    short,
    utc,
    with_names,
)
from ccpr.dagster.keys import Runless
from ccpr.dagster.present import changed_last
from ccpr.dagster.verdicts import known_verdicts, news_of, remember, verdict_key
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.lag import Lag, LagMeter
from ccpr.service.status import ReadRow, TargetStatus, target_statuses
from ccpr.service.target_sync import TargetOutcome
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.log_rows import LogRow
from ccpr.state.records import tasks_in
from ccpr.state.states import State
from ccpr.state.tables import targets
from ccpr.state.targets import LaggingTargetTable, TargetState

WAITING = "waiting"
SHOWN_SECONDS = 600.0  # of a target that has nothing to do: how often it is news that it was asked
_SHOWN_TABLES = 20  # that wait, with their statements
_LONGEST_STATEMENT = 1_000


@dataclass(frozen=True, slots=True)
class TargetHealth(Health):
    """Whether a target is current. `lsn`: of the point that it shows. `waits`: names and codes of tables that wait.
    `verified_at`: when the target last said itself where it is, seconds since 1970."""

    target: str = ""
    lsn: int | None = None
    waits: tuple[str, ...] = ()
    verified_at: float | None = None

    @property
    def key(self) -> dg.AssetKey:
        return health_key(self.subscription, self.target)

    @property
    def check(self) -> str:
        return TARGET_CURRENT

    @property
    def verdict(self) -> str:
        code = f"{self.shown.get(metadata.ERROR_CODE, '')} {self.shown.get(metadata.FAILED_ATTEMPTS, '')}"
        looked = "" if self.verified_at is None else str(int(self.verified_at // SHOWN_SECONDS))
        return ", ".join([self.state, "current" if self.current else code, str(self.lsn), looked, *self.waits])

    @property
    def is_failing(self) -> bool:
        """The target as a whole could not be synced."""
        return self.state == FAILING

    @property
    def trouble(self) -> str:
        """For the verdict of its subscription; empty if there is none."""
        return f"target {self.target}: {self.says}" if self.is_failing or self.waits else ""


def read_targets(workspace: Workspace, row: LogRow) -> list[TargetHealth]:
    """Of all targets of a subscription. Raises StateUnreadable, StateUnavailable."""
    read = ReadRow.of(row)
    return targets_health(workspace, read, LagMeter(workspace.clock).read(row.task_id, read.context))


def targets_health(workspace: Workspace, read: ReadRow, lag: Lag) -> list[TargetHealth]:
    """Of all targets of a subscription. Raises StateUnreadable, StateUnavailable."""
    records = workspace.of(read.row)
    newest = records.history.newest()
    statuses = target_statuses(workspace, read, newest, lag, records.targets.all())
    lsn, now = None if newest is None else newest.lsn, workspace.clock()
    return [_health(read, one, lag, lsn, now) for one in statuses]


def with_last_change(workspace: Workspace, row: LogRow, found: Mapping[str, TargetHealth]) -> dict[str, TargetHealth]:
    """With what the newest point changed, where somebody asks what there is all the same. Raises StateUnreadable,
    StateUnavailable."""
    changed = changed_last(workspace, row) if any(one.trouble for one in found.values()) else {}
    return {key: replace(one, shown=one.shown | changed) if one.trouble else one for key, one in found.items()}


def target_events(
    instance: dg.DagsterInstance, workspace: Workspace, rows: Sequence[LogRow], *, in_run: bool = False
) -> list[Runless]:
    """News of the targets of subscriptions: those whose reported verdict is another one, or missing. Raises
    StateUnavailable. `in_run`: a run of Dagster's tells how the sync ended. If not, what fails newly is recorded as a
    failed run, and what has recovered is materialized."""
    with_targets = tasks_in(workspace.log.engine, targets)
    events: list[Runless] = []
    for row in rows:
        if row.task_id not in with_targets:
            continue
        with suppress(StateUnreadable, UnexpectedError), unexpected():  # its `replica_current` says so
            events += _news(instance, workspace, row, in_run=in_run)
    return events


def reported_failing(instance: dg.DagsterInstance, subscription: str, names: Iterable[str]) -> set[str]:
    """Of these targets of a subscription, those that were reported last to fail."""
    keys = {_key(subscription, name): name for name in names}
    return {keys[key] for key, verdict in known_verdicts(instance, keys).items() if is_failing(verdict)}


def target_databases_event(
    subscription: str, found: Sequence[TargetHealth], outcomes: Sequence[TargetOutcome] = ()
) -> StepEvent:
    """How all targets of a subscription are, and how they were synced: the event that makes its partition green. If
    there is none, it says so."""
    if not found:
        says = f"the subscription has no target: `ccpr target add {printable(subscription)}`"
        return StepEvent(TARGET_DATABASES, None, None, {metadata.SAYS: says})
    return StepEvent(
        TARGET_DATABASES, None, None, {metadata.TARGET_STATES: target_states(found), **synced_table(outcomes)}
    )


def target_states(found: Iterable[TargetHealth]) -> dg.TableMetadataValue:
    rows = (
        {
            "target": one.target,
            "state": one.state,
            "point": -1 if one.lsn is None else one.lsn,
            "current_as_of": "" if one.as_of is None else one.as_of.isoformat(sep=" ", timespec="seconds"),
            "verified_at": "" if one.verified_at is None else clock(one.verified_at),
            "tables_waiting": len(one.waits),
            "says": one.says,
        }
        for one in found
    )
    times = {"current_as_of": "string", "verified_at": "string"}
    kinds = {"target": "string", "state": "string", "point": "int", **times, "tables_waiting": "int", "says": "string"}
    return metadata.table(rows, kinds)


def synced_table(outcomes: Sequence[TargetOutcome]) -> dict[str, dg.TableMetadataValue]:
    """How each target was synced; nothing where there is none."""
    if not outcomes:
        return {}
    rows = []
    for outcome in outcomes:
        result = outcome.result
        tables, behind = (result.tables, result.behind) if result is not None else ((), ())
        failures = (
            [str(outcome.failure)]
            if outcome.failure is not None
            else [f"{table.table}: {table.failure}" for table in behind]
        )
        rows.append(
            {
                "target": outcome.target,
                "tables_changed": len(tables),
                "rows_written": sum(table.upserted for table in tables),
                "rows_deleted": sum(table.deleted for table in tables),
                "seconds": round(outcome.seconds, 3),
                "tables_behind": len(behind),
                "failures": "\n".join(failures),
            }
        )
    numbers = dict.fromkeys(("tables_changed", "rows_written", "rows_deleted"), "int")
    kinds = {"target": "string", **numbers, "seconds": "float", "tables_behind": "int", "failures": "string"}
    return {metadata.TARGETS: metadata.table(rows, kinds, lines=["failures"])}


def _news(instance: dg.DagsterInstance, workspace: Workspace, row: LogRow, *, in_run: bool) -> list[Runless]:
    subscription, found = row.subscription_name, read_targets(workspace, row)
    by_key = {_key(subscription, one.target): one for one in found}
    known = known_verdicts(instance, by_key)
    news = with_last_change(workspace, row, news_of(known, by_key))
    if not news:
        return []
    events: list[Runless] = [event for one in news.values() for event in one.events()]
    failed = [one for key, one in news.items() if one.is_failing and not is_failing(known.get(key))]
    recovered = any(is_failing(known.get(key)) and not one.is_failing for key, one in news.items())
    if not in_run and failed:
        text = "; ".join(one.trouble for one in failed)
        record_failed_run(instance, subscription, TARGET_DATABASES, text, failed[0].shown)
    if not in_run and recovered and not any(one.is_failing for one in found):
        events += target_databases_event(subscription, found).runless(subscription)
    remember(instance, news)
    return events


def _key(subscription: str, target: str) -> str:
    return verdict_key("target", repr((subscription, target)))


def _health(read: ReadRow, status: TargetStatus, lag: Lag, newest: int | None, now: float) -> TargetHealth:
    name, objective = read.row.subscription_name, objective_of(read.subscription.settings)
    names = {"NAME": name, "TARGET": status.name, "LAKE": status.name}
    age = status.lag_seconds
    late = age is not None and age > objective
    shown: dict[str, Any] = {
        **({} if status.lsn is None else {metadata.SHOWN_POINT: status.lsn}),
        **({} if newest is None else {metadata.NEWEST_POINT: newest}),
        metadata.URI: printable(status.to),
    }
    verified = ""
    if status.verified_at is not None:
        shown[metadata.VERIFIED_AT] = dg.MetadataValue.timestamp(utc(status.verified_at))
        verified = f", as it said itself at {clock(status.verified_at)}"
    state, grave, says, waits, block = "current", False, "", tuple[str, ...](), ""
    if status.state == TargetState.RELEASED:
        state, says = "released", "released: its tables are ordinary ones now, and are not synced"
    elif status.last_error is not None:
        error = with_names(status.last_error, names)
        state, grave, says = FAILING, True, says_of(error, status.next_attempt)
        shown |= error_shown(error, status.next_attempt)
    elif status.behind:
        waits = tuple(f"{table.table} {table.failure.code}" for table in status.behind)
        state, says = "behind", _waiting_text(status, names)
        shown |= _waiting_shown(status, names)
        if statements := status.behind[0].statements:
            block = metadata.statement(";\n".join(statements)[:_LONGEST_STATEMENT]).value
    elif status.lsn is None:
        state, says = "new", f"it has no point yet: the next iteration loads it (`ccpr run {name}`)"
    elif late and status.lsn == newest:
        says = f"it is as old as the replica, which is late: see replication_health/{name}"
        state = "late"
    elif late:
        state, says = "late", f"it shows point {status.lsn}, and point {newest} is being synced"
    elif status.lsn == newest:
        says = f"it shows point {status.lsn}, the newest{verified}"
    else:
        says = f"it shows point {status.lsn}; point {newest} is the next to be synced"
    if read.row.state == State.PAUSED and state not in ("current", "released"):
        says = f"{says}; the subscription is paused: `ccpr resume {name}`"
    return TargetHealth(
        name,
        state,
        state in ("current", "released"),
        grave,
        short(says),
        None if age is None else utc(now - age),
        age,
        objective,
        shown,
        target=status.name,
        lsn=status.lsn,
        waits=waits,
        verified_at=status.verified_at,
        block=block,
    )


def _waiting_text(status: TargetStatus, names: dict[str, str]) -> str:
    """Of the first tables that wait: what upstream did and what approving does, or why, and what to do."""
    first = status.behind[0]
    failure = first.failure
    remedy = filled(failure.remedy, {**names, "TABLE": first.table})
    others = first_names([table.table for table in status.behind[1:]])
    more = f" {others} wait, too." if others else ""
    if first.statements:
        approve = filled("`ccpr target approve NAME TARGET TABLE`", {**names, "TABLE": first.table})
        return (
            f"{first.table} waits: {failure.message}. Approving runs the statement below in the target and brings the "
            "table's rows up to date; until then the table stays as it is, and the others go on. Approve it by "
            f"{approve}, or here by {metadata.APPROVE_JOB}. {failure.code}.{more}"
        )
    return f"{first.table} waits: {failure.code}: {failure.message}. {remedy}{more}"


def _waiting_shown(status: TargetStatus, names: dict[str, str]) -> dict[str, Any]:
    def row(table: LaggingTargetTable) -> dict[str, Any]:
        failure = table.failure
        return {
            "table": table.table,
            "code": failure.code,
            "message": failure.message,
            "what_to_do": filled(failure.remedy, {**names, "TABLE": table.table}),
            "statement": ";\n".join(table.statements)[:_LONGEST_STATEMENT],
            "tried_again": table.again,
        }

    texts = dict.fromkeys(("table", "code", "message", "what_to_do", "statement"), "string")
    found: dict[str, Any] = {
        metadata.TABLES_WAITING: len(status.behind),
        WAITING: metadata.table(
            map(row, status.behind[:_SHOWN_TABLES]), {**texts, "tried_again": "bool"}, lines=["statement"]
        ),
    }
    statements = [statement for table in status.behind[:_SHOWN_TABLES] for statement in table.statements]
    if statements:
        found[metadata.WAITING_STATEMENTS] = metadata.statement(";\n".join(statements)[: 10 * _LONGEST_STATEMENT])
    if status.next_attempt is not None:
        found[metadata.NEXT_ATTEMPT] = dg.MetadataValue.timestamp(utc(status.next_attempt))
    return found
