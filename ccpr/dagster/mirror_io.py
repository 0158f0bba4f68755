"""Replicated tables as inputs of anybody's assets: `def revenue(orders: pl.LazyFrame)` reads the table at the point
that the run's data version says, whatever has been replicated since."""

from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
from pydantic import Field

from ccpr.api.scan import Scan
from ccpr.base.errors import require
from ccpr.dagster import metadata
from ccpr.dagster.replication import as_failure
from ccpr.dagster.spark_resource import SparkResource
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.errors import BadOption, PointGone, PointNotReached
from ccpr.mirror.filters import FilterTuple
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.table_read import TableRead, plan_read
from ccpr.service.workspace import Workspace

if TYPE_CHECKING:
    import duckdb
    from dagster._core.execution.context.system import StepExecutionContext

COLUMNS, FILTERS = "columns", "filters"  # metadata of an `AssetIn`
PARTITION_EXPR = "partition_expr"  # the column whose value is the partition, or lies in its time
AT_PARTITION = "at_partition"  # true: the table at the end of the partition's time, or at the point that its key names


class MirrorIOManager(dg.ConfigurableIOManager):
    """Reads replicated tables as what the parameter's annotation says: `polars.LazyFrame` or `DataFrame`,
    `pandas.DataFrame`, `pyarrow.Table` or `RecordBatchReader`, a relation of DuckDB, a DataFrame of Spark; without one
    it is a `ccpr.Scan`. It writes nothing.

    An input has the point of the materialization that the run's data version of it is. Its metadata may have `columns`
    (names), `filters` (as of `ccpr.Table.scan`), `partition_expr` and `at_partition`.
    """

    home: str = Field(default="", description="The state folder; empty for CCPR_HOME, else the nearest .ccpr upwards.")

    def load_input(self, context: dg.InputContext) -> Any:
        try:
            with closing(Workspace(Path(self.home) if self.home else None)) as workspace:
                mirror, read = _planned(context, workspace)
            return self._as(context.dagster_type.typing_type, mirror, read)
        except CcprError as error:
            raise as_failure(error) from error

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise as_failure(
            BadOption(
                "MirrorIOManager writes nothing: a mirror has what the upstream has",
                subject=f"output {context.name}",
                remedy="Give the asset another io_manager_key, and its input input_manager_key.",
            )
        )

    def _as(self, kind: Any, mirror: Mirror, read: TableRead) -> Any:
        package = getattr(kind, "__module__", "").partition(".")[0].lstrip("_")
        name = getattr(kind, "__name__", "")
        if (package, name) == ("pyspark", "DataFrame"):
            from ccpr.pipeline.spark.read import frame_of

            return frame_of(SparkResource(home=self.home or None).session, read)
        if kind is not Any and (package, name) not in _FORMS:
            forms = ", ".join(map(".".join, (*_FORMS, ("pyspark", "DataFrame"))))
            raise BadOption(f"a table cannot be read as {kind!r:.80}", subject="annotation", remedy=f"One of {forms}.")
        return _FORMS.get((package, name), lambda scan: scan)(Scan(mirror, read))


def _in_duckdb(scan: Scan) -> "duckdb.DuckDBPyRelation":
    """In a connection of its own, which lives as long as the relation."""
    require("duckdb", "duckdb")
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return scan.to_duckdb(connection)


_FORMS: Mapping[tuple[str, str], Callable[[Scan], Any]] = {
    ("polars", "LazyFrame"): Scan.to_lazy,
    ("polars", "DataFrame"): Scan.to_polars,
    ("pandas", "DataFrame"): Scan.to_pandas,
    ("pyarrow", "Table"): Scan.to_arrow,
    ("pyarrow", "RecordBatchReader"): Scan.to_batches,
    ("duckdb", "DuckDBPyRelation"): _in_duckdb,
    ("ccpr", "Scan"): lambda scan: scan,
}


