"""Asks targets that have nothing to do where they are, so that one which is away, or was restored from a copy, does not
look current until the next change (decision registry-tells-what-lacks)."""

from collections.abc import Iterable
from contextlib import suppress

from ccpr.base.errors import Failure
from ccpr.base.loops import unexpected
from ccpr.matrixone.errors import CcprError
from ccpr.service.workspace import Workspace
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.errors import SubscriptionBusy, SubscriptionMissing, SubscriptionPaused, TargetMissing
from ccpr.state.subscription import Subscription
from ccpr.state.targets import Target
from ccpr.targets.errors import TargetMoved


def verify_target(workspace: Workspace, subscription: Subscription, target: Target) -> Failure | None:
    """Ask a target whether it is where it is recorded, and record its answer: when it was verified, or the failure,
    after which it is synced again. The caller holds the subscription's lease. Raises errors of the catalog database."""
    records = workspace.of(target).targets
    try:
        with unexpected():
            _check(target, _reached(workspace, subscription, target))
    except CcprError as error:
        failure = Failure.of(error)
        records.record_failure(target, failure, workspace.now())
        return failure
    records.record_verified(target, workspace.now())
    return None


def is_still_away(workspace: Workspace, subscription: Subscription, target: Target) -> bool:
    """Ask a target that failed when it was synced last whether it answers. If it does not, that is its next failed
    attempt. The caller holds the subscription's lease. Raises errors of the catalog database."""
    if target.failing is None:
        return False
    try:
        with unexpected():
            _reached(workspace, subscription, target)
    except CcprError as error:
        workspace.of(target).targets.record_failure(target, Failure.of(error), workspace.now())
        return True
    return False


def verify_targets(workspace: Workspace, name: str, targets: Iterable[str]) -> None:
    """Verify some targets of a subscription that nothing runs now; nothing happens if something does. Raises errors of
    the catalog database."""
    with suppress(SubscriptionBusy, SubscriptionPaused, SubscriptionMissing), workspace.lease(name) as lease:
        subscription = Subscription.from_row(lease.claim.row)
        records = workspace.of(lease.claim.row).targets
        for target in targets:
            with suppress(TargetMissing):  # it was removed meanwhile
                found = records.any(target)
                if found.is_quiet and found.is_to_verify(workspace.now()):
                    verify_target(workspace, subscription, found)


def _reached(workspace: Workspace, subscription: Subscription, target: Target) -> Location | None:
    if target.lake is not None:
        from ccpr.service.lakes import shown_location

        return shown_location(workspace, subscription, target)
    from ccpr.targets.address import address_of
    from ccpr.targets.database_server import reached

    address = address_of(target)
    return reached(address, workspace.vault.open(target.sealed_password, address.endpoint), target.task_id)


def _check(target: Target, reached: Location | None) -> None:
    """Raises TargetMoved. The mark of all tables waits for those that wait."""
    assert target.lsn is not None
    assert target.snapshot_ts is not None
    recorded = Location(target.lsn, target.snapshot_ts)
    if reached == recorded or (target.behind and (reached is None or reached < recorded)):
        return
    here = "at no point" if reached is None else f"at point {reached.lsn}"
    raise TargetMoved(f"it is {here}, and was left at point {target.lsn}", subject=f"target {target.name}")
