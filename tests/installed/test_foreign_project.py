"""`CcprComponent` in a Dagster project that is not ours: from the wheel, scaffolded by `dg`, with keys of its own."""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.installed.core import ROOT, Core, pip

pytestmark = pytest.mark.long
PYPROJECT = """[project]
name = "shop-data"
version = "0.0.0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "shop_data"
"""
DEFINITIONS = """from pathlib import Path

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
DEFS_YAML = """type: ccpr.dagster.CcprComponent
attributes:
  home: "{{{{ env.CCPR_HOME }}}}"
  engine: process
  config:
    upstreams: {{main: {{uri: "mysql://sys#dump@127.0.0.1:{port}", password: "${{UPSTREAM_PASSWORD}}"}}}}
    subscriptions: {{shop: {{upstream: main, database: shop, publication: p, interval: 10s}}}}
  translation: {{key_prefix: [replicas], group_name: replicated, owners: ["team:data"], tags: {{domain: shop}}}}
"""
DOWNSTREAM = """import dagster as dg

ORDERS = dg.AssetKey(["replicas", "shop", "shop", "orders"])


@dg.asset(deps=[ORDERS], automation_condition=dg.AutomationCondition.eager())
def revenue() -> None: ...
"""
PROGRAM = """
import json
from pathlib import Path
import dagster as dg
import ccpr, ccpr.dagster, shop_data

OURS = ("applied_tables", "replication_health/shop")
project = dg.load_from_defs_folder(path_within_project=Path(shop_data.__file__).parent)
with dg.DagsterInstance.get() as instance:
    instance.add_dynamic_partitions("ccpr_subscription", ["shop"])
    chosen = {"defs": project, "instance": instance, "asset_selection": dg.AssetSelection.assets("revenue")}
    before = dg.evaluate_automation_conditions(**chosen)
    run = project.resolve_job_def("ccpr_sync_job").execute_in_process(
        instance=instance, partition_key="shop", raise_on_error=False
    )
    asked = dg.evaluate_automation_conditions(**chosen, cursor=before.cursor)
    key = dg.AssetKey(["replicas", "shop", "shop", "orders"])
    made = instance.get_latest_materialization_event(key)
    specs = {spec.key.to_user_string(): spec for spec in project.resolve_all_asset_specs()}
    print(json.dumps({
        "success": run.success,
        "requested": asked.total_requested,
        "rows": made and made.asset_materialization.metadata["dagster/row_count"].value,
        "keys": sorted(specs),
        "group": sorted({specs[f"replicas/{name}"].group_name for name in OURS}),
        "owners": list(specs["replicas/applied_tables"].owners),
        "module": ccpr.dagster.__file__,
        "place": str(ccpr.__file__),
    }))
"""


@dataclass(frozen=True)
class Project(Core):
    """A project in an environment that has ccpr from its wheel, and everything else from the test's own."""

    @classmethod
    def create(cls, folder: Path) -> "Project":
        pip("wheel", "--no-deps", "--wheel-dir", folder / "wheel", ROOT)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        project = cls(folder)
        (wheel,) = (folder / "wheel").glob("*.whl")
        pip("--python", project.python, "install", "--no-deps", wheel)
        (project.packages / "others.pth").write_text(sysconfig.get_path("purelib"))
        (folder / "pyproject.toml").write_text(PYPROJECT)
        package = folder / "src" / "shop_data"
        (package / "defs").mkdir(parents=True)
        (package / "definitions.py").write_text(DEFINITIONS)
        for file in (package / "__init__.py", package / "defs" / "__init__.py"):
            file.touch()
        (folder / "dagster").mkdir()
        return project

    def environment(self, **variables: str) -> dict[str, str]:
        own = {"PYTHONPATH": str(self.folder / "src"), "DAGSTER_HOME": str(self.folder / "dagster")}
        return super().environment(**own, **variables)

    def dg(self, *words: str) -> str:
        code = "from dagster_dg_cli.cli import main; main()"
        done = self.run(self.python, "-W", "ignore", "-c", code, *words, seconds=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def storage() -> Storage:
    storage = Storage()
    storage.create_database("shop")
    storage.create_table("shop", "orders", {"id": "int not null", "amount": "decimal(10,2)"}, primary_key=["id"])
    storage.create_publication("p", "shop")
    with storage.begin() as transaction:
        numbers = list(range(1, 301))
        transaction.insert("shop", "orders", {"id": numbers, "amount": [Decimal(n) / 4 for n in numbers]})
    return storage


@pytest.fixture
def upstream(storage: Storage) -> Iterator[SimulatedUpstream]:
    with SimulatedUpstream(storage) as emulator:
        yield emulator


def test_a_foreign_project_scaffolds_the_component_replicates_and_reacts(
    storage: Storage, upstream: SimulatedUpstream, tmp_path: Path
) -> None:
    project = Project.create(tmp_path)
    assert "ccpr.dagster.CcprComponent" in project.dg("list", "components", "--json")
    project.dg("scaffold", "defs", "ccpr.dagster.CcprComponent", "replicas")
    folder = tmp_path / "src" / "shop_data" / "defs"
    assert "type: ccpr.dagster.CcprComponent" in (folder / "replicas" / "defs.yaml").read_text()
    (folder / "replicas" / "defs.yaml").write_text(DEFS_YAML.format(port=upstream.port))
    (folder / "revenue.py").write_text(DOWNSTREAM)
    project.dg("utils", "refresh-defs-state")
    assert [one["name"] for one in project.command("subscriptions")] == ["shop"]

    found = json.loads(project.program(PROGRAM).splitlines()[-1])
    assert found["place"].startswith(str(tmp_path)), "it is the wheel's"
    assert (found["success"], found["rows"], found["requested"]) == (True, 300, 1)
    assert (found["group"], found["owners"]) == (["replicated"], ["team:data"])
    assert "replicas/replication_health/shop" in found["keys"]
    assert not [key for key in found["keys"] if key != "revenue" and not key.startswith("replicas/")]
    place = project.home / "mirrors" / "shop"
    read = f"import ccpr, json; print(json.dumps(ccpr.open_mirror({str(place)!r}).table('shop.orders').to_arrow()"
    rows = json.loads(project.program(f"{read}.to_pylist(), default=str))"))
    with storage.begin() as transaction:
        source = transaction.rows("shop", "orders").to_pylist()
    assert {row["id"]: row["amount"] for row in rows} == {row["id"]: str(row["amount"]) for row in source}

    project.dg("utils", "refresh-defs-state")
    upstream.stop()
    red = json.loads(project.program(PROGRAM).splitlines()[-1])
    assert (red["success"], red["requested"]) == (False, 0), "what depends on a table waits for a change of it"
    assert "replicas/shop/shop/orders" in red["keys"], "the table is part of the state now"
    listed = json.loads(project.dg("list", "defs", "--json"))
    keys = {asset["asset_key"] for asset in listed["assets"]}
    assert "replicas/shop/shop/orders" in keys, "as a code server loads it"
    upstream.restart()
