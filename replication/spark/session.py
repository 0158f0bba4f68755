"""A Spark session for this program: its Java, its settings and its logging. `resources.spark_resource` is the same for
Dagster.

Spark is not imported before a session is needed: the import takes 0.3 s, and the start of Spark some seconds. Source:
decisions spark-dataframes, java-from-pypi.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from matrixone.errors import Terminal
from replication.iteration.copying import CopyEngine, CopyJob
from replication.spark.copy import copy_with_spark
from replication.spark.java import find_java
from replication.state.credentials import KEY_FILE_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK_ADDRESS = "127.0.0.1"
_LOGGING = Path(__file__).with_name("spark_log4j2.properties")


class SparkUnavailable(Terminal):
    """A Spark session could not be created."""

    code = "SPARK_UNAVAILABLE"
    about = "address of Spark"
    default_remedy = "Read what Spark wrote on standard error. `--engine process` works without Spark."


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of a session.

    Attributes
    ----------
    cache : folder for the `java` that `replication.spark.java` creates once; CCPR_HOME/java.
    master : ``local[*]`` = all cores of this machine; not used with `remote`.
    remote : a Spark Connect server, ``sc://host:port``; None = a session with its own JVM.
    ui : show Spark's web page on the loopback address, port 4040.
    key_file : path of the key that opens sealed passwords; workers get the path, never the key (decision
        sealed-secrets).
    config : further Spark settings, which take precedence over ours.
    """

    cache: Path
    master: str = "local[*]"
    remote: str | None = None
    ui: bool = False
    key_file: Path | None = None
    config: Mapping[str, str] = field(default_factory=dict)

    def spark_config(self) -> dict[str, str]:
        """All settings as Spark names them."""
        config = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.pyspark.enabled": "true"}
        if self.remote is not None:
            return {**config, "spark.remote": self.remote, **self.config}
        config |= {
            "spark.app.name": "ccpr",
            "spark.master": self.master,
            "spark.ui.enabled": str(self.ui).lower(),
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        }
        if self.master.startswith("local"):  # executors elsewhere must be able to reach the driver
            config |= {"spark.driver.bindAddress": LOOPBACK_ADDRESS, "spark.driver.host": LOOPBACK_ADDRESS}
        if self.key_file is not None:
            config[f"spark.executorEnv.{KEY_FILE_VARIABLE}"] = str(self.key_file.absolute())
        return {**config, **self.config}

    def prepare_environment(self) -> None:
        """Set what the JVM and the Python workers inherit. To be called before the session is created.

        Raises JavaMissing.
        """
        os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers run the `python3` of PATH
        if self.key_file is not None:
            os.environ[KEY_FILE_VARIABLE] = str(self.key_file.absolute())
        if self.remote is None:
            os.environ["JAVA_HOME"] = str(find_java(self.cache).home)
            if self.master.startswith("local"):
                os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK_ADDRESS)


def settings_of(home: Path) -> SparkSettings:
    """The settings for a state folder."""
    return SparkSettings(cache=home / "java", key_file=home / "key")


def spark_session(settings: SparkSettings) -> "SparkSession":
    """The session of this process; later calls return the same. Raises JavaMissing, SparkUnavailable."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    settings.prepare_environment()
    builder = SparkSession.builder
    for name, value in settings.spark_config().items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, ImportError) as error:
        raise unavailable(settings, error) from error


def unavailable(settings: SparkSettings, error: Exception) -> SparkUnavailable:
    """The error for a session that could not be created."""
    if settings.remote is not None:
        remedy = 'Check that the server runs and is reachable; its client needs: pip install "pyspark[connect]==4.1.4"'
        return SparkUnavailable(f"no session: {error}", subject=settings.remote, remedy=remedy)
    return SparkUnavailable(f"no session: {error}", subject=f"Spark on {settings.master}")


def spark_copy_engine(home: Path) -> CopyEngine:
    """An engine for `replication.iteration.copying.copy`. It starts the session when there is something to copy."""

    def engine(job: CopyJob, objects: pa.Table) -> Iterator[pa.RecordBatch]:
        return copy_with_spark(spark_session(settings_of(home)), job.for_workers(), objects, job.budget.sessions)

    return engine
