"""What all our Spark jobs need: rows assigned to tasks, Arrow's types as Spark's, and the errors of Spark."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from matrixone.errors import Terminal, Transient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LONGEST_REASON = 400
LOOPBACK_ADDRESS = "127.0.0.1"
LOOPBACK = frozenset(("localhost", LOOPBACK_ADDRESS, "::1", "[::1]"))


class StoreNotShared(Terminal):
    """Spark's executors run on other machines and cannot read a folder of this one."""

    code = "STORE_NOT_SHARED"
    about = "store"
    default_remedy = "Use a local Spark master, or run Spark on the machine that has the folder."


class SparkJobFailed(Transient):
    """A job failed for a reason of Spark's own: a lost executor, a worker without memory, a broken connection."""

    code = "SPARK_JOB_FAILED"
    about = "job of Spark"
    default_remedy = "Run it again: what is done is kept. `--engine process` copies without Spark."


def spark_schema(schema: pa.Schema) -> "StructType":
    """Spark's types for Arrow's. A datetime without a zone stays one, which Spark by itself would interpret in the
    session's zone."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def reason_of(error: Exception) -> str:
    """The line of Spark's stack traces that says what happened: the first cause, else the first line; py4j's own first
    line says only what was called."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (causes or thrown or lines or [type(error).__name__])[0][:_LONGEST_REASON]


def in_tasks(spark: "SparkSession", rows: pa.Table) -> "DataFrame":
    """The rows as a DataFrame with a partition for each number in the column `task`."""
    highest = pc.max(rows.column("task")).as_py()
    frame = spark.createDataFrame(rows)
    return frame.repartitionById(highest + 1, "task") if highest else frame.coalesce(1)


def refuse_unshared_store(spark: "SparkSession", store_url: str) -> None:
    """Raises StoreNotShared if the store is a folder of this machine and the session's executors are elsewhere, as far
    as can be known."""
    if not store_url.startswith("file:"):
        return
    if is_connect(spark) and spark.client.host not in LOOPBACK:  # pyright: ignore[reportAttributeAccessIssue]
        raise StoreNotShared("the Spark Connect server is on another machine", subject=store_url)
    master = spark.conf.get("spark.master", "") or ""
    if not is_here(master):
        raise StoreNotShared(f"the Spark master is {master or 'unknown'}", subject=store_url)


def is_here(master: str) -> bool:
    """Whether the executors of a master have this machine's folders: they run in this process's children, or under a
    master that only this machine can reach."""
    host = urlsplit(master).hostname if master.startswith("spark://") else None
    return master.startswith("local") or host in LOOPBACK


def is_connect(session: "SparkSession") -> bool:
    """Whether it is a session of Spark Connect, not one with its own JVM. Ours is of a class below Spark's."""
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(session).__mro__)
