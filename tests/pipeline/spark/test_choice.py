"""Who copies: by what was measured on this machine, and by where Spark runs."""

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.base.carrying import WorkKind
from ccpr.mirror.local_store import LocalStore
from ccpr.pipeline.spark.choice import START, CopiedBy, CopierChoice, Rates, check_engine, choose
from ccpr.pipeline.spark.session import SparkSettings, settings_of
from ccpr.pipeline.spark.tasks import is_here
from ccpr.pipeline.spark.watching import Tally, Watch
from ccpr.state.errors import BadSetting

UPSTREAM = "db:6001"
FOLDER, BUCKET = "file:///mirror", "s3://bucket/mirror"
MB, GB = 10**6, 10**9


def measured(**values: float) -> Rates:
    names = {"start": START, "process": f"copy process {UPSTREAM}", "spark": f"copy spark {UPSTREAM}"}
    return Rates(Path("rates.json"), {names[name]: (value,) for name, value in values.items()})


USUAL = measured(start=15, process=100e6, spark=100e6)


def chosen(
    size: int,
    *,
    asked: str = "auto",
    store: str = FOLDER,
    rates: Rates = USUAL,
    installed: bool = True,
    work: WorkKind = WorkKind.COPY,
    **settings: str,
) -> CopierChoice:
    where = SparkSettings(Path("java"), **settings)  # pyright: ignore[reportArgumentType]
    return choose(asked, size, store, where, rates, UPSTREAM, work, installed=installed)


@pytest.mark.parametrize(
    ("size", "rates", "expected"),
    [
        (6_000, USUAL, CopiedBy.PROCESS),
        (9 * GB, USUAL, CopiedBy.PROCESS),  # as fast as the process, and it has to start
        (
            300 * MB,
            measured(start=15, process=100e6, spark=1e9),
            CopiedBy.PROCESS,
        ),
        (2 * GB, measured(start=15, process=100e6, spark=1e9), CopiedBy.COLD),
        (2 * GB, measured(start=15, process=1e9, spark=1e9), CopiedBy.PROCESS),
        (300 * MB, measured(start=15, process=10e6, spark=1e9), CopiedBy.COLD),
        (300 * MB, measured(start=15, process=10e6, spark=10e6), CopiedBy.PROCESS),
    ],
)
def test_auto_takes_spark_where_it_is_through_sooner(size: int, rates: Rates, expected: CopiedBy) -> None:
    found = chosen(size, rates=rates)
    assert found.place is expected
    assert found.size == size
    assert len(found.text) > 20


def test_the_choice_says_why() -> None:
    assert chosen(300 * MB).why == "300.0 MB take it about 3.0 s, Spark with its start 18.0 s"
    quick = measured(start=15, process=10e6, spark=100e6)
    assert chosen(GB, rates=quick).why == "1.0 GB take it about 25.0 s, the process itself 2 min"


def test_only_the_process_of_a_default_installation_is_usual() -> None:
    assert chosen(6_000).usual
    assert chosen(6_000, installed=False).usual
    assert not chosen(6_000, installed=False, master="spark://far:7077").usual
    assert not chosen(6_000, master="spark://far:7077").usual  # the cluster does not have the folder
    assert not chosen(6_000, asked="process").usual
    assert not chosen(6_000, asked="spark").usual
    assert not chosen(6_000, store=BUCKET, remote="sc://far:15002").usual


@pytest.mark.parametrize("size", [6_000, 9 * GB])
def test_a_cluster_copies_and_reads_whatever_there_is(size: int) -> None:
    found = chosen(size, store=BUCKET, master="spark://far:7077", work=WorkKind.READ)
    assert found.text == "Spark reads: it runs on spark://far:7077"
    assert chosen(size, store=BUCKET, master="spark://far:7077").place is CopiedBy.CLUSTER
    assert chosen(size, store=BUCKET, master="yarn").place is CopiedBy.CLUSTER
    assert chosen(size, store=BUCKET, remote="sc://far:15002").place is CopiedBy.CLUSTER
    assert chosen(size, store=BUCKET, master="k8s://far").place is CopiedBy.CLUSTER


def test_a_cluster_does_not_have_a_folder_of_this_machine() -> None:
    refused = chosen(9 * GB, master="spark://far:7077")
    assert (refused.place, "folder of this machine" in refused.why) == (CopiedBy.PROCESS, True)
    assert chosen(1, master="spark://127.0.0.1:7077").place is CopiedBy.CLUSTER
    assert is_here("local[*]")
    assert is_here("spark://localhost:7077")
    assert not is_here("spark://127.0.0.1.far:7077")
    assert not is_here("yarn")


def test_what_was_asked_for_is_taken() -> None:
    assert chosen(9 * GB, asked="process", master="spark://far:7077").place is CopiedBy.PROCESS
    assert chosen(1, asked="spark").place is CopiedBy.COLD
    assert chosen(1, asked="spark", master="spark://far:7077").place is CopiedBy.CLUSTER
    with pytest.raises(BadSetting):
        check_engine("fast")


@pytest.mark.parametrize("where", [{}, {"master": "spark://127.0.0.1:7077"}, {"remote": "sc://far:15002"}])
def test_without_spark_the_process_copies_unless_spark_was_asked_for(where: dict[str, str]) -> None:
    found = chosen(9 * GB, installed=False, store=BUCKET, **where)
    assert (found.place, found.why) == (CopiedBy.PROCESS, "Spark is not installed")
    assert chosen(9 * GB, asked="spark", installed=False, store=BUCKET, **where).place is not CopiedBy.PROCESS


