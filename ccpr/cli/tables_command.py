"""`ccpr tables`: the tables of a point, and how they are defined there."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.wording import size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, At, Name
from ccpr.cli.output import counted, opened, out, show_json, show_table
from ccpr.cli.shown_times import at_option, clock_text
from ccpr.cli.table_names import full_name
from ccpr.matrixone.schema import Kind, zero_dates_of
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.errors import TableMissingInMirror
from ccpr.mirror.points import LaggingTable

if TYPE_CHECKING:
    from ccpr.matrixone.definitions import Definitions, Written
    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.points import Point

_KINDS = ("view", "sequence", "function", "grant", "row rule")


def tables(
    name: Name,
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="How these tables, views or sequences, t or db.t, are defined; all are listed without.",
            autocompletion=completion.tables,
        ),
    ] = None,
    at: At = None,
    ddl: Annotated[
        bool, typer.Option("--ddl", help="How all of them are defined, and what the database has besides tables.")
    ] = False,
    whole: Annotated[bool, typer.Option("--all", help="Hidden index tables, too; --json lists them anyway.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the tables of a point: the newest one, or that of --at. Or show how tables are defined there, as CREATE
    TABLE, and views, sequences (with their value), functions, grants and row rules of roles."""
    from ccpr.service.status import unreadable_tables

    with opened(as_json=as_json) as workspace:
        mirror = workspace.mirror(name)
        point = mirror.point(at_option(at))
        if named or ddl:
            _show_definitions(mirror, point, named or (), as_json=as_json)
            return

        history = workspace.of(name).history
        known = list(history.tables(point.lsn).values())
    unreadable, zero_dates = unreadable_tables(known), zero_dates_of(one.table for one in known)
    refs = sorted(point.tables.values(), key=lambda ref: ref.qualified_name)
    if as_json:
        show_json(
            {
                "lsn": point.lsn,
                "snapshot_ts": point.at.physical,
                "tables": [
                    {
                        "table_id": ref.table_id,
                        "table": ref.qualified_name,
                        **ref.to_json(),
                        "changed_lsn": ref.changed_lsn,
                        "unreadable": unreadable.get(ref.qualified_name, {}),
                        "zero_dates": zero_dates.get(ref.qualified_name, {}),
                    }
                    for ref in refs
                ],
                "consistent": point.consistent,
                "behind": behind_json(point.behind),
            }
        )
        return
    cells = [
        (
            ref.qualified_name,
            _kind(ref.kind),
            ref.table_id,
            ref.objects,
            ref.rows,
            size_text(ref.bytes),
            ref.changed_lsn,
        )
        for ref in refs
        if whole or ref.kind is not Kind.INDEX
    ]
    out.print(f"point {point.lsn}, {clock_text(point.at)}", style="dim")
    show_table(
        ("table", "kind", "id", "objects", "stored rows", "bytes", "changed at"),
        cells,
        empty="the point has no tables",
        right=(5,),
        dense=True,
    )
    if hidden := len(refs) - len(cells):
        out.print(f"and {counted(hidden, 'hidden index table')} (--all)", style="dim")
    for late in behind_json(point.behind):
        where = "has no point yet" if late["lsn"] is None else f"is at point {late['lsn']}"
        out.print(f"lagging: {late['table']} {where}", style="yellow")
    for table, columns in unreadable.items():
        for column, reason in columns.items():
            out.print(f"cannot be read: column {column} of {table}: {reason}", style="yellow")
    for table, counts in zero_dates.items():
        for column, count in counts.items():
            out.print(f"zero dates: column {column} of {table}: {count} times 0000-00-00")


def _kind(kind: Kind) -> str:
    """Of a usual table nothing is said."""
    return "" if kind is Kind.TABLE else kind.value


def behind_json(late: Mapping[int, LaggingTable]) -> list[dict[str, Any]]:
    """The tables that a point does not show; `lsn` is the newest point that shows the table, null if none does."""
    return [
        {"table_id": table_id, "table": entry.qualified_name, "lsn": entry.lsn}
        for table_id, entry in sorted(late.items(), key=lambda item: item[1].qualified_name)
    ]


def _show_definitions(mirror: "Mirror", point: "Point", named: Sequence[str], *, as_json: bool) -> None:
    """Of some, or of all. Raises TableMissingInMirror."""
    refs = {ref.qualified_name: ref for ref in point.tables.values() if named or ref.kind is Kind.TABLE}
    besides = mirror.definitions(point)
    others = [(each.database, one) for each in besides for one in each.all()]
    if named:
        names = {*refs, *(f"{database}.{one.name}" for database, one in others)}
        wanted = {typed: full_name(typed, names) for typed in named}
        for typed, full in wanted.items():
            if full not in names:
                raise TableMissingInMirror("the point has no such table", subject=f"table {typed} at point {point.lsn}")
        refs = {full: refs[full] for full in wanted.values() if full in refs}
        others = [(database, one) for database, one in others if f"{database}.{one.name}" in wanted.values()]
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
    out.print(f"point {point.lsn}, {clock_text(point.at)}", style="dim")
    for one in found:
        out.print(f"{one.ddl or f'-- {one.qualified_name}: an index table, without a statement'};\n", soft_wrap=True)
    for database, other in others:
        if len(besides) > 1 and other.kind == "sequence":  # whose statements take no database with the name
            out.print(printable(f"-- {database}.{other.name}"))
        out.print(printable(";\n".join(other.statements(database)), keep="\n\t") + ";\n", soft_wrap=True)
    if not named:
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
        out.print(printable(f"not known: {what}: {one.reason}"), style="yellow")
