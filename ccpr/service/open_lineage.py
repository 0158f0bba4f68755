"""Each iteration that ends with a point, or fails, as an event of OpenLineage, to the endpoint that OPENLINEAGE_URL
names: the tables upstream, the mirror's tables that they became, and from which column each column comes. So is each
sync of a target or a lake, from the mirror's tables to its own.

It needs the extra `openlineage`. An endpoint that is away costs seconds now and then, never an iteration; the log says
so once.
"""

import logging
import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ccpr.base.clock import Clock
from ccpr.base.errors import require
from ccpr.base.loops import unexpected
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.iteration import Iteration
from ccpr.state.point_rows import TablePoint
from ccpr.state.targets import Target
from ccpr.targets.address import address_of

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

URL, API_KEY, NAMESPACE = "OPENLINEAGE_URL", "OPENLINEAGE_API_KEY", "OPENLINEAGE_NAMESPACE"  # as its client has them
PRODUCER = "https://pypi.org/project/matrixone-ccpr"
TIMEOUT_SECONDS = 5.0
PAUSE_SECONDS = 60.0  # without an attempt after one that failed
MOST_TABLES = 500  # of one event
_log = logging.getLogger(__name__)


class LineageEvents:
    """Of one process. `clock`: seconds since 1970."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resumes = 0.0
        self._is_failing = False

    def ended(self, iteration: Iteration, changed: Callable[[], Iterable[TablePoint]]) -> None:
        """`changed`: the tables of the point that the iteration made; none for one that found nothing new, of which
        nothing is sent. Raises nothing."""
        self._attempt(lambda: self._complete(iteration, changed()))

    def failed(self, iteration: Iteration, error: CcprError) -> None:
        """Raises nothing."""
        subscription, text = iteration.subscription, f"{error.code}: {error.message} {error.remedy}"
        run = f"{subscription.task_id}:{iteration.lsn}"
        self._attempt(lambda: _emit(_event(subscription.name, run, "FAIL", self._clock(), error=text)))

    def synced(self, name: str, mirror: Mirror, target: Target, points: Callable[[], Iterable[TablePoint]]) -> None:
        """`name`: of the subscription. `points`: of the tables that the target has got. Raises nothing."""
        self._attempt(lambda: self._synced(name, mirror, target, points()))

    def _complete(self, iteration: Iteration, changed: Iterable[TablePoint]) -> None:
        endpoint, mirror = iteration.subscription.endpoint, _place(iteration.mirror.store.url)
        upstream = f"mysql://{endpoint.host}:{endpoint.port}"
        tables = (one.table for one in changed if one.ref is not None and one.changed_lsn == iteration.lsn)
        copies = [
            _Copy(table, (upstream, table.qualified_name), (mirror, table.qualified_name))
            for table in tables
            if table.kind is not Kind.INDEX
        ]
        if copies:
            subscription = iteration.subscription
            run = f"{subscription.task_id}:{iteration.lsn}"
            _emit(_event(subscription.name, run, "COMPLETE", self._clock(), copies[:MOST_TABLES]))

    def _synced(self, name: str, mirror: Mirror, target: Target, points: Iterable[TablePoint]) -> None:
        origin, lake, copies = _place(mirror.store.url), _place(target.uri), list[_Copy]()
        for table in (one.table for one in points if one.ref is not None):
            to = (lake, table.qualified_name)
            if target.lake is None:
                address = address_of(target)
                place = f"mysql://{address.endpoint.host}:{address.endpoint.port}"
                to = (place, f"{address.database}.{table.name}")
            copies.append(_Copy(table, (origin, table.qualified_name), to))
        if copies:
            run = f"{target.task_id}:{target.name}"
            _emit(_event(f"{name}.{target.name}", run, "COMPLETE", self._clock(), copies[:MOST_TABLES]))

    def _attempt(self, work: Callable[[], None]) -> None:
        if not os.environ.get(URL) or self._clock() < self._resumes:
            return
        try:
            with unexpected():
                require("openlineage", "openlineage", otherwise=f"Without {URL} nothing is sent.")
                work()
        except CcprError as error:
            self._resumes = self._clock() + PAUSE_SECONDS
            if not self._is_failing:  # what was raised may have the URL in it, and that a password
                what = error if error.__cause__ is None else type(error.__cause__).__name__
                _log.warning("no events of OpenLineage to %s: %s", urlsplit(os.environ[URL]).hostname, what)
            self._is_failing = True
        else:
            self._is_failing = False


def _emit(event: "RunEvent") -> None:
    from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider

    key = os.environ.get(API_KEY)
    auth = ApiKeyTokenProvider({"api_key": key}) if key else TokenProvider({})
    config = HttpConfig(os.environ[URL], timeout=TIMEOUT_SECONDS, auth=auth, retry={"total": 0})
    HttpTransport(config).emit(event)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A table, from where it came, and where it is: namespaces and names."""

    table: Table
    source: tuple[str, str]
    to: tuple[str, str]


def _place(url: str) -> str:
    """Of a mirror or a lake, without its options."""
    return url.partition("?")[0]


def _event(job: str, run: str, state: str, at: float, copies: Iterable[_Copy] = (), error: str = "") -> "RunEvent":
    """`at`: seconds since 1970. `run`: of what; each attempt is a run."""
    from importlib.metadata import version

    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        column_lineage_dataset,
        error_message_run,
        processing_engine_run,
        schema_dataset,
    )

    inputs, outputs = [], []
    for copy in copies:
        columns = _columns(copy.table)
        fields = [schema_dataset.SchemaDatasetFacetFields(*column) for column in columns]
        facets: dict[str, Any] = {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)}
        origins = {
            column: column_lineage_dataset.Fields([column_lineage_dataset.InputField(*copy.source, column)])
            for column, *_ in columns
        }
        lineage = {"columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(origins)}
        inputs.append(InputDataset(*copy.source, facets=facets))
        outputs.append(OutputDataset(*copy.to, facets={**facets, **lineage}))
    shown: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(version("matrixone-ccpr"), name="ccpr")
    }
    if error:
        shown["errorMessage"] = error_message_run.ErrorMessageRunFacet(printable(error), "PYTHON")
    return RunEvent(
        eventTime=datetime.fromtimestamp(at, UTC).isoformat(),
        producer=PRODUCER,
        run=Run(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{run}:{at}")), facets=shown),
        job=Job(os.environ.get(NAMESPACE) or "ccpr", job),
        eventType=RunState(state),
        inputs=inputs,
        outputs=outputs,
    )


def _columns(table: Table) -> list[tuple[str, str | None, str | None]]:
    """Names, types and comments, as the statement declares them."""
    try:
        found = parse_create_table(table.ddl, subject=f"table {table.qualified_name}").columns
    except DdlUnreadable:
        return [(column.name, None, None) for column in table.user_columns]
    return [(column.name, str(column.type), column.comment or None) for column in found]
