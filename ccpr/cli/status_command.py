"""`ccpr status`: state, progress and errors of subscriptions, from the log and the mirror alone. No lease is taken, and
the upstream is not asked."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ccpr.base.clock import wall_clock
from ccpr.base.progress import CopyMeter
from ccpr.base.wording import first_names, seconds_text, size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson
from ccpr.cli.output import counted, drawn_table, json_text, opened, out, show_json
from ccpr.cli.shown_times import clock_text, time_text, zone_text
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.sql.quoting import printable
from ccpr.state.errors import StateUnavailable
from ccpr.state.states import Shown

if TYPE_CHECKING:
    from ccpr.service.follower_status import FollowerStatus
    from ccpr.service.status import SubscriptionStatus, TargetStatus
    from ccpr.state.log_rows import LastError


WATCH_SECONDS = 1.0
_COLUMNS = (
    *("name", "state", "step", "point", "lag", "pending", "waiting", "quarantined"),
    *("targets", "followers", "next", "last error"),
)
UNSERVED = "if the Dagster sensor or a service elsewhere runs; here none does: `ccpr serve`, or `ccpr run NAME`"
_METERS: dict[tuple[str, str], CopyMeter] = {}  # what a watching process has seen of each copy
_STATE_STYLES: dict[str, str] = {
    Shown.IDLE: "green",
    Shown.COPYING: "cyan",
    Shown.APPLYING: "cyan",
    Shown.FAILING: "red",
    Shown.PAUSED: "yellow",
    Shown.STOPPED: "bold red",
}


def status(
    name: Annotated[
        str | None,
        typer.Argument(
            help="The subscription; if not given, all in one table.", autocompletion=completion.subscriptions
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", help="Show all that is known.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show state, step, lag, what is pending and the last error of subscriptions. It does not disturb a run.

    Exit code 0: no errors. 1: the last attempt of a subscription failed, an error has stopped it, tables of it are
    quarantined, one of its targets failed or has lagging tables, or something is wrong with a follower.
    """
    from ccpr.pipeline.lag import LagMeter
    from ccpr.service.running import is_served
    from ccpr.service.status import read_all, read_status

    with opened(as_json=as_json) as workspace:
        meter = LagMeter(workspace.clock)

        def read() -> "list[SubscriptionStatus]":
            return (
                read_all(workspace, meter) if name is None else [read_status(workspace, workspace.log.row(name), meter)]
            )

        def drawn(found: "list[SubscriptionStatus]") -> Table | Group | Text:
            if name is None:
                return overview(found, verbose=verbose)
            return _in_full(found[0], served=is_served(workspace.home), verbose=verbose)

        if watch:
            _watch(read, drawn, as_json=as_json)
            return
        found = read()
        if as_json:
            runs = is_served(workspace.home)
            shown = [{**status.to_json(), "service_running": runs} for status in found]
            show_json(shown if name is None else shown[0])
        else:
            out.print(drawn(found))
    if not all(status.ok for status in found):
        raise typer.Exit(1)


def _watch(
    read: "Callable[[], list[SubscriptionStatus]]",
    drawn: "Callable[[list[SubscriptionStatus]], Table | Group | Text]",
    *,
    as_json: bool,
) -> None:
    """Until Ctrl-C: redrawn on a terminal, otherwise one line (with --json a JSON document) for each subscription that
    has changed."""
    from rich.live import Live

    try:
        if out.is_terminal and not as_json:
            with Live(drawn(read()), console=out, auto_refresh=False) as live:
                while True:
                    time.sleep(WATCH_SECONDS)
                    try:
                        now = drawn(read())
                    except StateUnavailable as error:  # for a moment: watching goes on
                        now = Text(f"{error.code}: {error.message}", style="red")
                    live.update(now, refresh=True)
        printed: dict[str, SubscriptionStatus] = {}
        while True:
            for status in read():
                if printed.get(status.name) != (steady := _steady(status)):
                    printed[status.name] = steady
                    line = json_text(status.to_json()) if as_json else printable(_line(status))
                    sys.stdout.write(line + "\n")
                    sys.stdout.flush()
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def _steady(status: "SubscriptionStatus") -> "SubscriptionStatus":
    """Without what changes as time passes."""
    varying = {"lag_seconds": None, "next_attempt": None, "verified_at": None}
    targets = tuple(replace(target, **varying) for target in status.targets)
    followers = tuple(replace(one, lag_seconds=None, asked_at=None) for one in status.followers)
    times = {"lag_seconds": None, "next_attempt": None, "lease_expires": None}
    return replace(status, **times, targets=targets, followers=followers)


