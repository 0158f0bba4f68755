"""`ccpr status`: how each subscription stands, from the log and the mirror alone: no lease is taken, nothing is asked
of the upstream."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ccpr_cli.arguments import AsJson
from ccpr_cli.output import counted, handle_errors, out, show_json, size_text
from ccpr_cli.show import clock_text
from matrixone.objects.timestamp import Timestamp
from replication.errors import StateUnavailable
from replication.iteration.lag import LagMeter
from replication.service.status import SubscriptionStatus, read_all, read_status, seconds_text, time_text
from replication.service.workspace import Workspace
from replication.state.states import State

WATCH_SECONDS = 1.0
_STATE_STYLES = {"running": "green", "paused": "yellow", "error": "bold red"}


def status(
    name: Annotated[str | None, typer.Argument(help="The subscription; without it all, in one table.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how subscriptions stand: state, step, lag, what is pending, the last error. Reading it disturbs no run.

    Exit code 0: all is well. 1: the last attempt of a subscription failed, an error has stopped it, tables of it are
    quarantined, or a target of it failed or has tables that are behind.
    """
    with handle_errors(as_json=as_json), closing(Workspace()) as workspace:
        meter = LagMeter(workspace.clock)

        def read() -> list[SubscriptionStatus]:
            return (
                read_all(workspace, meter) if name is None else [read_status(workspace, workspace.log.row(name), meter)]
            )

        if watch:
            _watch(read, whole=name is None, as_json=as_json)
            return
        found = read()
    if as_json:
        shown = [{**asdict(standing), "ok": standing.ok} for standing in found]
        show_json(shown if name is None else shown[0])
    else:
        out.print(_drawn(found, whole=name is None))
    if not all(standing.ok for standing in found):
        raise typer.Exit(1)


def _watch(read: Callable[[], list[SubscriptionStatus]], *, whole: bool, as_json: bool) -> None:
    """Until Ctrl-C: drawn anew on a terminal, else a line (a JSON document with --json) for each subscription that has
    changed."""
    try:
        if out.is_terminal and not as_json:
            with Live(_drawn(read(), whole=whole), console=out, auto_refresh=False) as live:
                while True:
                    time.sleep(WATCH_SECONDS)
                    live.update(_read_or_report(read, whole=whole), refresh=True)
        told: dict[str, SubscriptionStatus] = {}
        while True:
            for standing in read():
                if told.get(standing.name) != (still := _still(standing)):
                    told[standing.name] = still
                    line = (
                        json.dumps({**asdict(standing), "ok": standing.ok}, ensure_ascii=False)
                        if as_json
                        else _line(standing)
                    )
                    sys.stdout.write(line + "\n")
                    sys.stdout.flush()
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def _read_or_report(read: Callable[[], list[SubscriptionStatus]], *, whole: bool) -> Table | Group | Text:
    """A catalog database that is away for a moment is no reason to stop watching."""
    try:
        return _drawn(read(), whole=whole)
    except StateUnavailable as error:
        return Text(f"{error.code}: {error.message}", style="red")


def _still(standing: SubscriptionStatus) -> SubscriptionStatus:
    """Without what changes by itself."""
    targets = tuple(replace(target, lag_seconds=None) for target in standing.targets)
    return replace(standing, lag_seconds=None, next_attempt=None, lease_expires=None, targets=targets)


def _line(standing: SubscriptionStatus) -> str:
    parts = [
        time_text(time.time()),
        standing.name,
        standing.state,
        f"lsn {standing.iteration_lsn}",
        f"lag {_lag(standing)}",
    ]
    if standing.step is not None:
        parts.append(f"step {standing.step.number} {standing.step.name}")
    if standing.objects_pending is not None:
        parts.append(f"pending {_pending(standing)}")
    if standing.quarantined:
        parts.append(f"{len(standing.quarantined)} quarantined")
    parts += [
        f"target {target.name} {'failing' if target.last_error else 'behind'}"
        for target in standing.targets
        if not target.ok
    ]
    if standing.last_error is not None:
        parts.append(
            f"{standing.last_error.attempts} failed, {standing.last_error.code}: {standing.last_error.message}"
        )
    return "  ".join(parts)


def _drawn(found: Sequence[SubscriptionStatus], *, whole: bool) -> Table | Group | Text:
    if whole:
        return _overview(found) if found else Text("no subscriptions; make one with `ccpr subscribe`")
    return _in_full(found[0])


