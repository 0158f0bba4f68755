"""The snapshots of a subscription upstream: those that its row records, and those of a history that was lost, which no
row knows. A snapshot's name has its subscription's uid, so those of others are never listed or dropped."""

import re
from dataclasses import dataclass

from ccpr.matrixone.client import upstream_snapshots as upstream
from ccpr.matrixone.client.errors import NotPermitted, SnapshotGone
from ccpr.matrixone.client.snapshot_ref import is_of_account, marker_of
from ccpr.matrixone.client.upstream_session import Session
from ccpr.service.errors import SnapshotsHidden
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.errors import SubscriptionMissing
from ccpr.state.log_rows import LogRow
from ccpr.state.states import State
from ccpr.state.subscription import Subscription

LOST = "lost"


@dataclass(frozen=True, slots=True)
class UpstreamSnapshot:
    """A snapshot of a subscription. `role`: open, current, previous or orphan, if it is recorded; else lost. `exists`:
    whether the upstream has it."""

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
        there, complete = _names_upstream(session, subscription)
        # Read after the list, since a name is recorded before it is created: what is not recorded now was lost before.
        recorded = Context.from_text(row_of(workspace, name).context).recorded()
        found = [UpstreamSnapshot(one, role, _exists(session, subscription, one)) for one, role in recorded.items()]
    known = there | recorded.keys()  # with an account's snapshot its marker is dropped
    lost = sorted(there - recorded.keys() - {marker_of(one) for one in known if is_of_account(one)})
    return found + [UpstreamSnapshot(one, LOST, exists=True) for one in lost], complete


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
    lost = [entry.name for entry in found if entry.role == LOST]
    if not visible and not lost:
        publisher = subscription.publication.publisher
        raise SnapshotsHidden(f"only account {publisher} can list its snapshots", subject=f"subscription {name}")
    with workspace.connect(subscription) as session:
        for one in lost:
            upstream.drop_snapshot(session, one, subscription.publication)
    return lost


def _names_upstream(session: Session, subscription: Subscription) -> tuple[set[str], bool]:
    """Those that the login can see, and whether it can see all. Each account has a list of its own: a publication's
    snapshots are in the publisher's, those of an account as a whole in that of account sys."""
    own = session.endpoint.account.lower() == subscription.publication.publisher.lower()
    if not own and not subscription.of_account:
        return set(), False
    try:
        names = upstream.own_snapshots(session, f"xr_{subscription.uid}_")
    except NotPermitted:
        return set(), False
    ours = re.compile(rf"xr_{re.escape(subscription.uid)}_[0-9]+_[0-9]+(_[0-9a-f]+)?")
    return {name for name in names if ours.fullmatch(name)}, own


def _exists(session: Session, subscription: Subscription, name: str) -> bool:
    try:
        upstream.snapshot_timestamp(session, name, subscription.publication)
    except SnapshotGone:
        return False
    return True
