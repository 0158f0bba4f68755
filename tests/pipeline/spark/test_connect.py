"""The warm session with Spark's own server: reads and copies as a session of one's own does, for several clients, and
what each of its ends looks like to them."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ccpr.emulator.recorded_upstream import RecordedUpstream
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy
from ccpr.pipeline.spark import connect
from ccpr.pipeline.spark import server as serving
from ccpr.pipeline.spark.choice import Choice, Place
from ccpr.pipeline.spark.connect import check_session, failure_of, remote_connection, warm_connection
from ccpr.pipeline.spark.engine import Copier
from ccpr.pipeline.spark.errors import (
    SparkCodeDiffers,
    SparkJobFailed,
    SparkRefused,
    SparkSessionLost,
    SparkVersionDiffers,
    StoreNotShared,
)
from ccpr.pipeline.spark.rates import Rates
from ccpr.pipeline.spark.server import WarmSpark
from ccpr.pipeline.spark.server_record import ServerRecord, WarmState
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.pipeline.spark.tasks import in_tasks, refuse_unshared_store
from ccpr.state.credentials import Vault
from ccpr.state.settings import Budget
from tests.support.expected import assert_rows_equal
from tests.support.recorded import Snapshot
from tests.support.spark_fixtures import RecordedMirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.recordings]

PASSWORD = "a secret of the test"
_CLIENT_SECONDS = 240.0


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmSpark]:
    """One server for all tests here; the last one kills it."""
    home = tmp_path_factory.mktemp("warm")
    warm = WarmSpark(home, SparkSettings(home / "java", "local[2]", key_file=home / "key"))
    warm.start()
    yield warm
    warm.stop()


@pytest.fixture
def server(warm: WarmSpark) -> ServerRecord:
    server = warm.look().server
    assert server is not None
    return server


def _listening(port: int) -> set[str]:
    """Local addresses that listen on a port, as the kernel writes them."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {address for _, address, _, state, *_ in lines if state == "0A" and address.endswith(f":{port:04X}")}


@pytest.mark.long
def test_a_session_is_warmed_up_by_jobs_on_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_WARM_UP_JOBS", 5)
    own = WarmSpark(tmp_path, SparkSettings(tmp_path / "java", "local[2]"))
    try:
        own.start(warm_up=True)
        session = own.session()  # a job runs in it
        assert session is not None
        assert _tasks_until_now(session) == 1 + 5 * 2 + 1
        session.stop()
    finally:
        own.stop()


