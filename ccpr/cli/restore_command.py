"""`ccpr restore`: a kept point as a database of any MatrixOne."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.wording import first_names
from ccpr.cli.arguments import AsJson, At, OnlyTables, PasswordFile
from ccpr.cli.asking import read_login, read_target_login
from ccpr.cli.output import counted, err, opened, out, seconds_text, show_json, size_text
from ccpr.cli.progress_bars import expected_text, measured
from ccpr.cli.row_files import DefinitionsScript
from ccpr.cli.shown_times import at_option
from ccpr.cli.table_names import point_source
from ccpr.cli.target_output import end_with_behind

if TYPE_CHECKING:
    from ccpr.matrixone.schema import Reading
    from ccpr.service.point_loading import LoadedPoint, PointSource
    from ccpr.service.workspace import Workspace
    from ccpr.state.pins import Pins

PHYSICAL = "matrixone"  # of rates

Compared = Annotated[
    str, typer.Option(help="How the copy is compared: none, count (rows), sum (and figures of each column).")
]
CopyListen = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Where the other cluster fetches from, for the time of the copy.")
]
CopyAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The same place as the other cluster sees it.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen without TLS on an address that others reach, too.")]


def restore(
    name: Annotated[str | None, typer.Argument(help="The subscription; not with --mirror.")] = None,
    into: Annotated[
        str,
        typer.Option(
            "--into",
            help="mysql://sys#user:env:NAME@host:port of a MatrixOne; or mysql://user:env:NAME@host:port/database of a "
            "MariaDB, MySQL or MatrixOne, into which rows are loaded.",
        ),
    ] = "",
    at: At = None,
    database: Annotated[
        str | None, typer.Option(help="Which database, where the mirror has several; restore them one by one.")
    ] = None,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="DATABASE", help="The database's name there; its own if not given.")
    ] = None,
    table: OnlyTables = None,
    mirror: Annotated[
        str | None, typer.Option("--mirror", metavar="URL", help="A mirror by its URL, without its state.")
    ] = None,
    check: Compared = "count",
    listen: CopyListen = "127.0.0.1:0",
    relay_address: CopyAddress = None,
    insecure: Insecure = False,
    password_file: PasswordFile = None,
    with_definitions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a script of views, sequences (with their value), functions, grants and row rules; - for "
            "standard output. Without --into nothing else is done.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load a point into a MatrixOne: a database that does not exist there becomes an ordinary, writable one. Or, with a
    database behind the address, load its rows into that of a MariaDB, MySQL or MatrixOne; tables that are there are not
    touched. The source is not asked. If it is interrupted, type the same again. Views, sequences, functions and grants
    are not loaded: --with-definitions writes a script of them."""
    from ccpr.matrixone.client.upstream_session import Session
    from ccpr.matrixone.objects.timestamp import Timestamp
    from ccpr.matrixone.schema import DEFAULT_READING
    from ccpr.mirror.mirror import Mirror
    from ccpr.mirror.open_store import open_store
    from ccpr.mirror.points import instant_text
    from ccpr.relay.client_port import Listen
    from ccpr.relay.comparison import CompareBy
    from ccpr.relay.loading import LoadedDatabase, Source, load
    from ccpr.retention.pinning import PinsInMemory
    from ccpr.service import estimates
    from ccpr.state.subscription import Subscription

    if (name is None) == (mirror is None):
        raise typer.BadParameter("give a subscription, or a mirror with --mirror", param_hint="NAME")
    if check not in tuple(CompareBy):
        raise typer.BadParameter(f"one of {', '.join(CompareBy)}", param_hint="--check")
    if not into and with_definitions is None:
        raise typer.BadParameter("where to?", param_hint="--into")
    point = at_option(at)
    by_rows = _has_database(into)
    if by_rows and as_ is not None:
        raise typer.BadParameter("the database is in --into", param_hint="--as")
    with opened(as_json=as_json) as workspace:
        pins: Pins | None = None
        own: str | None = None
        reading = DEFAULT_READING
        if mirror is not None:
            read = Mirror(open_store(mirror))
            identity = read.identity()
            called = identity.subscription if identity else "mirror"
        else:
            row = workspace.log.row(name or "")
            subscription = Subscription.from_row(row)
            called, own = subscription.name, None if subscription.of_account else subscription.database
            read, pins = workspace.mirror(called), workspace.of(row).pins
            reading = subscription.settings.reading
        chosen = point_source(read, read.point(point), own, database, table or ())
        named = chosen.database
        script = None
        if with_definitions is not None:
            script = DefinitionsScript.of_point(read, chosen.point, named, as_ or named, with_definitions)
            script.write(as_json=as_json)
            if not into:
                if as_json:
                    show_json(script.to_json())
                else:
                    script.show()
                return
        if by_rows:
            _restore_rows(workspace, chosen, into, password_file, pins, script, reading, as_json=as_json)
            return
        endpoint, password = read_login(into, password_file)
        place = Listen.parse(listen, insecure=insecure)
        shown = CopyProgress(workspace.home, quiet=as_json)
        source = Source(
            called,
            read,
            named,
            chosen.point.lsn,
            chosen.tables,
            several=any(ref.database != named for ref in chosen.point.tables.values()),
            pins=PinsInMemory() if pins is None else pins,
        )
        with Session(endpoint, password) as session:
            done: LoadedDatabase = load(
                source,
                session,
                as_ or named,
                place,
                address=relay_address,
                check=CompareBy(check),
                progress=shown,
                clock=workspace.clock,
            )
        estimates.record(workspace.home, PHYSICAL, done.bytes, done.seconds)
    if as_json:
        told = {**asdict(done), "time": str(Timestamp(done.at)), "seconds": round(done.seconds, 1)}
        show_json(told | ({} if script is None else script.to_json()))
        return
    out.print(f"point {done.lsn} ({instant_text(done.at)}) is database {done.database} at {endpoint.address}")
    compared = "not compared" if check == CompareBy.NONE else f"{done.rows:,} rows compared ({check})"
    out.print(
        f"{counted(done.tables, 'table')}, {counted(done.objects, 'object')}, {size_text(done.bytes)}; "
        f"took {seconds_text(done.seconds)}; {compared}",
    )
    if script is not None:
        script.show()


