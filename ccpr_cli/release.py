"""`ccpr release`: tables in a target become ordinary, writable ones (requirement D5)."""

from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import typer

from ccpr_cli.arguments import AsJson, Name
from ccpr_cli.output import handle_errors, out, show_json
from replication.service import targets
from replication.service.workspace import Workspace


def release(
    name: Name,
    target: Annotated[str | None, typer.Option("--target", help="In this target; without it in all.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="This table, by its name upstream; without it all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """End the subscription of tables in a target: what was suspended comes back, the mark goes, later runs leave them
    alone."""
    with handle_errors(as_json=as_json), closing(Workspace()) as workspace:
        released = targets.release(workspace, name, target, table)
    if as_json:
        show_json([asdict(one) for one in released])
        return
    for one in released:
        out.print(f"released {one.table} in {one.target}", markup=False)
        for text in one.left_out:
            out.print(f"  not brought back: {text}", style="yellow", markup=False)
    if not released:
        out.print("no table was being synced", markup=False)
