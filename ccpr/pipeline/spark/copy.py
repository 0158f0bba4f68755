"""Copies objects in Spark tasks, each with upstream sessions of its own, or straight from storage."""

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.mirror.open_store import open_store
from ccpr.pipeline.copying import COPY_INPUT, COPY_OUTPUT, CopyJob, copy_in_process
from ccpr.pipeline.spark.connect import difference_of_code, failure_of, loaded_code
from ccpr.pipeline.spark.errors import SparkCodeDiffers, SparkJobFailed
from ccpr.pipeline.spark.tasks import in_tasks, is_connect, reason_of, refuse_unshared_store
from ccpr.pipeline.spark.watching import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COPY_REQUEST = pa.schema([*list(COPY_INPUT)[:2], pa.field("stats", pa.binary()), pa.field("task", pa.int32())])
# In one job: so many travel with its tasks, and no task waits for rows that another has distributed.
_JOB_OBJECTS: Final = 16_384
# Spark has no fixed-size binary. A task's error is returned as a row: of an exception Spark would lose the class, and
# with it whether trying again may help.
_COPY_ROWS = pa.schema(
    [(one.name, pa.binary() if pa.types.is_fixed_size_binary(one.type) else one.type) for one in COPY_OUTPUT]
    + [("raised", pa.binary())]
)


def copy_with_spark(
    spark: "SparkSession",
    job: CopyJob,
    objects: pa.Table,
    tasks: int,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Copy objects (COPY_INPUT) in `tasks` tasks, each with its part of the job's budget: of five sessions two tasks
    have three and two, and no task has less than one. Yields COPY_OUTPUT when all of a job of Spark are done;
    `on_progress` is called meanwhile with the bytes of objects that are in the store since the last call.

    Objects that were copied by a task that then fails stay in the store. Raises what a task raised, in its own class:
    the first terminal error, else the first; what `on_progress` raises, which ends the job; SparkCodeDiffers;
    SparkSessionLost and SparkRefused of a session that others keep; SparkJobFailed if Spark itself failed;
    StoreNotShared.
    """
    for first in range(0, objects.num_rows, _JOB_OBJECTS):
        yield from _copy_in_job(spark, job, objects.slice(first, _JOB_OBJECTS), tasks, on_progress)


def _copy_in_job(
    spark: "SparkSession",
    job: CopyJob,
    objects: pa.Table,
    tasks: int,
    on_progress: Callable[[int], None] | None,
) -> Iterator[pa.RecordBatch]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException, PythonException

    tasks = min(tasks, objects.num_rows)
    assigned, tag, watch = assign_tasks(objects, tasks, job.budget.sessions), f"ccpr-{uuid.uuid4()}", None
    try:
        refuse_unshared_store(spark, job.store_url)
        frame = in_tasks(spark, assigned, partial(_copy_share, job, tasks, loaded_code()), _COPY_ROWS)
        with ExitStack() as held:
            spark.addTag(tag)
            held.callback(spark.removeTag, tag)
            if on_progress is not None:
                store = open_store(job.store_url, shared=job.shared)
                watch = held.enter_context(Watch(store, assigned, on_progress, lambda: spark.interruptTag(tag)))
            rows = frame.toArrow()
    except PythonException as error:
        failure = failure_of(error, "Spark")
        if isinstance(failure, SparkCodeDiffers):
            raise failure from error
        raise  # a defect of this program, as it would be without Spark: errors of ours come as rows
    except (PySparkException, Py4JError) as error:
        if watch is not None and watch.raised is not None:
            raise watch.raised from error
        failure = failure_of(error, "Spark") if is_connect(spark) else None
        if failure is not None and not isinstance(failure, SparkJobFailed):
            raise failure from error
        raise SparkJobFailed(f"Spark failed to copy: {reason_of(error)}", subject=job.store_url) from error
    raised = [pickle.loads(error) for error in rows.column("raised").drop_null().to_pylist()]
    if raised:
        raise next((error for error in raised if isinstance(error, Terminal)), raised[0])
    yield from rows.select(COPY_OUTPUT.names).cast(COPY_OUTPUT).to_batches()


def assign_tasks(objects: pa.Table, tasks: int, sessions: int = 1) -> pa.Table:
    """The objects with a task number, about the same number of bytes for each of the sessions, which the tasks share
    as `Budget.part` says.

    Sorted by size, largest first, the objects go to the sessions in turn, in one direction and then in the other.
    """
    ordered, sessions = objects.sort_by([("size", "descending"), ("name", "ascending")]), max(sessions, tasks)
    turn, place = np.divmod(np.arange(ordered.num_rows), sessions)
    numbers = (np.where(turn % 2 == 0, place, sessions - 1 - place) % tasks).astype(np.int32)
    return ordered.append_column("task", pa.array(numbers)).cast(_COPY_REQUEST)


def _copy_share(job: CopyJob, tasks: int, code: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        if difference := difference_of_code(code):
            raise SparkCodeDiffers(difference, subject="Spark")
        share = pa.Table.from_batches(batches)  # a task has an object at least
        number = share.column("task")[0].as_py()
        job = replace(job, budget=job.budget.part(number, tasks))
        for done in copy_in_process(job, share.select(COPY_INPUT.names).cast(COPY_INPUT)):
            values = [column.cast(field.type) for column, field in zip(done.columns, _COPY_ROWS, strict=False)]
            yield pa.RecordBatch.from_arrays([*values, pa.nulls(done.num_rows, pa.binary())], schema=_COPY_ROWS)
    except CcprError as error:
        nothing = [pa.nulls(1, field.type) for field in COPY_OUTPUT]
        values = [column.cast(field.type) for column, field in zip(nothing, _COPY_ROWS, strict=False)]
        yield pa.RecordBatch.from_arrays([*values, pa.array([pickle.dumps(error)], pa.binary())], schema=_COPY_ROWS)
