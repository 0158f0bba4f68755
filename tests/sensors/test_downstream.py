"""Assets of a project that depend on a replicated table, as the documentation has them: one run a change, none while
nothing changes, none while the replica is red. The sensors tick on a clock that is moved forward, and Dagster evaluates
the conditions."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ccpr.dagster.table_checks import TABLE_CURRENT
from ccpr.dagster.table_specs import build_definitions, load_subscriptions
from ccpr_assets.applied_tables import mirror
from ccpr_assets.jobs import STEPS, ccpr_sync_job
from ccpr_assets.upstream_snapshots import upstream
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.serving.faults import FailStatement
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from resources.replication import replication
from resources.spark import spark
from sensors.ccpr_log import ccpr_log_sensor
from sensors.health import replica_health_sensor
from tests.sensors.driving import Clock, Daemon, instance_in
from tests.support.replica import command, source_uri

NAME, DATABASE, INTERVAL = "shop", "shop", 60.0
ORDERS = dg.AssetKey([NAME, DATABASE, "orders"])
pytestmark = pytest.mark.integration


@dg.asset(deps=[ORDERS], automation_condition=dg.AutomationCondition.eager())
def revenue() -> None: ...


@dg.asset
def rates() -> None: ...


@dg.asset(
    deps=[ORDERS, rates],
    automation_condition=dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed(),
)
def report() -> None: ...


class Project:
    """A code location with these assets, and its daemon; a minute at a time."""

    def __init__(self, storage: Storage, emulator: SimulatedUpstream, instance: dg.DagsterInstance) -> None:
        self.storage, self.emulator, self.instance, self.clock = storage, emulator, instance, Clock()
        command("run", NAME)
        ours = build_definitions(
            steps=STEPS,
            others=[upstream, mirror],
            loaded=load_subscriptions(),
            jobs=[ccpr_sync_job],
            sensors=[ccpr_log_sensor, replica_health_sensor],
            replication=replication,
            spark=spark,
        )
        theirs = dg.Definitions(assets=[revenue, rates, report])
        self.daemon = Daemon(instance, self.clock, location=dg.Definitions.merge(ours, theirs))
        self._cursor = None
        self.runs = {"revenue": 0, "report": 0}

    def run(self, *names: str) -> None:
        job = self.daemon.definitions.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(
            instance=self.instance, asset_selection=[dg.AssetKey(name) for name in names]
        ).success

    def minute(self) -> None:
        """A tick of each sensor, the runs that it asks for, and an evaluation of conditions, with their runs."""
        self.clock.go_on_to(self.clock() + INTERVAL)
        self.daemon.tick_and_run()
        self.daemon.tick(replica_health_sensor)
        found = dg.evaluate_automation_conditions(
            self.daemon.definitions,
            self.instance,
            asset_selection=dg.AssetSelection.assets("revenue", "report"),
            cursor=self._cursor,
        )
        self._cursor = found.cursor
        if asked := [name for name in self.runs if found.get_num_requested(dg.AssetKey(name))]:
            self.run(*asked)
            for name in asked:
                self.runs[name] += 1

    def minutes(self, count: int) -> dict[str, int]:
        """How many runs there were meanwhile."""
        before = dict(self.runs)
        for _ in range(count):
            self.minute()
        return {name: runs - before[name] for name, runs in self.runs.items()}

    def insert(self, number: int) -> None:
        with self.storage.begin() as transaction:
            transaction.insert(DATABASE, "orders", {"id": [number]})

    def check(self) -> tuple[bool, str | None]:
        """What `table_current` of the table says."""
        key = dg.AssetCheckKey(ORDERS, TABLE_CURRENT)
        evaluation = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key].evaluation
        assert evaluation is not None
        return evaluation.passed, evaluation.description


@pytest.fixture
def project(home: Path) -> Iterator[Project]:
    storage = Storage()
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    for name in ("orders", "others"):
        storage.create_table(DATABASE, name, {"id": "int not null"}, primary_key=["id"])
    with SimulatedUpstream(storage) as emulator, instance_in(home / "dagster") as instance:
        scope = ("--database", DATABASE, "--publication", "p", "--publisher", "sys", "--interval", "60s")
        command("subscribe", NAME, "--from", source_uri(emulator.port), *scope)
        yield Project(storage, emulator, instance)


@pytest.mark.in_turn
@pytest.mark.slow
def test_an_hour_without_a_change_runs_nothing_and_a_change_runs_once(project: Project) -> None:
    project.run("rates")
    project.minutes(2)
    assert project.minutes(60) == {"revenue": 0, "report": 0}
    project.insert(1)
    assert project.minutes(1) == {"revenue": 1, "report": 1}
    assert project.minutes(5) == {"revenue": 0, "report": 0}
    for rewrite in (project.storage.flush, project.storage.merge):
        rewrite(DATABASE, "orders")
        assert project.minutes(3) == {"revenue": 0, "report": 0}, "the same rows in other files"
    with project.storage.begin() as transaction:
        transaction.insert(DATABASE, "others", {"id": [1]})
    assert project.minutes(3) == {"revenue": 0, "report": 0}, "another table"


@pytest.mark.in_turn
def test_a_red_replica_holds_back_what_waits_for_checks_until_it_is_well(project: Project) -> None:
    project.run("rates")
    project.minutes(2)
    assert project.check() == (True, None)
    project.emulator.inject(FailStatement("create_snapshot", times=0))
    project.insert(1)
    project.minutes(2)
    passed, says = project.check()
    assert not passed
    assert says == "the replica is not current: `replication_health/shop` says why, and what to do"
    project.run("rates")
    assert project.minutes(10) == {"revenue": 0, "report": 0}
    project.emulator.clear_faults()
    assert project.minutes(10) == {"revenue": 1, "report": 1}
    assert project.check() == (True, None)
    records = project.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(ORDERS, TABLE_CURRENT), limit=99
    )
    assert len(records) == 3, "well, red, well: nothing else is stored"
