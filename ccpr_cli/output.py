"""How commands speak: tables and plain words for people, one JSON document for scripts, typed errors with exit codes 1
and 2."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ccpr_cli.defects import CodeUnknown
from matrixone.errors import CcprError
from matrixone.upstream.errors import BadUri
from replication.errors import BadName, BadSetting, SqlSyntax
from replication.targets.errors import BadTargetUri

WIDTH = None if sys.stdout.isatty() else 240  # a pipe has no width; what is read there should not be folded
out = Console(highlight=False, soft_wrap=True, width=WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True)
USAGE = 2
_SHORT = 16  # a cell of so many letters is not folded; in a narrow terminal the long ones make room
_USAGE_ERRORS = (BadUri, BadTargetUri, BadName, BadSetting, SqlSyntax, CodeUnknown)


@contextmanager
def handle_errors(*, as_json: bool, done: Sequence[Any] = ()) -> Iterator[None]:
    """A typed error becomes its text and an exit code: 2 for what was written wrongly on the command line, 1 for all
    else. `done` is what had been done before it, for scripts.
    """
    try:
        yield
    except CcprError as error:
        if as_json:
            show_error_json(error, done)
        else:
            show_error(error)
        raise typer.Exit(USAGE if isinstance(error, _USAGE_ERRORS) else 1) from error


def show_error(error: CcprError) -> None:
    """For people."""
    err.print("error", style="bold red", end=" ")
    err.print(f"{error.code}: {error.message}", markup=False)
    err.print(f"  about:  {error.subject}", markup=False)
    err.print(f"  remedy: {error.remedy}", markup=False)
    err.print(f"  more:   ccpr explain {error.code}", markup=False, style="dim")


def show_error_json(error: CcprError, done: Sequence[Any] = ()) -> None:
    """For scripts."""
    told = {"error": {"code": error.code, "message": error.message, "subject": error.subject, "remedy": error.remedy}}
    show_json({**told, "done": list(done)} if done else told)


def show_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    if not rows:
        out.print(empty, markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        short = max(len(str(row[index])) for row in rows) <= _SHORT
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=short)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    out.print(table)


def counted(count: int, noun: str) -> str:
    """A number with its noun, e.g. `1 object`, `1,200 objects`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(size: float) -> str:
    """Bytes for people, e.g. `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
