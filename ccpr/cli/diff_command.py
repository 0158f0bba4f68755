"""`ccpr diff`: which rows of a table two points show differently, and in which columns."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, Name, TableName
from ccpr.cli.output import counted, opened, out, show_json
from ccpr.cli.shown_times import at_option
from ccpr.cli.table_names import full_name

if TYPE_CHECKING:
    from ccpr.mirror.delta.compare import Comparison, RowChange

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def diff(
    name: Name,
    table: TableName,
    since: Annotated[
        str,
        typer.Option(
            "--from",
            help="The earlier point: its lsn, a time (ISO), how long ago (-10m), or the name of a held one.",
            autocompletion=completion.points,
        ),
    ],
    until: Annotated[
        str | None, typer.Option("--to", help="The later point, likewise; the newest one if not given.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, max=100_000, help="How many rows of each kind are shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Compare a table at two points: how many rows were added, removed and changed, in which columns, and the first of
    them. The rows are matched by the primary key."""
    from ccpr.mirror.delta.compare import compare_points

    with opened(as_json=as_json) as workspace:
        mirror = workspace.mirror_to_read(name)
        former, later = mirror.point(at_option(since)), mirror.point(at_option(until))
        known = {ref.qualified_name for point in (former, later) for ref in point.tables.values()}
        found = compare_points(mirror, full_name(table, known), former, later, limit)
    if as_json:
        show_json(asdict(found))
    else:
        _show(found)


def _show(found: "Comparison") -> None:
    out.print(f"{found.table}, point {found.since} to {found.until}", style="dim")
    rows = f"{counted(found.added, 'row')} added, {found.removed:,} removed, {found.changed:,} changed"
    out.print(rows, style="bold")
    if found.columns:
        columns = sorted(found.columns.items(), key=lambda item: (-item[1], item[0]))
        out.print("changed in " + ", ".join(f"{name} ({count:,})" for name, count in columns))
    for line in found.definition.splitlines()[2:]:
        style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
        out.print(f"  {line}", style=style)
    for row in found.rows:
        sign, style = _SIGNS[row.kind]
        out.print(f"{sign} {_describe(row)}", style=style)
    shown = {kind: sum(row.kind == kind for row in found.rows) for kind in _SIGNS}
    for kind, count in (("added", found.added), ("removed", found.removed), ("changed", found.changed)):
        if count > shown[kind]:
            out.print(f"… {count - shown[kind]:,} more {kind} (--limit)", style="dim")


def _describe(row: "RowChange") -> str:
    if row.kind != "changed":
        return ", ".join(f"{name}={_cell(value)}" for name, value in (row.after or row.before).items())
    changes = ", ".join(f"{name} {_cell(row.before[name])} → {_cell(row.after[name])}" for name in row.before)
    key = ", ".join(f"{name}={_cell(value)}" for name, value in row.key.items())
    return f"{key}: {changes}"


def _cell(value: object) -> str:
    """As on the screen of `ccpr query`: JSON's words, but for NULL, and texts without quotes."""
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
