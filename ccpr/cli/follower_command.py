"""`ccpr follower`: databases of other clusters that take their points from the relay."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.cli.arguments import AsJson, FollowerName, Name, PasswordFile, Yes
from ccpr.cli.asking import confirm, read_login
from ccpr.cli.output import answer, counted, err, opened, out, seconds_text, show_json, show_table
from ccpr.cli.restore_command import Compared, CopyAddress, CopyListen, CopyProgress, Insecure

if TYPE_CHECKING:
    from ccpr.state.followers import Follower

follower = typer.Typer(help="Databases of other MatrixOnes that follow, through the relay.", no_args_is_help=True)


@follower.command("add")
def add(
    name: Name,
    follower_name: Annotated[
        str | None,
        typer.Argument(metavar="FOLLOWER", help="A name for the follower; made of its host if not given."),
    ] = None,
    *,
    into: Annotated[str, typer.Option("--into", help="mysql://sys#user:env:NAME@host:port of the other MatrixOne.")],
    relay_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where that cluster reaches the relay; 127.0.0.1:6002 if it is on this machine."
        ),
    ] = None,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="DATABASE", help="The database's name there; its own if not given.")
    ] = None,
    password_file: PasswordFile = None,
    new_login: Annotated[
        bool,
        typer.Option(
            "--new-login",
            help="Of a follower whose login at the relay is lost: drop its database there, and load it again.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a database of another MatrixOne follow the subscription: its own CREATE DATABASE … FROM, with the relay as
    the upstream. `ccpr relay serve` must run. The database must not exist there, and is read-only. If it is
    interrupted, type the same again."""
    from ccpr.relay.following import FollowerDestination
    from ccpr.relay.following import follow as follow_from

    with opened(as_json=as_json) as workspace:
        endpoint, password = read_login(into, password_file)
        called = follower_name or re.sub("[^A-Za-z0-9_-]+", "_", endpoint.host).strip("_")[:60]
        if new_login:
            question = f"drop the database of follower {called} at its cluster, and load it again?"
            confirm(question, subject=f"the database of follower {called}", yes=yes, as_json=as_json)
        place = FollowerDestination(endpoint, password, as_, relay_address)
        done = follow_from(workspace, name, called, place, new_login=new_login)
    added = done.follower
    if as_json:
        show_json({**_json(added), "relay_tried": done.relay_tried})
        return
    out.print(f"follower {added.name}: database {added.database} at {endpoint.masked()} follows {name}")
    out.print(f"its rows are there after about ten seconds; see: ccpr follower list {name}")
    if not done.relay_tried and done.task.iterations == 0:
        err.print(f"the relay at {added.relay_address} could not be tried from here", style="yellow")


@follower.command("list")
def list_(name: Name, as_json: AsJson = False) -> None:
    """List the followers of a subscription, as their clusters said when they were asked last."""
    from dataclasses import asdict

    from ccpr.pipeline.lag import LagMeter
    from ccpr.service.status import read_status

    with opened(as_json=as_json) as workspace:
        found = read_status(workspace, workspace.log.row(name), LagMeter(workspace.clock)).followers
    if as_json:
        show_json([asdict(one) for one in found])
        return
    cells = [
        (
            one.name,
            one.database,
            one.to,
            one.state,
            "-" if one.lsn is None else one.lsn,
            "-" if one.lag_seconds is None else seconds_text(one.lag_seconds),
            "-" if one.last_error is None else one.last_error.code,
        )
        for one in found
    ]
    columns = ("follower", "database", "at", "state", "point", "lag", "error")
    show_table(columns, cells, empty=f"no followers; add one with: ccpr follower add {name} FOLLOWER --into …")