@pytest.mark.parametrize("work", [WorkKind.LOAD, WorkKind.CHANGE, WorkKind.PUBLISH])
def test_a_cluster_gets_other_work_where_it_is_through_sooner(work: WorkKind) -> None:
    def choice(size: int, rates: Rates = USUAL, *, started: bool = False, store: str = BUCKET, **where: str):
        settings = SparkSettings(Path("java"), **where)  # pyright: ignore[reportArgumentType]
        return choose("auto", size, store, settings, rates, "db:3306", work, started=started)

    far = {"master": "spark://far:7077"}
    assert choice(9 * GB).place is CopiedBy.PROCESS  # on this machine it is as fast as Spark, and need not start
    assert choice(9 * GB).usual
    assert choice(9 * GB, **far).place is CopiedBy.CLUSTER  # which counts as four processes before it was measured
    assert choice(100 * MB, **far).place is CopiedBy.PROCESS  # the start alone takes longer
    assert not choice(100 * MB, **far).usual
    assert choice(100 * MB, started=True, **far).place is CopiedBy.CLUSTER
    assert choice(1 * MB, started=True, **far).place is CopiedBy.PROCESS
    assert choice(9 * GB, store=FOLDER, **far).place is CopiedBy.PROCESS
    slow = Rates(Path("x"), {f"{work} cluster db:3306": (20e6,), f"{work} process db:3306": (30e6,)})
    assert choice(9 * GB, slow, **far).place is CopiedBy.PROCESS
    text = choice(9 * GB, **far).text
    assert text.endswith("the process itself 2 min")
    assert text.startswith(("Spark loads: 9.0 GB", "Spark applies the change: 9.0 GB", "Spark publishes: 9.0 GB"))


def test_a_token_is_not_shown() -> None:
    text = chosen(1, asked="spark", remote="sc://far:15002/;use_ssl=true;token=hush;x=1").text
    assert "hush" not in text
    assert "sc://far:15002/;use_ssl=true;token=…" in text


def test_rates_are_kept_the_newest_of_each_kind_and_the_best_counts(tmp_path: Path) -> None:
    rates = Rates.of(tmp_path / "new")
    assert rates.rate("copy", "process", UPSTREAM) > 0
    for seconds in (1.0, 4.0, 3.0, 3.0, 3.0, 2.0):
        rates = rates.with_rate("copy", "process", UPSTREAM, 100 * MB, seconds)
    rates.with_rate("copy", "spark", UPSTREAM, 100, 0.2).with_value(START, 9.0).keep()
    read = Rates.of(tmp_path / "new")
    assert read.rate("copy", "process", UPSTREAM) == 50e6  # the one of 100 MB/s was too long ago
    assert read.rate("copy", "process", "other:6001") == 50e6
    assert read.start_seconds() == 9.0
    assert "copy spark" not in str(read.values)  # so little measures no rate
    assert (tmp_path / "new" / "rates.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"start": "x"}', '{"start": [-1, 0, null, true, "9", 1e400]}', '{"start": []}']
)
def test_damaged_rates_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "rates.json").write_text(text)
    assert Rates.of(tmp_path).start_seconds() == Rates(tmp_path).start_seconds()


def test_the_environment_names_master_server_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPR_SPARK_MASTER", "spark://far:7077")
    monkeypatch.setenv("CCPR_SPARK_CONF_spark_executor_memory", "2g")
    monkeypatch.setenv("CCPR_SPARK_CONF_spark_kubernetes_driver_label_a__b", "c")
    settings = settings_of(tmp_path)
    assert (settings.master, settings.remote) == ("spark://far:7077", None)
    assert settings.config == {"spark.executor.memory": "2g", "spark.kubernetes.driver.label.a_b": "c"}
    assert settings_of(tmp_path, master="local[1]").master == "local[1]"
    monkeypatch.setenv("CCPR_SPARK_REMOTE", "sc://far:15002")
    with pytest.raises(BadSetting, match="CCPR_SPARK_MASTER, CCPR_SPARK_REMOTE"):
        settings_of(tmp_path)
    monkeypatch.delenv("CCPR_SPARK_MASTER")
    assert settings_of(tmp_path).remote == "sc://far:15002"
    monkeypatch.setenv("CCPR_SPARK_CONF_EXECUTOR_MEMORY", "2g")
    with pytest.raises(BadSetting, match="case-sensitive"):
        settings_of(tmp_path)


def test_progress_is_what_is_in_the_store(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    rows = [("a", 3, 0), ("b", 2, 1), ("c", 5, 0), ("d", 1, 1)]
    assigned = pa.table(dict(zip(("name", "size", "task"), map(list, zip(*rows, strict=True)), strict=True)))
    seen: list[int] = []
    with Watch(store, assigned, seen.append) as watch:
        watch._seconds = 0.01
        for name, content in (("a", b"aaa"), ("b", b"b")):  # b is not whole
            (tmp_path / "objects").mkdir(exist_ok=True)
            (tmp_path / "objects" / name).write_bytes(content)
        limit = time.monotonic() + 60
        while sum(seen) < 3:
            assert time.monotonic() < limit
            time.sleep(0.01)
    assert (seen[0], sum(seen)) == (3, 11)


def test_progress_ends_with_an_error_and_claims_nothing(tmp_path: Path) -> None:
    assigned = pa.table({"name": ["a"], "size": [3], "task": [0]})
    seen: list[int] = []
    with pytest.raises(ValueError, match="x"), Watch(LocalStore(tmp_path), assigned, seen.append):
        raise ValueError("x")
    assert seen == []


def test_bytes_that_another_engine_finds_again_count_once() -> None:
    seen: list[int] = []
    tally = Tally(seen.append)
    tally(5)
    tally(2)
    again = tally.again()
    for _ in range(4):
        again(3)
    assert sum(seen) == 12
    assert json.dumps(seen) == "[5, 2, 2, 3]"
