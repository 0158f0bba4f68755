"""A Spark session for this program: its Java, its settings and its logging. `ccpr.dagster.spark_resource` is the same
for Dagster.

Spark is not imported before a session is needed: the import takes 0.3 s, and the start of Spark some seconds. Source:
decision spark-dataframes.
"""

import os
import re
import shlex
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ccpr.base.errors import require
from ccpr.pipeline.spark.connect import require_client, shown_url
from ccpr.pipeline.spark.errors import SparkUnavailable
from ccpr.pipeline.spark.java import find_java
from ccpr.pipeline.spark.stored import StoredSpark
from ccpr.pipeline.spark.tasks import LOOPBACK_ADDRESS, is_here, reason_of
from ccpr.state.credentials import KEY_FILE_VARIABLE
from ccpr.state.errors import BadSetting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_VARIABLE = "CCPR_SPARK_MASTER"
REMOTE_VARIABLE = "CCPR_SPARK_REMOTE"
CONF_PREFIX = "CCPR_SPARK_CONF_"
LOCAL_MASTER = "local[*]"
_PYTHON_VARIABLE = "PYSPARK_PYTHON"  # Spark's own
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,.*)?\])?")
PACKAGES = ("pyspark", "pandas")  # without which there is no session; a server's client needs more
_starting = threading.Lock()  # the environment is changed meanwhile
_LOGGING = Path(__file__).with_name("spark_log4j2.properties")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of a session.

    Attributes
    ----------
    cache : folder for the `java` that `ccpr.pipeline.spark.java` creates once; CCPR_HOME/java.
    master : ``local[*]`` = all cores of this machine; not used with `remote`.
    remote : a Spark Connect server, ``sc://host:port``; None = a session with its own JVM.
    ui : show Spark's web page on the loopback address, port 4040.
    key_file : path of the key that opens sealed passwords; workers on this machine get the path, never the key
        (decision sealed-secrets). Others have their own path.
    config : further Spark settings, which take precedence over ours.
    """

    cache: Path
    master: str = LOCAL_MASTER
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
        if is_here(self.master):  # executors elsewhere must be able to reach the driver
            config |= {"spark.driver.bindAddress": LOOPBACK_ADDRESS, "spark.driver.host": LOOPBACK_ADDRESS}
            if self.key_file is not None:
                config[f"spark.executorEnv.{KEY_FILE_VARIABLE}"] = str(self.key_file.absolute())
        return {**config, **self.config}

    @property
    def is_elsewhere(self) -> bool:
        """Whether the master is a cluster or a server that others keep, not this program's own Spark."""
        return self.remote is not None or not self.master.startswith("local")

    @property
    def slots(self) -> int | None:
        """How many tasks run at once; None if only the cluster knows."""
        if self.remote is not None or (local := _LOCAL.fullmatch(self.master)) is None:
            return None
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)

    @property
    def python(self) -> str:
        """What workers run: else the `python3` of PATH. On other machines it may have another path."""
        here = self.remote is not None or is_here(self.master)
        return (None if here else os.environ.get(_PYTHON_VARIABLE)) or sys.executable

    @property
    def place(self) -> str:
        """The master or server for people, without a token."""
        return shown_url(self.remote or self.master)

    def prepare_environment(self) -> None:
        """Set what the JVM and the Python workers inherit. To be called before the session is created.

        Raises JavaMissing.
        """
        os.environ[_PYTHON_VARIABLE] = self.python
        if self.key_file is not None:
            os.environ[KEY_FILE_VARIABLE] = str(self.key_file.absolute())
        if self.remote is None:
            os.environ["JAVA_HOME"] = str(find_java(self.cache).home)
            if is_here(self.master):
                os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK_ADDRESS)


