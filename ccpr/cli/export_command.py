"""`ccpr export`: a table of a point as a file, several as files in a folder or as a script of SQL that the clients of
MariaDB and MySQL load, without a JVM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ccpr.base.errors import Failure
from ccpr.base.wording import first_names, seconds_text, size_text
from ccpr.cli import completion
from ccpr.cli.arguments import MORE, AsJson, At, Name, Yes
from ccpr.cli.asking import confirm
from ccpr.cli.output import counted, err, opened, out, show_json
from ccpr.cli.progress_bars import RowProgress, measured
from ccpr.cli.row_files import EXTENSIONS, MAX_NAME_BYTES, DefinitionsScript, check_extension, file_names, write_rows
from ccpr.cli.shown_times import at_option
from ccpr.cli.table_names import point_source, table_of
from ccpr.cli.target_output import end_with_behind
from ccpr.matrixone.objects.errors import ObjectUnsupported, ValueRefused
from ccpr.matrixone.schema import Kind
from ccpr.mirror.errors import BadOption, StoreFailed
from ccpr.state.settings import SETTINGS

if TYPE_CHECKING:
    from ccpr.matrixone.schema import Reading
    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.points import Point, TableRef
    from ccpr.service.workspace import Workspace
    from ccpr.state.targets import LaggingTargetTable

SQL = "sql"
_DIALECTS = ("mariadb", "mysql8", "matrixone")
_FORMATS = (*(extension.removeprefix(".") for extension in EXTENSIONS), SQL)


def _one_of(*known: str) -> Callable[[str | None], str | None]:
    def checked(value: str | None) -> str | None:
        if value not in (None, *known):
            raise typer.BadParameter(f"one of {', '.join(known)}")
        return value

    return checked


def export(
    name: Name,
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="The table, t or db.t, or several; if not given, all.",
            autocompletion=completion.tables,
        ),
    ] = None,
    *,
    out_file: Annotated[
        Path,
        typer.Option(
            "--out",
            help="The file to write: .parquet, .csv, .jsonl, .ndjson or .sql. For several tables a folder, which gets "
            "a file for each, or one .sql. A file appears when it is complete.",
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
        str | None,
        typer.Option(
            "--format",
            help="Of the files in a folder: parquet, csv, jsonl or ndjson; or sql: one script that `mysql` loads into "
            "a database that has none of the tables.",
            callback=_one_of(*_FORMATS),
        ),
    ] = None,
    at: At = None,
    invalid_text: Annotated[
        str | None,
        typer.Option(
            help=f"{SETTINGS['invalid_text'].help} If not given, as the subscription says.", rich_help_panel=MORE
        ),
    ] = None,
    zero_dates: Annotated[
        str | None,
        typer.Option(help=f"{SETTINGS['zero_dates'].help} If not given, likewise.", rich_help_panel=MORE),
    ] = None,
    parse_json: Annotated[
        bool,
        typer.Option(
            "--parse-json",
            help="In .jsonl and .ndjson, values of JSON columns as such, not as text.",
            rich_help_panel=MORE,
        ),
    ] = False,
    dialect: Annotated[
        str,
        typer.Option(
            help=f"Of a script, for which server: {', '.join(_DIALECTS)}.",
            rich_help_panel=MORE,
            callback=_one_of(*_DIALECTS),
        ),
    ] = "mariadb",
    database: Annotated[
        str | None,
        typer.Option(help="Of a script, which database, where the mirror has several.", rich_help_panel=MORE),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Export rows as they were at a point: those of a table to a file, or those of several to files in a folder, or to
    a script of SQL. What a file's name cannot have is written as %2F; a table that cannot be had is named at the end,
    and the exit code is 3."""
    if whole and named:
        raise typer.BadParameter("a table, or all of them", param_hint="--all")
    with opened(as_json=as_json) as workspace:
        if file_format == SQL or (file_format is None and out_file.suffix == f".{SQL}"):
            if whole:
                raise typer.BadParameter("it is for files of rows; a script has the tables", param_hint="--all")
            _write_script(workspace, name, named or (), at, database, dialect, out_file, as_json=as_json)
            return
        from ccpr.mirror.table_read import reading_of
        from ccpr.state.subscription import Subscription

        if named and len(named) == 1:
            check_extension(out_file)
        mirror = workspace.mirror_to_read(name)
        point = mirror.point(at_option(at))
        row = workspace.log.row(name)
        settings = Subscription.from_row(row).settings
        reading = reading_of(invalid_text or settings.invalid_text, zero_dates or settings.zero_dates)
        chosen = _Export.of(mirror, point, named or (), out_file, file_format or "parquet", whole=whole)
        _agree([*chosen.files.values(), *(Path(one.file) for one in chosen.scripts)], yes=yes, as_json=as_json)
        chosen.write(workspace, row.task_id, reading, parse_json=parse_json, as_json=as_json)
    chosen.show(as_json=as_json)


