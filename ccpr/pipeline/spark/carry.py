"""Work as tasks of Spark (`ccpr.base.carrying`): ranges of tables, loads and changes of targets, files of lakes."""

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ccpr.base.carrying import Work
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.pipeline.spark.connect import difference_of_code, failure_of, loaded_code
from ccpr.pipeline.spark.errors import SparkCodeDiffers
from ccpr.pipeline.spark.tasks import in_tasks, refuse_unshared_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 16 << 20  # a task costs some tens of milliseconds, and a connection where it writes to a server
_BEAT_SECONDS = 1.0
_REQUEST = pa.schema([pa.field("pieces", pa.binary()), pa.field("task", pa.int32())])
_DONE = pa.schema([pa.field("results", pa.binary()), pa.field("raised", pa.binary())])


def carry_in_tasks(spark: "SparkSession", work: Work, beat: Callable[[], None] = lambda: None) -> list[Any]:
    """The results, in the order of the pieces. What a task did before another one failed is done.

    Raises what a task raised, in its own class: the first terminal error, else the first; what `beat` raises, which
    ends the job; StoreNotShared, SparkCodeDiffers, SparkSessionLost, SparkRefused; SparkJobFailed if Spark itself
    failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for url in work.stores:
        refuse_unshared_store(spark, url)
    shares = [pickle.dumps(share) for share in _shares(work)]
    request = pa.table([shares, list(range(len(shares)))], schema=_REQUEST)
    tag = f"ccpr-{uuid.uuid4()}"

    def collect() -> pa.Table:
        spark.addTag(tag)  # of this thread's jobs
        return in_tasks(spark, request, partial(_run_share, loaded_code(), work.function), _DONE).toArrow()

    with ThreadPoolExecutor(1, "spark-job") as pool:
        job = pool.submit(collect)
        try:
            while not wait([job], _BEAT_SECONDS).done:
                beat()
            rows = job.result()
        except (PySparkException, Py4JError) as error:
            raise failure_of(error, "Spark") from error
        except BaseException:
            spark.interruptTag(tag)
            raise
    raised = [pickle.loads(error) for error in rows.column("raised").drop_null().to_pylist()]
    if raised:
        raise next((error for error in raised if isinstance(error, Terminal)), raised[0])
    return [result for results in rows.column("results").to_pylist() for result in pickle.loads(results)]


def _shares(work: Work) -> Iterator[list[Any]]:
    """Consecutive pieces of about so many bytes."""
    numbers = (np.cumsum(work.sizes) - 1) // TASK_BYTES
    for number in np.unique(numbers).tolist():
        yield [work.pieces[place] for place in np.flatnonzero(numbers == number).tolist()]


def _run_share(
    code: str, function: Callable[[Sequence[Any]], Iterable[Any]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a worker. An error is returned as a row: of an exception Spark would lose the class."""
    for batch in batches:
        for share in batch.column("pieces").to_pylist():
            results, raised = None, None
            try:
                if difference := difference_of_code(code):
                    raise SparkCodeDiffers(difference, subject="Spark")
                results = pickle.dumps(list(function(pickle.loads(share))))
            except CcprError as error:
                raised = pickle.dumps(error)
            yield pa.RecordBatch.from_pylist([{"results": results, "raised": raised}], _DONE)
