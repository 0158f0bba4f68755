"""The client's side of tests/pipeline/spark/test_connect.py, in its own process, because a process has one kind of
Spark session. Arguments: the files of the task and of the answer."""

import pickle
import sys
from pathlib import Path

import pyarrow as pa

from ccpr.pipeline.copying import COPY_OUTPUT
from ccpr.pipeline.spark.copy import copy_with_spark
from ccpr.pipeline.spark.session import spark_session
from tests.support.spark_tables import read_table


def main(task: Path, answer: Path) -> None:
    settings, url, table, lsn, job, objects = pickle.loads(task.read_bytes())
    spark = spark_session(settings)
    rows = read_table(spark, url, table, lsn, task_bytes=4096).toArrow()
    loaded = spark.read.format("matrixone").options(mirror=url, table=table, at=str(lsn)).load().toArrow()
    copied = pa.Table.from_batches(copy_with_spark(spark, job, objects, 2), COPY_OUTPUT)
    answer.write_bytes(pickle.dumps((type(spark).__module__, rows, loaded, copied)))
    spark.stop()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