@dataclass(slots=True)
class _Export:
    """Tables of a point, and where each goes.

    Attributes
    ----------
    alone : it is one table and one file; then what cannot be written is an error.
    whole : with scripts of the definitions.
    behind : tables that get no file.
    done : for scripts, of each table that was written.
    """

    mirror: "Mirror"
    point: "Point"
    alone: bool
    whole: bool
    files: dict[str, Path]
    scripts: list[DefinitionsScript]
    behind: "list[LaggingTargetTable]"
    done: list[dict[str, Any]]

    @classmethod
    def of(
        cls, mirror: "Mirror", point: "Point", named: Sequence[str], out_file: Path, file_format: str, *, whole: bool
    ) -> "_Export":
        """Raises TableMissingInMirror, BadOption, StoreFailed."""
        refs = [ref for ref in point.tables.values() if ref.kind is Kind.TABLE]
        if named:
            refs = [table_of(mirror, point, one) for one in named]
        if len(named) == 1:
            return cls(mirror, point, True, False, {refs[0].qualified_name: out_file}, [], [], [])
        files, behind = _files(out_file, refs, file_format)
        scripts = _scripts(mirror, point, out_file) if whole else []
        return cls(mirror, point, False, whole, files, scripts, behind, [])

    def write(
        self, workspace: "Workspace", task_id: str, reading: "Reading", *, parse_json: bool, as_json: bool
    ) -> None:
        from ccpr.retention.pinning import pinned
        from ccpr.state.targets import LaggingTargetTable

        refs = [ref for ref in self.point.tables.values() if ref.qualified_name in self.files]
        kind = next((file.suffix for file in self.files.values()), "")
        pins = None if self.alone else workspace.log.of(task_id).pins  # one table is only read
        with (
            measured(workspace.home, kind, refs, quiet=as_json) as shown,
            pinned(pins, self.point, workspace.clock),
        ):
            for table, file in self.files.items():
                try:
                    self.done.append(
                        _export(self.mirror, self.point, table, file, reading, shown, parse_json=parse_json)
                    )
                except (ObjectUnsupported, ValueRefused) as error:
                    if self.alone:
                        raise
                    self.behind.append(LaggingTargetTable(table, Failure.of(error)))
        for one in self.scripts:
            one.write(as_json=as_json)

    def show(self, *, as_json: bool) -> None:
        """Raises typer.Exit, if tables were left out."""
        if as_json:
            scripts = [one.to_json()["script"] for one in self.scripts]
            document = {"lsn": self.point.lsn, "tables": self.done, "definitions": scripts}
            document["behind"] = [one.to_json() for one in self.behind]
            show_json(self.done[0] if self.alone else document if self.whole or self.behind else self.done)
        else:
            for one in self.done:
                where = f"in {one['file']} ({size_text(one['bytes'])})"
                out.print(f"{counted(one['rows'], 'row')} of {one['table']} at point {self.point.lsn} {where}")
            for script in self.scripts:
                script.show()
        end_with_behind(self.behind, as_json=as_json)


def _write_script(
    workspace: "Workspace",
    name: str,
    named: Sequence[str],
    at: str | None,
    database: str | None,
    dialect: str,
    to: Path,
    *,
    as_json: bool,
) -> None:
    """Tables of a point as SQL. A table that the server cannot have is left out and named at the end."""
    from ccpr.retention.pinning import pinned
    from ccpr.schema.choices import Dialect
    from ccpr.service.script import write_script
    from ccpr.state.subscription import Subscription

    row = workspace.log.row(name)
    subscription, mirror = Subscription.from_row(row), workspace.mirror(name)
    own = None if subscription.of_account else subscription.database
    source = point_source(mirror, mirror.point(at_option(at)), own, database, named)
    with (
        measured(workspace.home, "dump", source.refs(), quiet=as_json) as shown,
        pinned(workspace.of(row).pins, source.point, workspace.clock),
    ):
        done = write_script(source, to, Dialect(dialect), subscription.settings.reading, shown.callbacks)
    if as_json:
        show_json(done.to_json())
    else:
        told = f"{counted(done.tables, 'table')}, {counted(done.rows, 'row')}, {size_text(done.bytes)}"
        out.print(f"point {done.lsn} is in {to}: {told}; took {seconds_text(done.seconds)}")
        for one, lost in done.remarks.items():
            for text in lost:
                out.print(f"{one}: not as in the source: {text}", style="yellow")
    end_with_behind(done.behind, as_json=as_json)


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
