"""Every recorded (table, snapshot): replay → mirror → MariaDB equals the rows that were true; and what a person does
with targets."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from matrixone.schema import Kind
from matrixone.sql.quoting import quote_name
from replication.service.workspace import Workspace
from replication.state.history import PointHistory
from tests.end_to_end.replica import NAME, SCENARIOS, Replica, replaying
from tests.replication.targets.target_database import Place, new_database
from tests.support.expected import assert_rows_equal
from tests.support.mariadb import MariaDb
from tests.support.target_rows import target_rows

TARGET = "db"


@dataclass(frozen=True)
class Fed:
    """A replica with a database as its target."""

    replica: Replica
    place: Place

    def add(self, *options: str, policy: str = "full", code: int = 0) -> Any:
        to = self.place.uri.replace(self.place.server.password, "env:TARGET_PASSWORD")
        return self.replica.command(
            "target", "add", NAME, TARGET, "--to", to, "--ddl-policy", policy, *options, code=code
        )

    def run(self, code: int = 0) -> dict[str, Any]:
        """What the run did to the target."""
        (outcome,) = self.replica.run(code=code)["targets"]
        return outcome

    def status(self, code: int = 0) -> dict[str, Any]:
        (target,) = self.replica.command("status", NAME, code=code)["targets"]
        return target

    def tables(self) -> set[str]:
        return {name for (name,) in self.place.query("SHOW TABLES") if not name.startswith("ccpr_")}

    def assert_equal_to_source(self, snapshot: int) -> None:
        expected = {name.partition(".")[2]: file for name, file in self.replica.in_scope(snapshot).items()}
        assert self.tables() == set(expected)
        for name in expected:
            self.assert_table(name, expected[name])

    def assert_table(self, name: str, file: Path) -> None:
        columns = _tables()[name].user_columns
        assert_rows_equal(target_rows(self.place.server, self.place.database, name, columns), pq.read_table(file))

    def create_text(self, name: str) -> str:
        return self.place.query(f"SHOW CREATE TABLE {quote_name(name)}")[0][1]


def _tables() -> dict[str, Any]:
    with closing(Workspace()) as workspace:
        row = workspace.log.row(NAME)
        tables = PointHistory(workspace.log.engine, row.task_id).tables(row.iteration_lsn).values()
        return {point.table.name: point.table for point in tables if point.table.kind is Kind.TABLE}


@pytest.fixture
def place(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    with new_database(mariadb) as place:
        yield place


@pytest.fixture
def fed(recordings: Path, home: Path, place: Place, request: pytest.FixtureRequest) -> Iterator[Fed]:
    with replaying(recordings / getattr(request, "param", "ddl"), home) as replica:
        replica.subscribe()
        yield Fed(replica, place)


@pytest.mark.recordings
@pytest.mark.parametrize("fed", SCENARIOS, indirect=True)
def test_every_table_of_the_target_equals_the_source_at_every_point(fed: Fed) -> None:
    fed.add()
    for snapshot in range(1, fed.replica.about.snapshots + 1):
        outcome = fed.run()
        assert (outcome["error"], outcome["lsn"], outcome["behind"]) == (None, snapshot - 1, [])
        fed.assert_equal_to_source(snapshot)
        assert fed.status()["lsn"] == snapshot - 1


def test_a_target_that_was_added_late_skips_the_points_before(fed: Fed) -> None:
    for _ in range(3):
        fed.replica.run()
    fed.add()
    assert fed.run()["lsn"] == 3
    fed.assert_equal_to_source(4)
    for _ in range(2):
        fed.run()
    fed.assert_equal_to_source(6)


def test_changes_of_definitions_wait_for_a_person_and_the_others_go_on(fed: Fed) -> None:
    fed.add(policy="additive")
    fed.run()
    (dropped,) = fed.run()["behind"]  # snapshot 2: `gone` is dropped, a column of `t1` comes
    assert (dropped["table"], dropped["failure"]["code"]) == ("gd_schema.gone", "TARGET_DDL_WAITS")
    assert dropped["statements"] == [f"DROP TABLE IF EXISTS `{fed.place.database}`.`gone`"]
    fed.assert_table("t1", fed.replica.in_scope(2)["gd_schema.t1"])
    fed.run()  # snapshot 3: a column of `t1` goes, `born` comes
    assert fed.tables() == {"t1", "gone", "born"}, "the new table comes, what waits stays"
    standing = fed.status(code=1)
    assert {table["table"] for table in standing["behind"]} == {"gd_schema.gone", "gd_schema.t1"}
    fed.replica.command("target", "alter", NAME, TARGET, "--ddl-policy", "full")
    assert fed.run()["behind"] == []
    fed.assert_equal_to_source(4)
    assert fed.status()["behind"] == []


def test_with_the_policy_manual_nothing_comes_by_itself(fed: Fed) -> None:
    fed.add(policy="manual")
    assert {table["failure"]["code"] for table in fed.run()["behind"]} == {"TARGET_DDL_WAITS"}
    assert fed.tables() == set()


def test_a_plan_shows_the_statements_and_what_they_destroy(fed: Fed) -> None:
    fed.add()
    fed.run()
    steps = {step["table"]: step for step in fed.replica.command("plan", NAME)["targets"][TARGET]["steps"]}
    assert steps["gd_schema.gone"]["statements"] == [f"DROP TABLE IF EXISTS `{fed.place.database}`.`gone`"]
    assert steps["gd_schema.gone"]["destructive"] == ["gd_schema.gone dropped"]
    assert steps["gd_schema.t1"]["statements"][0].startswith("CREATE TABLE")
    assert fed.tables() == {"t1", "gone"}, "a plan changes nothing"
