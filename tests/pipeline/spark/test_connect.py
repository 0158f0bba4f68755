"""A Spark Connect server that the user keeps: reads and copies as a session of one's own does, and what each of its
ends looks like to its clients."""

import gc
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy
from ccpr.pipeline.spark.choice import CopiedBy, CopierChoice
from ccpr.pipeline.spark.connect import check_server, failure_of, remote_connection
from ccpr.pipeline.spark.engine import Copier
from ccpr.pipeline.spark.errors import (
    SparkCodeDiffers,
    SparkJobFailed,
    SparkRefused,
    SparkSessionLost,
    SparkVersionDiffers,
    StoreNotShared,
)
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.pipeline.spark.tasks import refuse_unshared_store
from ccpr.state.credentials import Vault
from ccpr.state.settings import Budget
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.expected import assert_rows_equal
from tests.support.recorded import Snapshot
from tests.support.spark_connect_server import ConnectServer, connect_server
from tests.support.spark_fixtures import RecordedMirror

pytestmark = [pytest.mark.spark, pytest.mark.recordings]

PASSWORD = "a secret of the test"
_CLIENT_SECONDS = 240.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[ConnectServer]:
    """One server for all tests here; the last one kills it."""
    with connect_server(SparkSettings(home / "java", "local[2]", key_file=home / "key")) as server:
        yield server


@pytest.fixture
def settings(home: Path, server: ConnectServer) -> SparkSettings:
    """As CCPR_SPARK_REMOTE makes them."""
    return SparkSettings(home / "java", remote=server.url, key_file=home / "key")


def test_a_connect_server_reads_and_copies(
    home: Path, settings: SparkSettings, recordings: Path, recorded_mirror: RecordedMirror, tmp_path: Path
) -> None:
    snapshot = Snapshot(recordings / "dml/snapshot-002")
    listed = [entry.stats for entries in snapshot.objects.values() for entry in entries]
    columns = [[stats.name for stats in listed], [stats.size for stats in listed], [stats.raw for stats in listed]]
    objects = pa.table(columns, schema=COPY_INPUT)
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        sealed = Vault(home / "key").seal(PASSWORD, endpoint)
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


def test_a_wrong_token_is_refused(server: ConnectServer) -> None:
    session = remote_connection(server.url.replace(server.token, "0f-a-stranger"))
    with pytest.raises(SparkRefused) as caught:
        check_server(session, "sc://localhost")
    assert "0f-a-stranger" not in str(caught.value)
    assert "CCPR_SPARK_REMOTE" in caught.value.remedy


