"""A Spark Connect server from the pip package, on the loopback address only: reads and copies as a session of one's
own does."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from emulator.recorded_upstream import RecordedUpstream
from matrixone.upstream.endpoint import parse_uri
from matrixone.upstream.publications import Publication
from replication.iteration.copying import COPY_INPUT, CopyJob
from replication.spark.java import find_java
from replication.spark.session import SparkSettings
from replication.state.credentials import KEY_FILE_VARIABLE, Vault
from tests.support.expected import assert_rows_equal
from tests.support.recorded import Snapshot
from tests.support.spark_fixtures import RecordedMirror

pytestmark = [pytest.mark.spark, pytest.mark.recordings]

PASSWORD = "a secret of the test"
_START_SECONDS, _CLIENT_SECONDS = 60.0, 120.0


@pytest.fixture
def key_of_server(tmp_path: Path) -> Path:
    return tmp_path / "key"


@pytest.fixture
def server(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, key_of_server: Path) -> Iterator[int]:
    """The port of a server that is stopped afterwards, with all that it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    environment = os.environ | {
        "JAVA_HOME": str(find_java(tmp_path_factory.mktemp("java")).home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        KEY_FILE_VARIABLE: str(key_of_server),
    }
    command = [str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            env=environment,
            cwd=tmp_path,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _await(port, process, log)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def _await(port: int, process: subprocess.Popen, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text()[-2000:]}")


def _listening(port: int) -> set[str]:
    """Local addresses that listen on a port, as the kernel writes them."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {address for _, address, _, state, *_ in lines if state == "0A" and address.endswith(f":{port:04X}")}


def test_a_connect_server_reads_and_copies(
    server: int, key_of_server: Path, recordings: Path, recorded_mirror: RecordedMirror, tmp_path: Path
) -> None:
    pytest.importorskip("grpc_status", reason="the client of Spark Connect is not installed")
    assert {address.rpartition(":")[0] for address in _listening(server)} <= {
        "0100007F",
        "0000000000000000FFFF00000100007F",
    }
    snapshot = Snapshot(recordings / "dml/snapshot-002")
    listed = [entry.stats for entries in snapshot.objects.values() for entry in entries]
    columns = [[stats.name for stats in listed], [stats.size for stats in listed], [stats.raw for stats in listed]]
    objects = pa.table(columns, schema=COPY_INPUT)
    settings = SparkSettings(tmp_path / "java", remote=f"sc://127.0.0.1:{server}", key_file=key_of_server)
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        sealed = Vault(key_of_server).seal(PASSWORD, endpoint)
        job = CopyJob(endpoint, sealed, Publication("pub_dml", "sys", 0), (tmp_path / "copied").as_uri())
        task, answer = tmp_path / "task", tmp_path / "answer"
        task.write_bytes(pickle.dumps((settings, recorded_mirror("dml").store.url, "gd_dml.acc", 2, job, objects)))
        client = [sys.executable, "-m", "tests.support.connect_client", str(task), str(answer)]
        repository = Path(__file__).resolve().parents[3]
        done = subprocess.run(
            client, cwd=repository, capture_output=True, text=True, timeout=_CLIENT_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        status = emulator.status()
    module, rows, loaded, copied = pickle.loads(answer.read_bytes())
    assert module.startswith("pyspark.sql.connect.")
    assert_rows_equal(rows, snapshot.expected("acc"))
    assert_rows_equal(loaded, snapshot.expected("acc"))
    assert status.sessions_that_fetched == 2
    assert copied.num_rows == len(listed) == status.objects_fetched
    for stats in listed:
        assert (tmp_path / "copied/objects" / stats.name).read_bytes() == (
            recordings / "dml/objects" / stats.name
        ).read_bytes()
