"""Spark as a Dagster resource: dagster-pyspark's lazy one, with the settings of `ccpr.pipeline.spark.session`.

dagster-pyspark imports Spark when it is imported. A class of ours derived from its resource would do so, too, in every
run and every code location; so this one holds the configuration, and makes a `LazyPySparkResource` of it when a
session is first asked for. An iteration with nothing to copy never asks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster import ConfigurableResource
from pydantic import Field, PrivateAttr

from ccpr.base.errors import require
from ccpr.base.progress import CopyLog
from ccpr.pipeline.spark.choice import CopierChoice
from ccpr.pipeline.spark.engine import Copier
from ccpr.pipeline.spark.session import PACKAGES, SparkSettings, settings_of, start_java, unavailable
from ccpr.service.workspace import find_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(ConfigurableResource):
    """One session a run, shared by its steps (in_process_executor); it ends with the process."""

    home: str | None = Field(default=None, description="The state folder; CCPR_HOME or the nearest .ccpr without it.")
    engine: str = Field(default="auto", description="What copies: process, spark, or auto, as `ccpr run --engine`.")
    master: str = Field(default="", description="Spark master; CCPR_SPARK_MASTER, else local[*], if it is empty.")
    remote: str | None = Field(
        default=None, description="A Spark Connect server instead, sc://host:port; CCPR_SPARK_REMOTE without it."
    )
    ui: bool = Field(default=False, description="Show Spark's web page on the loopback address.")
    spark_config: dict[str, Any] = Field(
        default_factory=dict, description="Further Spark settings. No secrets: they are shown."
    )
    _lazy: Any = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        if self.engine == "spark":  # before an iteration begins, which would end with the error
            require("spark", *PACKAGES)

    @property
    def settings(self) -> SparkSettings:
        config = {name: str(value) for name, value in self.spark_config.items()}
        return settings_of(self._home, master=self.master, remote=self.remote, ui=self.ui, config=config)

    @property
    def _home(self) -> Path:
        return Path(self.home).absolute() if self.home else find_home()

    @property
    def session(self) -> "SparkSession":
        """It is started at the first use. Raises ExtraMissing, JavaMissing, SparkUnavailable."""
        require("dagster-spark", "dagster_pyspark", *PACKAGES)
        from dagster_pyspark import LazyPySparkResource
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        settings = self.settings
        try:
            if self._lazy is None:
                start_java(settings)
                self._lazy = LazyPySparkResource(spark_config=settings.spark_config())
            return self._lazy.spark_session
        except (PySparkException, Py4JError, ImportError, OSError) as error:
            raise unavailable(settings, error) from error

    def copy_engine(self, note: Callable[[str], None] = lambda text: None) -> Copier:
        """It chooses who copies, and who carries the work for targets, as `ccpr run` does. The choice of who copies and
        how far it has come are in the run's log; the choice is noted, too."""
        log = _RunLog(dg.get_dagster_logger("ccpr").info, note)
        return Copier(
            self._home,
            self.engine,
            settings=self.settings,
            on_bytes=log.on_bytes,
            on_choice=log.on_choice,
            own_session=lambda: self.session,
        )


class _RunLog:
    """What copies and why, then now and then how far it has come. A copier that takes over begins at zero."""

    def __init__(self, write: Callable[[str], None], note: Callable[[str], None]) -> None:
        self._write, self._note = write, note
        self._log: CopyLog | None = None

    def on_choice(self, choice: CopierChoice) -> None:
        self._write(choice.text)
        self._note(choice.text)
        self._log = CopyLog(choice.size, self._write)

    def on_bytes(self, size: int) -> None:
        if self._log is not None:
            self._log.add(size)
