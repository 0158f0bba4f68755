"""A project as `create-dagster project` makes it, with the component, in a real code server: its tables are there, and
stay where something outside of it is wrong, with a sentence that says what and what to do."""

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import typer.testing
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.asset_daemon import AssetDaemon
from dagster._daemon.sensor import execute_sensor_iteration
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.testclient import TestClient

from ccpr.cli.main import app
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.web_ui import wait_for

pytestmark = pytest.mark.slow
# What the templates of create-dagster have; 1.13.27 and the newest have the same.
PYPROJECT = """[project]
name = "shop_data"
requires-python = ">=3.10,<3.15"
version = "0.1.0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "shop_data"
registry_modules = ["shop_data.components.*"]
"""
DEFINITIONS = """from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
COMPONENT = """type: ccpr.dagster.CcprComponent
attributes:
  home: "{{{{ env.CCPR_HOME }}}}"
  {more}
"""
CONFIG = """config:
    upstreams: {{main: {{uri: "mysql://sys#dump@127.0.0.1:{port}", password: "{password}"}}}}
    subscriptions:
      late: {{upstream: main, database: shop, publication: p}}
"""
TRANSLATION = """from ccpr.dagster import MirrorTranslator


class ByTable(MirrorTranslator):
    def get_asset_spec(self, spec):
        spec = super().get_asset_spec(spec)
        if "dagster/table_name" not in spec.metadata:
            return spec
        return spec.replace_attributes(key=["warehouse", *spec.key.path[2:]])
"""
INSTANCE = """telemetry: {enabled: false}
run_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}
"""
DOWNSTREAM = """import dagster as dg
import polars as pl

ORDERS = dg.AssetIn(["warehouse", "orders"], input_manager_key="mirror")
AUTO = dg.AutomationConditionSensorDefinition(
    "auto", target="revenue", minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING
)


@dg.asset(ins={"orders": ORDERS}, automation_condition=dg.AutomationCondition.eager(), io_manager_key="none")
def revenue(context, orders: pl.LazyFrame) -> None:
    context.add_output_metadata({"rows": orders.select(pl.len()).collect().item()})


@dg.definitions
def defs():
    return dg.Definitions(assets=[revenue], sensors=[AUTO], resources={"none": dg.mem_io_manager})
"""
LAUNCH = "mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename } }"
LINEAGE = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    dependencyKeys { path } dependedByKeys { path } } } }"""
LOCATION = """{ locationOrError: workspaceLocationEntryOrError(name: "p") { ... on WorkspaceLocationEntry {
    locationOrLoadError { __typename ... on PythonError { message errorChain { error { message } } } } } } }"""
ASSETS = "{ assetNodes { assetKey { path } description } }"
TICK = """mutation ($sensor: SensorSelector!) { sensorDryRun(selectorData: $sensor, cursor: null) {
    ... on DryRunInstigationTick {
      evaluationResult { skipReason error { message errorChain { error { message } } } } } } }"""


