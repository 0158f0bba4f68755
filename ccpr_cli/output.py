"""What commands print: tables and text for people, one JSON document for scripts, typed errors with exit codes 1 and
2."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ccpr_cli.defects import CodeUnknown
from ccpr_cli.exit_codes import USAGE
from matrixone.errors import CcprError
from matrixone.sql.quoting import printable
from matrixone.upstream.errors import BadUri
from replication.errors import BadName, BadSetting, SqlSyntax
from replication.targets.errors import BadTargetUri

if TYPE_CHECKING:
    from matrixone.objects.timestamp import Timestamp

WIDTH = None if sys.stdout.isatty() else 240  # a pipe has no width, and its lines should not be folded
_JSON_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SHORT = 16  # a cell with so many characters is not folded; in a narrow terminal the longer ones are
_USAGE_ERRORS = (BadUri, BadTargetUri, BadName, BadSetting, SqlSyntax, CodeUnknown)


class Screen(Console):
    """A terminal that shows foreign names as they are: no markup, no emoji codes, and no control character arrives
    there but our own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, keep="\n"), segment.style)


out = Screen(width=WIDTH)
err = Screen(stderr=True)


@contextmanager
def handle_errors(*, as_json: bool, done: Sequence[Any] = ()) -> Iterator[None]:
    """A typed error becomes its text and an exit code: 2 for wrong usage of the command line, 1 for all other errors.
    `done` is what had been done before the error, for scripts.
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
    """Print it for people."""
    err.print("error", style="bold red", end=" ")
    err.print(f"{error.code}: {printable(error.message)}")
    err.print(f"  about:  {printable(error.subject)}")
    err.print(f"  remedy: {printable(error.remedy)}")
    err.print(f"  more:   ccpr explain {error.code}", markup=False, style="dim")


def show_error_json(error: CcprError, done: Sequence[Any] = ()) -> None:
    """Print it for scripts."""
    parts = {"code": error.code, "message": error.message, "subject": error.subject, "remedy": error.remedy}
    show_json({"error": parts, "done": list(done)} if done else {"error": parts})


def show_json(value: Any) -> None:
    sys.stdout.write(json_text(value, indent=1) + "\n")


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that may be shown on a terminal: what the format allows unescaped and a terminal would obey is escaped."""
    shown = json.dumps(value, ensure_ascii=False, indent=indent)
    return _JSON_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    if not rows:
        out.print(empty, markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        short = max(len(printable(str(row[index]))) for row in rows) <= _SHORT
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=short)
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    out.print(table)


def counted(count: int, noun: str) -> str:
    """A number with its noun, for example `1 object`, `1,200 objects`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(size: float) -> str:
    """Bytes for people, for example `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def seconds_text(seconds: float) -> str:
    """A time span for people, for example `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def time_text(seconds: float) -> str:
    """A time on our clock (seconds since 1970) for people, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + "Z"


def clock_text(at: "Timestamp") -> str:
    """A time on the upstream's clock for people, in UTC."""
    shown = datetime.fromtimestamp(at.physical / 1e9, UTC).isoformat(sep=" ", timespec="milliseconds")
    return shown.removesuffix("+00:00")
