"""Keeps Dagster's picture of the subscriptions right whoever runs them, and if nobody does: partitions for new ones,
and `replica_current` of subscriptions and followers where it has changed. It starts nothing and asks nobody."""

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.dagster.followers import follower_events
from ccpr.dagster.health import UNREADABLE, quick_verdict
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.dagster.replication import Replication
from ccpr.dagster.reporting import changed, health_events
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnavailable, StateUnreadable, SubscriptionMissing
from ccpr.state.log_rows import BadRow, LogRow
from ccpr.state.targets import tasks_with_target_trouble

_NEWS_PER_TICK = 100  # the next tick reports the rest


def build_health_sensor() -> dg.SensorDefinition:
    """The sensor that keeps partitions and `replica_current` right."""

    @dg.sensor(
        name="replica_health_sensor",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Gives each new subscription its partition, and evaluates `replica_current` of those that have "
        "got too old, have failed or have recovered, whoever runs them: ccpr_log_sensor, `ccpr serve`, `ccpr run`, or "
        "nobody.",
    )
    def sensor(context: dg.SensorEvaluationContext, replication: Replication) -> dg.SensorResult:
        workspace = replication.workspace
        if not workspace.has_catalog:
            return dg.SensorResult(skip_reason="there is no subscription")
        rows, bad = workspace.log.all_rows()
        verdicts = read_verdicts(workspace, [*rows, *bad])
        news = sorted(changed(context.instance, verdicts))[:_NEWS_PER_TICK]
        try:
            events = health_events(context.instance, workspace, news) if news else []
            events += follower_events(context.instance, workspace)
        except (SubscriptionMissing, StateUnavailable):  # dropped meanwhile; the next tick looks again
            news, events = [], []
        assert SUBSCRIPTIONS.name is not None
        present = context.instance.get_dynamic_partitions(SUBSCRIPTIONS.name)
        new = [name for name in verdicts if name not in present]
        text = f"{len(verdicts)} subscriptions" + (f"; changed: {', '.join(news)}" if news else ", nothing has changed")
        return dg.SensorResult(
            skip_reason=printable(text),
            asset_events=events,
            dynamic_partitions_requests=[SUBSCRIPTIONS.build_add_request(new)] if new else [],
        )

    return sensor


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
