"""What commands open: the workspace, an iteration. What they print: tables and text for people, one JSON document for
scripts, typed errors with their exit codes, the log."""

import json
import logging
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from ccpr.base.wording import seconds_text as seconds_text
from ccpr.base.wording import size_text as size_text
from ccpr.cli.defects import CodeUnknown, NotConfirmed
from ccpr.cli.interrupts import NOT_CONFIRMED, USAGE, is_interrupted
from ccpr.config.errors import ConfigConflict, ConfigEmpty, ConfigInvalid, SqlSyntax
from ccpr.matrixone.client.errors import BadLimit, BadUri
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.errors import BadFilter, BadName, BadOption
from ccpr.state.errors import BadSetting
from ccpr.targets.errors import BadTargetUri

if TYPE_CHECKING:
    from rich.table import Table

    from ccpr.pipeline.iteration import Iteration
    from ccpr.pipeline.options import IterationOptions
    from ccpr.service.workspace import Workspace

WIDTH = None if sys.stdout.isatty() else 240  # a pipe has no width, and its lines should not be folded
_JSON_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SHORT = 16  # a cell with so many characters is not folded; in a narrow terminal the longer ones are
_LONGEST_WORD = 80
_NOTHING = ("", "-")  # a cell that says so
_USAGE_ERRORS = (
    BadUri,
    BadTargetUri,
    BadLimit,
    BadName,
    BadOption,
    BadFilter,
    BadSetting,
    SqlSyntax,
    CodeUnknown,
    ConfigInvalid,
    ConfigEmpty,
    ConfigConflict,
)


class Screen(Console):
    """A terminal that shows foreign names as they are: no markup, no emoji codes, and no control character arrives
    there but our own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Text is no wider than a terminal; with `soft_wrap`, and where there is none, its lines stay whole."""
        if self.is_terminal and len(objects) == 1 and isinstance(objects[0], str | Text):
            options.setdefault("soft_wrap", False)
        super().print(*objects, **options)

    def tell(self, word: str, style: str, text: str) -> None:
        """A line that begins with a word in its own style."""
        self.print(Text.assemble((word, style), " ", printable(text)))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, keep="\n"), segment.style)


out = Screen(width=WIDTH)
err = Screen(stderr=True)


@contextmanager
def handle_errors(*, as_json: bool, done: Sequence[Any] = ()) -> Iterator[None]:
    """A typed error becomes its text and an exit code: 2 for wrong usage of the command line, 4 for what was not
    confirmed, 1 for all other errors. `done` is what had been done before the error, for scripts.
    """
    try:
        yield
    except CcprError as error:
        if is_interrupted():  # it comes of that
            raise KeyboardInterrupt from error
        if as_json:
            show_error_json(error, done)
        else:
            show_error(error)
        raise typer.Exit(_exit_code(error)) from error


@contextmanager
def opened(*, as_json: bool) -> "Iterator[Workspace]":
    """The state folder, for a command; see `handle_errors`."""
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        yield workspace


def _exit_code(error: CcprError) -> int:
    if isinstance(error, NotConfirmed):
        return NOT_CONFIRMED
    return USAGE if isinstance(error, _USAGE_ERRORS) else 1


def show_error(error: CcprError) -> None:
    """Print it for people, no wider than the terminal; where that is none, each part is one line."""
    err.print("error", style="bold red", end=" ")
    first, *more = error.message.split("\n")  # a statement, and where it is wrong
    for indent, part in (
        (6, f"{error.code}: {first}"),
        (2, f"about:  {error.subject}"),
        (2, f"remedy: {error.remedy}"),
    ):
        err.print(_wrapped(printable(part), indent), soft_wrap=True)
        for line in more if indent == 6 else ():
            err.print(f"{'':<10}{printable(line)}", soft_wrap=True)
    err.print(f"  more:   ccpr explain {error.code}", style="dim")


def _wrapped(text: str, indent: int) -> str:
    """So far from the left: the first line of an error stands behind a word."""
    if err.is_terminal:
        text = fill(
            text,
            err.width,
            initial_indent=" " * indent,
            subsequent_indent=" " * 10,
            break_long_words=False,
            break_on_hyphens=False,
        ).lstrip()
    return text if indent == 6 else f"{'':<{indent}}{text}"


def show_error_json(error: CcprError, done: Sequence[Any] = ()) -> None:
    """Print it for scripts."""
    parts = {"code": error.code, "message": error.message, "subject": error.subject, "remedy": error.remedy}
    show_json({"error": parts, "done": list(done)} if done else {"error": parts})


def answer(document: Any, *lines: str, as_json: bool) -> None:
    """What came of a command: the document for scripts, or the lines for people."""
    if as_json:
        show_json(document)
    else:
        for line in lines:
            out.print(line)


