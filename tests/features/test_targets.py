"""Every recorded (table, snapshot): replay → mirror → MariaDB gives the rows of the source; and what operators do with
targets."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.expected import assert_rows_equal
from tests.support.mariadb import MariaDb
from tests.support.matrixone_server import MatrixOneServer, matrixone_server
from tests.support.replica import NAME, SCENARIOS, SIZED_SCENARIOS, Replica, replaying
from tests.support.shop import TARGET, TargetCommands, source_tables
from tests.support.target_rows import target_rows
from tests.targets.target_database import Place, TargetServer, new_database

# The emulator stores no zero dates, which a MatrixOne of 4.2 does.
INTO_MATRIXONE = [one for one in SCENARIOS if "CCPR_TARGET_MATRIXONE" in os.environ or one.id != "4.2.0/zero_dates"]


@dataclass(frozen=True)
class SyncedReplica(TargetCommands):
    """A replica of a recording with a database as its target."""

    replica: Replica
    place: Place
    name: str = NAME

    def command(self, *words: str, code: int | None = None) -> Any:
        return self.replica.command(*words, code=code)

    def assert_equal_to_source(self, snapshot: int) -> None:
        expected = {name.partition(".")[2]: file for name, file in self.replica.in_scope(snapshot).items()}
        assert self.tables() == set(expected)
        for name in expected:
            self.assert_table(name, expected[name])

    def assert_table(self, name: str, file: Path) -> None:
        columns = source_tables(NAME)[name].user_columns
        assert_rows_equal(target_rows(self.place.server, self.place.database, name, columns), pq.read_table(file))


@pytest.fixture
def server(mariadb: MariaDb) -> TargetServer:
    return mariadb


@pytest.fixture(scope="module")
def matrixone() -> Iterator[MatrixOneServer]:
    with matrixone_server() as server:
        yield server


@pytest.fixture
def place(server: TargetServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("TARGET_PASSWORD", server.password)
    with new_database(server) as place:
        yield place


@pytest.fixture
def synced(recordings: Path, home: Path, place: Place, request: pytest.FixtureRequest) -> Iterator[SyncedReplica]:
    with replaying(recordings / getattr(request, "param", "ddl"), home) as replica:
        replica.subscribe()
        yield SyncedReplica(replica, place)


@pytest.mark.recordings
@pytest.mark.parametrize("synced", SIZED_SCENARIOS, indirect=True)
def test_every_table_of_the_target_equals_the_source_at_every_point(synced: SyncedReplica) -> None:
    _assert_equal_at_every_point(synced)


@pytest.mark.recordings
class TestMatrixOne:
    """The same into a MatrixOne: a simulated one, or the one that CCPR_TARGET_MATRIXONE names."""

    @pytest.fixture
    def server(self, matrixone: MatrixOneServer) -> TargetServer:
        return matrixone

    @pytest.mark.parametrize("synced", INTO_MATRIXONE, indirect=True)
    def test_every_table_of_the_target_equals_the_source_at_every_point(self, synced: SyncedReplica) -> None:
        _assert_equal_at_every_point(synced)


def _assert_equal_at_every_point(synced: SyncedReplica) -> None:
    synced.add()
    for snapshot in range(1, synced.replica.about.snapshots + 1):
        outcome = synced.run()
        assert (outcome["error"], outcome["lsn"], outcome["behind"]) == (None, snapshot - 1, [])
        synced.assert_equal_to_source(snapshot)
        assert synced.status()["lsn"] == snapshot - 1


def test_a_target_that_was_added_late_skips_the_points_before(synced: SyncedReplica) -> None:
    for _ in range(3):
        synced.replica.run()
    synced.add()
    assert synced.run()["lsn"] == 3
    synced.assert_equal_to_source(4)
    for _ in range(2):
        synced.run()
    synced.assert_equal_to_source(6)


def test_changes_of_definitions_wait_for_a_person_and_the_others_go_on(synced: SyncedReplica) -> None:
    synced.add(policy="additive")
    synced.run()
    (dropped,) = synced.run()["behind"]  # snapshot 2: `gone` is dropped, a column of `t1` comes
    assert (dropped["table"], dropped["failure"]["code"]) == ("gd_schema.gone", "TARGET_DDL_WAITS")
    assert dropped["statements"] == [f"DROP TABLE IF EXISTS `{synced.place.database}`.`gone`"]
    synced.assert_table("t1", synced.replica.in_scope(2)["gd_schema.t1"])
    synced.run()  # snapshot 3: a column of `t1` goes, `born` comes
    assert synced.tables() == {"t1", "gone", "born"}, "the new table comes, what waits stays"
    status = synced.status(code=1)
    assert {table["table"] for table in status["behind"]} == {"gd_schema.gone", "gd_schema.t1"}
    synced.replica.command("target", "alter", NAME, TARGET, "--ddl-policy", "full")
    assert synced.run()["behind"] == []
    synced.assert_equal_to_source(4)
    assert synced.status()["behind"] == []


def test_with_the_policy_manual_nothing_comes_by_itself(synced: SyncedReplica) -> None:
    synced.add(policy="manual")
    assert {table["failure"]["code"] for table in synced.run()["behind"]} == {"TARGET_DDL_WAITS"}
    assert synced.tables() == set()


def test_a_plan_shows_the_statements_and_what_they_destroy(synced: SyncedReplica) -> None:
    synced.add()
    synced.run()
    steps = {step["table"]: step for step in synced.replica.command("plan", NAME)["targets"][TARGET]["steps"]}
    assert steps["gd_schema.gone"]["statements"] == [f"DROP TABLE IF EXISTS `{synced.place.database}`.`gone`"]
    assert steps["gd_schema.gone"]["destructive"] == ["gd_schema.gone dropped"]
    assert steps["gd_schema.t1"]["statements"][0].startswith("CREATE TABLE")
    assert synced.tables() == {"t1", "gone"}, "a plan changes nothing"