def _overview(found: Sequence[SubscriptionStatus]) -> Table:
    """A line each; a column in which nobody has anything is left out."""
    now = time.time()
    columns: dict[str, list[str | Text]] = {
        "name": [Text(one.name) for one in found],
        "state": [_state(one) for one in found],
        "step": [f"{one.step.number} {one.step.name}" if one.step else "-" for one in found],
        "lsn": [str(one.iteration_lsn) for one in found],
        "lag": [_lag(one) for one in found],
        "pending": [_pending(one) for one in found],
        "quarantined": [str(len(one.quarantined) or "-") for one in found],
        "targets": [_describe_targets(one) for one in found],
        "next": ["-" if one.next_attempt is None else seconds_text(one.next_attempt - now) for one in found],
        "last error": [_last_error(one) for one in found],
    }
    shown = {column: cells for column, cells in columns.items() if any(str(cell) != "-" for cell in cells)}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        least = 24 if column == "last error" else None
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "state", "lsn", "lag"), min_width=least)
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    return table


def _describe_targets(standing: SubscriptionStatus) -> str:
    bad = sum(not target.ok for target in standing.targets)
    return f"{len(standing.targets)}, {bad} not well" if bad else str(len(standing.targets) or "-")


def _last_error(standing: SubscriptionStatus) -> str:
    error = standing.last_error
    return "-" if error is None else f"{error.code} ({error.attempts} in a row since {time_text(error.first)})"


def _in_full(standing: SubscriptionStatus) -> Group:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")

    def add(what: str, value: str | Text) -> None:
        grid.add_row(what, value if isinstance(value, Text) else Text(value))

    add("subscription", f"{standing.name}: {standing.scope} at {standing.upstream}")
    add("state", _state(standing))
    add("iteration", f"lsn {standing.iteration_lsn}, {standing.iteration_state}" + _holder(standing))
    if standing.step is not None:
        add("step", f"{standing.step.number} {standing.step.name}: {standing.step.title}")
        add("done", ", ".join(standing.step.done) or "nothing yet")
        add("pending", _pending(standing))
    add("newest point", "none yet" if standing.newest_point is None else str(standing.newest_point))
    add("lag", _lag(standing))
    if standing.watermark:
        add("watermark", f"{clock_text(Timestamp(standing.watermark))} by the upstream's clock (UTC)")
    if standing.clock_skew_seconds is not None:
        add("clock skew", f"{standing.clock_skew_seconds:+.1f} s (ours less the upstream's)")
    for snapshot, role in standing.snapshots.items():
        add("upstream holds", f"{snapshot} ({'to drop' if role == 'orphan' else role})")
    for table in standing.quarantined:
        add(
            "quarantined",
            f"{table.table} since {time_text(table.since)}, {table.attempts} attempts: {table.code}: {table.message}",
        )
        add("", f"remedy: {table.remedy}")
    for target in standing.targets:
        lsn = "none yet" if target.lsn is None else f"lsn {target.lsn}"
        lag = "" if target.lag_seconds is None else f", lag {seconds_text(target.lag_seconds)}"
        add(f"target {target.name}", f"{target.to}: {target.state}, {lsn}{lag}, DDL policy {target.ddl_policy}")
        for table in target.behind:
            add("", Text(f"behind: {table.table}: {table.failure.code}: {table.failure.message}", style="yellow"))
            add("", "\n".join(f"{statement};" for statement in table.statements) or f"remedy: {table.failure.remedy}")
        if (failed := target.last_error) is not None:
            add(
                "",
                Text(
                    f"{failed.code}: {failed.message} ({failed.attempts} in a row since {time_text(failed.first)})",
                    style="red",
                ),
            )
            add("", f"remedy: {failed.remedy}")
    if (error := standing.last_error) is not None:
        times = (
            f"{error.attempts} in a row, {time_text(error.first)} to {time_text(error.last)}"
            if error.again
            else time_text(error.first)
        )
        add("last error", Text(f"{error.code}: {error.message} ({times})", style="red"))
        add("", f"about {error.subject}")
        add("", f"remedy: {error.remedy}")
        add("", f"more: ccpr explain {error.code}")
    if standing.next_attempt is not None:
        add("next attempt", f"{time_text(standing.next_attempt)}, if the sensor runs")
    for warning in standing.warnings:
        add("warning", Text(warning, style="yellow"))
    return Group(grid)


def _state(standing: SubscriptionStatus) -> Text:
    text = standing.state + (
        " (failing)" if standing.state == State.RUNNING.name.lower() and standing.last_error else ""
    )
    return Text(text, style="red" if standing.last_error else _STATE_STYLES.get(standing.state, ""))


def _lag(standing: SubscriptionStatus) -> str:
    return "-" if standing.lag_seconds is None else seconds_text(standing.lag_seconds)


def _pending(standing: SubscriptionStatus) -> str:
    if standing.objects_pending is None or standing.bytes_pending is None:
        return "-"
    return f"{counted(standing.objects_pending, 'object')}, {size_text(standing.bytes_pending)}"


def _holder(standing: SubscriptionStatus) -> str:
    if standing.lease_expires is None:
        return "; nobody runs it"
    return f"; run by {standing.owner}, lease until {time_text(standing.lease_expires)}"