def _tasks_until_now(session: "SparkSession") -> int:
    """How many tasks Spark had started before this one."""

    def attempt(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            yield pa.record_batch({"attempt": [context.taskAttemptId()]})

    rows = pa.table({"task": pa.array([0], pa.int32())})
    found = in_tasks(session, rows, attempt, pa.schema([pa.field("attempt", pa.int64())])).toArrow()
    return found.column("attempt").to_pylist()[0]


def test_a_connect_server_reads_and_copies(
    warm: WarmSpark, server: ServerRecord, recordings: Path, recorded_mirror: RecordedMirror, tmp_path: Path
) -> None:
    """The client has named it as any other server, by CCPR_SPARK_REMOTE."""
    assert {address.rpartition(":")[0] for address in _listening(server.port)} <= {
        "0100007F",
        "0000000000000000FFFF00000100007F",
    }
    snapshot = Snapshot(recordings / "dml/snapshot-002")
    listed = [entry.stats for entries in snapshot.objects.values() for entry in entries]
    columns = [[stats.name for stats in listed], [stats.size for stats in listed], [stats.raw for stats in listed]]
    objects = pa.table(columns, schema=COPY_INPUT)
    key_of_server = warm.home / "key"
    remote = f"sc://localhost:{server.port}/;token={server.token}"
    settings = SparkSettings(tmp_path / "java", remote=remote, key_file=key_of_server)
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


def test_clients_share_a_session_and_its_workers_and_none_ends_it(warm: WarmSpark, server: ServerRecord) -> None:
    """Each session has workers of its own, which take a second to import what they need."""
    seen = set()
    for _ in range(2):
        session = warm_connection(server.port, server.token, server.session_id)
        check_session(session, "the warm session")
        frame = session.createDataFrame(pa.table({"n": [1]})).coalesce(1)
        seen |= set(frame.mapInArrow(_parent, "process bigint").toArrow().column("process").to_pylist())
        session.stop()
    assert len(seen) == 1
    assert warm.look().usable


def _parent(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch({"process": pa.array([os.getppid()], pa.int64())})


def test_a_wrong_token_is_refused(server: ServerRecord) -> None:
    with pytest.raises(SparkRefused) as caught:
        check_session(warm_connection(server.port, "0f-a-stranger", server.session_id), "the warm session")
    assert "0f-a-stranger" not in str(caught.value)
    assert "ccpr spark stop" in caught.value.remedy


def test_a_server_of_another_version_of_spark_is_refused(server: ServerRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    session = remote_connection(f"sc://localhost:{server.port}/;token={server.token}")
    monkeypatch.setattr("pyspark.__version__", "3.5.9")
    with pytest.raises(SparkVersionDiffers, match=r"it has Spark 4\.1\.4, this program 3\.5\.9"):
        check_session(session, "sc://localhost")
    session.stop()


def test_a_session_that_is_collected_waits_for_no_lock(server: ServerRecord) -> None:
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Iterator

    sessions = [warm_connection(server.port, server.token, server.session_id)]
    assert len(sessions[0].range(3).collect()) == 3
    pool = Iterator._release_thread_pool_instance
    assert pool is not None

    def collect() -> None:
        sessions.clear()
        gc.collect()

    thread = threading.Thread(target=collect)
    with pool._shutdown_lock:  # as in the midst of giving the pool work
        thread.start()
        thread.join(20)
        assert not thread.is_alive()


def test_workers_with_other_code_are_refused(server: ServerRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "loaded_code", lambda: "later")
    with pytest.raises(SparkCodeDiffers, match=r"a worker on .* has code .*, this program later"):
        check_session(warm_connection(server.port, server.token, server.session_id), "the warm session")


def test_the_engine_copies_with_the_warm_session_and_reports_each_object(
    warm: WarmSpark, recordings: Path, tmp_path: Path
) -> None:
    listed = [
        entry.stats for entries in Snapshot(recordings / "dml/snapshot-002").objects.values() for entry in entries
    ]
    columns = [[stats.name for stats in listed], [stats.size for stats in listed], [stats.raw for stats in listed]]
    choices: list[Choice] = []
    seen: list[int] = []
    copier = Copier(
        warm.home,
        "spark",
        settings=warm.settings,
        on_bytes=seen.append,
        on_choice=choices.append,
        cold_session=pytest.fail,
    )
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        sealed = Vault(warm.home / "key").seal(PASSWORD, endpoint)
        job = CopyJob(endpoint, sealed, Publication("pub_dml", "sys", 0), (tmp_path / "copied").as_uri())
        report = copy(job, pa.table(columns, schema=COPY_INPUT), copier)
    assert report.objects_fetched == len(listed)
    assert sum(seen) == sum(stats.size for stats in listed)
    assert [choice.place for choice in choices] == [Place.WARM]
    assert Rates.of(warm.folder).connect_seconds() > 0


def test_an_error_of_who_watches_ends_the_job_and_nothing_else(
    warm: WarmSpark, recordings: Path, tmp_path: Path
) -> None:
    """As when a service is told to end in the middle of a copy."""
    snapshot = Snapshot(recordings / "many_tables/snapshot-001")
    listed = [entry.stats for entries in snapshot.objects.values() for entry in entries]
    columns = [[stats.name for stats in listed], [stats.size for stats in listed], [stats.raw for stats in listed]]
    size = sum(stats.size for stats in listed)

    def stop(_: int) -> None:
        raise InterruptedError("the service ends")

    copier = Copier(warm.home, "spark", settings=warm.settings, on_bytes=stop, cold_session=pytest.fail)
    with RecordedUpstream(recordings / "many_tables", password=PASSWORD) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        sealed = Vault(warm.home / "key").seal(PASSWORD, endpoint)
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
    session = warm.session()  # a job runs in it
    assert session is not None
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


def test_a_server_that_was_killed_is_a_session_that_has_ended(warm: WarmSpark, server: ServerRecord) -> None:
    session = warm_connection(server.port, server.token, server.session_id)
    check_session(session, "the warm session")
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(SparkSessionLost) as caught:
        check_session(session, "the warm session")
    assert "ccpr spark start" in caught.value.remedy
    limit = time.monotonic() + _CLIENT_SECONDS
    while warm.look().state is not WarmState.ABSENT:
        assert time.monotonic() < limit
        time.sleep(0.05)
