"""A real standalone cluster on the loopback address, with a Spark Connect server as its driver: what a local session
does, and a worker that is lost in the middle. `make test-cluster` runs all of it with two workers, `make test` one case
with one."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ccpr
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.schema import Kind
from ccpr.mirror.delta.change_rows import part_of
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy
from ccpr.pipeline.spark.choice import CopiedBy, CopierChoice
from ccpr.pipeline.spark.connect import remote_connection
from ccpr.pipeline.spark.engine import Copier, await_executors
from ccpr.pipeline.spark.read import delta_with_spark
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.state.credentials import Vault
from ccpr.state.settings import Budget
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.delta_truth import assert_is_delta, rows_at
from tests.support.expected import assert_rows_equal
from tests.support.process_list import process_list
from tests.support.recorded import Snapshot
from tests.support.spark_cluster import Cluster, running_cluster
from tests.support.spark_connect_server import connect_server
from tests.support.spark_fixtures import RecordedMirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = bool(os.environ.get("CLUSTER"))
PASSWORD = "a secret of the test"
pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.recordings, pytest.mark.timeout(900)]
LIMIT_SECONDS = 300.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), 2 if WHOLE else 1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def settings(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSettings]:
    """Of a client of a server whose executors are the cluster's."""
    home = tmp_path_factory.mktemp("home")
    config = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.cores.max": "2"}
    config |= {"spark.hadoop.fs.s3a.secret.key": "hush-0c7e"}
    with ExitStack() as running:
        with process_list() as seen:
            driver = SparkSettings(home / "java", cluster.master, key_file=home / "key", config=config)
            server = running.enter_context(connect_server(driver))
            await_executors(remote_connection(server.url))
        assert [line for line in seen if "CoarseGrainedExecutorBackend" in line]
        assert not [line for line in seen if "hush-0c7e" in line]
        yield SparkSettings(home / "java", remote=server.url, key_file=home / "key")


@pytest.fixture(scope="module")
def session(settings: SparkSettings) -> Iterator["SparkSession"]:
    session = remote_connection(settings.remote or "")
    yield session
    session.stop()


def wanted(recordings: Path) -> pa.Table:
    snapshot = Snapshot(recordings / "dml/snapshot-002")
    stats = [listed.stats for listed in (one for listed in snapshot.objects.values() for one in listed)]
    return pa.table([[s.name for s in stats], [s.size for s in stats], [s.raw for s in stats]], schema=COPY_INPUT)


def job_of(emulator: RecordedUpstream, key_file: Path | None, folder: Path) -> CopyJob:
    assert key_file is not None
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
    sealed = Vault(key_file).seal(PASSWORD, endpoint)
    return CopyJob(endpoint, sealed, Publication("pub_dml", "sys", 0), folder.as_uri())


def assert_copied(folder: Path, recordings: Path, objects: pa.Table) -> None:
    for name in objects.column("name").to_pylist():
        assert (folder / "objects" / name).read_bytes() == (recordings / "dml/objects" / name).read_bytes()


def test_executors_copy_and_read(
    settings: SparkSettings,
    session: "SparkSession",
    recordings: Path,
    recorded_mirror: RecordedMirror,
    tmp_path: Path,
) -> None:
    objects, choices, seen = wanted(recordings), list[CopierChoice](), list[int]()
    copier = Copier(tmp_path, settings=settings, on_choice=choices.append, on_bytes=seen.append)
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        report = copy(job_of(emulator, settings.key_file, tmp_path / "copied"), objects, copier)
        assert emulator.status().sessions_open == 0
    assert [choice.place for choice in choices] == [CopiedBy.CLUSTER]
    assert "sc://localhost" in choices[0].why
    assert report.objects_fetched == objects.num_rows
    assert sum(seen) == sum(objects.column("size").to_pylist())
    assert_copied(tmp_path / "copied", recordings, objects)
    mirror = recorded_mirror("dml")
    rows = ccpr.read_table(session, mirror.store.url, "gd_dml.acc", at=2).toArrow()
    assert_rows_equal(rows, Snapshot(recordings / "dml/snapshot-002").expected("acc"))


if WHOLE:

    @pytest.mark.parametrize(("scenario", "former", "later"), [("dml", 3, 6), ("keys", 1, 2)])
    def test_executors_find_what_changed(
        session: "SparkSession", recorded_mirror: RecordedMirror, scenario: str, former: int, later: int
    ) -> None:
        mirror = recorded_mirror(scenario)
        one, two = mirror.point(former), mirror.point(later)
        for table_id, ref in one.tables.items():
            if ref.kind is not Kind.TABLE or table_id not in two.tables:
                continue
            before, after = TableAt.of(one, table_id), TableAt.of(two, table_id)
            delta = table_delta(mirror, before, after, split_rows=5000)
            change = part_of(delta_with_spark(session, delta).toArrow(), delta.shape)
            assert_is_delta(change, rows_at(mirror, before, delta.shape), rows_at(mirror, after, delta.shape))

    def test_executors_load_the_data_source(
        session: "SparkSession", recordings: Path, recorded_mirror: RecordedMirror
    ) -> None:
        url = recorded_mirror("all_types").store.url
        snapshot = Snapshot(recordings / "all_types/snapshot-002")
        for name in snapshot.tables:
            table = snapshot.tables[name]
            options = {"mirror": url, "table": f"{table.database}.{table.name}", "at": "2"}
            loaded = session.read.format("matrixone").options(**options).load()
            assert_rows_equal(loaded.toArrow(), snapshot.expected(name))
            assert loaded.count() == snapshot.expected(name).num_rows

    def test_a_worker_that_is_lost_in_the_middle_costs_time_and_nothing_else(
        cluster: Cluster, settings: SparkSettings, recordings: Path, tmp_path: Path
    ) -> None:
        """The last test: the cluster has one worker afterwards."""
        objects, folder = wanted(recordings), tmp_path / "copied"
        size = sum(objects.column("size").to_pylist())

        def lose() -> None:
            limit = time.monotonic() + LIMIT_SECONDS
            while not list((folder / "objects").glob("*")) and time.monotonic() < limit:
                time.sleep(0.02)
            copied_then.append(len(list((folder / "objects").glob("*"))))
            cluster.kill_worker(0)

        copied_then: list[int] = []
        thread = threading.Thread(target=lose)
        thread.start()
        copier = Copier(tmp_path, "spark", settings=settings)
        with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
            job = replace(job_of(emulator, settings.key_file, folder), budget=Budget(sessions=2, mb_s=size / 1e6 / 10))
            report = copy(job, objects, copier)
        thread.join()
        assert 0 < copied_then[0] < objects.num_rows
        assert report.rows.num_rows == objects.num_rows
        assert_copied(folder, recordings, objects)
