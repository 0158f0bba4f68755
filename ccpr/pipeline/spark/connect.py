"""Sessions of a Spark Connect server that the user names, and what its errors mean."""

import atexit
import hashlib
import logging
import os
import re
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccpr.base.errors import require
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.spark.errors import (
    SparkCodeDiffers,
    SparkJobFailed,
    SparkRefused,
    SparkSessionLost,
    SparkVersionDiffers,
)
from ccpr.pipeline.spark.tasks import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Trying again for ten minutes, as Spark's client does without this, would hide that a server has ended.
_RETRIES, _FIRST_WAIT_MS, _LONGEST_WAIT_MS = 5, 50, 1000
# gRPC's own, of its first use: with its handlers a fork can end before its exec, and so the start of a JVM of this
# process. Nothing of ours uses gRPC in a fork. Source: https://github.com/grpc/grpc/issues/43055
_FORK_HANDLERS = "GRPC_ENABLE_FORK_SUPPORT"
_BROKEN_CALL = re.compile(
    r'of RPC that terminated with:\s+status = StatusCode\.(?P<status>\w+)\s+details = "(?P<details>.*)"'
)
# A stream that breaks has any of these, by what the client was doing as the server died.
_STATUS_OF_LOSS = ("UNAVAILABLE", "UNKNOWN", "CANCELLED", "INTERNAL", "ABORTED")
_CODE_MISSING = re.compile(r"No module named '(?:ccpr|pyspark_matrixone)\b|Can't get attribute [^\n]*<module 'ccpr\b")
_SIGNS_OF_LOSS = ("UNAVAILABLE", "INVALID_HANDLE.SESSION", "Cannot invoke RPC on closed channel")
_SECRETS = re.compile(r"(;(?:token|user_id|x-[^=;]*)=)[^;]*")


def require_client() -> None:
    """Raises ExtraMissing unless all is installed that a client of a Spark Connect server needs: pyspark leaves it
    out."""
    require("spark", "pyspark", "pandas", "grpc", "grpc_status", "zstandard")


def remote_connection(url: str) -> "SparkSession":
    """A session of its own at a server, ``sc://host:port``. Nothing is asked of the server yet. Raises ExtraMissing."""
    require_client()
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    class ConnectSession(SparkSession):
        """Spark's own, when it is collected, shuts down a pool of threads that all sessions share. It waits for a lock
        of that pool, for ever if the collector runs in the thread that has it."""

        def __del__(self) -> None:
            pass

    os.environ.setdefault(_FORK_HANDLERS, "false")
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")  # as its errors, which are raised
    logging.getLogger("SparkConnectClient").setLevel(logging.CRITICAL)
    session: Any = ConnectSession(url)
    policy = DefaultPolicy(max_retries=_RETRIES, initial_backoff=_FIRST_WAIT_MS, max_backoff=_LONGEST_WAIT_MS)
    session.client.set_retry_policies([policy])
    # Of Spark's machine learning: a job when this program ends, which hangs where the server has ended before.
    atexit.unregister(session.client._cleanup_ml_cache)
    return session


def shown_url(url: str) -> str:
    """An address without the token in it."""
    return printable(_SECRETS.sub(r"\1…", url))


def check_server(session: "SparkSession", subject: str) -> None:
    """Whether the server answers, and has our version of Spark. Raises SparkSessionLost, SparkRefused, SparkJobFailed,
    SparkVersionDiffers."""
    import pyspark
    from pyspark.errors import PySparkException

    try:
        version = session.version
    except PySparkException as error:
        raise failure_of(error, subject) from error
    if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise SparkVersionDiffers(f"it has Spark {version}, this program {pyspark.__version__}", subject=subject)


def difference_of_code(expected: str) -> str | None:
    """Runs in a worker."""
    found = loaded_code()
    if found == expected:
        return None
    return f"a worker on {os.uname().nodename} has code {found}, this program {expected}"


def failure_of(error: Exception, subject: str) -> CcprError:
    """An error of Spark as one of ours: whether the session has gone, or the job alone failed."""
    text, reason = str(error), reason_of(error)
    if broken := _BROKEN_CALL.search(text):  # gRPC's own: Spark's server answers with details, a dead one with none
        reason = f"{broken['status']}: {broken['details'] or 'no details'}"
    if "UNAUTHENTICATED" in text or "Invalid authentication token" in text:
        return SparkRefused("it refuses the token", subject=subject)
    if any(sign in text for sign in _SIGNS_OF_LOSS) or (broken and broken["status"] in _STATUS_OF_LOSS):
        return SparkSessionLost(f"it has ended: {shown_url(reason)}", subject=subject)
    if _CODE_MISSING.search(text):
        return SparkCodeDiffers("its workers do not have this program", subject=subject)
    return SparkJobFailed(f"Spark failed: {shown_url(reason)}", subject=subject)


# ---- which version of this program a process has loaded
#
# Spark's workers import the program by themselves, from where they run and when they start: a session that is older
# than an upgrade runs the former version. So each task that writes compares its digest with that of the program that
# asked (decision spark-dataframes).

CODE_FOLDER = Path(__file__).resolve().parents[3]
_ROOMS = (  # which a task imports
    *("base", "lake", "maintenance", "matrixone", "mirror", "pipeline", "schema", "state", "targets", "values"),
)


@cache
def loaded_code() -> str:
    """A digest of the files: names and contents, and the version of Python. They are read at the first call in this
    process: make it soon after the code is imported."""
    digest = hashlib.sha256(f"{sys.version_info[0]}.{sys.version_info[1]}".encode())
    for room in _ROOMS:
        for path in sorted((CODE_FOLDER / "ccpr" / room).rglob("*.py")):
            digest.update(f"\0{path.relative_to(CODE_FOLDER).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
