"""Dagster's UI in a browser, as an operator sees it: webserver and daemon in their own processes, a simulated upstream
that is killed and comes back, and a target that is killed, comes back, and waits with a change of a definition.

Six questions are answered in each situation: which are behind and since when; why, and what to do; when a table
changed, and how many rows it has; which targets get it; what the last iteration copied; what happens if one presses
Materialize. Each situation stands alone: what all need is that an operator has materialized the subscription.

With CCPR_SCREENSHOTS=docs/images the pictures of the documentation are written (`make screenshots`).
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from ccpr.dagster.health import HEALTH, REPLICA_CURRENT, TARGET_CURRENT
from ccpr.dagster.partitions import sync_partitions
from ccpr.service.workspace import Workspace
from ccpr.state.history import PointHistory
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.api.shop import orders
from tests.dagster.test_tables import ccpr
from tests.support.mariadb import MariaDb, uri_from
from tests.support.ports import free_port
from tests.support.web_ui import WebServer, answers, wait_for
from tests.targets.target_database import Place, new_database

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
ASSETS = ("upstream_snapshots", "catalog_ddl", "object_diffs", "copied_objects", "applied_tables")
NAME = "shop"
REPLICA = f"/assets/{HEALTH}/{NAME}?view=checks&checkDetail={REPLICA_CURRENT}"
TARGET = f"/assets/{HEALTH}/{NAME}/report?view=checks&checkDetail={TARGET_CURRENT}"
SECONDS = 240.0  # of a wait; a machine may be busy
LOOKS = 10  # at a page for a picture
LOOK_SECONDS = 20.0  # at a page, before it is loaded again
WORKSPACE = """load_from:
  - python_module: {{module_name: tests.support.process_copying, working_directory: {root}, location_name: ccpr}}
"""
START = """mutation ($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) { __typename } }"""
LOCATIONS = """query {
  workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { __typename } } } }
}"""
PARTITIONS = """query ($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionStats { numFailed } } }
}"""
LAUNCH = "mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename } }"
RUNS = "query { runsOrError(limit: 5) { ... on Runs { results { status } } } }"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(BROWSER is None, reason="no Chromium: scripts/test-components browser installs it as root"),
]


@dataclass
class Scene:
    """A subscription `shop` (interval 10 s) to an upstream with tables, and the page of a browser on Dagster's UI."""

    page: "Page"
    server: WebServer
    emulator: SimulatedUpstream
    storage: Storage
    target: Place
    inserted: int = 0

    @property
    def rows(self) -> str:
        """How many the table `orders` has upstream, as a page shows it."""
        return f"{self.inserted:,}"

    def insert(self, rows: int) -> None:
        with self.storage.begin() as transaction:
            transaction.insert("shop", "orders", orders(range(self.inserted, self.inserted + rows)))
        self.inserted += rows

    def go(self, path: str) -> None:
        self.page.goto(self.server.url + path)

    def shows(self, *texts: str) -> None:
        """Wait until the page shows all of these."""
        from playwright.sync_api import expect

        for text in texts:
            expect(self.page.get_by_text(text).first).to_be_visible(timeout=SECONDS * 1000)

    def comes_to_show(self, path: str, text: str) -> None:
        """Load the page again until it shows a text: the UI itself asks for news less often."""
        from playwright.sync_api import TimeoutError as NotThere

        def shown() -> bool:
            self.go(path)
            try:
                self.page.get_by_text(text).first.wait_for(timeout=LOOK_SECONDS * 1000)
            except NotThere:
                return False
            return True

        wait_for(shown, SECONDS)

    def picture(self, name: str) -> None:
        from playwright.sync_api import TimeoutError as NotThere

        if folder := os.environ.get("CCPR_SCREENSHOTS"):
            before, taken = b"", b"-"
            for _ in range(LOOKS):  # until it stands still; a time line never does
                if taken == before:
                    break
                with suppress(NotThere):  # a page that goes on asking is pictured all the same
                    self.page.wait_for_load_state("networkidle", timeout=5000)
                before, taken = taken, self.page.screenshot(animations="disabled")
            (Path(folder) / f"{name}.png").write_bytes(taken)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, mariadb: MariaDb) -> Iterator[Scene]:
    from playwright.sync_api import sync_playwright

    folder, storage = tmp_path_factory.mktemp("browser"), Storage()
    storage.create_database("shop")
    storage.create_publication("pub_shop", "shop")
    columns = {"id": "bigint", "customer": "varchar(40)", "total": "decimal(12,2)", "placed": "datetime(6)"}
    for name in ("orders", "returns"):
        storage.create_table("shop", name, columns, primary_key=["id"])
    (folder / "home").mkdir()
    with (
        pytest.MonkeyPatch.context() as patch,
        SimulatedUpstream(storage) as emulator,
        new_database(mariadb) as target,
    ):
        patch.setenv("CCPR_HOME", str(folder / "home"))
        patch.setenv("DAGSTER_HOME", str(folder / "dagster"))
        patch.setenv("UPSTREAM_PASSWORD", "111")
        source = f"mysql://sys#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}"
        ccpr("subscribe", NAME, "--from", source, "--database", "shop", "--publication", "pub_shop", "--interval", "10")
        patch.setenv("TARGET_PASSWORD", mariadb.password)
        ccpr("target", "add", NAME, "report", "--to", uri_from(target.uri, "TARGET_PASSWORD"))
        (folder / "dagster").mkdir()
        shutil.copy(ROOT / "dagster.yaml", folder / "dagster")
        (folder / "workspace.yaml").write_text(WORKSPACE.format(root=ROOT))
        with closing(Workspace()) as workspace, dg.DagsterInstance.get() as instance:
            sync_partitions(instance, workspace)
        port = free_port()
        web = ["dagster-webserver", "-h", "127.0.0.1", "-p", str(port), "-w", str(folder / "workspace.yaml")]
        daemon = ["dagster-daemon", "run", "-w", str(folder / "workspace.yaml")]
        processes = [start(words, folder) for words in (web, daemon)]
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: answers(url) or any(one.poll() is not None for one in processes), SECONDS)
            assert [one.poll() for one in processes] == [None, None], (folder / "dagster-webserver.log").read_text()
            assert loaded(WebServer(url)), (folder / "dagster-webserver.log").read_text()
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1500, "height": 900})
                yield Scene(page, WebServer(url), emulator, storage, target)
                browser.close()
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGKILL)  # with its code server and any run
                process.wait()


