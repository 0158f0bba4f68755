"""The snapshots of a subscription upstream: those that its row records, and those of a history that was lost, which no
row knows. A snapshot's name has its subscription's uid, so nobody else's is ever listed or dropped."""

import re
from dataclasses import dataclass

from matrixone.upstream import snapshots as upstream
from matrixone.upstream.account_snapshots import marker_of
from matrixone.upstream.errors import NotPermitted, SnapshotGone
from matrixone.upstream.session import Session
from replication.errors import SnapshotsHidden, SubscriptionMissing
from replication.service.workspace import Workspace
from replication.state.context import Context
from replication.state.log_rows import LogRow
from replication.state.states import State
from replication.state.subscription import Subscription

LOST = "lost"


@dataclass(frozen=True, slots=True)
class UpstreamSnapshot:
    """A snapshot of a subscription.

    Attributes
    ----------
    role : open, current, previous or orphan, if it is recorded; else lost.
    exists : whether the upstream has it.
    """

    name: str
    role: str
    exists: bool


def row_of(workspace: Workspace, name: str) -> LogRow:
    """The subscription's row, or that of a dropped one some of whose snapshots could not be dropped. Raises
    SubscriptionMissing."""
    try:
        return workspace.log.row(name)
    except SubscriptionMissing:
        row = workspace.log.dropped_row(name)
        if row is None:
            raise
        return row


def list_snapshots(workspace: Workspace, name: str) -> tuple[list[UpstreamSnapshot], bool]:
    """Those that are recorded, then lost ones; and whether the login can see lost ones. None of a subscription that was
    dropped with all of its snapshots: its password is forgotten."""
    row = row_of(workspace, name)
    if row.state == State.DROPPED and not Context.from_text(row.context).recorded():
        return [], True
    subscription = Subscription.from_row(row)
    with workspace.connect(subscription) as session:
        there = _names_upstream(session, subscription)
        # Read after the list, since a name is recorded before it is created: what is not recorded now was lost before.
        recorded = Context.from_text(row_of(workspace, name).context).recorded()
        found = [UpstreamSnapshot(one, role, _exists(session, subscription, one)) for one, role in recorded.items()]
    lost = sorted((there or set()) - recorded.keys() - set(map(marker_of, recorded)))
    return found + [UpstreamSnapshot(one, LOST, exists=True) for one in lost], there is not None


def drop_lost_snapshots(workspace: Workspace, name: str) -> list[str]:
    """Drop the lost snapshots. Returns their names.

    Raises SnapshotsHidden, and MirrorDisagrees: a mirror that another copy of the state has written to may be of a
    history that is not lost.
    """
    row = row_of(workspace, name)
    subscription = Subscription.from_row(row)
    if row.state != State.DROPPED:
        workspace.mirror(name)
    found, visible = list_snapshots(workspace, name)
    if not visible:
        publisher = subscription.publication.publisher
        raise SnapshotsHidden(f"only account {publisher} can list its snapshots", subject=f"subscription {name}")
    lost = [entry.name for entry in found if entry.role == LOST]
    with workspace.connect(subscription) as session:
        for one in lost:
            upstream.drop_snapshot(session, one, subscription.publication)
    return lost


def _names_upstream(session: Session, subscription: Subscription) -> set[str] | None:
    """None if the login cannot see them. Each account has a list of its own, and a publication's snapshots are in the
    publisher's."""
    if session.endpoint.account.lower() != subscription.publication.publisher.lower():
        return None
    try:
        names = upstream.own_snapshots(session, f"xr_{subscription.uid}_")
    except NotPermitted:
        return None
    ours = re.compile(rf"xr_{re.escape(subscription.uid)}_[0-9]+_[0-9]+(_[0-9a-f]+)?")
    return {name for name in names if ours.fullmatch(name)}


def _exists(session: Session, subscription: Subscription, name: str) -> bool:
    try:
        upstream.snapshot_timestamp(session, name, subscription.publication)
    except SnapshotGone:
        return False
    return True
