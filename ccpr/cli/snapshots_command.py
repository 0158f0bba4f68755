"""`ccpr snapshots`: the snapshots of a subscription upstream."""

from dataclasses import asdict
from typing import Annotated

import typer

from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.iterations import open_iteration
from ccpr.cli.output import opened, out, show_json, show_table
from ccpr.state.states import State


def snapshots(
    name: Name,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Drop orphans: snapshots that are no longer needed.")
    ] = False,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="Drop snapshots that this state does not know: those of a history that was lost when state and mirror "
            "were restored. Not while another copy of this state is in use.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the snapshots that a subscription has upstream: recorded ones, and lost ones by the subscription's uid in
    their names. Snapshots of others are never listed or dropped."""
    from ccpr.pipeline.steps.release import drop_due_snapshots
    from ccpr.service.drop import drop
    from ccpr.service.snapshots import LOST, drop_lost_snapshots, list_snapshots, row_of

    with opened(as_json=as_json) as workspace:
        if orphans:
            if row_of(workspace, name).state == State.DROPPED:
                drop(workspace, name)
            else:
                with open_iteration(workspace, name) as iteration:
                    drop_due_snapshots(iteration)
        if lost:
            drop_lost_snapshots(workspace, name)
        found, sees_lost = list_snapshots(workspace, name)
    if as_json:
        show_json([asdict(entry) for entry in found])
        return
    cells = [(entry.name, entry.role, "yes" if entry.exists else "no") for entry in found]
    show_table(("snapshot", "for", "exists upstream"), cells, empty="no snapshot is recorded")
    if not orphans and any(entry.role == "orphan" and entry.exists for entry in found):
        out.print(f"drop the orphans with: ccpr snapshots {name} --orphans")
    if any(entry.role == LOST for entry in found):
        out.print(f"drop the lost ones with: ccpr snapshots {name} --lost")
    if not sees_lost:
        out.print("there may be lost ones that are not listed: only the account of the publisher can see all")