@pytest.fixture(scope="module")
def scene(opened: Scene) -> Scene:
    """With the first 5,000 rows, that an operator has brought to the mirror and the target; the sensor is on."""
    opened.insert(5000)
    opened.go("/locations/ccpr/asset-groups/replication")
    opened.page.get_by_role("button", name="Materialize all").click(timeout=SECONDS * 1000)
    opened.page.get_by_role("button", name="All", exact=True).click(timeout=SECONDS * 1000)
    opened.page.get_by_role("button", name="Launch").click(timeout=SECONDS * 1000)
    wait_for(lambda: points() == 1, SECONDS)
    wait_for(lambda: statuses(opened) == ["SUCCESS"], SECONDS)
    assert opened.target.query("SELECT COUNT(*) FROM orders") == [(5000,)]
    sensor = {"repositoryLocationName": "ccpr", "repositoryName": "__repository__", "sensorName": "ccpr_log_sensor"}
    assert opened.server.query(START, sensor=sensor)["startSensor"]["__typename"] == "Sensor"
    reload_definitions(opened)
    return opened


def loaded(server: WebServer) -> bool:
    """Whether the code location could be loaded, which the webserver has tried before it answers."""
    (entry,) = server.query(LOCATIONS)["workspaceOrError"]["locationEntries"]
    return entry["locationOrLoadError"]["__typename"] == "RepositoryLocation"


