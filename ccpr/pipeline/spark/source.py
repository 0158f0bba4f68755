"""The Spark data source "matrixone". Its rows come from `ccpr.pipeline.spark.read`.

    spark.read.format("matrixone").option("mirror", "<folder or file: URL>").option("table", "db.t").load()

Options: `at` (an lsn, an ISO time, UTC unless it names a zone, or a held point's name; the newest point without it),
`columns` (names, separated by commas: Spark does not tell a Python data source which ones a query needs;
`.schema("id bigint")` does the same), `hidden` (true: the server's own key columns, too), `invalid_text` (escape,
replace, binary or error; see `ccpr.matrixone.schema.InvalidText`), `zero_dates` (null, keep or error), `task_bytes`
(object bytes of a task).
`load(path)` is the same as the option `mirror`.

There is no `pushFilters`, on purpose (decision filters-leave-out-blocks). Spark 4.1.4 keeps the plan of a query with
filters for the loaded table: a later query without filters on the same DataFrame or view would read what the first one
had left over, and silently miss rows. So Spark alone applies a query's filters here; `read_table(…, filters=…)` skips
objects and blocks by zone map.

This module is imported where Spark is: by `pyspark_matrixone`, which Spark looks for, or by the code that registers the
class.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition  # noqa: TID253 (base classes; the module is Spark's own)
from pyspark.sql.types import StructType  # noqa: TID253

from ccpr.matrixone.schema import DEFAULT_READING
from ccpr.mirror.errors import BadOption
from ccpr.mirror.table_read import TASK_BYTES, TableRead, plan_read, reading_of
from ccpr.pipeline.spark.read import read_share
from ccpr.pipeline.spark.tasks import configure_worker, spark_schema

_TRUTH = {"true": True, "false": False}
_OPTIONS = frozenset(("mirror", "path", "table", "at", "columns", "hidden", "invalid_text", "zero_dates", "task_bytes"))
_READING = {"invalid_text": DEFAULT_READING.invalid_text, "zero_dates": DEFAULT_READING.zero_dates}


@dataclass(frozen=True)
class Share(InputPartition):
    """The data objects of one task, by name."""

    names: tuple[str, ...]


class MatrixOneDataSource(DataSource):
    """A table at a point. Spark makes it once for a DataFrame, on the driver, and sends it to the workers as it is: so
    the point is resolved here.

    Raises BadOption, and what `plan_read` raises.
    """

    @classmethod
    def name(cls) -> str:
        return "matrixone"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        mirror, table = options.get("mirror") or options.get("path"), options.get("table")
        if not mirror or not table:
            raise BadOption("the options mirror and table are needed", subject='format("matrixone")')
        unknown = sorted(
            name for name in options if name.lower() not in _OPTIONS and "." not in name
        )  # Spark's own have dots
        if unknown:  # a misspelled `at` would silently read the newest point
            raise BadOption(f"there is no option {', '.join(unknown)}", subject=f"table {table}")
        names = options.get("columns")
        hidden = _TRUTH.get(options.get("hidden", "false").strip().lower())
        if hidden is None:
            raise BadOption("hidden is neither true nor false", subject=f"table {table}")
        task_bytes = options.get("task_bytes", str(TASK_BYTES)).strip()
        if not task_bytes.isdecimal() or int(task_bytes) == 0:
            raise BadOption("task_bytes is not a number of bytes", subject=f"table {table}")
        columns = [name.strip() for name in names.split(",")] if names else None
        self._task_bytes = int(task_bytes)
        texts, dates = (options.get(name, default).strip().lower() for name, default in _READING.items())
        reading = reading_of(texts, dates)
        self._read = plan_read(mirror, table, options.get("at"), columns=columns, hidden=hidden, reading=reading)

    def schema(self) -> StructType:
        return spark_schema(self._read.schema)

    def reader(self, schema: StructType) -> "MatrixOneReader":
        """`schema` is ours, or some of its columns, which the caller chose with `.schema(…)`."""
        ours = {field.name: field.dataType for field in self.schema()}
        for field in schema:
            if ours.get(field.name) != field.dataType:
                raise BadOption(
                    f"column {field.name} is asked for as {field.dataType.simpleString()}, it is "
                    f"{ours[field.name].simpleString() if field.name in ours else 'not there'}",
                    subject=f"table {self._read.ref.qualified_name}",
                    remedy="Leave .schema(…) out, or name columns and types as printSchema() shows them.",
                )
        by_name = {column.name: column for column in self._read.columns}
        return MatrixOneReader(
            replace(self._read, columns=tuple(by_name[name] for name in schema.names)), self._task_bytes
        )


class MatrixOneReader(DataSourceReader):
    def __init__(self, read: TableRead, task_bytes: int) -> None:
        self._read = read
        self._task_bytes = task_bytes

    def partitions(self) -> list[InputPartition]:
        tasks = self._read.shares(self._task_bytes).group_by("task", use_threads=False).aggregate([("name", "list")])
        return [Share(tuple(names)) for names in tasks.column("name_list").to_pylist()]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """One batch a block. Spark passes None where there are no partitions."""
        configure_worker()
        return read_share(self._read, partition.names) if isinstance(partition, Share) else iter(())
