"""Dropping a subscription: its row, its snapshots upstream, and on request its mirror (docs/requirements.md O2).

The row is marked as dropped first. The same transaction moves the names of its snapshots to those that have to be
dropped. So a crash afterwards loses no name, and dropping again continues.
"""

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccpr.base.wording import first_names
from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.endpoint import Publication, format_uri
from ccpr.matrixone.client.errors import PublicationMissing
from ccpr.matrixone.client.retry import NO_RETRY
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.errors import KeyUnusable, KeyWrong, StoreFailed
from ccpr.mirror.layout import FOLDERS, HEAD, IDENTITY, Identity
from ccpr.mirror.open_store import open_store
from ccpr.mirror.store import Store
from ccpr.pipeline.options import Timeouts
from ccpr.service.errors import FollowerInUse, MirrorInUse, PointsHeld, TargetInUse
from ccpr.service.mirror_places import is_within, readable_subscriptions
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.database import repeatable, transaction
from ccpr.state.errors import MirrorForeign, StateUnreadable, SubscriptionMissing
from ccpr.state.log_rows import LogRow
from ccpr.state.pins import end_pins
from ccpr.state.subscription import Subscription
from ccpr.state.tables import METADATA, mo_ccpr_log
from ccpr.state.targets import TargetState

_TIMEOUTS = Timeouts(connect=5.0, read=30.0, retry=NO_RETRY)  # what cannot be dropped now can be dropped later
_PURGE_ATTEMPTS = 20
_UNKNOWN_UPSTREAM = "mysql://unknown@unknown:6001"


@dataclass(frozen=True, slots=True)
class Dropped:
    """How a drop ended.

    Attributes
    ----------
    snapshots_dropped : how many recorded snapshots were dropped upstream.
    snapshots_left : names of those that may still be there; they stay recorded unless the drop was forced.
    reason : why they are left.
    statements : the statements that drop them by hand.
    purged : the mirror's place, if its files were deleted.
    running : whether an executor was running, which may write files there until it notices the drop. Purging again
        deletes them.
    """

    name: str
    task_id: str
    snapshots_dropped: int
    snapshots_left: tuple[str, ...] = ()
    reason: str = ""
    statements: tuple[str, ...] = ()
    purged: str = ""
    running: bool = False

    @property
    def left(self) -> str:
        """A sentence about what may still be upstream."""
        count = len(self.snapshots_left)
        return f"{count} snapshot{'s' * (count != 1)} may still be upstream ({self.reason})"


def drop(workspace: Workspace, name: str, *, purge: bool = False, force: bool = False) -> Dropped:
    """End a subscription: a run under way cannot commit any more, the name is free, the snapshots upstream are dropped.

    If the upstream does not answer, the row keeps the snapshots' names, and calling this again tries them again. With
    `force` they are forgotten instead, and so are pins, and targets and followers, which stay as they are. The mirror
    stays readable; `purge` deletes its files and its points in the catalog database. With `force` a subscription whose
    row cannot be read is ended as well; its mirror is not purged, because its place is not known. Raises
    SubscriptionMissing; unless it is forced, TargetInUse if there are targets that were not released, FollowerInUse if
    there are followers, PointsPinned if other clusters have snapshots of it, and PointsHeld if held points would be
    purged.
    """
    try:
        return _drop_readable(workspace, name, purge=purge, force=force)
    except StateUnreadable as error:
        if not force:
            raise
        return _drop_unreadable(workspace, name, error)


def _drop_readable(workspace: Workspace, name: str, *, purge: bool, force: bool) -> Dropped:
    row, in_flight, running = _drop_row(workspace, name, purge=purge, force=force)
    subscription, context = Subscription.from_row(row), Context.from_text(row.context)
    left, reason, published = _drop_snapshots(workspace, subscription, context, in_flight)
    values: dict[str, Any] = {"context": Context(to_drop=() if force else left).to_text()}
    if force or not left:
        values["upstream_conn"] = format_uri(subscription.endpoint)  # the password is not needed any more
    workspace.log.clear_dropped(row.task_id, values)
    purged = _purge(workspace, subscription, force=force) if purge else ""
    publication = subscription.publication
    by_hand = _statements(left, publication, published=published)
    return Dropped(name, row.task_id, len(context.to_drop) - len(left), left, reason, by_hand, purged, running)


def _statements(left: Iterable[str], publication: Publication, *, published: bool = True) -> tuple[str, ...]:
    """What drops these snapshots by hand."""
    return tuple(
        one for name in left for one in upstream_snapshots.drop_statements(name, publication, published=published)
    )


def _drop_row(workspace: Workspace, name: str, *, purge: bool, force: bool) -> tuple[LogRow, str | None, bool]:
    """The dropped row, the name of a snapshot that a running executor may be about to create, and whether there is
    one. A row that was dropped before counts if something of it is left.
    """
    try:
        row = workspace.log.row(name)
    except SubscriptionMissing:
        row = workspace.log.dropped_row(name)
        if row is None or not (Context.from_text(row.context).to_drop or purge):
            raise
        _check_not_held(workspace, row, purge=purge, force=force)
        return row, None, False
    _check_not_held(workspace, row, purge=purge, force=force)
    opened = Context.from_text(row.context).open
    Subscription.from_row(row)  # raises StateUnreadable before anything is written
    records = workspace.of(row).targets
    synced = [target.name for target in records.databases() if target.state is TargetState.ACTIVE]
    if synced and not force:
        raise TargetInUse("tables in it are being synced", subject=f"target {', '.join(synced)}")
    followers = workspace.of(row).followers
    following = [] if force else [follower.name for follower in followers.all()]
    if following:
        raise FollowerInUse("it follows the subscription", subject=f"follower {', '.join(following)}")
    held = workspace.log.is_held(row) and row.cn_uuid is not None and not workspace.executor.is_dead(row.cn_uuid)
    dropped = workspace.log.drop(name, lambda connection, live: end_pins(connection, live.task_id, force=force))
    for target in records.all():  # with their passwords
        records.remove(target.name)
    followers.remove_all()
    return dropped, opened.name if held and opened is not None and opened.physical is None else None, held


