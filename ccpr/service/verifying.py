"""The verification of a subscription's mirror and its second copies, with all places from which damaged files can be
fetched again."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from ccpr.base.errors import Failure
from ccpr.lake.errors import LakeTableUnknown
from ccpr.maintenance.claims import claimed
from ccpr.maintenance.copy_check import CopyVerifier
from ccpr.maintenance.repair import Repair
from ccpr.maintenance.scrubbing import scrubbed
from ccpr.maintenance.verify import Damage, Verified, Verifier
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.errors import KeyUnusable
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store, place_of
from ccpr.pipeline.iteration import Iteration
from ccpr.service.copies import known_copies, worker_of
from ccpr.service.target_sync import rebuild_table
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import CopyRecord
from ccpr.state.errors import BadSetting
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription
from ccpr.state.targets import Target
from ccpr.targets.errors import TargetTableUnknown


@dataclass(frozen=True, slots=True)
class Mended:
    """A table of a target or lake that may have taken damage: it was built anew, or why it was not."""

    target: str
    table: str
    failure: Failure | None = None


def mend_readers(workspace: Workspace, row: LogRow, damages: Iterable[Damage]) -> list[Mended]:
    """Build the tables anew, in each lake and target of the subscription, that may have taken damage of files that are
    repaired now."""
    tables = sorted({table for damage in damages if damage.repaired for table in damage.read_in})
    targets = workspace.of(row).targets.all() if tables else []
    if not targets:
        return []
    try:
        with workspace.iteration(row.subscription_name) as iteration:
            built = [_built_anew(workspace, iteration, one, table) for one in targets for table in tables]
    except CcprError as error:  # another has the subscription, or it is paused
        return [Mended(one.name, table, Failure.of(error)) for one in targets for table in tables]
    return [one for one in built if one is not None]


def _built_anew(workspace: Workspace, iteration: Iteration, target: Target, table: str) -> Mended | None:
    """None if the target does not show the table."""
    try:
        rebuild_table(workspace, iteration, target.name, table)
    except (TargetTableUnknown, LakeTableUnknown):
        return None
    except CcprError as error:
        return Mended(target.name, table, Failure.of(error))
    return Mended(target.name, table)


def verifier_of(
    workspace: Workspace,
    row: LogRow,
    *,
    repair: bool,
    deep: bool = False,
    checksums: bool = False,
    on_progress: Callable[[int], None] = lambda size: None,
) -> Verifier:
    """Raises StateUnreadable, KeyUnusable."""
    subscription = Subscription.from_row(row)
    mirror = workspace.mirror_of(subscription)
    connect = partial(workspace.connect, subscription)
    sources = Repair(mirror, subscription.publication, connect, known_copies(workspace, row.task_id))
    return Verifier(
        mirror,
        workspace.log,
        subscription.name,
        workspace.lease,
        sources if repair else None,
        deep=deep,
        checksums=checksums,
        on_progress=on_progress,
    )


@dataclass(frozen=True, slots=True)
class CopyVerified:
    """What was found of a second copy, or why it could not be read."""

    place: str
    found: Verified | None
    failure: Failure | None = None

    @property
    def sound(self) -> bool:
        return self.found is not None and self.found.sound


def copies_of(workspace: Workspace, row: LogRow, place: str = "") -> list[CopyRecord]:
    """Those that were good once, or the one at a place. Raises BadSetting for one that is not known."""
    known = [one for one in workspace.of(row).copies.all() if one.copied_at is not None]
    if place:
        known = [one for one in known if one.place == place_of(place)]
        if not known:
            remedy = "`ccpr status NAME` shows the copies; `ccpr copy NAME --to URL` makes one."
            raise BadSetting("no second copy is known there", subject=place, remedy=remedy)
    return known


@contextmanager
def copy_verifier(
    workspace: Workspace,
    row: LogRow,
    copy: CopyRecord,
    *,
    repair: bool,
    deep: bool = False,
    on_progress: Callable[[int], None] = lambda size: None,
) -> Iterator[CopyVerifier]:
    """With the copy's place for oneself. Raises SubscriptionBusy, KeyUnusable, StoreFailed, StateUnreadable."""
    subscription = Subscription.from_row(row)
    second = Mirror(open_store(copy.place, encrypt=copy.encrypt))
    connect = partial(workspace.connect, subscription)

    def others() -> Iterator[Mirror]:
        with suppress(KeyUnusable):
            yield workspace.mirror_of(subscription)
        yield from (one for one in known_copies(workspace, row.task_id) if one.store.url != second.store.url)

    sources = Repair(second, subscription.publication, connect, others(), nearest=True) if repair else None
    ledger = workspace.of(row).ledger
    with claimed(second.store, "copy", worker_of(workspace)):
        yield CopyVerifier(second, ledger, sources, deep=deep, on_progress=on_progress)


def verify_copy(
    workspace: Workspace,
    row: LogRow,
    copy: CopyRecord,
    opened: AbstractContextManager[CopyVerifier],
) -> CopyVerified:
    """Read it again, as `copy_verifier` has opened it, and record what was found for `ccpr status`."""
    now = workspace.now()
    try:
        with opened as verifier:
            found = verifier.run()
    except CcprError as error:
        return CopyVerified(copy.place, None, Failure.of(error))
    workspace.of(row).scrubs.put(scrubbed(found.damages, now), copy.place)
    return CopyVerified(copy.place, found)
