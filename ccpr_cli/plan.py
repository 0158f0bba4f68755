"""`ccpr plan`: what the next iteration would do, before anything is copied. `ccpr run NAME --plan ID` then does
exactly that."""

from dataclasses import asdict
from typing import Any

from ccpr_cli import target_output
from ccpr_cli.arguments import AsJson, Name
from ccpr_cli.output import clock_text, counted, handle_errors, out, show_json, show_table, size_text
from replication.iteration.plan import Plan
from replication.service.target_sync import plan_targets
from replication.service.workspace import Workspace

_SHOWN_TABLES = 40


def plan(name: Name, as_json: AsJson = False) -> None:
    """Show what the next iteration would do: objects, bytes, schema changes, destructive steps. It takes the snapshot
    and copies nothing.

    The iteration stays open: a run, or the sensor, continues it.
    """
    with handle_errors(as_json=as_json), Workspace() as workspace, workspace.iteration(name) as iteration:
        iteration.take_snapshot()
        found = iteration.plan()
        targets = plan_targets(workspace, iteration)
    if as_json:
        show_json(
            {**plan_json(found), "targets": {target: target_output.plan_json(one) for target, one in targets.items()}}
        )
        return
    show_plan(found)
    for target, one in targets.items():
        target_output.show_plan(target, one)
    out.print(f"do exactly this with: ccpr run {name} --plan {found.id}", markup=False)


def plan_json(found: Plan) -> dict[str, Any]:
    return {**asdict(found), "at": found.at.physical, "destructive": [asdict(change) for change in found.destructive]}


def show_plan(found: Plan) -> None:
    out.print(
        f"plan {found.id} for lsn {found.lsn}, snapshot {found.snapshot}, upstream's clock {clock_text(found.at)}",
        markup=False,
    )
    if found.resync:
        out.print("resync", style="bold yellow", end=": ")
        out.print(f"{found.resync}; everything is compared with a full list", markup=False)
    out.print(
        f"{counted(found.objects, 'object')}, {size_text(found.bytes)} to copy, except what is there already",
        markup=False,
    )
    cells = [
        (entry.table, entry.added, entry.removed, size_text(entry.bytes)) for entry in found.tables[:_SHOWN_TABLES]
    ]
    columns = ("table", "objects added", "objects removed", "bytes added")
    show_table(columns, cells, empty="no object was added or removed")
    if len(found.tables) > _SHOWN_TABLES:
        out.print(f"and {len(found.tables) - _SHOWN_TABLES} more tables", style="dim", markup=False)
    if found.changes:
        changes = [
            (entry.kind, entry.table, entry.before or "", "yes" if entry.destructive else "") for entry in found.changes
        ]
        show_table(("schema change", "table", "was", "destructive"), changes, empty="")
    for table, failure in found.failures.items():
        out.print("left behind", style="bold yellow", end=" ")
        out.print(f"{table}: {failure}", markup=False)
    if found.unreplicated:
        names = ", ".join(f"{other} ({kind})" for other, kind in found.unreplicated)
        out.print(f"not replicated: {names}", style="dim", markup=False)
