"""The engine of `ccpr run` and Dagster where Spark fails: the process goes on, and what was asked for is an error."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ccpr.base.errors import ExtraMissing
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.errors import AccessDenied
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.errors import CcprError
from ccpr.pipeline.copying import COPY_INPUT, CopyJob, copy, copy_in_process
from ccpr.pipeline.spark import engine
from ccpr.pipeline.spark.choice import CopiedBy, CopierChoice, Rates
from ccpr.pipeline.spark.connect import require_client
from ccpr.pipeline.spark.engine import Copier
from ccpr.pipeline.spark.errors import SparkJobFailed, SparkSessionLost, SparkUnavailable
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.state.credentials import Vault
from ccpr_emulator.recorded_upstream import RecordedUpstream
from tests.support.recorded import Snapshot

pytestmark = pytest.mark.integration

PASSWORD = "a secret of the test"


@pytest.fixture
def objects(recordings: Path) -> pa.Table:
    tables = Snapshot(recordings / "dml/snapshot-002").objects.values()
    stats = [listed.stats for table in tables for listed in table]
    columns = [[one.name for one in stats], [one.size for one in stats], [one.raw for one in stats]]
    return pa.table(columns, schema=COPY_INPUT)


@pytest.fixture
def job(recordings: Path, tmp_path: Path) -> Iterator[CopyJob]:
    with RecordedUpstream(recordings / "dml", password=PASSWORD) as emulator:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{emulator.port}")
        sealed = Vault(tmp_path / "key").seal(PASSWORD, endpoint)
        store = (tmp_path / "mirror").as_uri()
        yield CopyJob(endpoint, sealed, Publication("pub_dml", "sys", 0), store, key_file=tmp_path / "key")


@pytest.fixture(autouse=True)
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cluster would say."""
    monkeypatch.setattr(engine, "slots_of", lambda spark: 2)
    monkeypatch.setattr(engine, "await_executors", lambda spark: None)


class Failing:
    """Spark, which copies two objects and fails, as often as it is asked."""

    def __init__(self, error: CcprError) -> None:
        self.error, self.sessions = error, 0

    def session(self) -> Any:
        self.sessions += 1
        return self

    def copy(
        self, spark: Any, job: CopyJob, objects: pa.Table, tasks: int, on_progress: Any
    ) -> Iterator[pa.RecordBatch]:
        two = objects.slice(0, 2)
        done = pa.Table.from_batches(list(copy_in_process(job, two)))
        on_progress(sum(done.column("size").to_pylist()))
        raise self.error
        yield


def copier(home: Path, spark: Failing, asked: str, choices: list[CopierChoice], seen: list[int]) -> Copier:
    """On a cluster that only this machine reaches, so that Spark is chosen for little."""
    settings = SparkSettings(home / "java", "spark://127.0.0.1:1", key_file=home / "key")
    return Copier(
        home,
        asked,
        settings=settings,
        on_bytes=seen.append,
        on_choice=choices.append,
        own_session=spark.session,
    )


ERRORS = (
    SparkSessionLost("it has ended", subject="sc://localhost"),
    SparkUnavailable("no session", subject="Spark"),
    SparkJobFailed("out of memory", subject="Spark"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_where_spark_fails_in_the_middle_the_process_copies_the_rest(
    error: CcprError, job: CopyJob, objects: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, choices, seen = Failing(error), [], []
    monkeypatch.setattr(engine, "copy_with_spark", spark.copy)
    monkeypatch.setattr(CopyJob, "for_workers", lambda self: self)
    report = copy(job, objects, copier(tmp_path, spark, "auto", choices, seen))
    assert report.rows.num_rows == objects.num_rows
    assert report.objects_fetched == objects.num_rows - 2
    assert sum(seen) == sum(objects.column("size").to_pylist())
    assert [choice.place for choice in choices] == [CopiedBy.CLUSTER, CopiedBy.PROCESS]
    assert error.code in choices[1].why
    assert Rates.of(tmp_path / "spark").values.keys() <= {"start"}  # half a copy is no measurement


def test_where_spark_was_asked_for_its_failure_is_an_error_with_what_to_type(
    job: CopyJob, objects: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Failing(SparkSessionLost("it has ended", subject="sc://localhost"))
    monkeypatch.setattr(engine, "copy_with_spark", spark.copy)
    monkeypatch.setattr(CopyJob, "for_workers", lambda self: self)
    asked = copier(tmp_path, spark, "spark", [], [])
    for _ in range(2):
        with pytest.raises(SparkSessionLost, match="whether the Spark Connect server runs"):
            copy(job, objects, asked)
    assert spark.sessions == 2  # the one that was lost is not used again


def test_an_error_of_the_upstream_is_not_tried_by_the_process(
    job: CopyJob, objects: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, choices = Failing(AccessDenied("no", subject="upstream")), []
    monkeypatch.setattr(engine, "copy_with_spark", spark.copy)
    monkeypatch.setattr(CopyJob, "for_workers", lambda self: self)
    with pytest.raises(AccessDenied):
        copy(job, objects, copier(tmp_path, spark, "auto", choices, []))
    assert len(choices) == 1


def test_where_spark_is_not_installed_the_process_copies_and_what_was_asked_for_is_an_error(
    job: CopyJob, objects: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    choices: list[CopierChoice] = []
    settings = SparkSettings(tmp_path / "java", "spark://127.0.0.1:1", key_file=tmp_path / "key")
    with pytest.raises(ExtraMissing, match=r"pyspark is not installed.*matrixone-ccpr\[spark\]"):
        copy(job, objects, Copier(tmp_path, "spark", settings=settings))
    report = copy(job, objects, Copier(tmp_path, settings=settings, on_choice=choices.append))
    assert report.objects_fetched == objects.num_rows
    assert [choice.text for choice in choices] == ["the process itself copies: Spark is not installed"]


def test_a_spark_without_what_its_client_needs_leaves_it_to_the_process(
    job: CopyJob, objects: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    choices: list[CopierChoice] = []
    settings = SparkSettings(tmp_path / "java", "spark://127.0.0.1:1", key_file=tmp_path / "key")
    service = Copier(tmp_path, settings=settings, own_session=require_client, on_choice=choices.append)  # type: ignore[arg-type]
    assert copy(job, objects, service).objects_fetched == objects.num_rows
    assert [choice.place for choice in choices] == [CopiedBy.CLUSTER, CopiedBy.PROCESS]
    assert choices[1].why == "EXTRA_MISSING, grpc is not installed"


def test_little_is_copied_by_the_process_without_importing_spark(
    job: CopyJob, objects: pa.Table, tmp_path: Path
) -> None:
    choices: list[CopierChoice] = []
    report = copy(job, objects, Copier(tmp_path, on_choice=choices.append))
    assert report.objects_fetched == objects.num_rows
    assert [choice.place for choice in choices] == [CopiedBy.PROCESS]