def show_json(value: Any) -> None:
    sys.stdout.write(json_text(value, indent=1) + "\n")


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that may be shown on a terminal: what the format allows unescaped and a terminal would obey is escaped."""
    shown = json.dumps(value, ensure_ascii=False, indent=indent)
    return _JSON_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def show_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    empty: str,
    right: Collection[int] = (),
    dense: bool = False,
    fold: str = "",
) -> None:
    """See `drawn_table`; `empty` is said if there are no rows."""
    out.print(drawn_table(columns, rows, right=right, dense=dense, fold=fold) if rows else empty)


def drawn_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Collection[int] = (),
    dense: bool = False,
    fold: str = "",
) -> "Table | Group":
    """A table in which no word is cut: where a terminal is too narrow for it, one line for each value of a row.
    `right`: numbers of the columns that are aligned to the right, besides those of numbers. `dense`: a column that is
    empty in all rows is skipped. `fold`: a column whose words may be cut, as a URL's are."""
    cells = [[cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row] for row in rows]
    numeric = {index for index in range(len(columns)) if all(isinstance(row[index], int | float) for row in rows)}
    kept = [
        index
        for index in range(len(columns))
        if not dense or index == 0 or any(row[index].plain not in _NOTHING for row in cells)
    ]
    right = {place for place, index in enumerate(kept) if index in numeric or index in right}
    return _drawn([columns[index] for index in kept], [[row[index] for index in kept] for row in cells], right, fold)


def _drawn(
    columns: Sequence[str], rows: Sequence[Sequence[Text]], right: Collection[int], fold: str
) -> "Table | Group":
    texts = ((name, *(row[index].plain for row in rows)) for index, name in enumerate(columns))
    words = [max(map(_longest_word, column)) for column in texts]
    words = [min(word, _SHORT) if name == fold else word for name, word in zip(columns, words, strict=True)]
    if out.is_terminal and sum(words) + 2 * (len(words) - 1) > out.width:
        return Group(*(line for row in rows for line in (*_record(columns, row), Text(""))))
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        justify = "right" if index in right else "left"
        longest = max(len(name), *(len(row[index].plain) for row in rows))
        whole = longest <= max(_SHORT, words[index])  # it is one word, or short
        table.add_column(name, justify=justify, overflow="fold", no_wrap=whole, min_width=words[index])
    for row in rows:
        table.add_row(*row)
    return table


def _longest_word(text: str) -> int:
    """Of one that is to stay whole: of a long text, such as JSON, no word is."""
    return max((len(word) for word in text.split() if len(word) <= _LONGEST_WORD), default=0)


def _record(columns: Sequence[str], row: Sequence[Text]) -> Iterator[Text]:
    """Lines with what a row has; the terminal folds them, so that they can be copied whole."""
    wide = max(map(len, columns))
    for name, cell in zip(columns, row, strict=True):
        if cell.plain not in _NOTHING:
            yield Text.assemble((f"{name:<{wide}}  ", "bold"), cell)


def counted(count: int, noun: str) -> str:
    """A number with its noun, for example `1 object`, `1,200 objects`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class _Formatter(logging.Formatter):
    converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        return printable(super().formatException(ei), keep="\n\t")  # type: ignore[arg-type]


class _LogHandler(logging.Handler):
    """Writes to what is standard error at the moment: a test's runner replaces it, and closes it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - as handlers do
            self.handleError(record)


def show_log(*, verbose: bool) -> None:
    """From now on: warnings, or everything."""
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, handlers=[log_handler()])
    logging.getLogger("py4j").setLevel(logging.WARNING)


def log_handler() -> logging.Handler:
    """For the log of the standard library, on standard error."""
    handler = _LogHandler()
    handler.setFormatter(_Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%F %T"))
    return handler


@contextmanager
def open_iteration(
    workspace: "Workspace", name: str, options: "IterationOptions | None" = None
) -> "Iterator[Iteration]":
    """As `Workspace.iteration`."""
    start_arrow()
    with workspace.iteration(name, options) as iteration:
        yield iteration


class _NoPandas:
    """For the import system: there is no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def start_arrow() -> None:
    """Import Arrow and have it do without pandas. The first array of a list makes it import pandas (0.4 s), only to
    know one of its values when it sees it.

    It is asked once. Later it imports pandas where it makes or reads a data frame, and `import pandas` works as ever.
    But it would not know pandas' NA among Python values, so this is for a program of ours and not for a library.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    absent = _NoPandas()
    sys.meta_path.insert(0, absent)  # type: ignore[arg-type]
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(absent)  # type: ignore[arg-type]
