"""What `ccpr serve` consists of: which components there are under which conditions, the order in which they start, and
what each is told of the others. This module knows Dagster and the relay; what runs below it does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ccpr.base.errors import require
from ccpr.base.http_server import Page
from ccpr.base.loops import Ending, Guard
from ccpr.cli.output import json_text
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.lag import LagMeter
from ccpr.pipeline.spark.engine import Copier
from ccpr.relay.client_port import Listen
from ccpr.relay.follower_watching import Watcher
from ccpr.relay.relay_metrics import RelayMetrics
from ccpr.relay.relay_server import RelayService
from ccpr.serve.caretaking import Caretaker
from ccpr.serve.listening import Component, Listener
from ccpr.serve.metrics import Metrics, ServiceHealth
from ccpr.serve.notifying import Notifier
from ccpr.serve.pages import Overview, Pages
from ccpr.serve.replicator import Replicator
from ccpr.serve.status_metrics import StatusMetrics
from ccpr.service.running import OneService
from ccpr.service.status import read_all
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower
from ccpr.state.log_rows import LogRow

if TYPE_CHECKING:
    from ccpr.dagster.reporter import DagsterReporter
    from ccpr.mysql.replica_server import ReplicaServer
    from ccpr.serve.catalog_port import CatalogPort

_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What a service is to have.

    Attributes
    ----------
    host, port : of the pages; port 0 takes a free one.
    dagster : report iterations to the Dagster instance of DAGSTER_HOME.
    relay : where the relay listens; None: there is none.
    sql, catalog : where MySQL clients are answered, and those of Iceberg; None: nowhere.
    """

    workers: int
    host: str
    port: int
    allowed_hosts: Sequence[str]
    on_failure: str
    webhook: str
    dagster: bool
    relay: Listen | None
    stop_seconds: float
    sql: Listen | None = None
    catalog: Listen | None = None


class Serving:
    """The parts of one service. None of them has started; `ending` says when the service is to end. `components`: in
    the order in which they start."""

    def __init__(self, workspace: Workspace, options: ServeOptions, ending: Ending) -> None:
        metrics, notifier = Metrics(workspace.clock), Notifier(options.on_failure, options.webhook, workspace.clock)
        reporter = _reporter(workspace) if options.dagster else None
        self.relay = relay = None if options.relay is None else RelayService(workspace, options.relay)
        self.sql = _sql(workspace, options)
        self.catalog = catalog = _catalog(workspace, options)
        watcher = Watcher(workspace, None if relay is None else relay.quiet, asked=self._tell_of_follower)
        caretaker = Caretaker(workspace)
        listeners: list[Listener | None] = [metrics, notifier, reporter]
        self.replicator = replicator = Replicator(
            workspace,
            _present(listeners),
            workers=options.workers,
            copier=Copier(workspace.home),
            stop_seconds=options.stop_seconds,
            on_end=ending.set,
        )
        self.pages = pages = Pages(
            {
                "/": Overview(workspace),
                "/healthz": lambda: self.health.page(),
                "/metrics": lambda: Page(metrics.text(), "text/plain; version=0.0.4; charset=utf-8"),
                "/status": StatusPage(workspace),
            },
            options.host,
            options.port,
            allowed_hosts=options.allowed_hosts,
        )
        components: list[Component | None] = [
            OneService(workspace.home),
            notifier,
            reporter,
            relay,
            self.sql,
            catalog,
            watcher,
            caretaker,
            pages,
            replicator,
        ]
        guards: list[Guard | None] = [
            notifier.loop,
            workspace.executor.renewals,
            reporter and reporter.loop,
            catalog and catalog.loop,
            watcher.loop,
            caretaker.loop,
            replicator.loop,
            replicator.listeners,
            pages.loop,
        ]
        self.health = ServiceHealth(
            replicator,
            _present(guards),
            {
                **({} if relay is None else {"relay": relay.trouble}),
                **({} if self.sql is None else {"sql": self.sql.trouble}),
            },
            {} if relay is None else {"relay_leaves_out": relay.left_out_now},
        )
        sql = [] if self.sql is None else [self.sql.metrics]
        ports = (*sql, *_present([catalog]))
        for figures in (RelayMetrics(workspace, relay), *ports, StatusMetrics(workspace), self.health):
            metrics.registry.register(figures)
        self.components = _present(components)

    def _tell_of_follower(self, row: LogRow, follower: Follower) -> None:
        self.replicator.listeners.tell(lambda listener: listener.follower_asked(row, follower))


class StatusPage:
    """The JSON of `ccpr status --json`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._meter = workspace, LagMeter(workspace.clock)

    def __call__(self) -> Page:
        try:
            found = [{**status.to_json(), "service_running": True} for status in read_all(self._workspace, self._meter)]
        except CcprError as error:
            shown = {"error": {"code": error.code, "message": error.message, "remedy": error.remedy}}
            return Page(json_text(shown).encode() + b"\n", status=503)
        return Page(json_text(found, indent=1).encode() + b"\n")


def _sql(workspace: Workspace, options: ServeOptions) -> "ReplicaServer | None":
    if options.sql is None:
        return None
    require("duckdb", "duckdb", "sqlglot", otherwise="Without --sql the service needs neither.")
    from ccpr.mysql.replica_server import ReplicaServer

    return ReplicaServer(workspace, options.sql)


def _catalog(workspace: Workspace, options: ServeOptions) -> "CatalogPort | None":
    if options.catalog is None:
        return None
    require("lake", "pyroaring", otherwise="Without --catalog the service does not need it.")
    from ccpr.serve.catalog_port import CatalogPort

    return CatalogPort(workspace, options.catalog)


def _reporter(workspace: Workspace) -> "DagsterReporter":
    require("dagster", "dagster", otherwise="With --no-dagster nothing is reported there.")
    from ccpr.dagster.reporter import DagsterReporter

    return DagsterReporter(workspace)


def _present(parts: "Sequence[_Part | None]") -> "list[_Part]":
    return [part for part in parts if part is not None]