@follower.command("remove")
def remove(
    name: Name,
    follower_name: FollowerName,
    drop_database: Annotated[
        bool, typer.Option("--drop-database", help="Drop its database there, too; without it, it stays, read-only.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Do not ask its cluster, which is gone for good: only forget it.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End a follower: its subscription there, its login at the relay, and its snapshots, so that points may expire
    again. If it is interrupted, type the same again."""
    from ccpr.relay.following import unfollow as end

    with opened(as_json=as_json) as workspace:
        if drop_database:
            question = f"drop the database of follower {follower_name} at its cluster?"
            confirm(question, subject=f"the database of follower {follower_name}", yes=yes, as_json=as_json)
        done = end(workspace, name, follower_name, drop_database=drop_database, force=force)
    if as_json:
        shown: dict[str, Any] = {"name": name, "follower": follower_name, "database_left": done.database_left}
        show_json({**shown, "pins_dropped": done.pins_dropped, "asked": done.asked})
        return
    dropped = counted(done.pins_dropped, "snapshot")
    out.print(f"{follower_name} does not follow any more; {dropped} dropped")
    if not done.asked and done.follower.downstream_task is not None:
        err.print("should its cluster come back, type there:", style="yellow")
        err.print(f"  DROP CCPR SUBSCRIPTION '{done.follower.downstream_task}';")
    if done.database_left is not None:
        out.print(f"database {done.database_left} stays there, read-only; without it:")
        out.print(f"  DROP DATABASE `{done.database_left}`;")


@follower.command()
def approve(
    name: Name,
    follower_name: FollowerName,
    as_json: AsJson = False,
) -> None:
    """Let a follower go on to the newest point although most of its tables are gone there (FOLLOWER_DROPS_HELD). Its
    cluster drops them."""
    from ccpr.relay.brake import approve as approve_drops

    with opened(as_json=as_json) as workspace:
        lsn = approve_drops(workspace, name, follower_name)
    answer(
        {"name": name, "follower": follower_name, "approved_lsn": lsn},
        f"follower {follower_name} of {name} may go on to point {lsn}, whatever it drops",
        as_json=as_json,
    )


@follower.command()
def promote(
    name: Name,
    follower_name: FollowerName,
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="DATABASE", help="Another name for the database; the follower's if not given."),
    ] = None,
    check: Compared = "count",
    listen: CopyListen = "127.0.0.1:0",
    relay_address: CopyAddress = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Make a follower a writable database, for when the source is gone: the last whole point is loaded beside it and
    compared, then the read-only copy is dropped and the new one gets its name. The source is not asked. If it is
    interrupted, type the same again."""
    from dataclasses import asdict

    from ccpr.matrixone.objects.timestamp import Timestamp
    from ccpr.mirror.points import instant_text
    from ccpr.relay.client_port import Listen
    from ccpr.relay.comparison import CompareBy
    from ccpr.relay.promoting import Relaying
    from ccpr.relay.promoting import promote as promote_follower

    if check not in tuple(CompareBy):
        raise typer.BadParameter(f"one of {', '.join(CompareBy)}", param_hint="--check")
    with opened(as_json=as_json) as workspace:
        done = promote_follower(
            workspace,
            name,
            follower_name,
            Relaying(Listen.parse(listen, insecure=insecure), relay_address),
            database=as_,
            check=CompareBy(check),
            progress=CopyProgress(workspace.home, quiet=as_json),
        )
    if as_json:
        show_json({**asdict(done), "time": str(Timestamp(done.at))})
        return
    age = "" if done.age_seconds is None else f", {seconds_text(done.age_seconds)} old"
    out.print(f"database {done.database} can be written to: point {done.lsn} ({instant_text(done.at)}){age}")
    if done.points_missed:
        err.print(
            f"{counted(done.points_missed, 'later point')} skipped: tables lag there; see: ccpr points {name}",
            style="yellow",
        )
    out.print(f"it no longer follows {name}; if the source is gone for good: ccpr drop {name} --force")


def _json(found: "Follower") -> dict[str, Any]:
    """For scripts; without passwords."""
    from ccpr.matrixone.client.endpoint import parse_uri

    return {
        "follower": found.name,
        "to": parse_uri(found.uri)[0].masked(),
        "database": found.database,
        "relay_address": found.relay_address,
        "stage": found.stage.value,
        "task": found.downstream_task,
        "publication": found.publication,
    }