def ccpr(*words: str, home: Path) -> None:
    result = typer.testing.CliRunner().invoke(app, list(words), env={"CCPR_HOME": str(home)}, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def said(error: dict[str, Any]) -> str:
    """An error of GraphQL, with its causes."""
    return "\n".join([error["message"], *(link["error"]["message"] for link in error["errorChain"])])


class Server:
    """A code server of the project, asked as Dagster's UI asks it."""

    def __init__(self, folder: Path) -> None:
        target = ModuleTarget("shop_data.definitions", attribute=None, working_directory=str(folder), location_name="p")
        self.context = WorkspaceProcessContext(dg.DagsterInstance.get(), target)
        self._client = TestClient(create_app_from_workspace_process_context(self.context))

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        answer = self._client.post("/graphql", json={"query": text, "variables": variables}).json()
        assert "errors" not in answer, answer
        return answer["data"]

    def load_error(self) -> str:
        """Why the definitions cannot be loaded; empty if they were."""
        found = self.query(LOCATION)["locationOrError"]["locationOrLoadError"]
        return said(found) if found["__typename"] == "PythonError" else ""

    def assets(self) -> dict[str, str]:
        """The description of each asset."""
        assert self.load_error() == ""
        return {"/".join(one["assetKey"]["path"]): one["description"] for one in self.query(ASSETS)["assetNodes"]}

    def launch(self, job: str, partition: str) -> None:
        """Run a job, and wait for its end."""
        selector = {"repositoryLocationName": "p", "repositoryName": "__repository__", "jobName": job}
        tags = [{"key": "dagster/partition", "value": partition}]
        params = {"selector": selector, "runConfigData": {}, "executionMetadata": {"tags": tags}}
        assert self.query(LAUNCH, params=params)["launchRun"]["__typename"] == "LaunchRunSuccess"
        self.wait_for_runs()

    def wait_for_runs(self) -> None:
        wait_for(lambda: all(run.is_finished for run in self.context.instance.get_runs()), 120)
        assert {run.status.name for run in self.context.instance.get_runs()} <= {"SUCCESS"}

    def daemon(self) -> None:
        """An evaluation of the sensors that are on, and of the conditions, with the runs that these ask for."""
        list(execute_sensor_iteration(self.context, logging.getLogger("sensors"), None, None))
        time.sleep(1.1)  # the interval of the conditions' sensor
        daemon = AssetDaemon(settings={}, pre_sensor_interval_seconds=1)
        daemon._run_iteration_impl(self.context, None, {}, {})
        self.wait_for_runs()

    def lineage(self, *path: str) -> tuple[set[str], set[str]]:
        """What an asset depends on, and what depends on it."""
        found = self.query(LINEAGE, key={"path": path})["assetNodeOrError"]
        names = ({"/".join(key["path"]) for key in found[side]} for side in ("dependencyKeys", "dependedByKeys"))
        return next(names), next(names)

    def tick(self, sensor: str = "ccpr_log_sensor") -> str:
        """What a tick says, or fails with."""
        place = {"repositoryLocationName": "p", "repositoryName": "__repository__", "sensorName": sensor}
        found = self.query(TICK, sensor=place)["sensorDryRun"]["evaluationResult"]
        return said(found["error"]) if found["error"] else found["skipReason"] or ""


class Project:
    """The project, its environment and its replica, whose state folder a test may spoil."""

    def __init__(self, folder: Path, home: Path, port: int) -> None:
        self.folder, self.home, self.port = folder, home, port

    @property
    def component(self) -> Path:
        return self.folder / "src" / "shop_data" / "defs" / "replicas" / "defs.yaml"

    def configure(self, more: str = "") -> None:
        self.component.write_text(COMPONENT.format(more=more))

    def dg(self, *words: str, code: int = 0) -> str:
        dg_program = Path(sys.executable).with_name("dg")
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "src"),
            "PYTHONWARNINGS": "ignore",
            "COLUMNS": "200",
        }
        done = subprocess.run(
            [dg_program, *words], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def serving(self) -> Iterator[Server]:
        server = Server(self.folder / "src")
        with server.context:
            yield server


@pytest.fixture(scope="module")
def upstream() -> Iterator[SimulatedUpstream]:
    storage = Storage()
    storage.create_database("shop")
    for name in ("orders", "customers"):
        storage.create_table("shop", name, {"id": "int not null"}, primary_key=["id"])
    storage.create_publication("p", "shop")
    with storage.begin() as transaction:
        transaction.insert("shop", "orders", {"id": [1, 2, 3]})
    with SimulatedUpstream(storage) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def replica(upstream: SimulatedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with the subscription `shop` and its first point."""
    home = tmp_path_factory.mktemp("state") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UPSTREAM_PASSWORD", "any")
        replicate(home, upstream.port)
    return home


def replicate(home: Path, port: int) -> None:
    """Subscribe, and make the first point."""
    source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{port}"
    ccpr("subscribe", "shop", "--from", source, "--database", "shop", "--publication", "p", home=home)
    ccpr("run", "shop", home=home)


@pytest.fixture
def project(upstream: SimulatedUpstream, replica: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """With a state that was refreshed while all was well; a code server refreshes it as `dg dev` does."""
    package = tmp_path / "p" / "src" / "shop_data"
    (package / "defs" / "replicas").mkdir(parents=True)
    for file in (package / "__init__.py", package / "defs" / "__init__.py"):
        file.touch()
    (package / "definitions.py").write_text(DEFINITIONS)
    (tmp_path / "p" / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text(INSTANCE)
    home = tmp_path / "home"
    shutil.copytree(replica, home)
    for name, value in {"CCPR_HOME": home, "DAGSTER_HOME": tmp_path / "dagster", "UPSTREAM_PASSWORD": "any"}.items():
        monkeypatch.setenv(name, str(value))
    project = Project(tmp_path / "p", home, upstream.port)
    project.configure()
    project.dg("utils", "refresh-defs-state")
    monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
    return project


def without_home(project: Project) -> None:
    shutil.rmtree(project.home)


def with_an_empty_home(project: Project) -> None:
    shutil.rmtree(project.home)
    project.home.mkdir()


def of_another_version(project: Project) -> None:
    with closing(sqlite3.connect(project.home / "catalog.db")) as connection, connection:
        connection.execute("INSERT INTO ccpr_schema VALUES (999)")


def damaged(project: Project) -> None:
    (project.home / "catalog.db").write_bytes(b"no database" * 1000)


def without_a_password(project: Project) -> None:
    project.configure(CONFIG.format(port=project.port, password="${NO_SUCH_VARIABLE}"))


def without_an_upstream(project: Project) -> None:
    project.configure(CONFIG.format(port=1, password="any"))


def without_the_mirror(project: Project) -> None:
    shutil.rmtree(project.home / "mirrors")


def nothing(project: Project) -> None: ...


# What is wrong; what the description of `replication_health` then says; what a tick says.
FAILURES: dict[str, tuple[Callable[[Project], None], str, str]] = {
    "nothing": (nothing, "", ""),
    "no home": (without_home, "there is no state in", "there is no subscription in"),
    "an empty home": (with_an_empty_home, "there is no state in", "there is no subscription in"),
    "another version": (of_another_version, "Use a version of this program at least as new", "STATE_UNREADABLE"),
    "a damaged database": (damaged, "STATE_UNREADABLE", "STATE_UNREADABLE"),
    "no password": (without_a_password, "NO_SUCH_VARIABLE", ""),
    "no upstream": (without_an_upstream, "UPSTREAM_UNREACHABLE", ""),
    "no mirror": (without_the_mirror, "", "MIRROR_MISSING"),
}


@pytest.mark.parametrize(("spoil", "loaded", "ticked"), FAILURES.values(), ids=FAILURES)
def test_tables_stay_and_a_sentence_says_what_is_wrong(
    project: Project, spoil: Callable[[Project], None], loaded: str, ticked: str
) -> None:
    spoil(project)
    with project.serving() as server:
        found = server.assets()
        assert {"shop/shop/orders", "shop/shop/customers", "applied_tables"} <= found.keys()
        says = found["replication_health"]
        assert loaded in says
        assert ("Not all was loaded" in says) == bool(loaded)
        assert "Traceback" not in says
        assert ticked in server.tick()


@pytest.mark.in_turn
def test_a_locked_database_is_a_sentence(project: Project) -> None:
    with closing(sqlite3.connect(project.home / "catalog.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        with project.serving() as server:
            found = server.assets()
            assert "shop/shop/orders" in found
            assert "STATE_UNAVAILABLE" in found["replication_health"]


@pytest.mark.in_turn
def test_a_listing_has_the_tables_and_a_refresh_says_what_is_wrong(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "shop/shop/orders" in project.dg("list", "defs")
    monkeypatch.delenv("DAGSTER_IS_DEV_CLI")
    of_another_version(project)
    assert "Use a version of this program at least as new" in project.dg("utils", "refresh-defs-state", code=1)
    assert "shop/shop/orders" in project.dg("list", "defs"), "what was known before"


@pytest.mark.in_turn
def test_a_subscription_that_was_dropped_goes_with_the_next_refresh(project: Project) -> None:
    ccpr("drop", "shop", "--yes", home=project.home)
    with project.serving() as server:
        assert "shop/shop/orders" not in server.assets()


@pytest.mark.in_turn
def test_a_translator_gives_a_table_a_key_and_all_that_is_reported_of_it_has_that(
    project: Project, upstream: SimulatedUpstream
) -> None:
    without_home(project)  # it is a copy, and the snapshots of its original are those of every other copy
    replicate(project.home, project.port)
    package = project.folder / "src" / "shop_data"
    (package / "translation.py").write_text(TRANSLATION)
    (package / "defs" / "revenue.py").write_text(DOWNSTREAM)
    project.configure("translator: shop_data.translation.ByTable\n  sensor: false")
    project.dg("utils", "refresh-defs-state")
    orders, revenue = dg.AssetKey(["warehouse", "orders"]), dg.AssetKey("revenue")

    def made(key: dg.AssetKey) -> list[dg.AssetMaterialization]:
        records = server.context.instance.fetch_materializations(key, limit=99).records
        return [event for record in records if (event := record.asset_materialization) is not None]

    with project.serving() as server:
        assert {"warehouse/orders", "warehouse/customers", "upstream/shop/shop/orders"} <= server.assets().keys()
        assert server.lineage("warehouse", "orders") == ({"upstream/shop/shop/orders", "mirror"}, {"revenue"})
        server.daemon()
        assert len(made(orders)) == 1
        check = dg.AssetCheckKey(orders, "table_current")
        found = server.context.instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
        assert found.evaluation is not None
        assert found.evaluation.passed
        before = len(made(revenue))
        with upstream.storage.begin() as transaction:
            transaction.insert("shop", "orders", {"id": [4]})
        server.launch("ccpr_sync_job", "shop")
        assert [event.metadata["dagster/row_count"].value for event in made(orders)] == [4, 3]
        lineage = made(orders)[0].metadata["dagster/column_lineage"].value
        assert lineage.deps_by_column["id"] == [
            dg.TableColumnDep(dg.AssetKey(["upstream", "shop", "shop", "orders"]), "id")
        ]
        for _ in range(3):
            server.daemon()
        assert len(made(revenue)) == before + 1
        assert made(revenue)[0].metadata["rows"].value == 4
        assert dg.AssetKey(["shop", "shop", "orders"]) not in server.context.instance.all_asset_keys()


@pytest.mark.in_turn
def test_a_misspelt_attribute_is_named_with_its_line(project: Project) -> None:
    project.configure("sensr: false")
    said = project.dg("check", "yaml", code=1)
    assert "sensr" in said
    assert "defs.yaml:4" in said
    assert "Traceback" not in said
    with project.serving() as server:
        assert "there is no attribute sensr: sensor?" in server.load_error()


@pytest.mark.in_turn
def test_two_tables_with_one_key_are_named_in_the_last_cause(project: Project) -> None:
    package = project.folder / "src" / "shop_data"
    (package / "translation.py").write_text(TRANSLATION.replace("*spec.key.path[2:]", "'one'"))
    project.configure("translator: shop_data.translation.ByTable")
    with project.serving() as server:
        last = server.load_error().splitlines()[-1]
    assert "BAD_SETTING: a translator gives two tables the key ['warehouse', 'one']" in last
    assert last.endswith("Let get_asset_spec give each table a key of its own.")
    assert "BAD_SETTING" in project.dg("check", "defs", code=1)
