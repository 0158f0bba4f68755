"""The objects of a large publication in Spark tasks: each writes the files of its share, the driver holds names and
vectors, and commits once.

Only where Spark's executors are on other machines: on this one threads of the process do the same without Java.
"""

import logging
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ccpr.lake.object_files import ObjectResult, ObjectTask, Runner, publish_object, run_here
from ccpr.lake.parquet import FileShape
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.store import Store
from ccpr.pipeline.spark.connect import difference_of_code
from ccpr.pipeline.spark.errors import SparkCodeDiffers, SparkJobFailed
from ccpr.pipeline.spark.identity import loaded_code
from ccpr.pipeline.spark.session import settings_of, spark_session
from ccpr.pipeline.spark.tasks import in_tasks, reason_of, refuse_unshared_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MUCH_BYTES = 256 << 20  # of objects: some ten seconds of this machine
_TASK_BYTES = 32 << 20
_REQUEST = pa.schema([pa.field("objects", pa.binary()), pa.field("task", pa.int32())])
_DONE = pa.schema([pa.field("results", pa.binary()), pa.field("raised", pa.binary())])
_log = logging.getLogger(__name__)


def runner_of(home: Path) -> Runner:
    """What publishes the objects of a lake for this state folder: this process, and Spark elsewhere for much."""
    return partial(_chosen, home)


def _chosen(
    home: Path, mirror: Mirror, store: Store, shape: FileShape, at: Timestamp, tasks: Sequence[ObjectTask]
) -> Iterable[ObjectResult]:
    if sum(task.listed.stats.size for task in tasks) < MUCH_BYTES:
        return run_here(mirror, store, shape, at, tasks)
    settings = settings_of(home)
    if not settings.is_elsewhere:
        return run_here(mirror, store, shape, at, tasks)
    try:
        return run_with_spark(spark_session(settings), mirror, store, shape, at, tasks)
    except CcprError as error:
        _log.warning("Spark did not publish, the process does: %s: %s", error.code, error.message)
        return run_here(mirror, store, shape, at, tasks)


def run_with_spark(
    spark: "SparkSession",
    mirror: Mirror,
    store: Store,
    shape: FileShape,
    at: Timestamp,
    tasks: Sequence[ObjectTask],
    *,
    task_bytes: int = _TASK_BYTES,
) -> list[ObjectResult]:
    """Files that a task has written before another one failed are found by the next attempt.

    Raises what a task raised, in its own class: the first terminal error, else the first; StoreNotShared,
    SparkCodeDiffers; SparkJobFailed if Spark itself failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for url in (mirror.store.url, store.url):
        refuse_unshared_store(spark, url)
    shares = [pickle.dumps(share) for share in _shares(tasks, task_bytes)]
    request = pa.table([shares, list(range(len(shares)))], schema=_REQUEST)
    work = partial(_publish_share, loaded_code(), mirror.store.url, store.url, shape, at)
    try:
        rows = in_tasks(spark, request, work, _DONE).toArrow()
    except (PySparkException, Py4JError) as error:
        raise SparkJobFailed(f"Spark failed to publish: {reason_of(error)}", subject=store.url) from error
    raised = [pickle.loads(error) for error in rows.column("raised").drop_null().to_pylist()]
    if raised:
        raise next((error for error in raised if isinstance(error, Terminal)), raised[0])
    return [result for results in rows.column("results").to_pylist() for result in pickle.loads(results)]


def _shares(tasks: Sequence[ObjectTask], task_bytes: int) -> Iterator[list[ObjectTask]]:
    """Consecutive objects of about so many bytes."""
    ends = np.cumsum([task.listed.stats.size for task in tasks])
    numbers = ends // task_bytes
    for number in np.unique(numbers).tolist():
        yield [tasks[place] for place in np.flatnonzero(numbers == number).tolist()]


def _publish_share(
    code: str, mirror_url: str, lake_url: str, shape: FileShape, at: Timestamp, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a worker. An error is returned as a row: of an exception Spark would lose the class."""
    mirror, store = Mirror(open_store(mirror_url)), open_store(lake_url, shared=True)
    for batch in batches:
        for share in batch.column("objects").to_pylist():
            results, raised = None, None
            try:
                if difference := difference_of_code(code):
                    raise SparkCodeDiffers(difference, subject="Spark")
                results = pickle.dumps([publish_object(mirror, store, shape, at, task) for task in pickle.loads(share)])
            except CcprError as error:
                raised = pickle.dumps(error)
            yield pa.RecordBatch.from_pylist([{"results": results, "raised": raised}], _DONE)
