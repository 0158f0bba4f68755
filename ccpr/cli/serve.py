"""`ccpr serve`: all subscriptions of the state folder, run by one process until it is ended."""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ccpr.service.daemon.pages import Page
    from ccpr.service.workspace import Workspace
    from ccpr.state.followers import Follower
    from ccpr.state.log_rows import LogRow

DEFAULT_PORT = 9275


def serve(
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="How many subscriptions run at once.")] = 4,
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
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="Keep a warm Spark session from the start on, or copy without Spark. By default the first copy that "
            "Spark would do sooner starts a session, which ends when none has used it for ten minutes.",
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
    stop_seconds: Annotated[
        float, typer.Option("--stop-seconds", min=0.0, help="How long to wait for steps to end after SIGTERM.")
    ] = 20.0,
) -> None:
    """Run all subscriptions of the state folder whenever they are due, sync their targets and look after their
    followers, until SIGTERM or Ctrl-C.

    Subscriptions that are created, altered, paused or dropped meanwhile are taken up within a second. The first line
    printed is `serving on 127.0.0.1:PORT`.
    """
    from ccpr.base.extras import require
    from ccpr.base.loops import Guard
    from ccpr.cli.output import counted, handle_errors
    from ccpr.cli.relay import warn_of_relay
    from ccpr.pipeline.spark.connect import require_client
    from ccpr.pipeline.spark.engine import Copier
    from ccpr.pipeline.spark.server import WarmSpark
    from ccpr.pipeline.spark.supervisor import Supervisor
    from ccpr.relay.figures import Figures
    from ccpr.relay.server import Listen
    from ccpr.relay.service import RelayService
    from ccpr.relay.watching import Watcher
    from ccpr.service.daemon.descriptors import raise_limit
    from ccpr.service.daemon.health import Health
    from ccpr.service.daemon.listening import Component, Listener
    from ccpr.service.daemon.metrics import Metrics
    from ccpr.service.daemon.notifying import Notifier
    from ccpr.service.daemon.pages import Page, Pages
    from ccpr.service.daemon.replicator import Replicator
    from ccpr.service.daemon.service import serve as serve_components
    from ccpr.service.daemon.single import OneService
    from ccpr.service.workspace import Workspace

    for name in allowed_host or ():
        if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", name):
            raise typer.BadParameter(f"{name!r} is not the name of a host", param_hint="--allowed-host")
    if not relay and (relay_tls_cert or relay_tls_key or relay_insecure):
        raise typer.BadParameter("it needs --relay", param_hint="--relay-…")
    with handle_errors(as_json=False), Workspace() as workspace:
        if spark:
            require_client()
        until = threading.Event()
        _end_on_signals(until)
        raise_limit()
        metrics, notifier = Metrics(workspace.clock), Notifier(on_failure, webhook)
        listeners: list[Listener] = [metrics, notifier]
        components: list[Component] = [OneService(workspace), notifier]
        guards: list[Guard] = [notifier.loop, workspace.executor.renewals]
        if os.environ.get("DAGSTER_HOME") if dagster is None else dagster:
            require("dagster", "dagster", otherwise="With --no-dagster nothing is reported there.")
            from ccpr.dagster.reporter import DagsterReporter

            reporter = DagsterReporter(workspace)
            listeners.append(reporter)
            components.append(reporter)
            guards.append(reporter.loop)
        copier = Copier(workspace.home, "process" if spark is False else "auto", own_java=False, cancelled=until)
        if spark is not False:
            supervisor = Supervisor(WarmSpark(workspace.home), on_demand=not spark)
            components.append(supervisor)
            guards.append(supervisor.loop)
        served: RelayService | None = None
        if relay:
            place = Listen.parse(relay_listen, relay_tls_cert, relay_tls_key, insecure=relay_insecure)
            served = RelayService(workspace, place)
            components.append(served)

        def asked(row: "LogRow", follower: "Follower") -> None:
            replicator.listeners.tell(lambda listener: listener.follower_asked(row, follower))

        watcher = Watcher(workspace, None if served is None else served.quiet, asked=asked)
        components.append(watcher)
        metrics.registry.register(Figures(workspace, served))
        replicator = Replicator(
            workspace, listeners, workers=workers, copier=copier, stop_seconds=stop_seconds, on_end=until.set
        )
        made = {
            "/healthz": lambda: health.page(),
            "/metrics": lambda: Page(metrics.text(), "text/plain; version=0.0.4; charset=utf-8"),
            "/status": status_page(workspace),
        }
        pages = Pages(made, listen, port, allowed_hosts=allowed_host or ())
        guards += [watcher.loop, replicator.loop, replicator.listeners, pages.loop]
        health = Health(
            replicator,
            guards,
            {} if served is None else {"relay": served.trouble},
            {} if served is None else {"relay_leaves_out": served.left_out_now},
        )
        metrics.registry.register(health)

        def ready() -> None:
            with suppress(OSError):  # a full disk under its output does not end a service
                print(f"serving on {listen}:{pages.port}", flush=True)
                print(f"state folder {workspace.home}, {counted(workers, 'worker')}; Ctrl-C ends it", flush=True)
                if served is not None:
                    print(f"relay on {served.address}", flush=True)
                    warn_of_relay(served)

        died = serve_components([*components, pages, replicator], until, ready, lambda: replicator.defect)
        if replicator.unfinished:  # a thread that waits for a server would keep the process
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(1 if died else 0)
        if died:
            raise typer.Exit(1)


def status_page(workspace: "Workspace") -> "Callable[[], Page]":
    """The JSON of `ccpr status --json`."""
    from ccpr.cli.output import json_text
    from ccpr.matrixone.errors import CcprError
    from ccpr.pipeline.lag import LagMeter
    from ccpr.service.daemon.pages import Page
    from ccpr.service.status import read_all

    meter = LagMeter(workspace.clock)

    def page() -> Page:
        try:
            found = [{**asdict(status), "ok": status.ok} for status in read_all(workspace, meter)]
        except CcprError as error:
            shown = {"error": {"code": error.code, "message": error.message, "remedy": error.remedy}}
            return Page(json_text(shown).encode() + b"\n", status=503)
        return Page(json_text(found, indent=1).encode() + b"\n")

    return page


def _end_on_signals(until: threading.Event) -> None:
    """The first signal ends the service between steps, a second one at once."""

    def end(number: int, _frame: object) -> None:
        if until.is_set():
            os._exit(128 + number)
        until.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
