"""`ccpr serve`: all subscriptions of the state folder, run by one process until it is ended. `ccpr relay`: serve
mirrors to other clusters, and their snapshots."""

import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccpr.base.wording import first_names
from ccpr.cli.arguments import AsJson, Name, seconds_option
from ccpr.cli.output import err, opened, out, seconds_text, show_json, show_table

if TYPE_CHECKING:
    from ccpr.relay.relay_server import RelayService

DEFAULT_PORT = 9275


def serve(
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="How many subscriptions run at once.")] = 8,
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="TCP port of /healthz, /metrics and /status; 0 takes a free one."
        ),
    ] = DEFAULT_PORT,
    listen: Annotated[str, typer.Option("--listen", help="Address of this machine to listen on.")] = "127.0.0.1",
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            envvar="CCPR_ALLOWED_HOSTS",
            show_envvar=True,
            metavar="NAME",
            help="A name by which browsers and proxies ask for the pages; repeat it for several, in the variable with "
            "blanks between. Addresses and localhost need none; a request that names another host is refused.",
        ),
    ] = None,
    on_failure: Annotated[
        str,
        typer.Option(
            "--on-failure",
            metavar="CMD",
            help="Run this command when a subscription, target or follower begins to fail, stops, or recovers; it "
            "gets JSON on standard input. Without a shell.",
        ),
    ] = "",
    webhook: Annotated[
        str,
        typer.Option(
            "--webhook",
            envvar="CCPR_WEBHOOK",
            show_envvar=True,
            metavar="URL",
            help="Post the same JSON to this address. If it contains a secret, use the variable.",
        ),
    ] = "",
    dagster: Annotated[
        bool | None,
        typer.Option(
            "--dagster/--no-dagster",
            help="Report iterations to the Dagster instance of DAGSTER_HOME; by default if that is set.",
        ),
    ] = None,
    relay: Annotated[
        bool, typer.Option("--relay", help="Serve the mirrors to other clusters, too, as `ccpr relay serve` does.")
    ] = False,
    relay_listen: Annotated[
        str, typer.Option("--relay-listen", metavar="HOST:PORT", help="Where the relay listens.")
    ] = "127.0.0.1:6002",
    relay_tls_cert: Annotated[
        Path | None, typer.Option("--relay-tls-cert", help="PEM file of a certificate: then logins at it need TLS.")
    ] = None,
    relay_tls_key: Annotated[
        Path | None, typer.Option("--relay-tls-key", help="PEM file of its key, if it is not in the same file.")
    ] = None,
    relay_insecure: Annotated[
        bool,
        typer.Option("--relay-insecure", help="The relay accepts logins without TLS, also from other machines."),
    ] = False,
    sql: Annotated[
        str,
        typer.Option(
            "--sql",
            metavar="HOST:PORT",
            help="Answer MySQL clients there: SELECT on the replicas, and the statements of `ccpr sql`. Logins: `ccpr "
            "login`.",
        ),
    ] = "",
    sql_tls_cert: Annotated[
        Path | None, typer.Option("--sql-tls-cert", help="PEM file of a certificate: then MySQL clients need TLS.")
    ] = None,
    sql_tls_key: Annotated[
        Path | None, typer.Option("--sql-tls-key", help="PEM file of its key, if it is not in the same file.")
    ] = None,
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog",
            metavar="HOST:PORT",
            help="Answer engines there as a REST catalog of Iceberg: the tables of lakes. Logins: `ccpr login`.",
        ),
    ] = "",
    catalog_tls_cert: Annotated[
        Path | None, typer.Option("--catalog-tls-cert", help="PEM file of a certificate: then the catalog is HTTPS.")
    ] = None,
    catalog_tls_key: Annotated[
        Path | None, typer.Option("--catalog-tls-key", help="PEM file of its key, if it is not in the same file.")
    ] = None,
    stop_seconds: Annotated[
        float, typer.Option("--stop-seconds", min=0.0, help="How long to wait for steps to end after SIGTERM.")
    ] = 20.0,
) -> None:
    """Run all subscriptions of the state folder whenever they are due, sync their targets and look after their
    followers, until SIGTERM or Ctrl-C.

    Changes of subscriptions are taken up within a second. The first line printed is `serving on 127.0.0.1:PORT`.
    """
    from ccpr.base.loops import Ending
    from ccpr.cli.output import counted, handle_errors
    from ccpr.cli.serving import ServeOptions, Serving
    from ccpr.relay.client_port import Listen
    from ccpr.serve.listening import raise_limit
    from ccpr.serve.listening import serve as serve_components
    from ccpr.service.workspace import Workspace

    for name in allowed_host or ():
        if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", name):
            raise typer.BadParameter(f"{name!r} is not the name of a host", param_hint="--allowed-host")
    if not relay and (relay_tls_cert or relay_tls_key or relay_insecure):
        raise typer.BadParameter("it needs --relay", param_hint="--relay-…")
    if not sql and (sql_tls_cert or sql_tls_key):
        raise typer.BadParameter("it needs --sql", param_hint="--sql-…")
    if not catalog and (catalog_tls_cert or catalog_tls_key):
        raise typer.BadParameter("it needs --catalog", param_hint="--catalog-…")
    with handle_errors(as_json=False), Workspace() as workspace, Ending(signal.SIGTERM, signal.SIGINT) as ending:
        raise_limit()
        place = Listen.parse(relay_listen, relay_tls_cert, relay_tls_key, insecure=relay_insecure) if relay else None
        options = ServeOptions(
            workers,
            listen,
            port,
            allowed_host or (),
            on_failure,
            webhook,
            dagster=bool(os.environ.get("DAGSTER_HOME")) if dagster is None else dagster,
            relay=place,
            sql=Listen.parse(sql, sql_tls_cert, sql_tls_key) if sql else None,
            stop_seconds=stop_seconds,
            catalog=Listen.parse(catalog, catalog_tls_cert, catalog_tls_key) if catalog else None,
        )
        service = Serving(workspace, options, ending)

        def ready() -> None:
            with suppress(OSError):  # a full disk under its output does not end a service
                print(f"serving on {listen}:{service.pages.port}", flush=True)
                print(f"state folder {workspace.home}, {counted(workers, 'worker')}; Ctrl-C ends it", flush=True)
                if service.relay is not None:
                    print(f"relay on {service.relay.address}", flush=True)
                    warn_of_relay(service.relay)
                if service.sql is not None:
                    print(f"MySQL clients on {service.sql.address}", flush=True)
                if service.catalog is not None:
                    print(f"catalog on {service.catalog.address}", flush=True)

        died = serve_components(service.components, ending.wait, ready, lambda: service.replicator.defect)
        if service.replicator.unfinished:  # a thread that waits for a server would keep the process
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(1 if died else 0)
        if died:
            raise typer.Exit(1)


relay = typer.Typer(help="Serve mirrors to other clusters: any MatrixOne can subscribe to one.", no_args_is_help=True)


@relay.command("serve")
def serve_relay(
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
    from ccpr.base.loops import Ending
    from ccpr.relay.client_port import Listen
    from ccpr.relay.follower_watching import Watcher
    from ccpr.relay.relay_server import RelayService
    from ccpr.serve.listening import raise_limit
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
