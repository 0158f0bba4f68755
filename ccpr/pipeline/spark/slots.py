"""How many tasks a session runs at once, where only its cluster knows.

A copy is divided into as many tasks as run at once, and each has its part of the upstream's sessions: with fewer tasks
workers would have nothing to do, with more of them sessions would wait with the tasks that wait.
"""

import re
import time
from typing import TYPE_CHECKING

from ccpr.pipeline.spark.connect import failure_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