def test_a_server_of_another_version_of_spark_is_refused(
    server: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = remote_connection(server.url)
    monkeypatch.setattr("pyspark.__version__", "3.5.9")
    with pytest.raises(SparkVersionDiffers, match=r"it has Spark 4\.1\.4, this program 3\.5\.9"):
        check_server(session, "sc://localhost")
    session.stop()


def test_a_session_that_is_collected_waits_for_no_lock(server: ConnectServer) -> None:
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Iterator

    sessions = [remote_connection(server.url)]
    assert len(sessions[0].range(3).collect()) == 3
    pool = Iterator._release_thread_pool_instance
    assert pool is not None

    def collect() -> None:
        sessions.clear()
        gc.collect()

    thread = threading.Thread(target=collect)
    with pool._shutdown_lock:  # as in the midst of giving the pool work
        thread.start()
        thread.join(60)
        assert not thread.is_alive()


def test_workers_with_other_code_are_refused(
    home: Path, settings: SparkSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpr.pipeline.spark.copy.loaded_code", lambda: "later")
    endpoint, _ = parse_uri("mysql://sys#dump@127.0.0.1:1")
    sealed = Vault(home / "key").seal(PASSWORD, endpoint)
    job = CopyJob(endpoint, sealed, Publication("p", "sys", 0), (tmp_path / "copied").as_uri())
    objects = pa.table([["a"], [1], [bytes(COPY_INPUT.field("stats").type.byte_width)]], schema=COPY_INPUT)
    with pytest.raises(SparkCodeDiffers, match=r"a worker on .* has code .*, this program later"):
        copy(job, objects, Copier(home, "spark", settings=settings))


def test_the_engine_copies_with_the_server_and_reports_each_object(
    home: Path, settings: SparkSettings, recordings: Path, tmp_path: Path
) -> None:
    listed = [
        entry.stats for entries in Snapshot(recordings / "dml/snapshot-002").objects.values() for entry in entries
    ]
    columns = [[stats.name for stats in listed], [stats.size for stats in listed], [stats.raw for stats in listed]]
    choices: list[CopierChoice] = []
    seen: list[int] = []
    copier = Copier(
        home,
        "spark",
        settings=settings,
        on_bytes=seen.append,
        on_choice=choices.append,
        own_session=pytest.fail,
    )
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        sealed = Vault(home / "key").seal(PASSWORD, endpoint)
        job = CopyJob(endpoint, sealed, Publication("pub_dml", "sys", 0), (tmp_path / "copied").as_uri())
        report = copy(job, pa.table(columns, schema=COPY_INPUT), copier)
    assert report.objects_fetched == len(listed)
    assert sum(seen) == sum(stats.size for stats in listed)
    assert [choice.place for choice in choices] == [CopiedBy.CLUSTER]


@pytest.mark.in_turn
def test_an_error_of_who_watches_ends_the_job_and_nothing_else(
    home: Path, server: ConnectServer, settings: SparkSettings, recordings: Path, tmp_path: Path
) -> None:
    """As when a service is told to end in the middle of a copy."""
    snapshot = Snapshot(recordings / "many_tables/snapshot-001")
    listed = [entry.stats for entries in snapshot.objects.values() for entry in entries]
    columns = [[stats.name for stats in listed], [stats.size for stats in listed], [stats.raw for stats in listed]]
    size = sum(stats.size for stats in listed)

    def stop(_: int) -> None:
        raise InterruptedError("the service ends")

    copier = Copier(home, "spark", settings=settings, on_bytes=stop, own_session=pytest.fail)
    with RecordedUpstream(recordings / "many_tables", password=PASSWORD) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        sealed = Vault(home / "key").seal(PASSWORD, endpoint)
        url = (tmp_path / "copied").as_uri()
        budget = Budget(sessions=1, mb_s=size / 1e6 / 60)
        job = CopyJob(endpoint, sealed, Publication("pub_many_tables", "sys", 0), url, budget)
        with pytest.raises(InterruptedError):
            copy(job, pa.table(columns, schema=COPY_INPUT), copier)
        limit = time.monotonic() + _CLIENT_SECONDS
        while emulator.status().sessions_open:
            assert time.monotonic() < limit
            time.sleep(0.05)
    assert 0 < len(list((tmp_path / "copied/objects").iterdir())) < len(listed)
    session = remote_connection(server.url)
    assert len(session.range(3).collect()) == 3
    session.stop()


@pytest.mark.parametrize(
    ("status", "details", "expected"),
    [
        ("UNAVAILABLE", "Socket closed", SparkSessionLost),
        ("UNKNOWN", "Stream removed", SparkSessionLost),
        ("CANCELLED", "Received RST_STREAM with error code 8", SparkSessionLost),
        ("INTERNAL", "", SparkSessionLost),
        ("RESOURCE_EXHAUSTED", "Received message larger than max", SparkJobFailed),
    ],
)
def test_a_broken_call_is_a_session_that_has_ended_and_says_why(
    status: str, details: str, expected: type[CcprError]
) -> None:
    """What a killed server looks like depends on what the client was just doing."""
    call = f'status = StatusCode.{status}\n\tdetails = "{details}"'
    text = f"<_MultiThreadedRendezvous of RPC that terminated with:\n\t{call}\n>"
    failure = failure_of(Exception(text), "Spark")
    assert type(failure) is expected
    assert f"{status}: {details or 'no details'}" in failure.message


def test_a_folder_is_refused_with_a_server_on_another_machine(tmp_path: Path) -> None:
    with pytest.raises(StoreNotShared, match="on another machine"):
        refuse_unshared_store(remote_connection("sc://192.0.2.1:15002"), tmp_path.as_uri())


def test_a_server_that_was_killed_is_a_session_that_has_ended(server: ConnectServer) -> None:
    from pyspark.errors import PySparkException

    session = remote_connection(server.url)
    assert len(session.range(3).collect()) == 3
    server.kill()
    with pytest.raises(PySparkException) as caught:
        session.range(3).collect()
    failure = failure_of(caught.value, "sc://localhost")
    assert type(failure) is SparkSessionLost
    assert "whether the Spark Connect server runs" in failure.remedy
    with pytest.raises(SparkSessionLost):
        check_server(remote_connection(server.url), "sc://localhost")
