"""What `ccpr run`, `ccpr plan` and `ccpr target` show of targets."""

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeGuard

import typer

from ccpr.base.errors import Failure
from ccpr.base.progress import size_text
from ccpr.cli.interrupts import BEHIND
from ccpr.cli.output import counted, err, out
from ccpr.state.settings import TARGET_SETTINGS

if TYPE_CHECKING:
    from ccpr.lake.lake_plan import PlannedLakeTable
    from ccpr.lake.lake_sync import LakeResult
    from ccpr.service.target_sync import TargetOutcome
    from ccpr.state.targets import LaggingTargetTable, Target
    from ccpr.targets.sync import SyncResult
    from ccpr.targets.target_plan import TableStep, TargetPlan


# By the name of the step's class: for a table that the target does not have, and for one that it has.
_ACTIONS = {
    "Build": ("create", "rebuild and replace"),
    "Alter": ("", "alter"),
    "Drop": ("", "drop"),
    "TableStep": ("", ""),
}


class TargetKind(StrEnum):
    DATABASE = "database"
    LAKE = "lake"

    @classmethod
    def of(cls, address: str) -> "TargetKind":
        """A lake has the URL of a folder or bucket, or a path. What is neither is read as a database's address."""
        is_path = "://" not in address and "@" not in address
        return cls.LAKE if is_path or address.startswith(("file:", "s3:")) else cls.DATABASE


def outcome_json(outcome: "TargetOutcome") -> dict[str, Any]:
    """For scripts."""
    result, failure = outcome.result, outcome.failure
    common: dict[str, Any] = {
        "target": outcome.target,
        "seconds": outcome.seconds,
        "error": None if failure is None else asdict(failure),
    }
    if result is None:
        return {**common, "lsn": None, "tables": [], "behind": [], "remarks": {}}
    tables, behind = [asdict(table) for table in result.tables], [table.to_json() for table in result.behind]
    return {**common, "lsn": result.lsn, "tables": tables, "behind": behind, "remarks": result.remarks}


def show_outcome(outcome: "TargetOutcome") -> None:
    result = outcome.result
    if outcome.failure is not None:
        err.tell(f"target {outcome.target} failed", "bold red", str(outcome.failure))
    elif result is None:
        out.print(f"target {outcome.target}: at the newest point")
    elif _is_lakes(result):
        show_lake_result(outcome.target, result, outcome.seconds)
    else:
        upserted, deleted = (sum(getattr(table, name) for table in result.tables) for name in ("upserted", "deleted"))
        rows = f"{counted(len(result.tables), 'table')}, {counted(upserted, 'row')} written, {deleted:,} deleted"
        out.print(f"target {outcome.target}: at point {result.lsn}; {rows}; took {outcome.seconds:.1f} s")
        for table in result.behind:
            show_behind(table)


def _is_lakes(result: "SyncResult | LakeResult") -> "TypeGuard[LakeResult]":
    from ccpr.lake.lake_sync import LakeResult

    return isinstance(result, LakeResult)


def show_lake_result(name: str, result: "LakeResult", seconds: float) -> None:
    files, size = (sum(getattr(table, key) for table in result.tables) for key in ("files_added", "bytes_written"))
    tables, points = counted(len(result.tables), "table"), counted(result.points, "point")
    written = f"{points} published, {tables}, {counted(files, 'file')} added, {size_text(size)} written"
    out.print(f"target {name}: at point {result.lsn}; {written}; took {seconds:.1f} s")
    for table in result.behind:
        show_behind(table)


def show_behind(table: "LaggingTargetTable") -> None:
    out.tell("lagging", "bold yellow", f"{table.table}: {table.failure}")
    _show_statements(table.statements)


def end_with_behind(behind: "Sequence[LaggingTargetTable]", *, as_json: bool) -> None:
    """Name what was left out of a restore, script or export, and exit as `ccpr run` does where tables lag."""
    if not behind:
        return
    if not as_json:
        for table in behind:
            show_behind(table)
    raise typer.Exit(BEHIND)


