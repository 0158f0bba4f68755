"""`ccpr lake`: tables of Delta Lake that a subscription is published to."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.copy_meter import size_text
from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.asking import confirm
from ccpr.cli.iterations import open_iteration
from ccpr.cli.output import handle_errors, out, show_json, show_table
from ccpr.cli.progress_bars import Display
from ccpr.cli.target_output import outcome_json, show_outcome

if TYPE_CHECKING:
    from ccpr.lake.lake_options import LakeOptions
    from ccpr.service.lakes import LakeShown
    from ccpr.state.targets import Target


lake = typer.Typer(help="Delta Lake tables that a subscription is published to, from its mirror.", no_args_is_help=True)
LakeName = Annotated[str, typer.Argument(metavar="LAKE", help="The lake's name.")]
_MAPPED = (
    "What columns are called in the files. none: as in the table, which every reader knows; a RENAME COLUMN writes all "
    "files again. name: by number (Delta's column mapping), so that it writes none; polars does not read that."
)


@lake.command("add")
def add(
    name: Name,
    lake_name: LakeName,
    to: Annotated[str, typer.Option("--to", help="file:///folder or s3://bucket/prefix[?region=…&endpoint=…]")],
    format_: Annotated[str, typer.Option("--format", metavar="delta", help="The format of the tables.")] = "delta",
    tables: Annotated[str, typer.Option(help="Names or patterns of tables, joined by commas; all without.")] = "",
    database: Annotated[
        str, typer.Option(help="Of a subscription to several databases: the one upstream whose tables it gets.")
    ] = "",
    columns: Annotated[str, typer.Option(metavar="none|name", help=_MAPPED)] = "none",
    copy_on_write: Annotated[
        bool,
        typer.Option(
            "--copy-on-write", help="No deletion vectors: files are written again where rows go. For older readers."
        ),
    ] = False,
    change_data: Annotated[
        bool, typer.Option("--change-data", help="Publish the changes of rows, too (Delta's change data feed).")
    ] = False,
    keep: Annotated[
        int | None, typer.Option(help="How many points stay readable there; else as in the mirror.")
    ] = None,
    keep_for: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="For how long points stay readable there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a lake. The next run publishes all tables; later runs publish what has changed, a version for each point."""
    from ccpr.service import lakes
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        options = options_of(format_, tables, columns, copy_on_write, change_data, keep, keep_for)
        added = lakes.add(workspace, name, lake_name, to, options, database)
    if as_json:
        show_json(lake_json(added))
    else:
        out.print(f"added lake {lake_name} at {added.uri}; next: ccpr run {name}", markup=False)


def options_of(
    format: str = "delta",
    tables: str = "",
    columns: str = "none",
    copy_on_write: bool = False,
    change_data: bool = False,
    keep: int | None = None,
    keep_for: int | None = None,
) -> "LakeOptions":
    """Raises BadSetting."""
    from ccpr.lake.lake_options import Format, LakeOptions, Mapped
    from ccpr.state.errors import BadSetting

    for value, known, option in ((format, Format, "--format"), (columns, Mapped, "--columns")):
        if value not in tuple(known):
            raise BadSetting(f"{value!r:.40} is not known", subject=option, remedy=f"Write {' or '.join(known)}.")
    return LakeOptions(Format(format), tables, Mapped(columns), copy_on_write, change_data, keep, keep_for)