def _has_database(into: str) -> bool:
    """Whether a database is named behind the address."""
    return "/" in into.rpartition("@")[2].partition("?")[0]


def _restore_rows(
    workspace: "Workspace",
    source: "PointSource",
    into: str,
    password_file: Path | None,
    pins: "Pins | None",
    script: "DefinitionsScript | None",
    reading: "Reading",
    *,
    as_json: bool,
) -> None:
    """Load it, and show how long it will take and how far it is."""
    from ccpr.retention.pinning import pinned
    from ccpr.service.point_loading import load_point

    address, password = read_target_login(into, password_file)
    with (
        measured(workspace.home, "rows", source.refs(), quiet=as_json) as shown,
        pinned(pins, source.point, workspace.clock),
    ):
        done = load_point(source, address, password, progress=shown.callbacks, reading=reading)
    if as_json:
        show_json(_rows_json(done) | ({} if script is None else script.to_json()))
        end_with_behind(done.behind, as_json=True)
        return
    place = f"{address.endpoint.masked()}/{done.database}"
    out.print(f"point {done.lsn} is database {done.database} at {place}")
    took = f"took {seconds_text(done.seconds)}"
    told = (
        f"{counted(done.tables, 'table')}, {counted(done.rows, 'row')}, {size_text(done.bytes)} of the mirror; {took}"
    )
    out.print(f"{told}; compared with what is there")
    if done.there:
        out.print(f"{first_names(done.there)} were there, with the same rows")
    for table, lost in done.left_out.items():
        for text in lost:
            out.print(f"{table}: not as in the source: {text}", style="yellow")
    if script is not None:
        script.show()
    end_with_behind(done.behind, as_json=False)


def _rows_json(done: "LoadedPoint") -> dict[str, Any]:
    told = asdict(replace(done, row_sums={}))
    del told["row_sums"]
    return {**told, "seconds": round(done.seconds, 3)}


class CopyProgress:
    """How long it will take, by the rates in the state folder, and a line whenever a tenth more has arrived."""

    def __init__(self, home: Path, *, quiet: bool) -> None:
        self._home, self._quiet, self._tenth = home, quiet, -1

    def __call__(self, progress: Any) -> None:
        tenth = 10 * progress.bytes // max(1, progress.bytes_total)
        if self._quiet or tenth == self._tenth:
            return
        if self._tenth < 0:
            from ccpr.service import estimates

            seconds = estimates.expected_seconds(self._home, PHYSICAL, progress.bytes_total)
            err.print(expected_text(progress.bytes_total, seconds), style="dim")
        self._tenth = tenth
        err.print(
            f"{progress.objects} of {counted(progress.objects_total, 'object')}, {size_text(progress.bytes)} of "
            f"{size_text(progress.bytes_total)}",
            style="dim",
        )
