"""`ccpr relay`: serve mirrors to other clusters, and their snapshots."""

import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.wording import first_names
from ccpr.cli.arguments import AsJson, Name, seconds_option
from ccpr.cli.output import err, opened, out, seconds_text, show_json, show_table

if TYPE_CHECKING:
    from ccpr.relay.relay_server import RelayService

relay = typer.Typer(help="Serve mirrors to other clusters: any MatrixOne can subscribe to one.", no_args_is_help=True)


@relay.command("serve")
def serve(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:6002",
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of a certificate: then logins need TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key, if it is not in the same file.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Accept logins without TLS, also from other machines.")
    ] = False,
) -> None:
    """Serve all subscriptions of the state folder, except those to several databases, until SIGTERM or Ctrl-C: account
    sys, a publication for each, named as the subscription is; and look after its followers. The first line printed is
    `listening on HOST:PORT`."""
    from ccpr.base.ending import Ending
    from ccpr.relay.client_port import Listen
    from ccpr.relay.follower_watching import Watcher
    from ccpr.relay.relay_server import RelayService
    from ccpr.serve.descriptors import raise_limit
    from ccpr.serve.listening import serve as serve_components

    with opened(as_json=False) as workspace, Ending(signal.SIGTERM, signal.SIGINT) as ending:
        raise_limit()
        served = RelayService(workspace, Listen.parse(listen, tls_cert, tls_key, insecure=insecure))

        def ready() -> None:
            with suppress(OSError):  # a full disk under its output does not end a service
                print(f"listening on {served.address}", flush=True)
                warn_of_relay(served)

        serve_components([served, Watcher(workspace, served.quiet)], ending.wait, ready)


def warn_of_relay(served: "RelayService") -> None:
    """What it does not do, though it could be expected."""
    if left_out := served.left_out():
        err.print(f"not served, since they are to several databases: {first_names(left_out)}", style="yellow")
    if not served.has_logins():
        err.print(
            "the relay has no logins yet; let a cluster follow with `ccpr follower add NAME`, or add one with "
            "`ccpr login add NAME --role relay`",
            style="yellow",
        )


@relay.command("pins")
def pins(
    name: Name,
    drop_: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="SNAPSHOT", help="Drop this snapshot, so that its point may expire."),
    ] = None,
    forget_after: Annotated[
        str, typer.Option(help="Mark snapshots as forgotten that are unused for so long: seconds, or with m, h, d.")
    ] = "7d",
    as_json: AsJson = False,
) -> None:
    """List the snapshots that others took of a subscription through the relay, and those of copies, drills and other
    work under way ("this program"). Each keeps its point and all later ones. None goes by time: only an operator knows
    whether a cluster comes back."""
    after = seconds_option(forget_after, "--forget-after")
    with opened(as_json=as_json) as workspace:
        found = workspace.of(name).pins
        dropped = [one for one in drop_ or [] if found.drop(one.lower())]
        now = workspace.now()
        rows: list[dict[str, Any]] = [
            {
                "snapshot": pin.name,
                "lsn": pin.lsn,
                "login": pin.owner,
                "seen_at": pin.seen_at.isoformat(),
                "unused_seconds": max(0, round((now - pin.seen_at).total_seconds())),
                "forgotten": pin.is_forgotten(now, after),
            }
            for pin in found.all()
        ]
    if as_json:
        show_json({"pins": rows, "dropped": dropped})
        return
    for one in dropped:
        out.print(f"dropped {one}")
    show_table(
        ("snapshot", "point", "whose", "not used for", ""),
        [
            (
                row["snapshot"],
                row["lsn"],
                row["login"] or "",
                seconds_text(row["unused_seconds"]),
                "forgotten?" if row["forgotten"] else "",
            )
            for row in rows
        ],
        empty="no snapshots",
    )
