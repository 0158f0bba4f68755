"""A cluster whose machines share nothing: three workers, each with an address, a folder and a key file of its own, and
a mirror in a bucket. One of them loses its power in the middle of a copy."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa
import pymysql
import pytest
from pyarrow import csv

import ccpr
from ccpr.base.carrying import Work, WorkKind
from ccpr.mirror.open_store import open_store
from ccpr.pipeline.committing import IterationOutcome
from ccpr.pipeline.spark.choice import CopiedBy, CopierChoice
from ccpr.pipeline.spark.connect import remote_connection
from ccpr.pipeline.spark.engine import Copier, await_executors, slots_of
from ccpr.pipeline.spark.session import SparkSettings
from ccpr.service.target_sync import TargetOutcome, sync_targets
from ccpr.service.workspace import Workspace
from ccpr.state.credentials import KEY_FILE_VARIABLE
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.driving import iterate
from tests.support.mariadb import MariaDb, uri_from
from tests.support.process_list import process_list
from tests.support.replica import command, source_uri
from tests.support.slow_line import slow_line
from tests.support.spark_cluster import Cluster, running_cluster
from tests.support.spark_connect_server import connect_server
from tests.targets.target_database import Place, new_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

PASSWORD, KEY_OF_BUCKET = "hush-2f61-upstream", "hush-77d0-bucket"
MASTER, HOSTS = "127.0.0.2", ("127.0.0.3", "127.0.0.4", "127.0.0.5")
ROWS, OBJECT_ROWS = 240_000, 8192
LATENCY_MS, MB_S = 20, 1.0
LIMIT_SECONDS = 120.0
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for eight processes that do little


@dataclass(frozen=True)
class Machines:
    cluster: Cluster
    storage: Storage
    emulator: SimulatedUpstream
    settings: SparkSettings
    key: Path
    url: str
    events: Path


@pytest.fixture(scope="module")
def machines(s3_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A subscription that has copied nothing yet, and a Spark Connect server of the cluster."""
    folder = tmp_path_factory.mktemp("machines")
    url = f"s3://mirrors/machines?endpoint_override=http://{s3_server}&region=us-east-1"
    storage = Storage(object_rows=OBJECT_ROWS)
    storage.create_database("d")
    storage.create_publication("p", "d")
    storage.create_table(
        "d", "t", {"n": "bigint", **{f"v{number}": "double" for number in range(6)}}, primary_key=["n"]
    )
    insert(storage, np.arange(ROWS))
    environment = {"CCPR_HOME": str(folder / "home"), "UPSTREAM_PASSWORD": PASSWORD}
    environment |= {"AWS_SECRET_ACCESS_KEY": KEY_OF_BUCKET, "JDK_JAVA_OPTIONS": QUICK_JAVA}
    with pytest.MonkeyPatch.context() as patching, SimulatedUpstream(storage, password=PASSWORD) as emulator:
        for name, value in environment.items():
            patching.setenv(name, value)
        patching.delenv(KEY_FILE_VARIABLE, raising=False)
        patching.delenv("PYSPARK_PYTHON", raising=False)
        with slow_line(emulator.port, LATENCY_MS, MB_S) as port:
            scope = ("--from", source_uri(port), "--database", "d", "--publication", "p", "--publisher", "sys")
            command("subscribe", "s", *scope, "--mirror", url, "--max-sessions", "6")
            with running_cluster(folder, 0, host=MASTER) as cluster:
                driver = driver_of(cluster, folder)
                with connect_server(driver) as server:
                    key = folder / "home/key"
                    settings = SparkSettings(folder / "home/java", remote=server.url, key_file=key)
                    yield Machines(cluster, storage, emulator, settings, key, url, folder / "events")


def driver_of(cluster: Cluster, folder: Path) -> SparkSettings:
    """Each worker has the key file somewhere else."""
    home = folder / "home"
    cluster.start_workers(3, *HOSTS, environment={KEY_FILE_VARIABLE: "{folder}/secrets/key", "TMPDIR": "{folder}"})
    for number in range(3):
        (cluster.worker_folder(number) / "secrets").mkdir()
        shutil.copy(home / "key", cluster.worker_folder(number) / "secrets/key")
    (folder / "events").mkdir()
    config = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
    }
    return SparkSettings(home / "java", cluster.master, key_file=home / "key", config=config)


def insert(storage: Storage, keys: np.ndarray) -> None:
    values = np.random.default_rng(len(keys)).random((6, len(keys)))
    with storage.begin() as transaction:
        transaction.insert("d", "t", pa.table({"n": keys, **{f"v{n}": column for n, column in enumerate(values)}}))