def _line(status: "SubscriptionStatus") -> str:
    parts = [
        time_text(wall_clock()),
        status.name,
        status.state,
        f"newest point {_newest(status)}",
        f"lag {_lag(status)}",
    ]
    if status.step is not None:
        parts.append(f"step {status.step.number} {status.step.name}")
    if status.objects_pending is not None:
        parts.append(f"pending {_pending(status)}")
    if status.copier is not None:
        parts.append(status.copier)
    if status.waiting is not None:
        parts.append(status.waiting.text)
    if status.quarantined:
        parts.append(f"{len(status.quarantined)} quarantined")
    parts += [f"target {target.name} {target.trouble}" for target in status.targets if not target.ok]
    parts += [f"follower {one.name} {one.state}" for one in status.followers if not one.ok]
    if status.last_error is not None:
        parts.append(f"{status.last_error.attempts} failed, {status.last_error.code}: {status.last_error.message}")
    return "  ".join(parts)


def overview(found: "Sequence[SubscriptionStatus]", *, verbose: bool) -> Table | Group | Text:
    """One line each; a column that is empty for all is skipped. `verbose`: what stays as it is, too."""
    if not found:
        return Text("no subscriptions; make one with `ccpr subscribe`")
    now = wall_clock()
    rows = [
        (
            one.name,
            Text(one.state, style=_state_style(one)),
            f"{one.step.number} {one.step.name}" if one.step else "-",
            _newest(one),
            _lag(one),
            _pending(one),
            "-" if one.waiting is None else one.waiting.text,
            len(one.quarantined) or "-",
            _describe(one.targets),
            _describe(one.followers),
            "-" if one.next_attempt is None else seconds_text(one.next_attempt - now),
            _last_error(one),
            *((f"{one.sync_interval} s", one.scope, one.upstream) if verbose else ()),
        )
        for one in found
    ]
    more = ("interval", "of", "upstream") if verbose else ()
    return drawn_table((*_COLUMNS, *more), rows, dense=True, fold="upstream")


def _describe(those: "Sequence[TargetStatus] | Sequence[FollowerStatus]") -> str:
    """How many there are, or which have trouble."""
    bad = [f"{one.name} {getattr(one, 'trouble', one.state)}" for one in those if not one.ok]
    return first_names(bad) if bad else str(len(those) or "-")


def _last_error(status: "SubscriptionStatus") -> str:
    error = status.last_error
    return "-" if error is None else f"{error.code} ({error.attempts} in a row since {time_text(error.first)})"


class _Details:
    """Lines with a label each. Lines of the same subject follow it with an empty label."""

    def __init__(self) -> None:
        self.grid = Table.grid(padding=(0, 2))
        self.grid.add_column(style="bold")
        self.grid.add_column(overflow="fold")

    def add(self, label: str, value: str, style: str = "") -> None:
        self.grid.add_row(label, Text(printable(value, keep="\n"), style=style))


def _in_full(status: "SubscriptionStatus", *, served: bool, verbose: bool) -> Group:
    details = _Details()
    details.add("subscription", f"{status.name}: {status.scope} at {status.upstream}")
    details.add("state", status.state, _state_style(status))
    _add_work(details, status, verbose=verbose)
    details.add("newest point", _newest(status) if status.newest_point is not None else "none yet")
    details.add("lag", _lag(status))
    if verbose:
        _add_upstream(details, status)
    _add_tables(details, status, verbose=verbose)
    for target in status.targets:
        _add_target(details, target, served=served)
    for follower in status.followers:
        _add_follower(details, follower)
    _add_ports(details, status)
    _add_care(details, status)
    if status.last_error is not None:
        _add_error(details, status.last_error)
    if status.next_attempt is not None:
        left = seconds_text(status.next_attempt - wall_clock())
        who = f"by the service that runs here, in {left}" if served else UNSERVED
        details.add("next attempt", f"{time_text(status.next_attempt)}, {who}")
    for warning in status.warnings:
        details.add("warning", warning, "yellow")
    return Group(details.grid)


