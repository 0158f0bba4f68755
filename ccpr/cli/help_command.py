"""`ccpr help`: all commands by subject, or the help of one."""

from itertools import groupby
from typing import Annotated, Any

import typer

from ccpr.cli.output import out


def help_(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="What to explain.")] = None,
) -> None:
    """List all commands by subject, or show the help of one."""
    program: Any = context.find_root().command
    if command:
        program.main([*command, "--help"], prog_name="ccpr")
    wide = max(map(len, program.deferred))
    for panel, those in groupby(program.deferred.items(), key=lambda item: item[1].panel):
        out.print(panel, style="bold")
        for name, one in those:
            out.print(f"  {name:<{wide}}  {one.summary}")
    out.print("\n`ccpr help COMMAND` is its --help; `ccpr explain CODE` explains an error.", style="dim")
