"""Followers as assets, `<subscription>/followers/<follower>/<database>`: databases of other clusters that take their
points from the relay. Each has a check `replica_current`: does it show the newest point, and if not, why.

Their clusters are asked by `ccpr serve` and `ccpr relay serve`; here the answers are read. Service, ticks and runs
report what has changed since it was reported last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from ccpr.dagster import metadata
from ccpr.dagster.events import MIRROR
from ccpr.dagster.health import REPLICA_CURRENT, Health, error_shown, objective_of, says_of, short, with_names
from ccpr.dagster.keys import Runless
from ccpr.dagster.replication import state_check
from ccpr.dagster.verdicts import known_verdicts, news_of, remember, verdict_key
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.lag import LagMeter
from ccpr.service.follower_status import follower_status, unwatched
from ccpr.service.status import ReadRow
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower, all_followers
from ccpr.state.log_rows import LogRow

FOLLOWERS = "followers"
DESCRIPTION = (
    "The follower shows the newest point, or newer ones are not older than the subscription's objective; its cluster "
    "answers, and its subscription there has no error. What it says is what to do. Executing the check reads the state "
    "and does not connect to the cluster."
)


@dataclass(frozen=True, slots=True)
class FollowerHealth(Health):
    """Whether a follower is current. `lsn`: of the point that it shows."""

    follower: str = ""
    database: str = ""
    lsn: int | None = None

    @property
    def key(self) -> dg.AssetKey:
        return follower_key(self.subscription, self.follower, self.database)

    @property
    def verdict(self) -> str:
        return f"{self.state}, {self.current}, {self.lsn}, {self.shown.get(metadata.ERROR_CODE, '')}"


def follower_key(subscription: str, follower: str, database: str) -> dg.AssetKey:
    return metadata.asset_key(subscription, FOLLOWERS, follower, database)


def follower_asset(subscription: str, follower: str, database: str, group: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        follower_key(subscription, follower, database),
        deps=[MIRROR],
        group_name=group,
        kinds={"matrixone"},
        description=f"Database {printable(database)} of another MatrixOne, which takes its points from the "
        f"relay: `ccpr status {printable(subscription)}`.",
    )


def follower_check(
    subscription: str, follower: str, database: str, prefix: Sequence[str] = ()
) -> dg.AssetChecksDefinition:
    def read(workspace: Workspace) -> dg.AssetCheckResult:
        row = workspace.log.row(subscription)
        return follower_health(workspace, row, workspace.of(row).followers.get(follower)).result()

    key = follower_key(subscription, follower, database)
    return state_check(key, REPLICA_CURRENT, DESCRIPTION, prefix, read)


def follower_events(instance: dg.DagsterInstance, workspace: Workspace) -> list[Runless]:
    """News of all followers: those whose reported verdict is another one, or missing. Raises StateUnavailable,
    StateUnreadable."""
    followers, _ = all_followers(workspace.log.engine)
    if not followers:
        return []
    rows = {row.task_id: row for row in workspace.log.all_rows()[0]}
    found = {_key(one): follower_health(workspace, rows[one.task_id], one) for one in followers if one.task_id in rows}
    news = news_of(known_verdicts(instance, found), found)
    remember(instance, news)
    return [event for health in news.values() for event in health.events()]


def follower_health(workspace: Workspace, row: LogRow, follower: Follower) -> FollowerHealth:
    """By the state database alone. Raises StateUnreadable, StateUnavailable."""
    read, now = ReadRow.of(row), workspace.clock()
    history = workspace.of(row).history
    newest, lag = history.newest(), LagMeter(workspace.clock).read(row.task_id, read.context)
    status = follower_status(follower, history, newest, row, lag)
    objective, error = objective_of(read.subscription.settings), status.last_error
    missing = history.global_points(-1 if status.lsn is None else status.lsn)
    missing = [point for point in missing if point.at.physical > status.watermark]
    waited = max(0.0, now - missing[0].committed_at.timestamp()) if missing else 0.0
    grave = ""
    if error is not None:
        error = with_names(error, {"NAME": row.subscription_name, "FOLLOWER": follower.name})
        grave = says_of(error)
    elif waited > objective:
        grave = (
            f"it shows {'no point' if status.lsn is None else f'point {status.lsn}'}; there has been a newer one for "
            f"{waited:.0f} s, the objective is {objective:.0f} s: see whether its cluster works, and whether the relay "
            f"runs (`ccpr status {row.subscription_name}`)"
        )
    notes = list(filter(None, [unwatched(follower, now)]))
    if status.is_unfinished:
        notes.append(f"it is {status.state}: a command is under way with it; if that was interrupted, type it again")
    elif status.lsn is None and error is None:
        notes.append("it has no point yet: the first load is under way")
    as_of = None if status.lag_seconds is None else datetime.fromtimestamp(now - status.lag_seconds, UTC)
    shown = error_shown(error, None)
    if status.lsn is not None:
        shown[metadata.SHOWN_POINT] = status.lsn
    if newest is not None:
        shown[metadata.NEWEST_POINT] = newest.lsn
    return FollowerHealth(
        row.subscription_name,
        status.state,
        not grave and not notes,
        bool(grave),
        short("; ".join(filter(None, [grave, *notes])) or f"it shows point {status.lsn}, and nothing is wrong"),
        as_of,
        status.lag_seconds,
        objective,
        shown,
        follower.name,
        follower.database,
        status.lsn,
    )


def _key(follower: Follower) -> str:
    return verdict_key("follower", f"{follower.task_id} {follower.name}")
