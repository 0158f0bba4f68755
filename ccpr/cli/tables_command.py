"""`ccpr schema`, `ccpr history`: how tables are defined at a point, and what iterations brought."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.wording import first_names, seconds_text, size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, At, Name
from ccpr.cli.output import handle_errors, out, show_json, show_table
from ccpr.cli.shown_times import at_option, clock_text, time_text, utc_text
from ccpr.cli.table_names import full_name
from ccpr.matrixone.schema import Kind
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.errors import TableMissingInMirror

if TYPE_CHECKING:
    from ccpr.matrixone.definitions import Definitions, Written

_KINDS = ("view", "sequence", "function", "grant", "row rule")


def schema(
    name: Name,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="The table, view or sequence, t or db.t; if not given, all of them.",
            autocompletion=completion.tables,
        ),
    ] = None,
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Show how tables are defined at a point, as CREATE TABLE, and its views, sequences (with their value), functions,
    grants and row rules of roles."""
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        mirror = workspace.mirror(name)
        point = mirror.point(at_option(at))
        refs = {ref.qualified_name: ref for ref in point.tables.values() if table or ref.kind is Kind.TABLE}
        besides = mirror.definitions(point)
        others = [(each.database, one) for each in besides for one in each.all()]
        if table is not None:
            full = full_name(table, {*refs, *(f"{database}.{one.name}" for database, one in others)})
            refs = {full: refs[full]} if full in refs else {}
            others = [(database, one) for database, one in others if f"{database}.{one.name}" == full]
            if not refs and not others:
                raise TableMissingInMirror("the point has no such table", subject=f"table {table} at point {point.lsn}")
        found = [mirror.manifest(ref).table for _, ref in sorted(refs.items())]
    if as_json:
        tables = [
            {
                "table": one.qualified_name,
                "ddl": one.ddl,
                "comment": one.comment,
                "columns": [column.to_json() for column in one.user_columns],
            }
            for one in found
        ]
        unreadable = [{"database": each.database, **asdict(one)} for each in besides for one in each.unreadable]
        document = {"lsn": point.lsn, "tables": tables, "unreadable": unreadable}
        show_json(document | {f"{kind}s".replace(" ", "_"): _described(others, kind) for kind in _KINDS})
        return
    out.print(f"point {point.lsn}, {clock_text(point.at)}", style="dim", markup=False)
    for one in found:
        out.print(f"{one.ddl or f'-- {one.qualified_name}: an index table, without a statement'};\n", markup=False)
    for database, other in others:
        if len(besides) > 1 and other.kind == "sequence":  # whose statements take no database with the name
            out.print(printable(f"-- {database}.{other.name}"), markup=False)
        out.print(printable(";\n".join(other.statements(database)), keep="\n\t") + ";\n", markup=False)
    if table is None:
        _show_unreadable(besides)


def _described(found: "Iterable[tuple[str, Written]]", kind: str) -> list[dict[str, Any]]:
    chosen = ((database, one) for database, one in found if one.kind == kind)
    return [
        {"database": database, **asdict(one), "statements": list(one.statements(database))} for database, one in chosen
    ]


def _show_unreadable(besides: "Sequence[Definitions]") -> None:
    """What is not known of any of several databases is said once."""
    found = [(each.database, one) for each in besides for one in each.unreadable]
    times = Counter(one for _, one in found if not one.name)
    of_each = ((one.shown("" if times[one] == len(besides) else database), one) for database, one in found)
    for what, one in dict.fromkeys(of_each):
        out.print(printable(f"not known: {what}: {one.reason}"), style="yellow", markup=False)


def history(
    name: Name,
    count: Annotated[int, typer.Option("--last", "-n", min=1, help="How many points.")] = 20,
    whole: Annotated[bool, typer.Option("--all", help="Hidden index tables, too; --json lists them anyway.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the last iterations brought: when, which tables, how much, and how long each took from its snapshot to
    its commit. Iterations that found nothing new make no point and are not listed."""
    from ccpr.service.workspace import Workspace
    from ccpr.state.history import PointHistory

    with handle_errors(as_json=as_json), Workspace() as workspace:
        points = PointHistory(workspace.log.engine, workspace.log.row(name).task_id)
        found = sorted(points.global_points(), key=lambda point: -point.lsn)[:count]
        changed = {
            point.lsn: sorted(
                {
                    one.table.qualified_name
                    for one in points.changed(point.lsn).values()
                    if whole or as_json or one.table.kind is not Kind.INDEX
                }
            )
            for point in found
        }
    # Two clocks: ours and the upstream's. What is less than nothing is their offset.
    seconds = {one.lsn: max(0.0, one.committed_at.timestamp() - one.at.physical / 1e9) for one in found}
    if as_json:
        show_json(
            [
                {
                    "lsn": point.lsn,
                    "at": utc_text(point.at),
                    "committed_at": point.committed_at.isoformat(),
                    "seconds": round(seconds[point.lsn], 3),
                    "tables": changed[point.lsn],
                    "objects_copied": point.objects_copied,
                    "bytes_copied": point.bytes_copied,
                }
                for point in found
            ]
        )
        return
    cells = [
        (
            point.lsn,
            time_text(point.committed_at.timestamp()),
            seconds_text(seconds[point.lsn]),
            f"{point.objects_copied:,}",
            size_text(point.bytes_copied),
            first_names(changed[point.lsn]),
        )
        for point in found
    ]
    columns = ("point", "committed", "snapshot to commit", "objects", "bytes", "tables that changed")
    show_table(columns, cells, empty="no point yet", right=(2, 3, 4))
