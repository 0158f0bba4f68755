"""`ccpr explain`: what an error's code means and what to do about it. `ccpr help`: all commands by subject."""

import sys
from dataclasses import asdict
from itertools import groupby
from textwrap import fill, indent
from typing import Annotated, Any

import typer

from ccpr.cli import completion
from ccpr.cli.arguments import AsJson
from ccpr.cli.output import handle_errors, out, show_json


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            help="An error's code, e.g. SNAPSHOT_GONE; without it all are listed by subject.",
            autocompletion=completion.codes,
        ),
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="All of them, as docs/reference/errors.md.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain an error: what it means, what the program does about it, and what you can do."""
    from ccpr.cli.error_catalogue import areas, catalogue, explain_code, markdown

    if as_markdown:
        sys.stdout.write(markdown())
        return
    if code is None:
        entries = catalogue().values()
        if as_json:
            show_json([asdict(entry) for entry in entries])
        else:
            for area in areas():
                out.print(area, style="bold")
                codes = ", ".join(entry.code for entry in entries if entry.area == area)
                out.print(indent(fill(codes, min(out.width, 80) - 2, break_long_words=False), "  "))
        return
    with handle_errors(as_json=as_json):
        entry = explain_code(code)
    if as_json:
        show_json(asdict(entry))
    else:
        out.tell(entry.code, "bold", f"({entry.handling})")
        out.print(entry.meaning)
        for what, text in (("about", entry.about), ("remedy", entry.remedy), ("tried again", entry.again)):
            out.print(f"  {what + ':':<13}{text}")


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
