"""Keeps Dagster's picture of the subscriptions right, whichever program runs them, and also if none does: partitions
for new ones, health that has changed, and what a subscription has that was not reported, because it ran before there
was a UI or is run by `ccpr run`. The sensor starts nothing, and connects to no upstream and no target."""

import time
from collections.abc import Collection, Sequence
from contextlib import suppress

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.dagster.care import care_events
from ccpr.dagster.events import MIRROR, STEPS, TARGET_DATABASES
from ccpr.dagster.failed_runs import newest_failed
from ccpr.dagster.followers import follower_events
from ccpr.dagster.keys import Runless, remember_keys, translated
from ccpr.dagster.metadata import HEALTH_SENSOR, ITERATION_TAG
from ccpr.dagster.partitions import add_partitions
from ccpr.dagster.present import lacking_assets, present_events
from ccpr.dagster.replica_health import UNREADABLE, ports_text, quick_verdict
from ccpr.dagster.replication import Replication
from ccpr.dagster.reporting import changed, health_events, report
from ccpr.dagster.step import iteration_tag
from ccpr.dagster.table_checks import report_table_checks
from ccpr.dagster.tables import newest_reported, report_tables
from ccpr.dagster.target_health import SHOWN_SECONDS, read_targets, target_databases_event, target_events
from ccpr.dagster.target_tables import report_target_tables
from ccpr.dagster.verdicts import known_verdicts, store_values
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnavailable, StateUnreadable, SubscriptionMissing
from ccpr.state.history import newest_points
from ccpr.state.log_rows import BadRow, LogRow
from ccpr.state.targets import tasks_with_target_trouble

_NEWS_PER_TICK = 100  # the next tick reports the rest
_ALL = "ccpr/all"  # the key of what was reported of all together, but for their verdicts
_SECONDS = 20.0  # of a tick's 60, for what was not reported


def build_health_sensor() -> dg.SensorDefinition:
    """The sensor that keeps partitions, health and the pages of tables right."""

    @dg.sensor(
        name=HEALTH_SENSOR,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Gives each new subscription its partition, reports the health of those that have got too old, "
        "have failed or have recovered, and tables that were not reported, whichever program runs the subscription: "
        "ccpr_log_sensor, `ccpr serve`, `ccpr run`, or none.",
    )
    def sensor(context: dg.SensorEvaluationContext, replication: Replication) -> dg.SensorResult:
        workspace, instance = replication.workspace, context.instance
        if not workspace.has_catalog:
            return dg.SensorResult(skip_reason=no_subscription(workspace))
        end = time.monotonic() + _SECONDS
        remember_keys(context, replication.key_prefix)
        rows, bad = workspace.log.all_rows()
        verdicts = read_verdicts(workspace, [*rows, *bad])
        news = sorted(changed(instance, verdicts))[:_NEWS_PER_TICK]
        add_partitions(instance, verdicts)  # before what is reported of them
        _report_unseen(instance, workspace, rows, end)
        report_table_checks(context, workspace, rows, verdicts, replication.key_prefix, end)
        together = f"{len(verdicts)}, {_ports(workspace)}"
        is_news = known_verdicts(instance, [_ALL]).get(_ALL) != together
        try:
            events = health_events(instance, workspace, news, all_too=True) if news or is_news else []
            store_values(instance, {_ALL: together} if is_news else {})
            events += target_events(instance, workspace, rows)
            events += follower_events(instance, workspace)
            events += care_events(instance, workspace, rows)
        except (SubscriptionMissing, StateUnavailable):  # dropped meanwhile; the next tick looks again
            news, events = [], []
        text = f"{len(verdicts)} subscriptions" + (f"; changed: {', '.join(news)}" if news else ", nothing has changed")
        return dg.SensorResult(skip_reason=printable(text), asset_events=translated(instance, events))

    return sensor


def _ports(workspace: Workspace) -> str:
    """What it takes an event to change: ports came or went; what they have counted is news now and then."""
    text = ports_text(workspace)
    return f"{text.count('; ')} {workspace.clock() // SHOWN_SECONDS:.0f}" if text else ""


def _report_unseen(instance: dg.DagsterInstance, workspace: Workspace, rows: Sequence[LogRow], end: float) -> None:
    """Report what subscriptions have and was not reported: their newest point, and what is missing or red though an
    iteration has succeeded since. A subscription that runs now is reported by its executor. What there is no time for
    is left to the next tick."""
    newest = newest_points(workspace.log.engine)
    seen = newest_reported(instance, newest)
    lacking = lacking_assets(instance, (row.subscription_name for row in rows if row.task_id in newest))
    for row in rows:
        name, is_new = row.subscription_name, newest.get(row.task_id, -1) != seen.get(row.task_id, -1)
        if time.monotonic() >= end or not (is_new or name in lacking) or workspace.log.is_held(row):
            continue
        if not is_new and not _is_past(instance, row):
            continue
        with suppress(CcprError):  # its `replica_current` says so
            report(instance, _unseen(workspace, row, lacking.get(name, ()), is_new=is_new))
            while time.monotonic() < end and report_tables(instance, workspace, name):
                pass
            while time.monotonic() < end and report_target_tables(instance, workspace, name):
                pass


def _is_past(instance: dg.DagsterInstance, row: LogRow) -> bool:
    """Whether the last attempt succeeded, and, if a run has failed, the iteration that it left open has ended."""
    failed = None if row.error_message else newest_failed(instance, row.subscription_name)
    return not row.error_message and (failed is None or failed.tags.get(ITERATION_TAG) != iteration_tag(row))


def _unseen(workspace: Workspace, row: LogRow, lacking: Collection[str], *, is_new: bool) -> list[Runless]:
    """Of a new point all assets, else those that lack it."""
    found = list(present_events(workspace, row, (*STEPS, MIRROR) if is_new else lacking))
    targets = read_targets(workspace, row)
    is_wanted = TARGET_DATABASES in lacking or (is_new and targets)
    if is_wanted and not any(one.is_failing or one.lsn is None for one in targets):
        found += target_databases_event(row.subscription_name, targets).runless(row.subscription_name)
    return found


def no_subscription(workspace: Workspace) -> str:
    """Why a tick has nothing to do where there is no state."""
    return printable(
        f"there is no subscription in {workspace.home}: `ccpr subscribe`, or set CCPR_HOME to another folder"
    )


def read_verdicts(workspace: Workspace, rows: list[LogRow | BadRow]) -> dict[str, str]:
    """What `replica_current` would say of each, by name."""
    verdicts: dict[str, str] = {}
    troubled = tasks_with_target_trouble(workspace.log.engine)
    for row in rows:
        try:
            with unexpected():
                verdicts[row.subscription_name] = (
                    UNREADABLE
                    if isinstance(row, BadRow)
                    else quick_verdict(workspace, row, has_target_trouble=row.task_id in troubled)
                )
        except (StateUnreadable, UnexpectedError):
            verdicts[row.subscription_name] = UNREADABLE
    return verdicts
