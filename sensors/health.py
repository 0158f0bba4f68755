"""Keeps Dagster's picture of the subscriptions right whoever runs them, and if nobody does: partitions for new ones,
and `replica_current` of subscriptions and followers where it has changed. It starts nothing and asks nobody."""

import dagster as dg

from ccpr_assets.followers import follower_events
from ccpr_assets.health import UNREADABLE, quick_verdict
from ccpr_assets.partitions import SUBSCRIPTIONS
from ccpr_assets.reporting import changed, health_events
from matrixone.sql.quoting import printable
from replication.errors import StateUnavailable, StateUnreadable, SubscriptionMissing, UnexpectedError
from replication.loops import unexpected
from replication.service.workspace import Workspace
from replication.state.log_rows import BadRow, LogRow
from replication.state.targets import tasks_with_target_trouble
from resources.replication import Replication

_NEWS_PER_TICK = 100  # the next tick reports the rest


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Gives each new subscription its partition, and evaluates `replica_current` of those that have got too "
    "old, have failed or have recovered, whoever runs them: ccpr_log_sensor, `ccpr serve`, `ccpr run`, or nobody.",
)
def replica_health_sensor(context: dg.SensorEvaluationContext, replication: Replication) -> dg.SensorResult:
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