def plan_json(found: "TargetPlan | Failure") -> dict[str, Any]:
    if isinstance(found, Failure):
        return {"error": asdict(found), "renames": [], "steps": []}
    return {
        "error": None,
        "renames": list(found.renaming),
        "steps": [
            {
                "table": step.table.qualified_name,
                "action": type(step).__name__.lower() if step.failure is None else "wait",
                "statements": list(step.statements),
                "destructive": list(step.destructive),
                "remarks": list(step.remarks),
                "failure": None if step.failure is None else asdict(step.failure),
            }
            for step in found.steps
        ],
    }


def show_plan(name: str, found: "TargetPlan | Failure", *, ddl: bool) -> None:
    if isinstance(found, Failure):
        out.tell(f"target {name} cannot be read:", "bold yellow", str(found))
        return
    out.print(f"target {name}: {counted(len(found.steps), 'table')} with more than changed rows")
    if found.renaming:
        out.print("first all renames, in one statement", style="bold")
        _show_statements(found.renaming)
    for step in found.steps:
        _show_step(step, ddl=ddl)
    if found.steps and not ddl:
        out.print("  (--ddl shows the statements)", style="dim")


def lake_plan_json(found: "list[PlannedLakeTable] | Failure") -> dict[str, Any]:
    if isinstance(found, Failure):
        return {"error": asdict(found), "tables": []}
    return {"error": None, "tables": [asdict(table) for table in found]}


def show_lake_plan(name: str, found: "list[PlannedLakeTable] | Failure") -> None:
    if isinstance(found, Failure):
        out.tell(f"target {name} cannot be read:", "bold yellow", str(found))
        return
    size = size_text(sum(table.bytes for table in found))
    out.print(f"target {name}: {counted(len(found), 'table')} change, {size} of objects to be written")
    for table in found:
        if table.action != "change":
            out.tell(table.action, "bold", f"{table.table} in {table.folder}, {size_text(table.bytes)}")


def _show_step(step: "TableStep", *, ddl: bool) -> None:
    from ccpr.state.targets import LaggingTargetTable

    if step.failure is None:
        out.tell(_ACTIONS[type(step).__name__][step.before is not None], "bold", step.table.qualified_name)
        _show_statements(step.statements if ddl else ())
    else:
        show_behind(LaggingTargetTable(step.table.qualified_name, step.failure, step.statements if ddl else ()))
    for text in step.destructive:
        out.print(f"  destructive: {text}", style="yellow")
    for remark in step.remarks:
        out.print(f"  {remark}", style="dim")


def _show_statements(statements: Sequence[str]) -> None:
    for statement in statements:
        out.print(f"  {statement};", soft_wrap=True)


def kind_of(found: "Target") -> TargetKind:
    return TargetKind.DATABASE if found.lake is None else TargetKind.LAKE


def place_of(found: "Target") -> str:
    """Without a password."""
    from ccpr.targets.address import address_of

    return found.uri if found.lake is not None else address_of(found).masked()


def kind_word(found: "Target") -> str:
    """A database's dialect, or a lake's format."""
    from ccpr.lake.lake_options import options_of

    return (found.dialect or TargetKind.DATABASE) if found.lake is None else options_of(found).format


def target_json(found: "Target") -> dict[str, Any]:
    """For scripts; without the password. What only one kind has, the other has not."""
    from ccpr.lake.lake_options import options_of

    about = {
        "target": found.name,
        "kind": kind_of(found).value,
        "source_database": found.source_database or None,
        "to": place_of(found),
        "state": found.state.value,
        "lsn": found.lsn,
        "behind": [table.to_json() for table in found.behind],
    }
    if found.lake is None:
        settings = {one.name: one.plain(found.settings) for one in TARGET_SETTINGS.values()}
        return {**about, "dialect": found.dialect.value if found.dialect is not None else None, **settings}
    error = None if found.failing is None else asdict(found.failing.failure)
    return {**about, "lake": found.name, "uri": found.uri, **asdict(options_of(found)), "error": error}