def truth(machines: Machines) -> pa.Table:
    return machines.storage.rows_at("d", "t", machines.storage.now)


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """The same rows, in any order."""
    found, expected = (table.sort_by("n").combine_chunks() for table in (found, expected))
    assert found.num_rows == expected.num_rows
    assert found.column_names == expected.column_names
    for ours, theirs in zip(found.columns, expected.columns, strict=True):
        assert ours.equals(theirs)


def session_of(machines: Machines) -> "SparkSession":
    return remote_connection(machines.settings.remote or "")


def copied_by_cluster(machines: Machines) -> tuple[list[CopierChoice], IterationOutcome]:
    choices = list[CopierChoice]()
    copier = Copier(machines.key.parent, "spark", settings=machines.settings, on_choice=choices.append)
    with Workspace() as workspace:
        return choices, iterate(workspace, "s", engine=copier)


def lose_power(machines: Machines, lost_at: list[int]) -> None:
    """Of the first machine, as soon as each has copied some objects."""
    store, until = open_store(machines.url), time.monotonic() + LIMIT_SECONDS
    while (found := sum(1 for _ in store.names("objects"))) < 9 and time.monotonic() < until:
        time.sleep(0.05)
    machines.cluster.kill_worker(0)
    lost_at.append(found)


def tasks_of(events: Path, lost: str = HOSTS[0]) -> tuple[set[tuple[int, int]], set[tuple[int, int]], Counter]:
    """By stage and number: tasks that were started again, and those that the lost machine did not finish; and how many
    tasks of the widest stage each machine began with."""
    lines = [json.loads(line) for path in events.rglob("events*") if path.is_file() for line in path.open()]
    started = [event for event in lines if event["Event"] == "SparkListenerTaskStart"]
    done = {e["Task Info"]["Task ID"] for e in lines if e["Event"] == "SparkListenerTaskEnd" and succeeded(e)}
    first = [event for event in started if event["Task Info"]["Attempt"] == 0]
    widest = max(Counter(event["Stage ID"] for event in first).items(), key=lambda found: found[1])[0]
    hosts = Counter(event["Task Info"]["Host"] for event in first if event["Stage ID"] == widest)
    again = {place_of(event) for event in started if event["Task Info"]["Attempt"] > 0}
    of_lost = [event for event in started if event["Task Info"]["Host"] == lost]
    return again, {place_of(event) for event in of_lost if event["Task Info"]["Task ID"] not in done}, hosts


def succeeded(event: dict) -> bool:
    return event["Task End Reason"]["Reason"] == "Success"


def place_of(event: dict) -> tuple[int, int]:
    return event["Stage ID"], event["Task Info"]["Index"]


def test_a_machine_that_is_lost_costs_its_tasks_only(machines: Machines) -> None:
    session = session_of(machines)
    await_executors(session)
    assert slots_of(session) == 3
    lost_at = list[int]()
    losing = threading.Thread(target=lose_power, args=(machines, lost_at))
    losing.start()
    with process_list() as seen:
        choices, outcome = copied_by_cluster(machines)
    losing.join()
    status = machines.emulator.status()
    assert [choice.place for choice in choices] == [CopiedBy.CLUSTER]
    assert 0 < lost_at[0] < outcome.objects_total
    assert status.sessions_open == 0
    again, unfinished, hosts = tasks_of(machines.events)
    assert again == unfinished
    assert len(again) == 1  # each machine had one of three
    assert hosts == dict.fromkeys(HOSTS, 1)
    total = outcome.objects_total
    assert total <= status.objects_fetched <= total + 2  # the lost task had two sessions, with an object each
    assert not [line for line in seen if PASSWORD in line or KEY_OF_BUCKET in line]
    assert_same(ccpr.read_table(session, machines.url, "d.t").toArrow(), truth(machines))


def test_the_machines_that_are_left_find_what_changed(machines: Machines) -> None:
    session = session_of(machines)
    assert slots_of(session) == 2
    before = truth(machines)
    insert(machines.storage, np.arange(ROWS, ROWS + 20_000))
    copied_by_cluster(machines)
    changes = ccpr.read_changes(session, machines.url, "d.t", since=0).toArrow()
    assert set(changes.column("__ccpr_kind").to_pylist()) == {"upsert"}
    assert_same(pa.concat_tables([before, changes.drop(["__ccpr_kind"])]), truth(machines))
    assert_same(ccpr.read_table(session, machines.url, "d.t").toArrow(), truth(machines))