def start(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    program = Path(sys.executable).with_name(words[0])
    with (folder / f"{words[0]}.log").open("wb") as log:
        return subprocess.Popen([program, *words[1:]], stdout=log, stderr=log, cwd=folder, start_new_session=True)


def points() -> int:
    with closing(Workspace()) as workspace:
        return len(PointHistory(workspace.log.engine, workspace.log.row(NAME).task_id).global_points())


def answers_six_questions(scene: Scene, *, behind: str, page: str, why: tuple[str, ...], rows: str) -> None:
    """The six questions, each by its page.

    Parameters
    ----------
    behind : what the page of all says.
    page : of what is behind; `why` is on it, with since when.
    rows : of the table.
    """
    scene.comes_to_show(f"/assets/{HEALTH}?view=checks", behind)  # which are behind
    scene.comes_to_show(page, why[0])  # why, since when, and what to do
    scene.shows(*why, "current_as_of", "what_to_do")
    scene.shows("last_change", "stored_rows", "objects_copied", "Materialize applied_tables to run an iteration")
    if page == REPLICA:
        scene.shows("target_states")
    scene.comes_to_show(f"/assets/{NAME}/shop/orders", rows)  # when did it change, how many rows has it
    scene.shows("Row count", "last_change")
    scene.go(f"/assets/{NAME}/shop/orders?view=lineage")  # which targets get it
    scene.shows("upstream_shop", "targets_shop_report")
    scene.comes_to_show(f"/assets/{NAME}/targets/report/{scene.target.database}/orders", "synced_with_point")
    scene.go("/assets/copied_objects")  # what did the last iteration copy
    scene.shows("copied_mb", "objects_copied")
    scene.go("/assets/applied_tables")
    scene.shows("tables_changed", "newest_point")
    scene.go("/assets/upstream_snapshots")  # what happens if one presses Materialize
    scene.shows("Materialize all six assets of a partition to run one iteration of that subscription now")


def test_an_operator_who_has_materialized_a_subscription_sees_its_upstream_fail_and_come_back(scene: Scene) -> None:
    scene.go("/assets/applied_tables")
    scene.shows("current_as_of", "copied_mb", "tables_changed")
    scene.go("/assets/copied_objects")
    scene.shows("copied_rows")
    scene.go("/assets/upstream_snapshots")
    scene.shows("Materialize all six assets of a partition to run one iteration")

    scene.go(f"/assets/{NAME}/shop/orders")
    scene.shows("Row count", scene.rows, "customer", "varchar(40)", "last_change", "ddl_diff")
    scene.go(f"/assets/{NAME}/shop/orders?view=lineage")
    scene.shows("tables_shop", "upstream_shop", "targets_shop_report", "mirror")
    scene.page.mouse.move(0, 0)
    scene.picture("table-lineage")
    scene.comes_to_show(TARGET, ", the newest")

    scene.emulator.stop()
    scene.comes_to_show(REPLICA, "UPSTREAM_UNREACHABLE")
    scene.shows("Failed", "what_to_do", "failing_since", "next_attempt")
    scene.go("/locations/ccpr/sensors/ccpr_log_sensor")
    scene.page.get_by_role("button", name="0 runs requested").first.click(timeout=SECONDS * 1000)
    scene.shows("no run to start: ", "UPSTREAM_UNREACHABLE")
    scene.go(f"/assets/{HEALTH}/{NAME}")
    scene.shows("failing", "UPSTREAM_UNREACHABLE")
    scene.picture("replica-failing")
    answers_six_questions(
        scene,
        behind="0 of 1 subscriptions are current; shop: UPSTREAM_UNREACHABLE",
        page=REPLICA,
        why=("UPSTREAM_UNREACHABLE", "failing_since", "next_attempt"),
        rows=scene.rows,
    )
    assert red(scene)["applied_tables"] == 1
    scene.go("/assets/applied_tables?view=partitions")
    scene.shows("Failed (1)", NAME)
    scene.picture("partition-failed")
    scene.go("/overview/timeline")
    scene.shows("ccpr_sync_job")
    scene.go("/locations/ccpr/asset-groups/replication")
    scene.shows("upstream_database", *ASSETS, "mirror", "target_databases", "Materialize all")
    scene.picture("ui")

    scene.emulator.restart()
    scene.insert(100)
    scene.comes_to_show(REPLICA, "the last iteration succeeded")
    scene.comes_to_show(f"/assets/{NAME}/shop/orders", scene.rows)
    scene.picture("table")
    scene.comes_to_show(f"/assets/{HEALTH}?view=checks", "1 of 1 subscriptions are current")
    wait_for(lambda: red(scene) == {"applied_tables": 0, "target_databases": 0}, SECONDS)


def test_a_target_that_is_away_is_as_red_as_a_replica(scene: Scene) -> None:
    scene.target.server.kill()
    try:
        scene.comes_to_show(TARGET, "TARGET_UNAVAILABLE")  # while nothing changes
        scene.insert(50)
        scene.comes_to_show(f"/assets/{NAME}/shop/orders", scene.rows)
        answers_six_questions(
            scene,
            behind="0 of 1 subscriptions are current; shop: target report: TARGET_UNAVAILABLE",
            page=TARGET,
            why=("TARGET_UNAVAILABLE", "failing_since", "next_attempt"),
            rows=scene.rows,
        )
        scene.go(TARGET)
        scene.shows("Failed", "what_to_do", "Wait until the target answers", "failing_since")
        scene.picture("target-away")
        wait_for(lambda: red(scene) == {"applied_tables": 0, "target_databases": 1}, SECONDS)
        scene.go("/assets/target_databases?view=partitions")
        scene.shows("Failed (1)")
        scene.comes_to_show(REPLICA, "target report: TARGET_UNAVAILABLE")
    finally:
        scene.target.server.start()
    scene.comes_to_show(TARGET, ", the newest")
    wait_for(lambda: red(scene) == {"applied_tables": 0, "target_databases": 0}, SECONDS)
    assert scene.target.query("SELECT COUNT(*) FROM orders") == [(scene.inserted,)]


def test_a_statement_that_waits_is_shown_and_approved_in_the_ui(scene: Scene) -> None:
    scene.storage.drop_column("shop", "returns", "placed", in_place=True)
    scene.comes_to_show(TARGET, "DDL_WAITS")
    scene.shows("column placed dropped", "Approving runs the statement below", "ALTER TABLE `")
    scene.shows(f"ccpr target approve {NAME} report shop.returns")
    scene.picture("ddl-waiting")
    answers_six_questions(
        scene,
        behind="0 of 1 subscriptions are current; shop: target report: shop.returns waits: upstream: column placed",
        page=TARGET,
        why=("TARGET_DDL_WAITS", "ALTER TABLE", "waiting_statements"),
        rows=scene.rows,
    )
    assert red(scene) == {"applied_tables": 0, "target_databases": 0}, (
        "it waits for an approval, and nothing has failed"
    )
    scene.go("/locations/ccpr/jobs/ccpr_approve_job")
    scene.shows("ccpr_approve_job")
    launch(scene, "ccpr_approve_job", {"ops": {"approve": {"config": {"target": "report", "table": "shop.returns"}}}})
    scene.comes_to_show(TARGET, ", the newest")
    assert {row[0] for row in scene.target.query("SHOW COLUMNS FROM returns")} == {"id", "customer", "total"}


def statuses(scene: Scene) -> list[str]:
    return [run["status"] for run in scene.server.query(RUNS)["runsOrError"]["results"]]


def red(scene: Scene) -> dict[str, int]:
    """How many partitions of an asset are shown as failed."""
    return {
        asset: scene.server.query(PARTITIONS, key={"path": [asset]})["assetNodeOrError"]["partitionStats"]["numFailed"]
        for asset in ("applied_tables", "target_databases")
    }


def launch(scene: Scene, job: str, config: dict[str, Any]) -> None:
    """As the Launchpad does."""
    selector = {"repositoryLocationName": "ccpr", "repositoryName": "__repository__", "jobName": job}
    tags = [{"key": "dagster/partition", "value": NAME}]
    params = {"selector": selector, "runConfigData": config, "executionMetadata": {"tags": tags}}
    assert scene.server.query(LAUNCH, params=params)["launchRun"]["__typename"] == "LaunchRunSuccess"


def reload_definitions(scene: Scene) -> None:
    """As the button "Reload definitions" does."""
    mutation = 'mutation { reloadRepositoryLocation(repositoryLocationName: "ccpr") { __typename } }'
    answer = scene.server.query(mutation)["reloadRepositoryLocation"]["__typename"]
    assert answer == "WorkspaceLocationEntry"
