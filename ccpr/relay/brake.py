"""The brake of followers: a point at which most tables are gone is not shown to a follower until that is approved. Its
cluster would drop them (decision drops-held)."""

from collections.abc import Iterable

from ccpr.base.errors import Failure
from ccpr.base.wording import first_names
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.errors import PointNotReached
from ccpr.relay.errors import FollowerDropsHeld
from ccpr.schema.choices import DEFAULT_MAX_DROP
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower, TaskSeen

_SHOWN = 10


def gone_at_once(before: Iterable[Table], after: Iterable[Table]) -> list[str]:
    """Names of the tables that are gone, if they are too many to be dropped unasked; else none. A table that was
    replaced or renamed is not gone."""
    there, here = [table for table in before if table.kind is Kind.TABLE], list(after)
    names, ids = {table.name for table in here}, {table.logical_id for table in here}
    gone = [table.name for table in there if table.name not in names and table.logical_id not in ids]
    return gone if DEFAULT_MAX_DROP.holds(len(gone), len(there)) else []


def held_back(workspace: Workspace, follower: Follower, seen: TaskSeen) -> Failure | None:
    """Why a follower stays where it is, if it is this brake. Only of one that has not moved since it was last asked:
    to compare the tables of two points costs more than the question."""
    if follower.seen is None or not seen.watermark or follower.seen.watermark != seen.watermark:
        return None
    history = workspace.of(follower).history
    at, newest = history.point_of(seen.watermark), history.newest()
    if at is None or newest is None or newest.lsn <= max(at.lsn, follower.approved_lsn):
        return None
    before, after = ((one.table for one in history.tables(lsn).values()) for lsn in (at.lsn, newest.lsn))
    gone = gone_at_once(before, after)
    if not gone:
        return None
    text = f"{len(gone)} tables are gone at point {newest.lsn}: {first_names(gone, most=_SHOWN)}; it stays at {at.lsn}"
    return Failure.of(FollowerDropsHeld(text, subject=f"follower {follower.name}"))


def approve(workspace: Workspace, name: str, follower_name: str) -> int:
    """Let a follower go on to the newest point, whatever it drops then. Returns its lsn. Raises SubscriptionMissing,
    FollowerMissing, PointNotReached."""
    row = workspace.log.row(name)
    records = workspace.of(row).followers
    follower = records.get(follower_name)
    newest = workspace.of(row).history.newest()
    if newest is None:
        raise PointNotReached("it has no point yet", subject=f"subscription {name}")
    records.change(follower.name, approved_lsn=newest.lsn)
    return newest.lsn
