"""Points by name: holding, releasing and dropping them."""

import math
from collections.abc import Callable, Collection
from datetime import datetime

from ccpr.mirror.errors import BadName, BadOption, HoldMissing, PointGone
from ccpr.mirror.kept_points import HOLD_NAME, Hold
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point, instant_text, nanoseconds_of
from ccpr.pipeline.lag import LagMeter
from ccpr.retention.dropping import Replica, drop_points
from ccpr.retention.retention import take_inventory
from ccpr.service.errors import HoldExists
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.errors import StateUnavailable
from ccpr.state.kept_records import KeptChanged
from ccpr.state.ledger import due_time
from ccpr.state.publishing import publish_pending
from ccpr.state.subscription import Subscription

_ATTEMPTS = 20  # while others hold and drop points


def hold(
    workspace: Workspace, name: str, at: int | datetime | str | None, held_as: str | None, until: datetime | None
) -> Hold:
    """Hold the point that shows `at`, without the lease: a run may be under way. Held again in the same way, nothing
    changes. `held_as`: the name; `held-LSN` if not given. `until`: by the upstream's clock; None, or a time later than
    its nanoseconds can say (in 2262) = until it is released. Raises BadName, BadOption for a time that has passed,
    HoldExists, PointGone, PointNotReached, MirrorDisagrees."""
    mirror = workspace.mirror(name)
    point = mirror.point(at)
    held_as = held_as or f"held-{point.lsn}"
    if not HOLD_NAME.fullmatch(held_as):
        remedy = "Choose one that begins with a letter, of letters, digits, '_', '-' and '.', at most 63 characters."
        raise BadName("not a name for a held point", subject=f"name {held_as[:80]!r}", remedy=remedy)
    end = None if until is None else nanoseconds_of(until)
    reached = workspace.log.row(name).watermark
    if end is not None and end <= reached:
        remedy = "Name a later one with --until, or leave it out: then the point is held until it is released."
        text = f"the upstream's clock was at {instant_text(reached)} already"
        raise BadOption(text, subject=f"--until {until}", remedy=remedy)
    end = None if end is None or end >= 2**63 else end
    wanted = Hold(held_as, point.lsn, end, workspace.now())

    def add(held: tuple[Hold, ...]) -> tuple[Hold, ...]:
        before = next((hold for hold in held if hold.name == held_as), None)
        if before is None:
            return tuple(sorted((*held, wanted), key=lambda hold: hold.name))
        if (before.lsn, before.until) != (wanted.lsn, wanted.until):
            known = "" if before.until is None else f" until {instant_text(before.until)}"
            raise HoldExists(f"it is point {before.lsn}{known}", subject=f"held point {held_as}")
        return held

    _change(workspace, name, mirror, add, point)
    return wanted


def release(workspace: Workspace, name: str, held_as: str) -> Hold:
    """End a hold; the point goes as the rules say. Raises HoldMissing."""
    released: list[Hold] = []

    def remove(held: tuple[Hold, ...]) -> tuple[Hold, ...]:
        released[:] = [hold for hold in held if hold.name == held_as]
        if not released:
            raise HoldMissing("no point is held by that name", subject=f"held point {held_as[:80]}")
        return tuple(hold for hold in held if hold.name != held_as)

    _change(workspace, name, workspace.mirror(name), remove)
    return released[0]


def drop(workspace: Workspace, name: str, lsns: Collection[int]) -> None:
    """Drop points, whatever rules keep them; their files go an hour later. Raises PointsNeeded if one of them is the
    newest, is held, or something is made from it; PointGone if none is there, SubscriptionBusy."""
    with workspace.lease(name) as lease:
        row = lease.claim.row
        subscription = Subscription.from_row(row)
        mirror = workspace.mirror_of(subscription)
        publish_pending(workspace.log, name, mirror, lease.claim)
        replica = Replica(workspace.log.engine, row.task_id, mirror)
        inventory = take_inventory(replica)
        dropped = {point.lsn for point in inventory.points if point.lsn in lsns}
        if not dropped:
            raise PointGone("the points have been dropped", subject=mirror.store.url)
        inventory.check_droppable(dropped)
        age = LagMeter(workspace.clock).read(row.task_id, Context.from_text(row.context)).seconds or 0.0
        due = inventory.watermark // 10**9 + math.ceil(age) + subscription.settings.retain_files
        lease.confirm()
        try:
            drop_points(replica, inventory, dropped, inventory.holds, due)
        except KeptChanged as error:
            raise _changed(name) from error
        publish_pending(workspace.log, name, mirror, lease.claim)


def _change(
    workspace: Workspace,
    name: str,
    mirror: Mirror,
    change: Callable[[tuple[Hold, ...]], tuple[Hold, ...]],
    point: Point | None = None,
) -> None:
    """Change what is held. `point`: one that must still be there."""
    task_id = workspace.log.row(name).task_id
    replica = Replica(workspace.log.engine, task_id, mirror)
    for _ in range(_ATTEMPTS):
        inventory = take_inventory(replica)
        holds = change(inventory.kept.holds)
        if holds != inventory.kept.holds:
            try:
                drop_points(replica, inventory, (), holds, due_time(inventory.watermark), point)
            except KeptChanged:
                continue
        publish_pending(workspace.log, name, mirror)
        return
    raise _changed(name)


def _changed(name: str) -> StateUnavailable:
    text = "points are held, pinned and dropped faster than this could be done"
    return StateUnavailable(text, subject=f"subscription {name}", remedy="Type it again.")