def _check_not_held(workspace: Workspace, row: LogRow, *, purge: bool, force: bool) -> None:
    held = workspace.of(row).kept.holds() if purge and not force else []
    if held:
        text = first_names(f"{hold.name} (point {hold.lsn})" for hold in held)
        raise PointsHeld(
            f"they would be deleted with the mirror: {text}", subject=f"subscription {row.subscription_name}"
        )


def _drop_snapshots(
    workspace: Workspace, subscription: Subscription, context: Context, in_flight: str | None
) -> tuple[tuple[str, ...], str, bool]:
    """Drop what is recorded. Returns the names that may still be upstream, why, and False if the publication is gone,
    by which they could be dropped."""
    left, reason, published = set(context.to_drop), "", True
    if not left:
        return (), "", published
    try:
        with workspace.connect(subscription, _TIMEOUTS) as session:
            for name in context.to_drop:
                upstream_snapshots.drop_snapshot(session, name, subscription.publication)
                left.discard(name)
    except CcprError as error:
        reason, published = str(error), not isinstance(error, PublicationMissing)
    if in_flight is not None and in_flight not in left:
        left.add(in_flight)
        reason = "an executor was running and may still create this snapshot"
    return tuple(name for name in context.to_drop if name in left), reason, published


def _purge(workspace: Workspace, subscription: Subscription, *, force: bool) -> str:
    """Delete the mirror's files and the subscription's points; the dropped row stays. Raises MirrorInUse if another
    subscription uses the place by now.
    """
    store = open_store(workspace.mirror_place(subscription.name, subscription.settings))
    for other in readable_subscriptions(workspace.log.rows()):
        if is_within(workspace.mirror_place(other.name, other.settings), store.url):
            raise MirrorInUse(f"it is the place of subscription {other.name}'s mirror by now", subject=store.url)
    identity = _identity(workspace, subscription, force=force)
    if identity is not None and identity.task_id != subscription.task_id:
        raise MirrorForeign(f"it is the mirror of subscription {identity.subscription!r}", subject=store.url)
    store.delete(HEAD)  # first: without it this is not a mirror any more
    for folder in FOLDERS:
        _delete_folder(store, folder)
    store.delete(IDENTITY)
    store.sweep()
    if store.folder is not None:
        _remove_empty(store.folder)
    _forget_points(workspace, subscription.task_id)
    return store.url


def _identity(workspace: Workspace, subscription: Subscription, *, force: bool) -> Identity | None:
    """Whose mirror it is. With `force` it may also be one whose key was lost."""
    try:
        return workspace.mirror_of(subscription).identity()
    except (KeyUnusable, KeyWrong):
        if not force:
            raise
        return None


def _delete_folder(store: Store, folder: str) -> None:
    """Delete it although a run may still write there. Raises StoreFailed; MirrorInUse if the run is faster."""
    for _ in range(_PURGE_ATTEMPTS):
        try:
            return store.delete_folder(folder)
        except StoreFailed as error:
            cause = error.__cause__
            if not (isinstance(cause, OSError) and cause.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)):
                raise
    raise MirrorInUse(
        "a run that was under way still writes there",
        subject=f"{store.url}/{folder}",
        remedy="Repeat the same command when the run has ended: it deletes the rest.",
    )


def _remove_empty(root: Path) -> None:
    for folder in (*(path for path in root.glob(".*") if path.is_dir()), root):
        try:
            folder.rmdir()
        except OSError:
            return  # it has files that are not ours


def _drop_unreadable(workspace: Workspace, name: str, error: StateUnreadable) -> Dropped:
    """End a subscription whose row cannot be read. Its snapshots stay upstream; their names say whose they are."""
    try:
        row = workspace.log.forget(name)
    except SubscriptionMissing:
        row = workspace.log.dropped_row(name)  # it was dropped before its row was damaged
        if row is None:
            raise error from None
    records = workspace.of(row).targets
    for target in records.all():
        records.remove(target.name)
    workspace.of(row).followers.remove_all()
    left = tuple(Context.from_text(row.context).to_drop)
    try:
        known = Subscription.from_row(row)
    except StateUnreadable:
        known = None
    sound = {
        "context": Context().to_text(),
        "upstream_conn": format_uri(known.endpoint) if known else _UNKNOWN_UPSTREAM,
        "sync_config": row.sync_config if known else "{}",  # from which a later --purge reads the mirror's place
    }
    workspace.log.clear_dropped(row.task_id, sound)
    publication = Publication(row.publication_name, row.subscription_account_name, row.account_id)
    by_hand = _statements(left, publication)
    return Dropped(name, row.task_id, 0, left, f"its row could not be read: {error.message}", by_hand)


@repeatable
def _forget_points(workspace: Workspace, task_id: str) -> None:
    with transaction(workspace.log.engine) as connection:
        for table in METADATA.tables.values():
            if table is mo_ccpr_log:
                continue
            owner = table.c.get("task_id", table.c.get("id"))
            if owner is not None:
                connection.execute(table.delete().where(owner == task_id))
