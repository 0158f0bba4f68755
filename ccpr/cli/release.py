"""`ccpr release`: tables in a target become ordinary, writable ones (docs/requirements.md D5)."""

from dataclasses import asdict
from typing import Annotated

import typer

from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.output import handle_errors, out, show_json


def release(
    name: Name,
    target: Annotated[str | None, typer.Option("--target", help="In this target; if not given, in all.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="This table, by its name upstream; if not given, all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """End the sync of tables in a target: what was disabled is brought back, the mark is removed, and later runs do not
    touch them."""
    from ccpr.service import targets
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        released = targets.release(workspace, name, target, table)
    if as_json:
        show_json([asdict(one) for one in released])
        return
    for one in released:
        out.print(f"released {one.table} in {one.target}", markup=False)
        for text in one.left_out:
            out.print(f"  not as in the source: {text}", style="yellow", markup=False)
    if not released:
        out.print("no table was being synced", markup=False)
