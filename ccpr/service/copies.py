"""Second copies of a mirror: bringing one to where the mirror is, and making one the mirror that is written. What came
of it is recorded for `ccpr status`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

from ccpr.base.clock import Clock
from ccpr.base.errors import Failure
from ccpr.base.loops import unexpected
from ccpr.maintenance.adopt import Adopted, adopt
from ccpr.maintenance.claims import Worker, claimed
from ccpr.maintenance.second_copy import Copied, SecondCopy
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.encryption_keys import IN_CLEAR, without_key
from ccpr.mirror.errors import BadName, KeyUnusable, PointGone, PointNotReached
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store, place_of
from ccpr.retention.pinning import end_left, pinned
from ccpr.service.mirror_places import check_free, check_place
from ccpr.service.subscriptions import canonical
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import CopyRecord, copy_id
from ccpr.state.errors import MirrorForeign, StateUnavailable, SubscriptionBusy
from ccpr.state.pins import Pins
from ccpr.state.publishing import check_owner
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription

_ATTEMPTS = 20  # while points go
_PIN = "ccpr_copy_"


def copy(
    workspace: Workspace,
    name: str,
    to: str,
    encrypt: str = "",
    on_bytes: Callable[[int], None] = lambda size: None,
    *,
    give_up: int | None = None,
) -> Copied:
    """Bring a copy to where the mirror is; a new one is begun in an empty place. Iterations go on meanwhile, and no
    point goes. Killed, it goes on where it was. `encrypt`: where the copy's key is, or IN_CLEAR; if neither this nor
    `to` says it, that of the mirror. `give_up`: as `SecondCopy` has it. Raises BadName, BadSetting, MirrorInUse,
    KeyUnusable, and what `SecondCopy` raises."""
    row = workspace.log.row(name)
    settings = _at(Subscription.from_row(row).settings, to, encrypt)
    records, place = workspace.of(row).copies, workspace.mirror_place(name, settings)
    check_free(workspace, name, place, workspace.log.all_rows()[0])
    began = workspace.now()
    known = replace(records.of(place) or CopyRecord(place, settings.encrypt, began), started_at=began)
    mirror, pins = workspace.mirror(name), workspace.of(row).pins
    second = Mirror(workspace.mirror_store(name, settings))
    try:
        with unexpected():
            work = SecondCopy(mirror, second, on_bytes=on_bytes, give_up=give_up, worker=worker_of(workspace))
            copied = work.run(partial(_oldest_pinned, mirror, pins, workspace.clock, f"{_PIN}{copy_id(place)}_"))
    except SubscriptionBusy:
        raise  # it has not failed: another does it
    except CcprError as error:
        records.put(known.failed(Failure.of(error)))
        raise
    records.put(replace(known.reached(copied.newest_point, copied.at), encrypt=settings.encrypt))
    return copied


def worker_of(workspace: Workspace) -> Worker:
    """This process, as who works at a place; it does not wait for others."""
    return Worker(workspace.executor.id, workspace.executor.is_dead, 0.0)


@contextmanager
def _oldest_pinned(mirror: Mirror, pins: Pins, clock: Clock, prefix: str) -> Iterator[None]:
    """The oldest point stays, and so do all after it. Raises PointNotReached, StateUnavailable."""
    end_left(pins, prefix)  # of a copy that was killed
    with ExitStack() as held:
        for _ in range(_ATTEMPTS):
            oldest = next(iter(mirror.lsns()), None)
            if oldest is None:
                raise PointNotReached("there is no point yet", subject=mirror.store.url, remedy="`ccpr run NAME`.")
            with suppress(PointGone):
                held.enter_context(pinned(pins, mirror.point(oldest), clock, prefix))
                break
        else:
            raise StateUnavailable("points go faster than they can be pinned", subject=mirror.store.url)
        yield


def promote(workspace: Workspace, name: str, to: str, encrypt: str) -> Adopted:
    """Make a copy the mirror of the subscription: iterations go on from its newest point. The former mirror stays as it
    is, and is written no more. Killed in between, it is done by running it again. Raises MirrorInUse, MirrorForeign,
    SubscriptionBusy while it is being copied to, LeaseLost, and what `adopt` raises."""
    with workspace.lease(name) as lease:
        row = lease.claim.row
        settings = Subscription.from_row(row).settings
        known = workspace.of(row).copies.of(place_of(to))
        settings = _at(settings, to, encrypt, settings.encrypt if known is None else known.encrypt)
        if settings.copy_to and without_key(settings.copy_to)[0] == settings.mirror:
            settings = replace(settings, copy_to="", copy_every=0)  # it is no copy any more
        others = [other for other in workspace.log.all_rows()[0] if other.task_id != row.task_id]
        check_place(workspace, name, settings, others)
        mirror = Mirror(workspace.mirror_store(name, settings))
        identity = mirror.identity()
        if identity is None:
            raise MirrorForeign("there is no copy of the mirror", subject=mirror.store.url)
        check_owner(identity, row.task_id, mirror)
        with claimed(mirror.store, "copy", worker_of(workspace)):
            adopted = adopt(lease, mirror, {"sync_config": settings.to_text()})
        workspace.of(row).copies.forget(workspace.mirror_place(name, settings))
        return adopted


def forget(workspace: Workspace, name: str, to: str) -> bool:
    """End the care of a copy, whose files stay. Whether it was known. Raises BadName."""
    row = workspace.log.row(name)
    settings = _at(Subscription.from_row(row).settings, to)
    return workspace.of(row).copies.forget(workspace.mirror_place(name, settings))


def known_copies(workspace: Workspace, task_id: str) -> Iterator[Mirror]:
    """The copies that were good once, to fetch from; those that cannot be opened now are left out."""
    for one in workspace.log.of(task_id).copies.all():
        if one.copied_at is not None:
            with suppress(BadName, KeyUnusable):
                yield Mirror(open_store(one.place, encrypt=one.encrypt))


def _at(settings: Settings, to: str, encrypt: str = "", otherwise: str | None = None) -> Settings:
    """With the mirror at the place of a copy. Encrypted as is asked for, else as the mirror, or `otherwise`."""
    place, inside = without_key(to)
    found = encrypt or inside or (settings.encrypt if otherwise is None else otherwise)
    return canonical(replace(settings, mirror=place, encrypt="" if found == IN_CLEAR else found))