def _planned(context: dg.InputContext, workspace: Workspace) -> tuple[Mirror, TableRead]:
    """Decides what is to be read. Reads no rows."""
    event, asked = _event(context), context.definition_metadata
    shown: dict[str, Any] = {name: value.value for name, value in event.metadata.items()}
    tags, subject = event.tags or {}, f"asset {event.asset_key.to_user_string()}"
    if metadata.SUBSCRIPTION_TAG not in tags or metadata.SYNCED_WITH_POINT in shown:
        remedy = "A target's table is read from the target: a lake's by dagster-deltalake, a database's by its client."
        raise BadOption("not a table of a mirror", subject=subject, remedy=remedy)
    name = shown.get(metadata.TABLE_NAME) or ".".join(event.asset_key.path[-2:])  # older events have none
    _check_table(context, tags[metadata.SUBSCRIPTION_TAG], name, subject)
    mirror, step = workspace.mirror_to_read(tags[metadata.SUBSCRIPTION_TAG]), context.step_context
    if asked.get(AT_PARTITION):
        window = _window(step)
        at = step.partition_key if window is None else window.end
    else:
        at = _point_to_read(mirror, name, shown[metadata.CHANGED_AT_LSN], subject)
    filters = _filters(context, mirror, name, at)
    return mirror, plan_read(mirror, name, at, columns=asked.get(COLUMNS), filters=filters)


def _check_table(context: dg.InputContext, subscription: str, name: str, subject: str) -> None:
    """Raises PointNotReached if a translator has given the key to another table since it was materialized."""
    defined = context.step_context.job_def.asset_layer.get(context.asset_key).metadata
    if metadata.OWN_KEY not in defined:
        return
    ours = dg.AssetKey.from_user_string(defined[metadata.OWN_KEY])
    if ours.path[:1] != metadata.asset_key(subscription).path or printable(name) != defined[metadata.TABLE_NAME]:
        raise PointNotReached(
            f"it was materialized as table {name} of {subscription}, and is {defined[metadata.TABLE_NAME]} now",
            subject=subject,
            remedy="It is materialized with the next change of that table, or `ccpr resync`.",
        )


def _point_to_read(mirror: Mirror, name: str, lsn: int, subject: str) -> int:
    """The point; where it has gone, the newest one, if that shows the same rows of the table. Raises PointGone."""
    try:
        mirror.point(lsn)
    except PointGone as error:
        if (newest := mirror.point()).table(name).changed_lsn <= lsn:
            return newest.lsn
        remedy = "Materialize the asset again: a new run reads what is newest. `ccpr points hold` keeps a point."
        raise PointGone(error.message, subject=f"{subject}, {error.subject}", remedy=remedy) from error
    return lsn


def _event(context: dg.InputContext) -> dg.AssetMaterialization:
    """The one whose data version the run has for the input. Raises PointNotReached."""
    found = context.step_context.maybe_fetch_and_get_input_asset_version_info(context.asset_key)
    records = []
    if found is not None:
        one = dg.AssetRecordsFilter(asset_key=context.asset_key, storage_ids=[found.storage_id])
        records = context.instance.fetch_materializations(one, limit=1).records
    if not records or (event := records[0].asset_materialization) is None:
        raise PointNotReached(
            "it was not materialized yet",
            subject=f"asset {context.asset_key.to_user_string()}",
            remedy="Run an iteration: materialize the subscription's steps, or `ccpr run NAME`.",
        )
    return event


def _filters(context: dg.InputContext, mirror: Mirror, name: str, at: int | str | datetime) -> list[FilterTuple]:
    """Those that are asked for, and of a partition."""
    asked = context.definition_metadata
    filters = list(asked.get(FILTERS, ()))
    column = asked.get(PARTITION_EXPR)
    if column is None:
        return filters
    (field,) = plan_read(mirror, name, at, columns=[column]).schema
    window = _window(context.step_context)
    if window is None:
        key = context.step_context.partition_key
        return [*filters, (column, "=", int(key) if pa.types.is_integer(field.type) else key)]
    start, end = (_instant(time, field.type) for time in (window.start, window.end))
    return [*filters, (column, ">=", start), (column, "<", end)]


def _window(step: "StepExecutionContext") -> dg.TimeWindow | None:
    """The time of the run's partitions; None if they are of no time."""
    is_time = isinstance(step.run_partitions_def, dg.TimeWindowPartitionsDefinition)
    return step.partition_time_window if is_time else None


def _instant(time: datetime, kind: pa.DataType) -> object:
    """As filters of a column of that type take it: a DATETIME has no zone, and shows the partitions' own time."""
    if pa.types.is_date(kind):
        return time.date()
    return time if getattr(kind, "tz", None) else time.replace(tzinfo=None)