def _add_work(details: _Details, status: "SubscriptionStatus", *, verbose: bool) -> None:
    """Who runs it, and how far that is."""
    if status.lease_expires is not None:
        details.add("run by", f"{status.owner}, lease until {time_text(status.lease_expires)}")
    if status.step is not None:
        details.add("step", f"{status.step.number} {status.step.name}: {status.step.title}")
        if verbose:
            details.add("done", ", ".join(status.step.done) or "nothing yet")
        details.add("pending", _pending(status))
    if verbose and status.copier is not None:
        details.add("copied by", status.copier)
    if status.waiting is not None:
        details.add("waiting", status.waiting.text, "yellow")


def _add_upstream(details: _Details, status: "SubscriptionStatus") -> None:
    details.add("mode", status.mode)
    if status.publication:
        details.add("objects from", _way(status))
    if status.watermark:
        details.add("watermark", f"{clock_text(Timestamp(status.watermark))} by the upstream's clock ({zone_text()})")
    if status.clock_skew_seconds is not None:
        details.add("clock skew", f"{status.clock_skew_seconds:+.1f} s (ours less the upstream's)")
    if status.capabilities is not None:
        details.add("upstream can", ", ".join(status.capabilities.describe()))
    for snapshot, role in status.snapshots.items():
        details.add("upstream holds", f"{snapshot} ({'to drop' if role == 'orphan' else role})")


def _add_tables(details: _Details, status: "SubscriptionStatus", *, verbose: bool) -> None:
    """Which tables need somebody's eye, and with `verbose` what is not replicated."""
    for table in status.quarantined:
        since = f"{table.table} since {time_text(table.since)}"
        details.add("quarantined", f"{since}, {table.attempts} attempts: {table.code}: {table.message}")
        details.add("", f"remedy: {table.remedy}")
    for table, columns in status.unreadable_columns.items():
        for column, reason in columns.items():
            details.add("cannot be read", f"column {column} of {table}: {reason}", "yellow")
    if status.row_rules:
        ruled = first_names(status.row_rules, most=10)
        details.add("row rules", f"{ruled}: whoever reads this replica sees every row", "yellow")
    if not verbose:
        if status.not_replicated:
            names = first_names((left_out.name for left_out in status.not_replicated), most=3)
            details.add("not replicated", f"{names}; why: ccpr status {status.name} -v")
        return
    why = attrgetter("kind", "reason")
    for (kind, reason), alike in groupby(sorted(status.not_replicated, key=why), key=why):
        names = first_names((left_out.name for left_out in alike), most=10)
        details.add("not replicated", f"{kind} {names}: {reason}")
    for table, counts in status.zero_dates.items():
        for column, count in counts.items():
            details.add("zero dates", f"column {column} of {table}: {count} times 0000-00-00")


def _add_ports(details: _Details, status: "SubscriptionStatus") -> None:
    if status.relays:
        details.add("relay", f"listens on {', '.join(status.relays)}")
    if status.sql_ports:
        details.add("SQL", f"MySQL clients are answered on {', '.join(status.sql_ports)}")
    if status.catalogs:
        details.add("catalog", f"clients of Iceberg are answered on {', '.join(status.catalogs)}")
    for pin in status.forgotten_pins:
        details.add("forgotten", f"snapshot {pin.snapshot} of point {pin.lsn}, last used {time_text(pin.seen_at)}")
        details.add("", f"if its owner is gone for good: ccpr relay pins {status.name} --drop {pin.snapshot}")


def _add_care(details: _Details, status: "SubscriptionStatus") -> None:
    """How far second copies are, how restores were tried, and files read again."""
    drill, scrub = status.care.drill, status.care.scrub
    for one in status.care.copies:
        if one.copy.lsn is not None:
            lag = "up to date" if not one.lag_seconds else f"{seconds_text(one.lag_seconds)} older than the mirror"
            brought = f"{seconds_text(one.age_seconds)} ago"
            read = None if one.scrub is None else one.scrub.last_began_at
            verified = "never read again" if read is None else f"read again since {time_text(read.timestamp())}"
            told = f"point {one.copy.lsn}, {lag}; last copied to {brought}; {verified}"
            details.add("second copy", f"{one.copy.place}: {told}")
    if drill is not None and drill.last_good is not None:
        good = drill.last_good
        told = f"point {good.lsn}, {counted(good.rows, 'row')}, {seconds_text(good.seconds)}"
        details.add("last good drill", f"{seconds_text(drill.age_seconds)} ago: {told}, into {good.place}")
    if scrub is not None and scrub.scrub is not None and scrub.scrub.last_began_at is not None:
        details.add("files read again", f"all of them since {time_text(scrub.scrub.last_began_at.timestamp())}")
    for trouble in status.care.troubles:
        details.add("warning", trouble, "yellow")


