"""A Spark Connect server as a user keeps one, in a process of its own: Spark's, in a session of our settings."""

import os
import pickle
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ccpr.pipeline.spark.connect import CODE_FOLDER
from ccpr.pipeline.spark.session import SparkSettings, spark_session
from tests.support.ports import free_port


@dataclass(frozen=True)
class ConnectServer:
    """It runs. `url` has the token."""

    process: subprocess.Popen
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}/;token={self.token}"

    def kill(self) -> None:
        """End it, and its Java, as a machine ends that loses its power."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)


@contextmanager
def connect_server(settings: SparkSettings, port: int = 0, token: str = "") -> Iterator[ConnectServer]:
    """With this master, key file and settings; at a free port with a new token unless they are given."""
    port, token = port or free_port(), token or secrets.token_urlsafe(16)
    config = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.spark_connect_server"],
        cwd=CODE_FOLDER,
        env={**os.environ, "PYTHONPATH": str(CODE_FOLDER), "SPARK_CONNECT_AUTHENTICATE_TOKEN": token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    server = ConnectServer(process, port, token)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps(replace(settings, config={**settings.config, **config})))
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n", "the server does not start"
        yield server
    finally:
        server.kill()


def main() -> None:
    spark_session(pickle.load(sys.stdin.buffer))
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
