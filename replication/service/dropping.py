"""The end of a subscription: its row, its snapshots upstream, and on request its mirror (requirement O2).

The row is marked first, in one transaction, which also moves the names of its snapshots to those that are to be
dropped. So a crash afterwards loses none of them: dropping again goes on.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrixone.errors import CcprError
from matrixone.upstream import snapshots, statements
from matrixone.upstream.endpoint import format_uri
from matrixone.upstream.retry import NO_RETRY
from replication.errors import MirrorInUse, StateUnreadable, SubscriptionMissing, TargetInUse
from replication.iteration.options import Timeouts
from replication.mirror.local_store import LocalStore
from replication.service.subscriptions import HEAD, MIRROR_FOLDERS, place_of, readable, within
from replication.service.workspace import Workspace
from replication.state.context import Context
from replication.state.database import repeatable, transaction
from replication.state.log_rows import LogRow
from replication.state.subscription import Subscription
from replication.state.tables import METADATA, mo_ccpr_log
from replication.state.targets import TargetRecords, TargetState

_DROPPING = Timeouts(connect=5.0, read=30.0, retry=NO_RETRY)  # what cannot be dropped now can be later
_UNKNOWN_UPSTREAM = "mysql://unknown@unknown:6001"


@dataclass(frozen=True, slots=True)
class Dropped:
    """How a drop ended.

    Attributes
    ----------
    snapshots_dropped : how many recorded ones are gone upstream.
    snapshots_left : names of those that may still be there; they stay recorded unless the drop was forced.
    reason : why they are left.
    statements : what drops them by hand.
    purged : the mirror's place, if its files were deleted.
    """

    name: str
    task_id: str
    snapshots_dropped: int
    snapshots_left: tuple[str, ...] = ()
    reason: str = ""
    statements: tuple[str, ...] = ()
    purged: str = ""


def drop(workspace: Workspace, name: str, *, purge: bool = False, force: bool = False) -> Dropped:
    """End a subscription: whatever runs cannot commit any more, its name is free, its snapshots upstream are dropped.

    If the upstream does not answer, the row keeps the snapshots' names, and calling this again tries them again; with
    `force` they are forgotten instead, and so are targets, whose tables stay as they are. The mirror stays readable;
    `purge` deletes its files and what the catalog database knows of its points. With `force` one whose row cannot be
    read is ended, too; there is no mirror to be purged then, for nothing says where it is. Raises SubscriptionMissing;
    TargetInUse if there are targets that were not released, unless it is forced.
    """
    try:
        return _drop(workspace, name, purge=purge, force=force)
    except StateUnreadable as error:
        if not force:
            raise
        return _forget(workspace, name, error)


def _drop(workspace: Workspace, name: str, *, purge: bool, force: bool) -> Dropped:
    row, in_flight = _drop_row(workspace, name, purge=purge, force=force)
    subscription, context = Subscription.from_row(row), Context.from_text(row.context)
    left, reason = _drop_snapshots(workspace, subscription, context, in_flight)
    values: dict[str, Any] = {"context": Context(to_drop=() if force else left).to_text()}
    if force or not left:
        values["upstream_conn"] = format_uri(
            subscription.endpoint
        )  # without the password: nobody connects there any more
    workspace.log.clear_dropped(row.task_id, values)
    purged = ""
    if purge:
        purged = _purge(workspace, subscription)
    by_hand = tuple(
        statements.drop_snapshot(snapshot, subscription.publication.publisher, subscription.publication.name) + ";"
        for snapshot in left
    )
    return Dropped(name, row.task_id, len(context.to_drop) - len(left), left, reason, by_hand, purged)


def _drop_row(workspace: Workspace, name: str, *, purge: bool, force: bool) -> tuple[LogRow, str | None]:
    """The dropped row, and the name of a snapshot that a running executor may be about to make. One that was dropped
    before, if something of it is left.
    """
    try:
        row = workspace.log.row(name)
    except SubscriptionMissing:
        row = workspace.log.dropped_row(name)
        if row is None or not (Context.from_text(row.context).to_drop or purge):
            raise
        return row, None
    opened, _ = (
        Context.from_text(row.context).open,
        Subscription.from_row(row),
    )  # before anything is written: can it be read at all?
    records = TargetRecords(workspace.log.engine, row.task_id)
    fed = [target.name for target in records.all() if target.state is TargetState.ACTIVE]
    if fed and not force:
        raise TargetInUse("tables in it are being synced", subject=f"target {', '.join(fed)}")
    held = workspace.log.is_held(row) and row.cn_uuid is not None and not workspace.executor.is_dead(row.cn_uuid)
    dropped = workspace.log.drop(name)
    for target in records.all():  # with their passwords
        records.remove(target.name)
    return dropped, opened.name if held and opened is not None and opened.physical is None else None


def _drop_snapshots(
    workspace: Workspace, subscription: Subscription, context: Context, in_flight: str | None
) -> tuple[tuple[str, ...], str]:
    """Names that may still be upstream, and why."""
    left, reason = set(context.to_drop), ""
    if not left:
        return (), ""
    try:
        with workspace.connect(subscription, _DROPPING) as session:
            for name in context.to_drop:
                snapshots.drop_snapshot(session, name, subscription.publication)
                left.discard(name)
    except CcprError as error:
        reason = str(error)
    if in_flight is not None and in_flight not in left:
        left.add(in_flight)
        reason = "an executor was at work and may make this snapshot after all"
    return tuple(name for name in context.to_drop if name in left), reason


def _purge(workspace: Workspace, subscription: Subscription) -> str:
    """Delete the mirror's files and the subscription's points; the row stays as the record of what was. Raises
    MirrorInUse if somebody else uses the place by now.
    """
    store = place_of(workspace, subscription.name, subscription.settings)
    for other in readable(workspace.log.rows()):
        if within(place_of(workspace, other.name, other.settings).url, store.url):
            raise MirrorInUse(f"it is the place of subscription {other.name}'s mirror by now", subject=store.url)
    store.delete(HEAD)  # first: without it nothing here is a mirror
    for folder in MIRROR_FOLDERS:
        store.delete_folder(folder)
    store.sweep()
    if isinstance(store, LocalStore):
        _remove_empty(store.root)
    _forget_points(workspace, subscription.task_id)
    return store.url


def _remove_empty(root: Path) -> None:
    for folder in (*(path for path in root.glob(".*") if path.is_dir()), root):
        try:
            folder.rmdir()
        except OSError:
            return  # something of another hand is in it


def _forget(workspace: Workspace, name: str, error: StateUnreadable) -> Dropped:
    """End one whose row cannot be read. Its snapshots stay upstream, where their names tell whose they are."""
    try:
        row = workspace.log.forget(name)
    except SubscriptionMissing:
        row = workspace.log.dropped_row(name)  # of one that was marked before its row was damaged
        if row is None:
            raise error from None
    records = TargetRecords(workspace.log.engine, row.task_id)
    for target in records.all():
        records.remove(target.name)
    left = tuple(Context.from_text(row.context).to_drop)
    try:
        known = Subscription.from_row(row)
    except StateUnreadable:
        known = None
    sound = {
        "context": Context().to_text(),
        "upstream_conn": format_uri(known.endpoint) if known else _UNKNOWN_UPSTREAM,
        "sync_config": row.sync_config if known else "{}",  # of which a later --purge takes the mirror's place
    }
    workspace.log.clear_dropped(row.task_id, sound)
    by_hand = tuple(
        statements.drop_snapshot(snapshot, row.subscription_account_name, row.publication_name) + ";"
        for snapshot in left
    )
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
