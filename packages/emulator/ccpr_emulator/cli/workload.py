"""`ccpr workload`: a stream of changes with a record of what must be there, for soak tests and benchmarks."""

import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.cli.arguments import AsJson
from ccpr.cli.asking import read_login
from ccpr.cli.output import handle_errors, out, show_json, show_table
from ccpr.cli.shown_times import AT_HELP, at_option

if TYPE_CHECKING:
    from ccpr_emulator.workload.comparison import Comparison, Read
    from ccpr_emulator.workload.player import Played
    from ccpr_emulator.workload.record import Record

workload = typer.Typer(
    add_completion=False, no_args_is_help=True, help="A stream of changes, and whether what must be there is there."
)
RecordFile = Annotated[Path, typer.Option("--record", help="The file that says what must be there.")]
PasswordFile = Annotated[Path | None, typer.Option(help="A file whose first line is the password.")]
DATABASE, PUBLICATION = "ccpr_load", "ccpr_load_pub"


@workload.command()
def run(
    source: Annotated[str, typer.Option("--from", help="The upstream: 'mysql://account#user:env:NAME@host:port'.")],
    record: RecordFile,
    rate: Annotated[float, typer.Option(min=0, help="Changes a second; 0: as many as it takes.")] = 100.0,
    seconds: Annotated[float, typer.Option(min=0, help="For how long; 0: until Ctrl-C or --changes.")] = 0.0,
    changes: Annotated[int, typer.Option(min=0, help="After how many changes it ends; 0: never.")] = 0,
    seed: Annotated[int, typer.Option(help="The seed of the changes.")] = 1,
    rows: Annotated[int, typer.Option(min=1, max=10**7, help="How many orders there are at most.")] = 10_000,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Changes in a transaction.")] = 10,
    database: Annotated[str, typer.Option(help="The database, which is made.")] = DATABASE,
    publish: Annotated[bool, typer.Option("--publish", help=f"Publish it to all accounts, as {PUBLICATION}.")] = False,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a database of orders and change it at a steady rate. With the record of a load that was ended or killed it
    goes on there; seed, rows and batch are those of the record then."""
    from ccpr_emulator.errors import RecordUnusable
    from ccpr_emulator.workload.player import Player, connected, prepare
    from ccpr_emulator.workload.record import Record
    from ccpr_emulator.workload.steps import Load

    begun = time.monotonic()
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopped.append(received))

    def stop(progress: "Played") -> bool:
        ended = (seconds and time.monotonic() - begun >= seconds) or (changes and progress.changes >= changes)
        return bool(stopped) or bool(ended)

    with handle_errors(as_json=as_json):
        endpoint, password = read_login(source, password_file)
        if record.exists():
            known = Record.read(record)
            if known.database != database:
                raise RecordUnusable(f"it belongs to database {known.database}", subject=str(record))
        else:
            known = Record(database, Load(seed, rows, batch))
            with connected(endpoint, password) as connection:
                prepare(connection, database, publication=PUBLICATION if publish else "")
            known.keep(record)
        player = Player(endpoint, password, known, record, rate, stop, (lambda done: None) if as_json else _report)
        done = player.run()
        result = {**_figures(done), "steps_there": player.record.acknowledged, "record": str(record)}
    if as_json:
        show_json(result)
    else:
        out.print(f"{_line(done)}; the record {record} knows {player.record.acknowledged} steps")


@workload.command()
def check(
    record: RecordFile,
    source: Annotated[str | None, typer.Option("--from", help="Compare the upstream itself.")] = None,
    mirror: Annotated[
        str | None, typer.Option("--mirror", metavar="NAME", help="Compare a point of this subscription's mirror.")
    ] = None,
    at: Annotated[str | None, typer.Option(help=AT_HELP)] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME.TARGET", help="Compare a target of a subscription.")
    ] = None,
    may_lag: Annotated[
        bool, typer.Option("--may-lag", help="It may lack the newest changes; what it shows must be one moment.")
    ] = False,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare every row with what the record says: an upstream, a point of a mirror, or a target. Each says itself how
    many steps it has, in the row that every transaction counts. The exit code is 1 if a row differs, or if
    acknowledged changes are missing."""
    from ccpr_emulator.errors import LoadDiffers
    from ccpr_emulator.workload.comparison import compare
    from ccpr_emulator.workload.record import Record

    if sum(one is not None for one in (source, mirror, target)) != 1:
        raise typer.BadParameter("give one of --from, --mirror and --target", param_hint="--from")
    with handle_errors(as_json=as_json):
        known = Record.read(record)
        with _reading(known, source, mirror, at, target, password_file) as read:
            found = compare(known, read)
        if not as_json:
            _show(found)
        lacking = f"{found.acknowledged - found.steps} acknowledged steps lack" if not found.complete else ""
        if not found.equal or (lacking and not may_lag):
            keys = "; ".join(f"{one.table}: {', '.join(one.keys)}" for one in found.tables if one.keys)
            raise LoadDiffers(keys or lacking, subject=(source and "upstream") or mirror or target or "")
    if as_json:
        show_json(_document(found))


@contextmanager
def _reading(
    known: "Record",
    source: str | None,
    mirror: str | None,
    at: str | None,
    target: str | None,
    password_file: Path | None,
) -> "Iterator[Read]":
    from ccpr.service.workspace import Workspace
    from ccpr.targets.address import address_of
    from ccpr_emulator.workload.comparison import reader
    from ccpr_emulator.workload.player import connected

    if source is not None:
        endpoint, password = read_login(source, password_file)
        with connected(endpoint, password) as connection:
            yield reader(connection, known.database)
        return
    with Workspace() as workspace:
        if mirror is not None:
            yield _of_mirror(workspace.mirror_to_read(mirror), known.database, at)
            return
        name, _, target_name = (target or "").rpartition(".")
        if not name:
            raise typer.BadParameter("write SUBSCRIPTION.TARGET", param_hint="--target")
        found = workspace.of(name).targets.get(target_name)
        address = address_of(found)
        password = workspace.vault.open(found.sealed_password, address.endpoint)
        with _of_target(target_name, address.masked()), connected(address.endpoint, password) as connection:
            yield reader(connection, address.database)


@contextmanager
def _of_target(name: str, address: str) -> Iterator[None]:
    """An error of its server is one of a target, and not of an upstream."""
    from ccpr.matrixone.client.errors import UpstreamError
    from ccpr.targets.errors import TargetUnavailable

    try:
        yield
    except UpstreamError as error:
        text = f"it could not be read: {error.text or error.message}"
        raise TargetUnavailable(text, subject=f"target {name} at {address}") from error


def _of_mirror(mirror: Any, database: str, at: str | None) -> "Read":
    from ccpr.mirror.table_read import plan_read

    lsn = mirror.point(at_option(at)).lsn  # one point for all tables, whatever comes meanwhile

    def read(table: str) -> Iterable[tuple[object, ...]]:
        planned = plan_read(mirror, f"{database}.{table}", lsn)
        for batch in planned.batches(mirror=mirror):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return read


def _figures(done: "Played") -> dict[str, Any]:
    return {
        "steps": done.steps,
        "changes": done.changes,
        "seconds": round(done.seconds, 3),
        "rate": round(done.changes / done.seconds, 1) if done.seconds else 0.0,
        "late": round(done.late, 3),
        "latest": round(done.latest, 3),
    }


def _line(done: "Played") -> str:
    rate = done.changes / done.seconds if done.seconds else 0.0
    late = f", {done.late:.1f} s late" if done.late >= 1 else ""
    return f"{done.changes:,} changes in {done.seconds:.0f} s, {rate:.1f} a second{late}"


def _report(done: "Played") -> None:
    if sys.stdout.isatty():
        print(f"\r{_line(done)}   ", end="", flush=True)


def _show(found: "Comparison") -> None:
    cells = [(one.table, one.rows, one.missing, one.extra, one.different) for one in found.tables]
    show_table(("table", "rows", "missing", "extra", "different"), cells, empty="")
    out.print(f"it shows step {found.steps} of {found.acknowledged}, {found.changes:,} changes")


def _document(found: "Comparison") -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(found), "equal": found.equal, "complete": found.complete}
