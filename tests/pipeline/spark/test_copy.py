"""Objects copied by Spark's tasks: every one of them, by more than one upstream session; and what fails keeps its
class."""

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.errors import AccessDenied
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.pipeline.copying import COPY_INPUT, COPY_OUTPUT, CopyJob, CopyReport, copy
from ccpr.pipeline.errors import StorageMissing
from ccpr.pipeline.spark.copy import assign_tasks, copy_with_spark
from ccpr.pipeline.spark.errors import SparkJobFailed, StoreNotShared
from ccpr.state.credentials import Vault
from ccpr.state.settings import Budget
from ccpr_emulator.recorded_upstream import RecordedUpstream
from ccpr_emulator.serving.faults import WrongTotalSize
from tests.support.disk_files import write_storage
from tests.support.recorded import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.recordings]

PASSWORD = "a secret of the test"


@pytest.fixture
def objects(recordings: Path) -> pa.Table:
    """Objects of dml's second snapshot."""
    return _objects(recordings / "dml/snapshot-002")


def test_two_tasks_copy_with_sessions_of_their_own(
    spark: "SparkSession", key_file: Path, recordings: Path, objects: pa.Table, tmp_path: Path
) -> None:
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        job = _job(emulator.port, key_file, tmp_path / "mirror")
        report = copy(job, objects, lambda job, objects: copy_with_spark(spark, job, objects, 2))
        status = emulator.status()
        again = copy(job, objects, lambda job, objects: copy_with_spark(spark, job, objects, 2))
        assert emulator.status().object_bytes == status.object_bytes
    assert objects.num_rows > 1
    assert report.rows.schema == COPY_OUTPUT
    assert status.sessions_that_fetched == 2
    assert status.sessions_open == 0
    assert report.objects_fetched == status.objects_fetched == objects.num_rows
    assert again.objects_fetched == 0
    assert again.ledger.sort_by("name") == report.ledger.sort_by("name")
    for name in objects.column("name").to_pylist():
        assert (tmp_path / "mirror/objects" / name).read_bytes() == (recordings / "dml/objects" / name).read_bytes()


@pytest.mark.parametrize(("sessions", "used"), [(1, 2), (3, 3), (5, 5)])
def test_tasks_share_the_sessions_of_the_job(
    spark: "SparkSession", key_file: Path, recordings: Path, tmp_path: Path, sessions: int, used: int
) -> None:
    objects = _objects(recordings / "keys/snapshot-001")
    with RecordedUpstream(recordings / "keys", password=PASSWORD) as emulator:
        job = replace(
            _job(emulator.port, key_file, tmp_path / "mirror"),
            publication=Publication("pub_keys", "sys", 0),
            budget=Budget(sessions),
        )
        report = CopyReport.of(pa.Table.from_batches(copy_with_spark(spark, job, objects, 2)))
        status = emulator.status()
    assert (status.sessions_that_fetched, status.sessions_open) == (used, 0)
    assert report.objects_fetched == objects.num_rows > 5
    for name in objects.column("name").to_pylist():
        assert (tmp_path / "mirror/objects" / name).read_bytes() == (recordings / "keys/objects" / name).read_bytes()


@given(st.integers(1, 64), st.integers(1, 64), st.floats(0, 1000))
def test_the_parts_of_a_budget_are_all_of_it_and_differ_by_one_session(
    sessions: int, workers: int, mb_s: float
) -> None:
    parts = [Budget(sessions, mb_s).part(number, workers) for number in range(workers)]
    found = [part.sessions for part in parts]
    assert sum(found) == max(sessions, workers)
    assert 1 <= max(found) <= min(found) + 1
    assert sum(part.mb_s for part in parts) == pytest.approx(mb_s)