def target_lines(target: "TargetStatus", *, served: bool) -> Table:
    """What there is to say of one target."""
    details = _Details()
    _add_target(details, target, served=served)
    return details.grid


def _add_target(details: _Details, target: "TargetStatus", *, served: bool) -> None:
    lsn = "no point yet" if target.lsn is None else f"point {target.lsn}"
    lag = "" if target.lag_seconds is None else f", lag {seconds_text(target.lag_seconds)}"
    of = f"database {target.source_database} to " if target.source_database else ""
    asked = "" if target.verified_at is None else f", asked {seconds_text(wall_clock() - target.verified_at)} ago"
    policy = f", DDL policy {target.ddl_policy}" if target.to.startswith("mysql:") else ""
    about = f"{of}{target.to}: {target.state}, {lsn}{lag}{asked}{policy}"
    details.add(f"target {target.name}", about)
    for table in target.behind:
        failure = table.failure
        style = "red" if table.again else "yellow"
        details.add("", f"lagging: {table.table}: {failure.code}: {failure.message}", style)
        details.add("", "\n".join(f"{statement};" for statement in table.statements) or f"remedy: {failure.remedy}")
    _add_last_error(details, target.last_error)
    if target.next_attempt is not None:
        made = counted(target.attempts, "attempt")
        who = "by the service that runs here" if served else UNSERVED
        details.add("", f"{made} failed, the next is at {time_text(target.next_attempt)}, {who}")


def _add_follower(details: _Details, follower: "FollowerStatus") -> None:
    point = "no point yet" if follower.lsn is None else f"point {follower.lsn}"
    lag = "" if follower.lag_seconds is None else f", lag {seconds_text(follower.lag_seconds)}"
    about = f"database {follower.database} at {follower.to}: {follower.state}, {point}{lag}"
    details.add(f"follower {follower.name}", about)
    if follower.is_unfinished:
        details.add("", "a command is under way with it; if that was interrupted, type it again")
    if follower.task is not None:
        watermark = clock_text(Timestamp(follower.watermark)) + f" ({zone_text()})" if follower.watermark else "none"
        details.add("", f"task {follower.task}, watermark {watermark}")
    _add_last_error(details, follower.last_error)


def _add_last_error(details: _Details, error: "LastError | None") -> None:
    """Of a target or a follower."""
    if error is not None:
        times = f"{error.attempts} in a row since {time_text(error.first)}"
        details.add("", f"{error.code}: {error.message} ({times})", "red")
        details.add("", f"remedy: {error.remedy}")


def _add_error(details: _Details, error: "LastError") -> None:
    times = time_text(error.first)
    if error.again:
        times = f"{error.attempts} in a row, {times} to {time_text(error.last)}"
    details.add("last error", f"{error.code}: {error.message} ({times})", "red")
    details.add("", f"about {error.subject}")
    details.add("", f"remedy: {error.remedy}")
    details.add("", f"more: ccpr explain {error.code}")


def _state_style(status: "SubscriptionStatus") -> str:
    return _STATE_STYLES.get(status.state, "bold red")


def _lag(status: "SubscriptionStatus") -> str:
    return "-" if status.lag_seconds is None else seconds_text(status.lag_seconds)


def _pending(status: "SubscriptionStatus") -> str:
    if status.objects_pending is None or status.bytes_pending is None:
        return "-"
    pending = f"{counted(status.objects_pending, 'object')}, {size_text(status.bytes_pending)}"
    if status.bytes_to_copy is None or status.step is None or status.owner is None:
        return pending
    done, seen = status.bytes_to_copy - status.bytes_pending, (status.task_id, status.step.snapshot)
    if seen not in _METERS:
        _METERS[seen] = CopyMeter(status.bytes_to_copy, done=done)
    _METERS[seen].reached(done)
    return f"{pending}; {_METERS[seen].describe()}"


def _way(status: "SubscriptionStatus") -> str:
    """Which way the bytes of objects come."""
    if not status.objects_from:
        return "the upstream (get_object)"
    told = f"storage, {status.objects_from}; missing objects from the upstream"
    copied = counted(status.objects_copied, "object")
    return f"{told}; last {status.objects_direct:,} of {copied} from storage" if status.objects_copied else told


def _newest(status: "SubscriptionStatus") -> str:
    return "-" if status.newest_point is None else str(status.newest_point)
