"""Spark as a Dagster resource: dagster-pyspark's lazy one, with the settings of `replication.spark.session`.

dagster-pyspark imports Spark when it is imported. A class of ours derived from its resource would do so, too, in every
run and every code location; so this one holds the configuration, and makes a `LazyPySparkResource` of it when a
session is first asked for. An iteration with nothing to copy never asks.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import ConfigurableResource
from pydantic import Field, PrivateAttr

from replication.iteration.copying import CopyEngine, CopyJob
from replication.service.workspace import find_home
from replication.spark.copy import copy_with_spark
from replication.spark.session import SparkSettings, unavailable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class SparkResource(ConfigurableResource):
    """One session a run, shared by its steps (in_process_executor); it ends with the process."""

    home: str | None = Field(default=None, description="The state folder; CCPR_HOME or the nearest .ccpr without it.")
    master: str = Field(default="local[*]", description="Spark master; local[*] is all cores of this machine.")
    remote: str | None = Field(
        default=None, description="A Spark Connect server instead, sc://host:port: no JVM has to start in each run."
    )
    ui: bool = Field(default=False, description="Show Spark's web page on the loopback address.")
    spark_config: dict[str, Any] = Field(
        default_factory=dict, description="Further Spark settings. No secrets: they are shown."
    )
    _lazy: Any = PrivateAttr(default=None)

    @property
    def settings(self) -> SparkSettings:
        home = Path(self.home).absolute() if self.home else find_home()
        config = {name: str(value) for name, value in self.spark_config.items()}
        return SparkSettings(home / "java", self.master, self.remote, self.ui, home / "key", config)

    @property
    def session(self) -> "SparkSession":
        """Started at the first use. Raises JavaMissing, SparkUnavailable."""
        from dagster_pyspark import LazyPySparkResource
        from pyspark.errors import PySparkException

        settings = self.settings
        try:
            if self._lazy is None:
                settings.prepare_environment()
                self._lazy = LazyPySparkResource(spark_config=settings.spark_config())
            return self._lazy.spark_session
        except (PySparkException, ImportError) as error:
            raise unavailable(settings, error) from error

    def copy_engine(self) -> CopyEngine:
        """An engine for `replication.iteration.copying.copy`; the session starts when there is something to copy."""

        def engine(job: CopyJob, objects: "pa.Table"):
            return copy_with_spark(self.session, job.for_workers(), objects, job.budget.sessions)

        return engine
