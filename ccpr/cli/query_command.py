"""`ccpr query`: rows of a point on the screen or in a file, without a JVM."""

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, At, Name
from ccpr.cli.interrupts import interrupts_end_nothing
from ccpr.cli.output import answer, counted, err, opened, out, show_error, show_json, show_table, start_arrow
from ccpr.cli.row_files import check_extension, write_rows
from ccpr.cli.shown_times import at_option
from ccpr.cli.table_names import table_of
from ccpr.matrixone.errors import CcprError

if TYPE_CHECKING:
    import pyarrow as pa

    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.points import Point
    from ccpr.mirror.sql import PointDatabase
    from ccpr.state.subscription import Subscription

MOST_SHOWN = 1000  # rows on a screen; --limit for more
_FIRST_ROWS = 10
_NAME = re.compile(r"[^\W\d][\w$]*(\.[\w$]+)?")
_STATEMENTS = ("BEGIN", "CHECKPOINT", "COMMIT", "ROLLBACK", "SHOW", "VACUUM")  # that are one word


def query(
    name: Name,
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL|TABLE",
            help="One statement or several; the rows of the last are shown. A table's name alone shows its first rows.",
            autocompletion=completion.tables,
        ),
    ] = None,
    at: At = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write the rows to a .parquet, .csv or .jsonl file.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help=f"How many rows are given at most; if not given, {MOST_SHOWN} on a screen, else all; {_FIRST_ROWS} of "
            "a table that is named alone.",
        ),
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="The zone in which TIMESTAMP is shown, compared and taken apart: Europe/Berlin.")
    ] = "UTC",
    as_json: AsJson = False,
) -> None:
    """Query the tables of a point with SQL, in DuckDB's dialect. Without SQL statements are read from the terminal, or
    from standard input.

    All tables are of one point; nothing that a statement does changes the mirror.
    """
    start_arrow()
    from ccpr.state.subscription import Subscription

    with opened(as_json=as_json) as workspace:
        if out_file is not None:
            check_extension(out_file)
        mirror = workspace.mirror_to_read(name)
        subscription = Subscription.from_row(workspace.log.row(name))
        point = mirror.point(at_option(at))
        if sql is not None and out_file is None and timezone == "UTC" and _is_table(point, sql):
            _show_first(mirror, point, subscription, sql, limit or _FIRST_ROWS, as_json=as_json)
            return
        from ccpr.mirror.duckdb_rows import quoted
        from ccpr.mirror.sql import PointDatabase

        reading = subscription.settings.reading
        with PointDatabase(mirror, point, subscription.database, reading, timezone) as database:
            if sql is None and sys.stdin.isatty():
                with interrupts_end_nothing():
                    _prompt(database, name, limit or MOST_SHOWN)
                return
            if sql is not None and _is_table(point, sql):
                ref = table_of(mirror, point, sql)
                sql = f"SELECT * FROM {quoted(ref.database)}.{quoted(ref.name)}"
                limit = limit or (None if out_file else _FIRST_ROWS)
            _show_answer(database, sys.stdin.read() if sql is None else sql, out_file, limit, as_json=as_json)


def _is_table(point: "Point", text: str) -> bool:
    """Whether it is the name of a table, or could be one, and is no statement."""
    if any(text in (ref.name, ref.qualified_name) for ref in point.tables.values()):
        return True
    return _NAME.fullmatch(text) is not None and text.upper() not in _STATEMENTS


def _show_first(
    mirror: "Mirror", point: "Point", subscription: "Subscription", table: str, count: int, *, as_json: bool
) -> None:
    """The first rows of a table, in the order in which they are stored. Raises TableMissingInMirror."""
    from ccpr.mirror.table_read import plan_read
    from ccpr.values.cells import json_rows

    full = table_of(mirror, point, table).qualified_name
    read = plan_read(mirror, full, point.lsn, reading=subscription.settings.reading)
    rows = _first(read.schema, read.batches(mirror=mirror), count)
    if as_json:
        show_json({"subscription": subscription.name, "table": full, "lsn": read.lsn, "rows": json_rows(rows)})
    else:
        out.print(f"{full} at point {read.lsn} of {subscription.name}", style="dim")
        show_rows(rows)


def _show_answer(
    database: "PointDatabase", sql: str, out_file: Path | None, limit: int | None, *, as_json: bool
) -> None:
    from ccpr.mirror.table_read import first_rows
    from ccpr.values.cells import json_rows

    schema, batches = database.batches(sql)
    if out_file is not None:
        rows = write_rows(out_file, schema, first_rows(batches, limit))
        lsn = database.point.lsn
        told = {"lsn": lsn, "rows": rows, "file": str(out_file), "bytes": out_file.stat().st_size}
        answer(told, f"{counted(rows, 'row')} at point {lsn} in {out_file}", as_json=as_json)
    elif as_json:
        shown = [row for batch in first_rows(batches, limit) for row in json_rows(batch)]
        show_json({"lsn": database.point.lsn, "columns": schema.names, "rows": shown})
    else:
        most = limit or MOST_SHOWN
        show_rows(_first(schema, batches, most + 1), most)


def _prompt(database: "PointDatabase", name: str, limit: int) -> None:
    """Statements until `.quit` or the end of input; one that fails ends nothing."""
    with suppress(ImportError):
        import readline  # noqa: F401 # lines can be edited, and come again
    out.print(
        f"point {database.point.lsn} of {name}; a statement ends with ';', .tables lists the tables, .quit ends",
        style="dim",
    )
    lines: list[str] = []
    while True:
        try:
            line = input("... " if lines else f"{name}> ")
        except EOFError:
            out.print("")
            return
        except KeyboardInterrupt:
            lines.clear()
            out.print("")
            continue
        word = line.strip()
        if not lines and word in (".quit", ".exit", "exit", "quit"):
            return
        if not lines and word == ".tables":
            out.print("\n".join(database.tables))
            continue
        lines.append(line)
        if word.endswith(";"):
            _answer(database, "\n".join(lines), limit)
            lines.clear()


def _answer(database: "PointDatabase", sql: str, limit: int) -> None:
    try:
        schema, batches = database.batches(sql)
        show_rows(_first(schema, batches, limit + 1), limit)
    except CcprError as error:
        show_error(error)
    except KeyboardInterrupt:
        err.print("interrupted", style="yellow")


def show_rows(rows: "pa.Table", limit: int | None = None) -> None:
    """A table of at most `limit` rows, and how many there are."""
    from ccpr.values.cells import SCREEN, cells, is_number

    shown = rows.slice(0, None if limit is None else min(limit, rows.num_rows))
    listed = list(zip(*(cells(column, SCREEN).whole.to_pylist() for column in shown.columns), strict=True))
    numeric = {place for place, kind in enumerate(shown.schema.types) if is_number(kind)}
    show_table(shown.column_names, listed, empty="no rows", right=numeric)
    more = "more than " if rows.num_rows > len(listed) else ""
    out.print(f"{more}{counted(len(listed), 'row')}", style="dim")


def _first(schema: "pa.Schema", batches: "Iterable[pa.RecordBatch]", count: int) -> "pa.Table":
    import pyarrow as pa

    from ccpr.mirror.table_read import first_rows

    return pa.Table.from_batches(first_rows(batches, count), schema)
