"""The engine that `ccpr run`, Dagster and `ccpr serve` copy and sync targets with: it chooses who does each work,
reports how far it has come, measures, and where Spark fails lets the process do the rest.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.carrying import Work, WorkKind
from ccpr.base.errors import ExtraMissing, absent
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.copying import CopyEngine, CopyJob, copy_in_process
from ccpr.pipeline.spark.carry import carry_in_tasks
from ccpr.pipeline.spark.choice import FOLDER, START, CopiedBy, CopierChoice, Rates, check_engine, choose
from ccpr.pipeline.spark.connect import check_server, failure_of, remote_connection
from ccpr.pipeline.spark.copy import copy_with_spark
from ccpr.pipeline.spark.errors import (
    JavaMissing,
    SparkCodeDiffers,
    SparkJobFailed,
    SparkRefused,
    SparkSessionLost,
    SparkUnavailable,
    SparkVersionDiffers,
)
from ccpr.pipeline.spark.session import PACKAGES, SparkSettings, settings_of, spark_session
from ccpr.pipeline.spark.watching import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK_BYTES = 4_000_000  # what a task copies at least: a shuffle between tasks takes longer than a few objects
_OF_SPARK = (  # not of the upstream or the store: the process itself can do what Spark could not
    SparkSessionLost,
    SparkRefused,
    SparkVersionDiffers,
    SparkCodeDiffers,
    SparkUnavailable,
    SparkJobFailed,
    JavaMissing,
    ExtraMissing,
)
_log = logging.getLogger(__name__)


def _ignore(_: object) -> None:
    pass


class Copier:
    """A `CopyEngine` for one or many iterations, also from several threads. It keeps its session, until that is lost.

    Parameters
    ----------
    home : the state folder, with the rates.
    asked : ``auto``, ``process`` or ``spark``. Only ``auto`` lets the process go on where Spark failed.
    on_bytes : called with the bytes of objects that were copied since the last call.
    on_choice : called with who copies, before it begins, and again if the process goes on.
    own_session : starts a session with a JVM of this process, unless the settings name a Spark Connect server.
    """

    def __init__(
        self,
        home: Path,
        asked: str = "auto",
        *,
        settings: SparkSettings | None = None,
        on_bytes: Callable[[int], None] = _ignore,
        on_choice: Callable[[CopierChoice], None] = _ignore,
        own_session: "Callable[[], SparkSession] | None" = None,
    ) -> None:
        self._asked = check_engine(asked)
        self._settings = settings or settings_of(home)
        self._folder = home.absolute() / FOLDER
        self._on_bytes, self._on_choice = on_bytes, on_choice
        self._own_session = own_session or partial(spark_session, self._settings)
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def __call__(self, job: CopyJob, objects: pa.Table) -> Iterator[pa.RecordBatch]:
        return self._copy(self._on_bytes, self._on_choice, job, objects)

    def reporting(self, on_bytes: Callable[[int], None], on_choice: Callable[[CopierChoice], None]) -> CopyEngine:
        """The same with other callbacks."""
        return partial(self._copy, on_bytes, on_choice)

    def _copy(
        self,
        on_bytes: Callable[[int], None],
        on_choice: Callable[[CopierChoice], None],
        job: CopyJob,
        objects: pa.Table,
    ) -> Iterator[pa.RecordBatch]:
        size = pc.sum(objects.column("size")).as_py() or 0
        choice = self.choice_of(WorkKind.COPY, size, job.store_url, job.source)
        on_choice(choice)
        if choice.place is CopiedBy.PROCESS:
            copied = copy_in_process(job, objects, on_progress=on_bytes)
            yield from self._measured("process", job.source, size, copied)
            return
        tally = Tally(on_bytes)
        try:
            session = self._connected()
            # A task that waits for another brings nothing.
            at_once = self._settings.slots or slots_of(session) or job.budget.sessions
            tasks = max(1, min(job.budget.sessions, at_once, size // _TASK_BYTES))
            copied = copy_with_spark(session, job.for_workers(), objects, tasks, on_progress=tally)
            yield from self._measured("spark", job.source, size, copied)
        except _OF_SPARK as error:
            self._forget()
            if self._asked == "spark":
                raise
            _log.warning("Spark did not copy, the process goes on: %s: %s", error.code, error.message)
            on_choice(CopierChoice(CopiedBy.PROCESS, f"{error.code}, {error.message}", size))
            yield from copy_in_process(job, objects, on_progress=tally.again())

    def _measured(
        self, engine: str, source: str, size: int, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        began, fetched = time.monotonic(), 0
        for batch in batches:
            fetched += pc.sum(pc.if_else(batch.column("fetched"), batch.column("size"), 0)).as_py() or 0
            yield batch
        if fetched == size:  # what was found there already took no copying
            self._measure(WorkKind.COPY, engine, source, size, began)

    def _measure(self, work: WorkKind, engine: str, place: str, size: int, began: float) -> None:
        Rates.of(self._folder).with_rate(work, engine, place, size, time.monotonic() - began).keep()

    def choice_of(self, work: WorkKind, size: int, store_url: str, place: str) -> CopierChoice:
        """Who does work of so many stored bytes, see `choose`."""
        return self.chooser()(work, size, store_url, place)

    def chooser(self) -> Callable[[WorkKind, int, str, str], CopierChoice]:
        """`choice_of` by the rates of now, which are read once."""
        rates, how = Rates.of(self._folder), {"installed": not absent(*PACKAGES), "started": self._session is not None}

        def choice_of(work: WorkKind, size: int, store_url: str, place: str) -> CopierChoice:
            return choose(self._asked, size, store_url, self._settings, rates, place, work, **how)

        return choice_of

    def carry(
        self, work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None] = lambda: None
    ) -> Iterator[Any]:
        """A `Carry`: work is Spark's where that is chosen. What fails there, for whatever reason, the
        process does, unless Spark was asked for: it may reach what the workers do not."""
        size, store_url = sum(work.sizes), next((url for url in work.stores if url.startswith("file:")), work.stores[0])
        choice = self.choice_of(work.kind, size, store_url, work.place)
        began, engine, ended = time.monotonic(), "process", list[BaseException]()
        if work.kind is WorkKind.READ:
            self._on_choice(choice)

        def beating() -> None:
            try:
                beat()
            except BaseException as error:
                ended.append(error)
                raise

        if choice.place is not CopiedBy.PROCESS:
            _log.info("%s: %s", work.place, choice.text)
            try:
                session = self._connected()
                began, engine = time.monotonic(), "cluster" if choice.place is CopiedBy.CLUSTER else "spark"
                done = carry_in_tasks(session, work, beating)
            except CcprError as error:
                if isinstance(error, _OF_SPARK):
                    self._forget()
                if self._asked == "spark" or ended:
                    raise
                _log.warning("Spark did not do it, the process does: %s: %s", error.code, error.message)
                yield from here()
                return
            yield from done
        else:
            yield from here()
        self._measure(work.kind, engine, work.place, size, began)

    def _connected(self) -> "SparkSession":
        """A session at the server that the settings name, else one of this process."""
        with self._lock:
            if self._session is None:
                began = time.monotonic()
                if self._settings.remote is None:
                    session = self._own_session()
                else:
                    session = remote_connection(self._settings.remote)
                    check_server(session, self._settings.place)
                if self._settings.slots is None:
                    await_executors(session)
                self._session = session
                if self._settings.remote is None:
                    Rates.of(self._folder).with_value(START, time.monotonic() - began).keep()
            return self._session

    def _forget(self) -> None:
        with self._lock:
            self._session = None


# ---- how many tasks a session runs at once, where only its cluster knows
#
# A copy is divided into as many tasks as run at once, and each has its part of the upstream's sessions: with fewer
# tasks workers would have nothing to do, with more of them sessions would wait with the tasks that wait.

# Spark divides a range that says nothing of its parts by the slots of its executors; a plan is no job. Unlike the
# figure of a Spark context, a client of a Spark Connect server can ask for it, too.
_QUESTION = "EXPLAIN SELECT * FROM range(1)"
_ANSWER = re.compile(r"\bsplits=(\d+)")
_SETTLED_SECONDS, _LONGEST_SECONDS, _LOOK_SECONDS = 2.0, 20.0, 0.2


def slots_of(spark: "SparkSession") -> int | None:
    """Tasks that run at once, by the executors that are there now; None where Spark starts executors when there is work
    for them. A cluster of one slot counts as two, unless `spark.cores.max` says so.

    Raises SparkSessionLost, SparkRefused, SparkJobFailed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        if _setting(spark, "spark.dynamicAllocation.enabled") == "true":
            return None
        found = _ANSWER.search(spark.sql(_QUESTION).collect()[0][0])
        most, each = _setting(spark, "spark.cores.max"), _setting(spark, "spark.task.cpus")
    except (PySparkException, Py4JError) as error:
        raise failure_of(error, "Spark") from error
    if found is None:
        return None
    cores = min(int(found[1]), int(most)) if most.isdecimal() else int(found[1])
    return max(1, cores // int(each)) if each.isdecimal() else cores


def await_executors(spark: "SparkSession") -> None:
    """Wait until a new session has an executor, and until no other one has come for a while: they start one after
    another, and a job that is divided before has too few tasks. Raises what `slots_of` raises."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark.range(1).toArrow()  # waits for the first
    except (PySparkException, Py4JError) as error:
        raise failure_of(error, "Spark") from error
    began = seen = time.monotonic()
    known = slots_of(spark)
    while known is not None and time.monotonic() < min(seen + _SETTLED_SECONDS, began + _LONGEST_SECONDS):
        time.sleep(_LOOK_SECONDS)
        found = slots_of(spark)
        if found is None or found > known:
            known, seen = found, time.monotonic()


def _setting(spark: "SparkSession", name: str) -> str:
    """As it was set, else empty."""
    return (spark.conf.get(name, "") or "").strip().lower()
