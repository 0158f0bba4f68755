"""`ccpr export`: a table of a point as a file, or all of them as files in a folder, without a JVM."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ccpr.base.wording import first_names, size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, At, Name
from ccpr.cli.asking import confirm
from ccpr.cli.output import counted, err, handle_errors, out, show_json
from ccpr.cli.row_files import EXTENSIONS, check_extension, write_rows
from ccpr.cli.tables import table_of
from ccpr.cli.times import at_option
from ccpr.matrixone.schema import Kind
from ccpr.mirror.errors import BadOption, StoreFailed
from ccpr.state.settings import SETTINGS

if TYPE_CHECKING:
    from ccpr.matrixone.schema import Reading
    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.points import Point

_FORMATS = tuple(extension.removeprefix(".") for extension in EXTENSIONS)


def _format(value: str) -> str:
    if value not in _FORMATS:
        raise typer.BadParameter(f"one of {', '.join(_FORMATS)}")
    return value


def export(
    name: Name,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="The table, t or db.t; if not given, all tables.", autocompletion=completion.tables
        ),
    ] = None,
    *,
    out_file: Annotated[
        Path,
        typer.Option(
            "--out",
            help="The file to write: .parquet, .csv, .jsonl or .ndjson. Without a table a folder, which gets a file "
            "for each. A file appears when it is complete.",
        ),
    ],
    file_format: Annotated[
        str, typer.Option("--format", help="Of the files in a folder: parquet, csv, jsonl or ndjson.", callback=_format)
    ] = "parquet",
    at: At = None,
    invalid_text: Annotated[
        str | None,
        typer.Option(help=f"{SETTINGS['invalid_text'].help} If not given, as the subscription says."),
    ] = None,
    zero_dates: Annotated[
        str | None,
        typer.Option(help=f"{SETTINGS['zero_dates'].help} If not given, likewise."),
    ] = None,
    parse_json: Annotated[
        bool, typer.Option("--parse-json", help="In .jsonl and .ndjson, values of JSON columns as such, not as text.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write over files that are there, without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Export rows as they were at a point: those of a table to a file, or those of all tables to files in a folder. All
    of them are of the same point."""
    from ccpr.mirror.table_read import reading_of
    from ccpr.service.workspace import Workspace
    from ccpr.state.subscription import Subscription

    with handle_errors(as_json=as_json), Workspace() as workspace:
        if table is not None:
            check_extension(out_file)
        mirror = workspace.mirror(name)
        point = mirror.point(at_option(at))
        settings = Subscription.from_row(workspace.log.row(name)).settings
        reading = reading_of(invalid_text or settings.invalid_text, zero_dates or settings.zero_dates)
        known = {ref.qualified_name: ref.kind for ref in point.tables.values()}
        if table is not None:
            files = {table_of(mirror, point, table).qualified_name: out_file}
        else:
            files = _files(out_file, sorted(one for one, kind in known.items() if kind is Kind.TABLE), file_format)
        _agree(list(files.values()), yes=yes, as_json=as_json)
        done = [_export(mirror, point, one, file, reading, parse_json=parse_json) for one, file in files.items()]
    if as_json:
        show_json(done[0] if table is not None else done)
        return
    for one in done:
        where = f"in {one['file']} ({size_text(one['bytes'])})"
        out.print(f"{counted(one['rows'], 'row')} of {one['table']} at point {point.lsn} {where}", markup=False)


def _files(folder: Path, tables: list[str], file_format: str) -> dict[str, Path]:
    """A file for each table. Raises BadOption for a name that is no file's, StoreFailed."""
    for one in tables:
        if "/" in one or "\0" in one or one.startswith("."):
            raise BadOption(
                "its name cannot be a file's", subject=f"table {one}", remedy="Export it alone, with --out FILE."
            )
    if folder.suffix in EXTENSIONS:
        raise BadOption(
            "several tables need a folder, and this is the name of a file",
            subject=f"folder {folder}",
            remedy="Name a table, or a folder with --out.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"could not make the folder: {error.strerror or error}"
        raise StoreFailed(text, subject=str(folder), remedy="Choose another --out.") from error
    return {one: folder / f"{one}.{file_format}" for one in tables}


def _agree(files: list[Path], *, yes: bool, as_json: bool) -> None:
    """A person is asked before files that are there are written over; a script that exports again is not. Raises
    NotConfirmed."""
    there = first_names(str(file) for file in files if file.exists())
    if there:
        confirm(f"write over {there}?", subject=f"file {there}", yes=yes, as_json=as_json, harmless=True)


def _export(
    mirror: "Mirror", point: "Point", table: str, file: Path, reading: "Reading", *, parse_json: bool
) -> dict[str, Any]:
    from ccpr.mirror.table_read import plan_read

    read = plan_read(mirror, table, point.lsn, reading=reading)
    with err.status(Text(f"exporting {table}")) as status:
        rows = write_rows(
            file,
            read.schema,
            read.batches(mirror=mirror),
            lambda rows: status.update(Text(f"exporting {table}: {rows:,} rows")),
            parsed=read.json_columns if parse_json else (),
        )
    return {
        "table": table,
        "lsn": point.lsn,
        "snapshot_ts": point.at.physical,
        "rows": rows,
        "file": str(file),
        "bytes": file.stat().st_size,
    }