@lake.command("alter")
def alter(
    name: Name,
    lake_name: LakeName,
    keep: Annotated[int | None, typer.Option(help="How many points stay readable there.")] = None,
    keep_for: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="For how long points stay readable there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change which points stay readable in a lake; without options, those of the mirror."""
    from ccpr.service import lakes
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        altered = lakes.alter(workspace, name, lake_name, keep, keep_for)
    if as_json:
        show_json(lake_json(altered))
    else:
        out.print(f"altered lake {lake_name}", markup=False)


@lake.command("list")
def list_(name: Name, as_json: AsJson = False) -> None:
    """List the lakes of a subscription."""
    from ccpr.service import lakes
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        found = [lake_json(one) for one in lakes.lake_records(workspace, name).lakes()]
    if as_json:
        show_json(found)
        return
    cells = [
        (one["lake"], one["uri"], one["format"], "-" if one["lsn"] is None else one["lsn"], len(one["behind"]))
        for one in found
    ]
    empty = f"no lakes; add one with: ccpr lake add {name} LAKE --to …"
    show_table(("lake", "place", "format", "point", "tables behind"), cells, empty=empty)


@lake.command("status")
def status(
    name: Name,
    lake_name: Annotated[str | None, typer.Argument(metavar="[LAKE]", help="One lake; all without.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in the lakes of a subscription: the point of each, and where its tables are, with their versions.
    The lakes are read."""
    from ccpr.service import lakes
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        records = lakes.lake_records(workspace, name)
        chosen = records.lakes() if lake_name is None else [records.lake(lake_name)]
        found = [(one, lakes.shown(one, workspace, name)) for one in chosen]
    if as_json:
        show_json([_status_json(one, there) for one, there in found])
        return
    if not found:
        out.print(f"no lakes; add one with: ccpr lake add {name} LAKE --to …", markup=False)
    for one, there in found:
        point = "no point yet" if there.lsn is None else f"at point {there.lsn}"
        out.print(f"lake {one.name}: {point}, points in {there.points_uri}", markup=False)
        cells = [
            (table.table, table.uri, table.version, table.lsn, f"{table.rows:,}", size_text(table.size))
            for table in there.tables
        ]
        show_table(("table", "uri", "version", "since point", "rows", "bytes"), cells, empty="no tables yet")
        for behind in one.behind:
            out.print("behind", style="bold yellow", end=" ")
            out.print(f"{behind.table}: {behind.failure}", markup=False)


def _status_json(target: "Target", there: "LakeShown") -> dict[str, Any]:
    return {**lake_json(target), **asdict(there), "tables": [asdict(table) for table in there.tables]}


@lake.command("sync")
def sync(name: Name, lake_name: LakeName, as_json: AsJson = False) -> None:
    """Publish what a lake lacks, up to the newest point of the mirror. The upstream is not asked."""
    _sync(name, lake_name, None, as_json=as_json)


@lake.command("rebuild")
def rebuild(
    name: Name,
    lake_name: LakeName,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Its name upstream, t or db.t.")],
    as_json: AsJson = False,
) -> None:
    """Publish a table of a lake anew from the newest point of the mirror: all of its files, in its next version.
    It is for a table that others have written to or deleted files of (LAKE_CHANGED). The upstream is not asked."""
    _sync(name, lake_name, table, as_json=as_json)


def _sync(name: str, lake_name: str, table: str | None, *, as_json: bool) -> None:
    from ccpr.service.target_sync import sync_one_lake
    from ccpr.service.workspace import Workspace

    started = time.monotonic()
    with (
        handle_errors(as_json=as_json),
        Workspace() as workspace,
        open_iteration(workspace, name) as iteration,
        Display() as display,
    ):
        outcome = sync_one_lake(workspace, iteration, lake_name, table, started, progress=display.callbacks)
    if as_json:
        show_json(outcome_json(outcome))
    else:
        show_outcome(outcome)
    if outcome.failure is not None:
        raise typer.Exit(1)


@lake.command("drop")
def drop(
    name: Name,
    lake_name: LakeName,
    purge: Annotated[bool, typer.Option("--purge", help="Delete its tables, too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before files are deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a lake. Its tables stay as they are, and stay readable, unless --purge deletes them."""
    from ccpr.service import lakes
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        target = lakes.lake_records(workspace, name).lake(lake_name)
        if purge:
            question = f"Delete the tables of lake {lake_name} in {target.uri}?"
            confirm(question, subject=f"lake {lake_name}", yes=yes, as_json=as_json)
        uri = lakes.remove(workspace, name, lake_name, purge=purge)
    if as_json:
        show_json({"name": name, "lake": lake_name, "uri": uri, "removed": True, "purged": purge})
    else:
        out.print(f"removed lake {lake_name} of {name}" + (f" and its tables in {uri}" if purge else ""), markup=False)


def lake_json(found: "Target") -> dict[str, Any]:
    """For scripts."""
    from ccpr.service import lakes

    options = lakes.options_of(found)
    return {
        "lake": found.name,
        "uri": found.uri,
        "source_database": found.source_database or None,
        **asdict(options),
        "lsn": found.lsn,
        "behind": [table.to_json() for table in found.behind],
        "error": None if found.failing is None else asdict(found.failing.failure),
    }
