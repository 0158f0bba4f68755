"""`ccpr subscriptions`, `ccpr tables`: lists of what there is."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.failure import Failure
from ccpr.base.wording import seconds_text, size_text
from ccpr.cli.arguments import AsJson, At, Name
from ccpr.cli.output import counted, handle_errors, out, show_json, show_table
from ccpr.cli.shown_times import at_option, clock_text, time_text
from ccpr.matrixone.schema import Kind, zero_dates_of
from ccpr.mirror.points import LaggingTable
from ccpr.state.errors import StateUnreadable
from ccpr.state.states import IterationState

if TYPE_CHECKING:
    from ccpr.pipeline.lag import LagMeter
    from ccpr.service.status import TargetStatus
    from ccpr.service.workspace import Workspace
    from ccpr.state.log_rows import LogRow


_SHOWN_TARGETS = 3
_DESCRIBED = (
    "name",
    "task_id",
    "upstream",
    "publication",
    "publisher",
    "database",
    "tables",
    "sync_interval",
    "state",
    "iteration_state",
    "iteration_lsn",
    "newest_point",
    "watermark",
    "lag_seconds",
    "clock_skew_seconds",
    "error",
    "last_error",
    "next_attempt",
    "targets",
    "created_at",
    "updated_at",
)


def subscriptions(as_json: AsJson = False) -> None:
    """List the subscriptions."""
    from ccpr.pipeline.lag import LagMeter
    from ccpr.service.workspace import Workspace

    with handle_errors(as_json=as_json), Workspace() as workspace:
        meter = LagMeter(workspace.clock)
        readable, bad = workspace.log.all_rows()
        rows = [_described(row, meter, workspace) for row in readable]
        rows += [_unreadable(row.subscription_name, row.task_id, row.error) for row in bad]
        rows.sort(key=lambda row: row["name"])
    if as_json:
        show_json(rows)
        return
    out.print(f"state in {workspace.home}", style="dim", markup=False)
    columns = ("name", "upstream", "database", "tables", "interval", "state", "point", "lag", "targets", "error")
    cells = [
        (
            row["name"],
            row["upstream"],
            row["database"],
            row["tables"],
            "-" if row["sync_interval"] is None else f"{row['sync_interval']} s",
            row["state"],
            "-" if row["newest_point"] is None else row["newest_point"],
            "-" if row["lag_seconds"] is None else seconds_text(row["lag_seconds"]),
            _targets_text(row["targets"] or []),
            _error_text(row),
        )
        for row in rows
    ]
    show_table(columns, cells, empty="no subscriptions; make one with `ccpr subscribe`")


def tables(
    name: Name,
    at: At = None,
    whole: Annotated[bool, typer.Option("--all", help="Hidden index tables, too; --json lists them anyway.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the tables of a point: the newest one, or that of --at."""
    from ccpr.service.status import unreadable_tables
    from ccpr.service.workspace import Workspace
    from ccpr.state.history import PointHistory

    with handle_errors(as_json=as_json), Workspace() as workspace:
        point = workspace.mirror(name).point(at_option(at))
        history = PointHistory(workspace.log.engine, workspace.log.row(name).task_id)
        shown = history.tables(point.lsn).values()
    unreadable, zero_dates = unreadable_tables(shown), zero_dates_of(one.table for one in shown)
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
        (ref.qualified_name, ref.kind.value, ref.table_id, ref.objects, ref.rows, size_text(ref.bytes), ref.lsn)
        for ref in refs
        if whole or ref.kind is not Kind.INDEX
    ]
    out.print(f"point {point.lsn}, {clock_text(point.at)}", style="dim", markup=False)
    show_table(
        ("table", "kind", "id", "objects", "stored rows", "bytes", "changed at point"),
        cells,
        empty="the point has no tables",
    )
    if hidden := len(refs) - len(cells):
        out.print(f"and {counted(hidden, 'hidden index table')} (--all)", style="dim", markup=False)
    for late in behind_json(point.behind):
        where = "has no point yet" if late["lsn"] is None else f"is at point {late['lsn']}"
        out.print(f"lagging: {late['table']} {where}", style="yellow", markup=False)
    for table, columns in unreadable.items():
        for column, reason in columns.items():
            out.print(f"cannot be read: column {column} of {table}: {reason}", style="yellow", markup=False)
    for table, counts in zero_dates.items():
        for column, count in counts.items():
            out.print(f"zero dates: column {column} of {table}: {count} times 0000-00-00", markup=False)


