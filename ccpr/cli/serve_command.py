"""`ccpr serve`: all subscriptions of the state folder, run by one process until it is ended."""

import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

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
    from ccpr.base.ending import Ending
    from ccpr.cli.output import counted, handle_errors
    from ccpr.cli.relay_command import warn_of_relay
    from ccpr.cli.serving import ServeOptions, Serving
    from ccpr.relay.client_port import Listen
    from ccpr.serve.descriptors import raise_limit
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
