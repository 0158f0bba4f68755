"""What all our Spark jobs need: rows assigned to tasks, Arrow's types as Spark's, and the errors of Spark."""

import gc
import os
import socket
import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.pipeline.spark.errors import StoreNotShared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TaskFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_LONGEST_REASON = 400
_FEW_BYTES = 4 << 20
_FREEZES = 2  # before a worker's first task, and before the second one: the first imports what it needs
_tasks = count()  # of this worker
_masters: "WeakKeyDictionary[SparkSession, str]" = WeakKeyDictionary()
LOOPBACK_ADDRESS = "127.0.0.1"
LOOPBACK = frozenset(("localhost", LOOPBACK_ADDRESS, "::1", "[::1]"))


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


def in_tasks(spark: "SparkSession", rows: pa.Table, function: TaskFunction, schema: pa.Schema) -> "DataFrame":
    """What `function` makes of the rows (of `schema`), in a task for each number in the column `task`. It is pickled.

    Up to some MB of rows travel with it, which saves the stage that distributes them.
    """
    tasks = 1 + (pc.max(rows.column("task")).as_py() or 0)
    if rows.nbytes <= _FEW_BYTES:
        frame, with_task = spark.range(0, tasks, 1, tasks), rows
    else:
        frame, with_task = spark.createDataFrame(rows), None
        frame = frame.repartitionById(tasks, "task") if tasks > 1 else frame.coalesce(1)
    return frame.mapInArrow(partial(_run, with_task, function), spark_schema(schema))


def _run(rows: pa.Table | None, function: TaskFunction, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker. With `rows` the batches have the numbers of tasks."""
    configure_worker()
    if rows is not None:
        numbers = pa.concat_arrays([batch.column(0) for batch in batches])
        batches = rows.filter(pc.is_in(rows.column("task").cast(numbers.type), numbers)).to_batches()
    return function(batches)


def refuse_unshared_store(spark: "SparkSession", store_url: str) -> None:
    """Raises StoreNotShared if the store is a folder of this machine and the session's executors are elsewhere, as far
    as can be known."""
    if not store_url.startswith("file:"):
        return
    if is_connect(spark) and spark.client.host not in LOOPBACK:  # pyright: ignore[reportAttributeAccessIssue]
        raise StoreNotShared("the Spark Connect server is on another machine", subject=store_url)
    if spark not in _masters:  # it never changes, and is a question to the server
        _masters[spark] = spark.conf.get("spark.master", "") or ""
    master = _masters[spark]
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


def configure_worker() -> None:
    """Avoids needless work and waiting of Spark's Python workers. To be called within a task.

    Before each task a worker invalidates the caches of its importers. Importers of archives then read the archive's
    directory again: pyspark.zip once for each package of pyspark, and Spark's jar with some 27,000 entries. That takes
    0.08 s of CPU time per task (decoding 300,000 rows takes 0.04 s). `sys.path_importer_cache` is only a cache: an
    importer that is missing is created again when something is imported. After each task a worker collects garbage
    among everything that was ever imported: 0.03 s. And the JVM sends a task's rows in several small pieces: it waits
    with the second until the first was acknowledged, and Linux acknowledges what is not answered after 0.04 s.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    _acknowledge_at_once()
    if next(_tasks) < _FREEZES:
        gc.collect()
        gc.freeze()  # modules are never garbage


def _acknowledge_at_once() -> None:
    """What has arrived on this process's TCP connections (one of them is the JVM's), and what comes next. Lasts for
    some packets only, so it is done in every task. Only Linux has it."""
    descriptors = Path("/proc/self/fd")
    if not hasattr(socket, "TCP_QUICKACK") or not descriptors.exists():
        return
    for path in descriptors.iterdir():
        with suppress(OSError):  # it is closed by now
            descriptor = os.dup(int(path.name))
            try:
                connection = socket.socket(fileno=descriptor)
            except OSError:  # not a socket
                os.close(descriptor)
                continue
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