@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 200))
def test_each_session_has_as_many_objects_of_a_size(tasks: int, sessions: int, count: int) -> None:
    """Tasks with more sessions have more bytes."""
    rows = {"name": [f"o{n:03}" for n in range(count)], "size": [10] * count, "stats": [b"x" * 154] * count}
    assigned = assign_tasks(pa.table(rows, COPY_INPUT), tasks, sessions)
    for task, objects in Counter(assigned.column("task").to_pylist()).items():
        own = Budget(sessions).part(task, tasks).sessions
        fair = count / max(sessions, tasks)
        assert own * int(fair) <= objects <= own * -(-count // max(sessions, tasks))


def test_tasks_read_storage_and_ask_the_upstream_for_what_is_not_there(
    spark: "SparkSession", key_file: Path, recordings: Path, objects: pa.Table, tmp_path: Path
) -> None:
    storage = write_storage(recordings / "dml/objects", tmp_path / "shared", disk=True)
    name = objects.column("name")[0].as_py()
    (storage / name).unlink()
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        job = replace(_job(emulator.port, key_file, tmp_path / "mirror"), objects_from=storage.as_uri())
        report = copy(job, objects, lambda job, objects: copy_with_spark(spark, job, objects, 2))
        assert emulator.status().objects_fetched == 1
        storage.rename(tmp_path / "unmounted")
        shutil.rmtree(tmp_path / "mirror")
        with pytest.raises(StorageMissing):
            list(copy_with_spark(spark, job, objects, 2))
    assert {row["name"] for row in report.rows.to_pylist() if not row["direct"]} == {name}
    assert report.objects_fetched == objects.num_rows > 1


def test_a_failure_in_a_task_keeps_its_class_and_the_other_tasks_work(
    spark: "SparkSession", key_file: Path, recordings: Path, objects: pa.Table, tmp_path: Path
) -> None:
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        refused = _job(emulator.port, key_file, tmp_path / "mirror", password="another")
        with pytest.raises(AccessDenied) as caught:
            list(copy_with_spark(spark, refused, objects, 2))
        assert "another" not in str(caught.value)
        name = objects.column("name")[0].as_py()
        emulator.inject(WrongTotalSize(7, name))
        with pytest.raises(Exception, match=name) as wrong:
            list(copy_with_spark(spark, _job(emulator.port, key_file, tmp_path / "mirror"), objects, objects.num_rows))
    assert wrong.value.code == "OBJECT_SIZE_MISMATCH"  # pyright: ignore[reportAttributeAccessIssue]
    names = objects.column("name").to_pylist()
    assert sorted(path.name for path in (tmp_path / "mirror/objects").iterdir()) == sorted(set(names) - {name})


def test_an_object_that_cannot_be_copied_can_be_reported_apart_from_the_others(
    spark: "SparkSession", key_file: Path, recordings: Path, objects: pa.Table, tmp_path: Path
) -> None:
    names = objects.column("name").to_pylist()
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        emulator.inject(WrongTotalSize(7, names[0]))
        job = replace(_job(emulator.port, key_file, tmp_path / "mirror"), collect_failures=True)
        report = copy(job, objects, lambda job, objects: copy_with_spark(spark, job, objects, 2))
    assert {name: failure.code for name, failure in report.failures.items()} == {names[0]: "OBJECT_SIZE_MISMATCH"}
    assert sorted(report.rows.column("name").to_pylist()) == sorted(names[1:])
    assert sorted(path.name for path in (tmp_path / "mirror/objects").iterdir()) == sorted(names[1:])


@dataclass(frozen=True)
class Deadly:
    """A job that ends the worker's process, as the kernel does where memory runs out."""

    driver: int
    store_url: str
    budget: Budget = field(default_factory=Budget)

    @property
    def objects_from(self) -> str:
        if os.getpid() != self.driver:
            os._exit(9)
        return ""


def test_a_worker_that_dies_is_reported_as_a_failure_of_spark(
    spark: "SparkSession", objects: pa.Table, tmp_path: Path
) -> None:
    with pytest.raises(SparkJobFailed, match=r"Python worker exited unexpectedly.*Run it again"):
        list(copy_with_spark(spark, Deadly(os.getpid(), tmp_path.as_uri()), objects, 2))  # pyright: ignore[reportArgumentType]


def test_nothing_to_copy_needs_no_spark(key_file: Path, tmp_path: Path) -> None:
    job = _job(6001, key_file, tmp_path)
    assert list(copy_with_spark(None, job, COPY_INPUT.empty_table(), 2)) == []  # pyright: ignore[reportArgumentType]


def test_objects_are_assigned_to_tasks_of_about_the_same_bytes() -> None:
    sizes = [100, 1, 1, 50, 49, 98, 2, 3]
    rows = {"name": [f"o{number}" for number in range(len(sizes))], "size": sizes, "stats": [b"x" * 154] * len(sizes)}
    assigned = assign_tasks(pa.table(rows, COPY_INPUT), 3)
    totals = assigned.group_by("task").aggregate([("size", "sum")]).column("size_sum").to_pylist()
    assert sum(totals) == sum(sizes)
    assert max(totals) <= 104
    assert pc.count_distinct(assign_tasks(pa.table(rows, COPY_INPUT), 100).column("task")).as_py() == len(sizes)
    assert set(assign_tasks(pa.table(rows, COPY_INPUT), 1).column("task").to_pylist()) == {0}


def test_a_local_store_is_refused_with_executors_elsewhere(key_file: Path, objects: pa.Table, tmp_path: Path) -> None:
    class Session:
        class conf:
            @staticmethod
            def get(name: str, default: str) -> str:
                return "k8s://https://far"

    with pytest.raises(StoreNotShared, match="k8s://https://far"):
        list(copy_with_spark(Session(), _job(6001, key_file, tmp_path), objects, 2))  # pyright: ignore[reportArgumentType]


def _job(port: int, key_file: Path, mirror: Path, password: str = PASSWORD) -> CopyJob:
    endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{port}")
    return CopyJob(
        endpoint, Vault(key_file).seal(password, endpoint), Publication("pub_dml", "sys", 0), mirror.absolute().as_uri()
    )


def _objects(snapshot: Path) -> pa.Table:
    """COPY_INPUT of what a recorded snapshot lists."""
    stats = [listed.stats for table in Snapshot(snapshot).objects.values() for listed in table]
    values = [[one.name for one in stats], [one.size for one in stats], [one.raw for one in stats]]
    return pa.Table.from_arrays(
        [pa.array(value, field.type) for value, field in zip(values, COPY_INPUT, strict=True)], schema=COPY_INPUT
    )
