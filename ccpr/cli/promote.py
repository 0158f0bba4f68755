"""`ccpr follower promote`: a follower becomes a database of its own."""

from typing import Annotated

import typer

from ccpr.cli.arguments import AsJson, FollowerName, Name
from ccpr.cli.output import counted, err, handle_errors, out, seconds_text, show_json
from ccpr.cli.restore_command import Compared, CopyAddress, CopyListen, CopyProgress, Insecure


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
    from ccpr.relay.comparison import CompareBy
    from ccpr.relay.promoting import Relaying
    from ccpr.relay.promoting import promote as promote_follower
    from ccpr.relay.server import Listen
    from ccpr.service.workspace import Workspace

    if check not in tuple(CompareBy):
        raise typer.BadParameter(f"one of {', '.join(CompareBy)}", param_hint="--check")
    with handle_errors(as_json=as_json), Workspace() as workspace:
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
    out.print(
        f"database {done.database} can be written to: point {done.lsn} ({instant_text(done.at)}){age}", markup=False
    )
    if done.points_missed:
        err.print(
            f"{counted(done.points_missed, 'later point')} skipped: tables lag there; see: ccpr points {name}",
            style="yellow",
            markup=False,
        )
    out.print(f"it no longer follows {name}; if the source is gone for good: ccpr drop {name} --force", markup=False)