def settings_of(
    home: Path,
    *,
    master: str | None = None,
    remote: str | None = None,
    ui: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSettings:
    """The settings for a state folder: what is given here, else CCPR_SPARK_MASTER and CCPR_SPARK_REMOTE, else what the
    folder keeps, else a local master. `config` is added to the folder's and to CCPR_SPARK_CONF_*: there
    ``CCPR_SPARK_CONF_spark_executor_memory=2g`` is ``spark.executor.memory``; two underscores are one in the name.

    Raises BadSetting, StateUnreadable.
    """
    if not master and not remote:
        master, remote = (os.environ.get(name, "").strip() for name in (MASTER_VARIABLE, REMOTE_VARIABLE))
    stored = StoredSpark.of(home)
    if not master and not remote:
        master, remote = stored.master, stored.remote
    if master and remote:
        raise BadSetting(
            "a master and a Spark Connect server are named; Spark runs in one of them",
            subject=f"{MASTER_VARIABLE}, {REMOTE_VARIABLE}",
            remedy="Unset one of the two.",
        )
    if remote and not remote.startswith("sc://"):
        raise BadSetting(
            "it is not the address of a Spark Connect server",
            subject=REMOTE_VARIABLE,
            remedy="Write sc://host:port. A master (spark://, yarn, k8s://) is named by CCPR_SPARK_MASTER.",
        )
    settings = {**stored.config, **dict(_config_of_environment()), **(config or {})}
    return SparkSettings(home / "java", master or LOCAL_MASTER, remote or None, ui, home / "key", settings)


def _config_of_environment() -> Iterator[tuple[str, str]]:
    for variable, value in sorted(os.environ.items()):
        if variable.startswith(CONF_PREFIX):
            name = variable.removeprefix(CONF_PREFIX).replace("__", "\0").replace("_", ".").replace("\0", "_")
            if not name.startswith("spark."):
                raise BadSetting(
                    "it does not name a setting of Spark",
                    subject=variable,
                    remedy=f"Spark's names are case-sensitive: {CONF_PREFIX}spark_executor_memory is "
                    "spark.executor.memory.",
                )
            yield name, value


def spark_session(settings: SparkSettings) -> "SparkSession":
    """The session of this process; later calls return the same. Raises ExtraMissing, JavaMissing, SparkUnavailable."""
    require("spark", *PACKAGES)
    if settings.remote is not None:
        require_client()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        start_java(settings)
        builder = SparkSession.builder
        for name, value in settings.spark_config().items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except (PySparkException, Py4JError, ImportError, OSError) as error:
        raise unavailable(settings, error) from error


def start_java(settings: SparkSettings) -> None:
    """Start the JVM of this process, unless it runs or none is needed. pyspark would give all settings of a session to
    it as arguments; once it runs they go by a connection of its own (decision spark-dataframes).

    Raises JavaMissing, PySparkException.
    """
    from pyspark import SparkContext

    settings.prepare_environment()
    if settings.remote is None:
        with _starting, submitted_by_file(settings.spark_config()):
            SparkContext.getSystemProperty("java.version")  # pyspark starts a JVM to ask it


def unavailable(settings: SparkSettings, error: Exception) -> SparkUnavailable:
    """The error for a session that could not be created."""
    if settings.remote is not None:
        remedy = "Check that the server runs and is reachable."
        return SparkUnavailable(f"no session: {shown_url(str(error))}", subject=settings.place, remedy=remedy)
    return SparkUnavailable(f"no session: {reason_of(error)}", subject=f"Spark on {settings.master}")


# ---- Spark's settings as a file of mode 600
#
# The arguments of a process are seen by all users of the machine.

_SUBMIT = "PYSPARK_SUBMIT_ARGS"  # Spark's own
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_IN_NAMES = {letter: f"\\{letter}" for letter in " :=#!"}


def properties_text(config: Mapping[str, str]) -> str:
    """The settings as Java reads them from a file, sorted by name."""
    in_names = str.maketrans(_ESCAPES | _IN_NAMES)
    return "".join(f"{name.translate(in_names)}={_value(value)}\n" for name, value in sorted(config.items()))


@contextmanager
def submitted_by_file(config: Mapping[str, str]) -> Iterator[None]:
    """A JVM that pyspark starts within the block has these settings, by a file that is there as long as the block. What
    PYSPARK_SUBMIT_ARGS and `spark-defaults.conf` say is kept."""
    before = os.environ.get(_SUBMIT)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="ccpr-spark-", suffix=".conf") as file:
        file.write(properties_text(config))
        file.flush()
        os.environ[_SUBMIT] = (
            f"--properties-file {shlex.quote(file.name)} --load-spark-defaults {before or 'pyspark-shell'}"
        )
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SUBMIT]
            else:
                os.environ[_SUBMIT] = before


def _value(text: str) -> str:
    escaped = text.translate(str.maketrans(_ESCAPES))
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