def behind_json(late: Mapping[int, LaggingTable]) -> list[dict[str, Any]]:
    """The tables that a point does not show; `lsn` is the newest point that shows the table, null if none does."""
    return [
        {"table_id": table_id, "table": entry.qualified_name, "lsn": entry.lsn}
        for table_id, entry in sorted(late.items(), key=lambda item: item[1].qualified_name)
    ]


def _error_text(row: dict[str, Any]) -> str:
    """How the last attempt failed, how often in a row, and when it is tried again. `ccpr status NAME` has the rest."""
    error: dict[str, Any] | None = row["last_error"]
    if error is None:
        return ""
    text = f"{error['code']}: {error['message']}"
    if not error["again"]:
        return text
    later = "" if row["next_attempt"] is None else f"; next {time_text(row['next_attempt'])}"
    return f"{text} ({error['attempts']} in a row since {time_text(error['first'])}{later})"


def _described(row: "LogRow", meter: "LagMeter", workspace: "Workspace") -> dict[str, Any]:
    try:
        return _describe(row, meter, workspace)
    except StateUnreadable as error:
        return _unreadable(row.subscription_name, row.task_id, error)


def _unreadable(name: str, task_id: str, error: StateUnreadable) -> dict[str, Any]:
    """The same keys, for one whose row cannot be read."""
    from ccpr.service.last_error import LastError
    from ccpr.service.status import UNREADABLE

    known = {
        "name": name,
        "task_id": task_id,
        "state": UNREADABLE,
        "error": str(error),
        "last_error": asdict(LastError.of(Failure.of(error), again=False)),
    }
    return {**dict.fromkeys(_DESCRIBED), "upstream": "", "database": "", "tables": "", "iteration_lsn": 0, **known}


def _target(found: "TargetStatus") -> dict[str, Any]:
    return {
        "name": found.name,
        "state": found.trouble or found.state,
        "lsn": found.lsn,
        "lag_seconds": found.lag_seconds,
        "tables_behind": len(found.behind),
        "last_error": None if found.last_error is None else asdict(found.last_error),
        "next_attempt": found.next_attempt,
        "verified_at": found.verified_at,
    }


def _targets_text(targets: list[dict[str, Any]]) -> str:
    """How many there are, and which have trouble."""
    bad = [target for target in targets if target["state"] in ("failing", "behind")]
    if not bad:
        return str(len(targets) or "-")
    told = ", ".join(f"{target['name']} {target['state']}{_lag_text(target)}" for target in bad[:_SHOWN_TARGETS])
    return f"{told}, {len(bad) - _SHOWN_TARGETS} more" if len(bad) > _SHOWN_TARGETS else told


def _lag_text(target: dict[str, Any]) -> str:
    error = target["last_error"]
    parts = [] if error is None else [error["code"]]
    parts += [] if target["lag_seconds"] is None else [f"lag {seconds_text(target['lag_seconds'])}"]
    return f" ({', '.join(parts)})" if parts else ""


def _describe(row: "LogRow", meter: "LagMeter", workspace: "Workspace") -> dict[str, Any]:
    from ccpr.service.status import ReadRow, next_attempt, open_work, state_word, target_statuses
    from ccpr.state.history import PointHistory

    read = ReadRow.of(row)
    subscription, error, lag = read.subscription, read.last_error, meter.read(row.task_id, read.context)
    held = workspace.log.is_held(row)
    work = open_work(workspace, read) if held else None
    newest = PointHistory(workspace.log.engine, row.task_id).newest()
    return {
        "name": subscription.name,
        "task_id": row.task_id,
        "upstream": subscription.endpoint.masked(),
        "publication": subscription.publication.name,
        "publisher": subscription.publication.publisher,
        "database": subscription.databases,
        "tables": subscription.tables,
        "sync_interval": subscription.settings.sync_interval,
        "state": state_word(read, work, held=held),
        "iteration_state": IterationState(row.iteration_state).name.lower(),
        "iteration_lsn": row.iteration_lsn,
        "newest_point": None if newest is None else newest.lsn,
        "watermark": row.watermark,
        "lag_seconds": lag.seconds,
        "clock_skew_seconds": lag.skew_seconds,
        "error": row.error_message,
        "last_error": None if error is None else asdict(error),
        "next_attempt": next_attempt(row, workspace.clock(), held=held),
        "targets": [_target(one) for one in target_statuses(workspace, read, newest, lag)],
        "created_at": f"{row.created_at.isoformat()}Z",
        "updated_at": f"{row.updated_at.isoformat()}Z",
    }
