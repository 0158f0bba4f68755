"""`ccpr snapshots`: the snapshots of a subscription upstream."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from ccpr_cli.arguments import AsJson, Name
from ccpr_cli.output import handle_errors, out, show_json, show_table
from matrixone.upstream import snapshots as upstream_snapshots
from matrixone.upstream.errors import SnapshotGone
from matrixone.upstream.session import Session
from replication.errors import SubscriptionMissing
from replication.service.drop import drop
from replication.service.workspace import Workspace
from replication.state.context import Context
from replication.state.log_rows import LogRow
from replication.state.states import State
from replication.state.subscription import Subscription


@dataclass(frozen=True, slots=True)
class RecordedSnapshot:
    """A recorded snapshot: what it is for (open, current, previous, orphan), and whether the upstream still has it."""

    name: str
    role: str
    exists: bool


def snapshots(
    name: Name,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Drop those that are not needed any more and were left behind.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the snapshots that a subscription has recorded upstream. Nothing but recorded names is ever dropped."""
    with handle_errors(as_json=as_json), Workspace() as workspace:
        row = _row(workspace, name)
        if orphans:
            if row.state == State.DROPPED:
                drop(workspace, name)
            else:
                with workspace.iteration(name) as iteration:
                    iteration.drop_due_snapshots()
            row = _row(workspace, name)
        subscription = Subscription.from_row(row)
        found = []
        if recorded := Context.from_text(row.context).recorded():
            with workspace.connect(subscription) as session:
                found = [
                    RecordedSnapshot(snapshot, role, _exists(session, subscription, snapshot))
                    for snapshot, role in recorded.items()
                ]
    if as_json:
        show_json([asdict(entry) for entry in found])
        return
    cells = [(entry.name, entry.role, "yes" if entry.exists else "no") for entry in found]
    show_table(("snapshot", "for", "exists upstream"), cells, empty="no snapshot is recorded")
    if not orphans and any(entry.role == "orphan" and entry.exists for entry in found):
        out.print(f"drop the orphans with: ccpr snapshots {name} --orphans", markup=False)


def _row(workspace: Workspace, name: str) -> LogRow:
    """The subscription's row, or that of a dropped one some of whose snapshots could not be dropped. Raises
    SubscriptionMissing."""
    try:
        return workspace.log.row(name)
    except SubscriptionMissing:
        row = workspace.log.dropped_row(name)
        if row is None:
            raise
        return row


def _exists(session: Session, subscription: Subscription, name: str) -> bool:
    try:
        upstream_snapshots.snapshot_timestamp(session, name, subscription.publication)
    except SnapshotGone:
        return False
    return True
