"""`ccpr drill`: a restore that is tried."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccpr.base.wording import seconds_text, size_text
from ccpr.cli import completion
from ccpr.cli.arguments import AsJson, Name, OnlyTables, PasswordFile
from ccpr.cli.output import counted, opened, out, show_json, show_table
from ccpr.cli.progress_bars import RowProgress
from ccpr.cli.shown_times import AT_HELP, at_option, clock_text, time_text

if TYPE_CHECKING:
    from ccpr.mirror.points import Point
    from ccpr.service.drilling import DrillTo
    from ccpr.service.workspace import Workspace
    from ccpr.state.care_records import Drill

_SHOWN = 20


def drill(
    name: Name,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            help="A folder for Parquet files, or mysql://user:env:NAME@host:port of a server on which databases are "
            "made and dropped; if not given, as the subscription says, else in the state folder.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help=f"{AT_HELP} A random one if not given.", autocompletion=completion.points),
    ] = None,
    table: OnlyTables = None,
    password_file: PasswordFile = None,
    history: Annotated[bool, typer.Option("--history", help="Show the last drills; nothing is restored.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a kept point into a scratch place, compare it with what was recorded of it, and drop it again. The exit
    code is 1 if something differed, or could not be restored."""
    from ccpr.service import drilling, estimates

    with opened(as_json=as_json) as workspace:
        if history:
            _show_history(workspace, name, as_json=as_json)
            return
        place = _place(workspace, name, into, password_file)
        shown = RowProgress(0, quiet=as_json)

        def announce(point: "Point", rows: int, size: int) -> None:
            shown.begin(rows)
            if not as_json:
                out.print(f"point {point.lsn}, {clock_text(point.at)}, into {place.shown}")
            shown.announce(size, estimates.expected_seconds(workspace.home, place.kind, size))

        done = drilling.drill(
            workspace,
            name,
            place,
            at=at_option(at),
            tables=table or (),
            progress=shown.callbacks,
            announce=announce,
        )
    if as_json:
        show_json(done.to_json())
    else:
        _show(done)
    if not done.good:
        raise typer.Exit(1)


def _place(workspace: "Workspace", name: str, into: str | None, password_file: Path | None) -> "DrillTo":
    """Raises BadName, BadUri, BadTargetUri."""
    from ccpr.service.drilling import place_of
    from ccpr.state.subscription import Subscription

    settings = Subscription.from_row(workspace.log.row(name)).settings
    if into is not None and into.startswith("mysql://"):
        from ccpr.cli.asking import read_login
        from ccpr.service.drilling import DrillTo
        from ccpr.targets.address import Address

        endpoint, password = read_login(into, password_file)
        return DrillTo(server=Address(endpoint, ""), password=password)
    return place_of(workspace, settings.drill_into if into is None else into)


def _show(done: "Drill") -> None:
    told = f"{counted(done.tables, 'table')}, {counted(done.rows, 'row')}, {size_text(done.bytes)} of the mirror"
    took = f"took {seconds_text(done.seconds)}"
    if done.failure is not None:
        out.print(f"it could not be restored: {done.failure}", style="red")
    for table, how in done.differences.items():
        out.print(f"{table}: {how}", style="red")
    if done.good:
        recorded = f"{done.compared} of them recorded before" if done.compared else "none was recorded before"
        out.print(f"point {done.lsn} is restored and as it should be: {told}; {recorded}; {took}")


def _show_history(workspace: "Workspace", name: str, *, as_json: bool) -> None:

    found = workspace.of(name).drills.all()
    if as_json:
        show_json([one.to_json() for one in found])
        return
    cells = [
        (
            time_text(one.started_at.timestamp()),
            one.lsn,
            one.place,
            one.rows,
            size_text(one.bytes),
            seconds_text(one.seconds),
            one.problem or "good",
        )
        for one in found[:_SHOWN]
    ]
    columns = ("started", "point", "into", "rows", "bytes", "took", "result")
    show_table(columns, cells, empty="no drill yet; `ccpr drill NAME` makes one")
