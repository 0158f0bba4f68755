"""Sessions of Spark Connect: of the warm server on the loopback address, and of a server that the user names.

Several programs may use one server at a time, and each worker process of Spark belongs to a session. So all clients of
a warm server share one session of it: their first task finds workers that have imported everything already.
"""

import atexit
import logging
import os
import re
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ccpr.base.extras import require
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.spark.errors import (
    SparkCodeDiffers,
    SparkJobFailed,
    SparkRefused,
    SparkSessionLost,
    SparkVersionDiffers,
)
from ccpr.pipeline.spark.identity import loaded_code
from ccpr.pipeline.spark.tasks import LOOPBACK_ADDRESS, in_tasks, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

USER = "ccpr"
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


def warm_connection(port: int, token: str, session_id: str) -> "SparkSession":
    """The shared session of the warm server. Nothing is asked of the server yet. Raises ExtraMissing."""
    require_client()
    import grpc
    from pyspark.sql.connect.client import ChannelBuilder

    class Loopback(ChannelBuilder):
        """Without TLS, which Spark's own builder demands where there is a token, unless the host is `localhost`; that
        name may also mean an address at which another program listens."""

        @property
        def host(self) -> str:
            return LOOPBACK_ADDRESS

        def toChannel(self) -> grpc.Channel:
            token = grpc.access_token_call_credentials(self.get(self.PARAM_TOKEN))
            return self._secure_channel(
                f"{LOOPBACK_ADDRESS}:{port}",
                grpc.composite_channel_credentials(grpc.local_channel_credentials(), token),
            )

    return _session(Loopback(params={"token": token, "session_id": session_id, "user_id": USER}))


def remote_connection(url: str) -> "SparkSession":
    """A session of its own at a server that the user names, ``sc://host:port``. Nothing is asked of the server yet.
    Raises ExtraMissing."""
    require_client()
    return _session(url)


def _session(connection: Any) -> "SparkSession":
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    class Session(SparkSession):
        """Spark's own, when it is collected, shuts down a pool of threads that all sessions share. It waits for a lock
        of that pool, for ever if the collector runs in the thread that has it."""

        def __del__(self) -> None:
            pass

    os.environ.setdefault(_FORK_HANDLERS, "false")
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")  # as its errors, which are raised
    logging.getLogger("SparkConnectClient").setLevel(logging.CRITICAL)
    session: Any = Session(connection)
    policy = DefaultPolicy(max_retries=_RETRIES, initial_backoff=_FIRST_WAIT_MS, max_backoff=_LONGEST_WAIT_MS)
    session.client.set_retry_policies([policy])
    # Of Spark's machine learning: a job when this program ends, which hangs where the server has ended before.
    atexit.unregister(session.client._cleanup_ml_cache)
    session.release_session_on_close = isinstance(connection, str)  # the shared one stays when a client ends
    return session


def shown_url(url: str) -> str:
    """An address without the token in it."""
    return printable(_SECRETS.sub(r"\1…", url))


def check_session(session: "SparkSession", subject: str, tasks: int = 1) -> None:
    """Whether the server answers, has our version of Spark, and its workers our code. Takes a job of Spark, of as many
    tasks.

    Raises SparkSessionLost, SparkRefused, SparkVersionDiffers, SparkCodeDiffers, SparkJobFailed.
    """
    import pyspark
    from pyspark.errors import PySparkException

    try:
        version = session.version
        if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
            raise SparkVersionDiffers(f"it has Spark {version}, this program {pyspark.__version__}", subject=subject)
        rows = pa.table({"task": pa.array(range(tasks), pa.int32())})
        schema = pa.schema([pa.field("difference", pa.string())])
        found = in_tasks(session, rows, partial(report_code, loaded_code()), schema).toArrow()
    except PySparkException as error:
        raise failure_of(error, subject) from error
    if differences := [text for text in found.column("difference").to_pylist() if text]:
        raise SparkCodeDiffers(differences[0], subject=subject)


def report_code(expected: str, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Runs in a worker: a text where the worker's code is not the expected one, else none."""
    for batch in batches:
        yield pa.record_batch({"difference": pa.array([difference_of_code(expected)] * batch.num_rows, pa.string())})


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