def test_a_machine_that_is_lost_in_a_load_costs_its_tasks_only(
    machines: Machines, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database and a lake in the bucket, by the two machines that are left: one of them goes on alone."""
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    monkeypatch.setattr("ccpr.pipeline.spark.carry.TASK_BYTES", 1)  # each piece is a task
    monkeypatch.setattr("ccpr.targets.source_rows.LOAD_ROWS", OBJECT_ROWS)
    lake = machines.url.replace("/machines?", "/lake?")
    with new_database(mariadb) as place:
        command("target", "add", "s", "db", "--to", uri_from(place.uri, "TARGET_PASSWORD"))
        command("target", "add", "s", "lake", "--to", lake)
        losing = threading.Thread(target=lose_power_in_a_load, args=(machines, place))
        losing.start()
        places, outcomes = synced_by_cluster(machines)
        losing.join()
        assert [outcome.failure for outcome in outcomes] == [None, None]
        assert places == [(WorkKind.LOAD, CopiedBy.CLUSTER), (WorkKind.PUBLISH, CopiedBy.CLUSTER)]
        again, unfinished, _ = tasks_of(machines.events, HOSTS[1])
        assert again >= unfinished
        assert unfinished
        assert_same(shown_by_client(place), truth(machines))
        assert_same(shown_by_delta_rs(lake), truth(machines))
        left = {name for (name,) in place.query("SHOW TABLES")}
        assert not [name for name in left if "stage" in name]


def synced_by_cluster(machines: Machines) -> tuple[list[tuple[WorkKind, CopiedBy]], list[TargetOutcome]]:
    """What was carried, by whom, and the outcomes."""
    places = list[tuple[WorkKind, CopiedBy]]()
    copier = Copier(machines.key.parent, "spark", settings=machines.settings)

    def carried(work: Work, here: Callable[[], Iterable[Any]], beat: Callable[[], None]) -> Iterable[Any]:
        if len(work.pieces) > 1:
            places.append((work.kind, copier.choice_of(work.kind, 1, machines.url, work.place).place))
        return copier.carry(work, here, beat)

    with Workspace() as workspace, workspace.iteration("s") as iteration:
        return places, sync_targets(workspace, iteration, carry=carried)


def lose_power_in_a_load(machines: Machines, place: Place) -> None:
    """Of the second machine, as soon as some pieces are there."""
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        with suppress(pymysql.err.ProgrammingError):
            ((count,),) = place.query("SELECT COUNT(*) FROM ccpr_load_parts")
            if count >= 3:
                break
        time.sleep(0.05)
    machines.cluster.kill_worker(1)


def shown_by_client(place: Place) -> pa.Table:
    """As the server's own client prints it."""
    server = place.server
    assert isinstance(server, MariaDb)
    login = ["--no-defaults", f"--host={server.host}", f"--port={server.port}", f"--user={server.user}", "--skip-ssl"]
    words = ["--batch", "--skip-column-names", "--quick", place.database, "--execute", "SELECT * FROM t"]
    environment = {**os.environ, "MYSQL_PWD": server.password}
    text = subprocess.run(["mariadb", *login, *words], env=environment, check=True, capture_output=True).stdout
    names = ["n", *(f"v{number}" for number in range(6))]
    kinds = {name: pa.float64() if name != "n" else pa.int64() for name in names}
    reading = csv.ReadOptions(column_names=names), csv.ParseOptions(delimiter="\t")
    return csv.read_csv(pa.BufferReader(text), *reading, csv.ConvertOptions(column_types=kinds))


def shown_by_delta_rs(lake: str) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    url, _, options = lake.partition("?")
    endpoint = dict(parse_qsl(options))["endpoint_override"]
    where = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    table = DeltaTable(f"{url}/d.t", storage_options=where)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))


def test_no_password_is_in_a_log_of_the_cluster_or_in_its_events(machines: Machines, mariadb: MariaDb) -> None:
    """The last test: all of them have run."""
    files = [path for path in machines.cluster.folder.rglob("*") if path.is_file() and path.suffix != ".jar"]
    secrets = (PASSWORD.encode(), mariadb.password.encode(), KEY_OF_BUCKET.encode(), machines.key.read_bytes())
    keys = {machines.key, *machines.cluster.folder.glob("machine-*/secrets/key")}
    assert len(files) > 20
    assert not [path for path in files if path not in keys and any(secret in path.read_bytes() for secret in secrets)]
