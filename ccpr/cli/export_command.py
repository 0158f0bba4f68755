"""`ccpr export`: a table of a point as a file, or all of them as files in a folder, without a JVM."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ccpr.base.failure import Failure
from ccpr.base.wording import first_names, size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, At, Name
from ccpr.cli.asking import confirm
from ccpr.cli.definitions_script import DefinitionsScript
from ccpr.cli.output import counted, err, handle_errors, out, show_json
from ccpr.cli.restore_rows import RowProgress
from ccpr.cli.row_files import EXTENSIONS, MAX_NAME_BYTES, check_extension, file_names, write_rows
from ccpr.cli.shown_times import at_option
from ccpr.cli.table_names import table_of
from ccpr.cli.target_output import end_with_behind
from ccpr.matrixone.objects.errors import ObjectUnsupported, ValueRefused
from ccpr.matrixone.schema import Kind
from ccpr.mirror.errors import BadOption, StoreFailed
from ccpr.state.settings import SETTINGS

if TYPE_CHECKING:
    from ccpr.matrixone.schema import Reading
    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.points import Point, TableRef
    from ccpr.state.targets import LaggingTargetTable

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
    whole: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All tables, and for each database DATABASE.sql with the CREATE statements of its tables, views, "
            "sequences, functions and grants.",
        ),
    ] = False,
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
    of them are of the same point. What a file's name cannot have is written as %2F, also in letters that only their
    case tells apart; a table whose name is too long for a file's is named at the end, and the exit code is 3."""
    from ccpr.mirror.table_read import reading_of
    from ccpr.retention.pinning import pinned
    from ccpr.service import estimates
    from ccpr.service.workspace import Workspace
    from ccpr.state.pins import Pins
    from ccpr.state.subscription import Subscription
    from ccpr.state.targets import LaggingTargetTable

    if whole and table is not None:
        raise typer.BadParameter("a table, or all of them", param_hint="--all")
    with handle_errors(as_json=as_json), Workspace() as workspace:
        if table is not None:
            check_extension(out_file)
        mirror = workspace.mirror_to_read(name)
        point = mirror.point(at_option(at))
        row = workspace.log.row(name)
        settings = Subscription.from_row(row).settings
        reading = reading_of(invalid_text or settings.invalid_text, zero_dates or settings.zero_dates)
        known = {ref.qualified_name: ref for ref in point.tables.values()}
        behind: list[LaggingTargetTable] = []
        if table is not None:
            files = {table_of(mirror, point, table).qualified_name: out_file}
        else:
            refs = [ref for ref in point.tables.values() if ref.kind is Kind.TABLE]
            files, behind = _files(out_file, refs, file_format)
        scripts = _scripts(mirror, point, out_file) if whole else []
        _agree([*files.values(), *(Path(one.file) for one in scripts)], yes=yes, as_json=as_json)
        size, kind = sum(known[one].bytes for one in files), next(iter(files.values()), out_file).suffix
        shown, began = RowProgress(sum(known[one].rows for one in files), quiet=as_json), time.monotonic()
        shown.announce(size, estimates.expected_seconds(workspace.home, kind, size))
        pins = Pins(workspace.log.engine, row.task_id) if table is None else None  # one table is only read
        with pinned(pins, point, workspace.clock):
            done = []
            for one, file in files.items():
                try:
                    done.append(_export(mirror, point, one, file, reading, shown, parse_json=parse_json))
                except (ObjectUnsupported, ValueRefused) as error:
                    if table is not None:
                        raise
                    behind.append(LaggingTargetTable(one, Failure.of(error)))
        for one in scripts:
            one.write(as_json=as_json)
        estimates.record(workspace.home, kind, size, time.monotonic() - began)
    if as_json:
        whole_json = {"lsn": point.lsn, "tables": done, "definitions": [one.to_json()["script"] for one in scripts]}
        whole_json["behind"] = [one.to_json() for one in behind]
        show_json(done[0] if table is not None else whole_json if whole or behind else done)
        end_with_behind(behind, as_json=True)
        return
    for one in done:
        where = f"in {one['file']} ({size_text(one['bytes'])})"
        out.print(f"{counted(one['rows'], 'row')} of {one['table']} at point {point.lsn} {where}", markup=False)
    for one in scripts:
        one.show()
    end_with_behind(behind, as_json=False)


def _files(
    folder: Path, refs: "list[TableRef]", file_format: str
) -> "tuple[dict[str, Path], list[LaggingTargetTable]]":
    """A file for each table, and the tables that get none. Raises StoreFailed, and BadOption for a folder that is a
    file."""
    from collections import Counter

    from ccpr.state.targets import LaggingTargetTable

    files: dict[str, Path] = {}
    behind = []
    called = Counter(ref.qualified_name for ref in refs)
    remedy = "Export it by itself: `ccpr export NAME TABLE --out FILE`."
    for one, stem in sorted(file_names(called).items()):
        name = f"{stem}.{file_format}"
        text = "its name is too long for a file's" if len(name.encode()) > MAX_NAME_BYTES else ""
        if called[one] > 1:
            text = "two databases and tables are called so together"
        if text:
            error = BadOption(text, subject=f"table {one}", remedy=remedy)
            behind.append(LaggingTargetTable(one, Failure.of(error)))
        else:
            files[one] = folder / name
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
    return files, behind


def _scripts(mirror: "Mirror", point: "Point", folder: Path) -> list[DefinitionsScript]:
    """One of each database, with its tables."""
    from ccpr.matrixone.ddl.database_script import whole_script_of

    besides = {one.database: one for one in mirror.definitions(point)}
    refs = [ref for ref in point.tables.values() if ref.kind is Kind.TABLE]
    scripts = []
    for database, stem in sorted(file_names([*besides, *(ref.database for ref in refs)]).items()):
        chosen = sorted((ref for ref in refs if ref.database == database), key=lambda ref: ref.name)
        tables = [mirror.manifest(ref).table for ref in chosen]
        title = f"Database {database} as of point {point.lsn} ({point.at})"
        script = whole_script_of(tables, besides.get(database), database, title)
        scripts.append(DefinitionsScript(script, str(folder / f"{stem}.sql")))
    return scripts


def _agree(files: list[Path], *, yes: bool, as_json: bool) -> None:
    """A person is asked before files that are there are written over; a script that exports again is not. Raises
    NotConfirmed."""
    there = first_names(str(file) for file in files if file.exists())
    if there:
        confirm(f"write over {there}?", subject=f"file {there}", yes=yes, as_json=as_json, harmless=True)


def _export(
    mirror: "Mirror",
    point: "Point",
    table: str,
    file: Path,
    reading: "Reading",
    shown: RowProgress,
    *,
    parse_json: bool,
) -> dict[str, Any]:
    from ccpr.mirror.table_read import plan_read

    read, before = plan_read(mirror, table, point.lsn, reading=reading), 0
    with err.status(Text(f"exporting {table}")) as status:

        def on_rows(rows: int) -> None:
            nonlocal before
            status.update(Text(f"exporting {table}: {rows:,} rows"))
            shown.add(rows - before)
            before = rows

        parsed = read.json_columns if parse_json else ()
        rows = write_rows(file, read.schema, read.batches(mirror=mirror), on_rows, parsed=parsed)
    return {
        "table": table,
        "lsn": point.lsn,
        "snapshot_ts": point.at.physical,
        "rows": rows,
        "file": str(file),
        "bytes": file.stat().st_size,
    }
