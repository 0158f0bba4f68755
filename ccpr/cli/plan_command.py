"""`ccpr plan`: what the next iteration would do, before anything is copied. `ccpr run NAME --plan ID` then does
exactly that."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.wording import first_names, size_text
from ccpr.cli import target_output
from ccpr.cli.arguments import AsJson, Name
from ccpr.cli.output import counted, open_iteration, opened, out, show_json, show_table
from ccpr.cli.shown_times import clock_text

if TYPE_CHECKING:
    from ccpr.pipeline.plan import IterationPlan
    from ccpr.service.free_space import FreeSpace


_SHOWN_TABLES = 40
_INDEX = "index"


def plan(
    name: Name,
    whole: Annotated[bool, typer.Option("--all", help="Show hidden index tables too.")] = False,
    ddl: Annotated[
        bool, typer.Option("--ddl", help="Show the statements for targets, and what differs in DDL.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the next iteration would do: objects, bytes, schema changes, destructive steps. It takes the snapshot
    and copies nothing.

    The iteration stays open: a run, or the sensor, continues it.
    """
    from ccpr.pipeline import plan as planning
    from ccpr.retention.retention import Retention, take_inventory
    from ccpr.service.free_space import mirror_space
    from ccpr.service.lakes import plan_lakes
    from ccpr.service.target_sync import plan_targets, plan_work

    with opened(as_json=as_json) as workspace, open_iteration(workspace, name) as iteration:
        found = planning.plan(iteration)
        targets = plan_targets(workspace, iteration)
        inventory = take_inventory(workspace.log.of(iteration.subscription.task_id))
        after = inventory.after(found.lsn, found.at, point=bool(found.tables or found.changes))
        expiring = Retention.of(iteration.subscription.settings).expired(after)
        lakes = plan_lakes(workspace, iteration)
        work = plan_work(workspace, iteration, found.bytes, targets, lakes)
        space = mirror_space(workspace, iteration.subscription)
    if as_json:
        show_json(
            {
                **plan_json(found),
                "free_bytes": None if space is None else space.free,
                "targets": {target: target_output.plan_json(one) for target, one in targets.items()},
                "lakes": {lake: target_output.lake_plan_json(one) for lake, one in lakes.items()},
                "expiring_points": expiring,
                "work": [
                    {
                        "target": one.target,
                        "table": one.table,
                        "kind": one.choice.work.value,
                        "bytes": one.choice.size,
                        "by": one.choice.place.value,
                        "why": one.choice.why,
                    }
                    for one in work
                ],
            }
        )
        return
    show_plan(found, whole=whole, ddl=ddl)
    if expiring:
        out.print(f"points that expire with it: {first_names(map(str, expiring), most=10)}")
    if space is not None and (trouble := space_trouble(space, found.bytes)):
        out.print(f"warning: {trouble}", style="bold yellow")
    for target, one in targets.items():
        target_output.show_plan(target, one, ddl=ddl)
    for lake, planned in lakes.items():
        target_output.show_lake_plan(lake, planned)
    for one in work[:_SHOWN_TABLES]:
        if not one.choice.usual:
            out.print(f"{f'target {one.target}, {one.table}: ' if one.target else ''}{one.choice.text}", style="dim")
    out.print(f"do exactly this with: ccpr run {name} --plan {found.id}")


def space_trouble(space: "FreeSpace", size: int) -> str:
    """Whether so many bytes do not fit where the mirror is; empty if they do."""
    if size >= space.free:
        return f"{size_text(size)} do not fit: {size_text(space.free)} are free at {space.folder}"
    return space.trouble


def plan_json(found: "IterationPlan") -> dict[str, Any]:
    return {**asdict(found), "at": found.at.physical, "destructive": [asdict(change) for change in found.destructive]}


def show_plan(found: "IterationPlan", *, whole: bool = False, ddl: bool = False) -> None:
    """`whole`: index tables too; `ddl`: what differs in definitions."""
    out.print(
        f"plan {found.id} for point {found.lsn}, snapshot {found.snapshot}, upstream's clock {clock_text(found.at)}",
    )
    out.print(found.way, style="dim")
    if found.resync:
        out.tell("resync:", "bold yellow", f"{found.resync}; everything is compared with a full list")
    reads = [entry for entry in found.tables if entry.rows or entry.whole]
    if reads:
        cells = [(entry.table, f"{entry.rows:,}", entry.whole and f"all: {entry.whole}") for entry in reads]
        show_table(("table", "rows to read", ""), cells, empty="", right=(1,))
    else:
        out.print(
            f"{counted(found.objects, 'object')}, {size_text(found.bytes)} to copy, except what is there already",
        )
        _show_tables(found, whole=whole)
    _show_changes(found, whole=whole, ddl=ddl)
    for table, failure in found.failures.items():
        out.tell("lagging", "bold yellow", f"{table}: {failure}")
    if found.unreplicated:
        from ccpr.service.status import LeftOut

        left_out = (LeftOut.of(*one) for one in found.unreplicated)
        names = first_names((f"{one.name} ({one.kind})" for one in left_out), most=10)
        out.print(f"not replicated: {names}", style="dim")


def _show_tables(found: "IterationPlan", *, whole: bool) -> None:
    """With their sum, which is of all tables whose objects are copied."""
    shown = [entry for entry in found.tables if whole or entry.kind != _INDEX]
    copied = [entry for entry in found.tables if entry.copied]
    if not found.tables:
        out.print("no object was added or removed")
        return
    cells = [
        (
            entry.table,
            f"{entry.added:,}",
            f"{entry.removed:,}",
            size_text(entry.bytes) if entry.copied else f"({size_text(entry.bytes)}, not copied)",
        )
        for entry in shown[:_SHOWN_TABLES]
    ]
    if len(shown) > _SHOWN_TABLES:
        cells.append((f"and {counted(len(shown) - _SHOWN_TABLES, 'more table')}", "…", "…", "…"))
    if hidden := len(found.tables) - len(shown):
        cells.append((f"and {counted(hidden, 'index table')} (--all)", "…", "…", "…"))
    added, removed, size = (sum(getattr(entry, name) for entry in copied) for name in ("added", "removed", "bytes"))
    cells.append((f"total of {counted(len(copied), 'table')}", f"{added:,}", f"{removed:,}", size_text(size)))
    show_table(("table", "objects added", "objects removed", "bytes added"), cells, empty="", right=(1, 2, 3))


def _show_changes(found: "IterationPlan", *, whole: bool, ddl: bool) -> None:
    """`ddl`: each with what differs in its definition."""
    changes = [entry for entry in found.changes if whole or not entry.index]
    if changes:
        out.print("schema changes", style="bold")
    for entry in changes:
        was = f", was {entry.before}" if entry.before else ""
        out.print(f"  {entry.kind.replace('_', ' ')} {entry.table}{was}", end="")
        out.print("  destructive: its rows are not in the next point" if entry.destructive else "", style="bold yellow")
        for line in entry.diff.splitlines()[2:] if ddl else ():
            style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            out.print(f"    {line}", style=style)
    if hidden := len(found.changes) - len(changes):
        out.print(f"  and of {counted(hidden, 'index table')} (--all)", style="dim")
