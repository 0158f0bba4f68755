"""The verification of a subscription's mirror, with all places from which damaged files can be fetched again."""

from collections.abc import Callable
from functools import partial

from ccpr.maintenance.repair import Repair
from ccpr.maintenance.verify import Verifier
from ccpr.service.copies import known_copies
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription


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
