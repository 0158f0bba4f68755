"""A state folder, a Dagster instance in memory, and a fixture that materializes the five assets."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from ccpr.dagster.partitions import sync_partitions
from ccpr.dagster.spark_resource import SparkResource
from ccpr.service.workspace import Workspace
from ccpr.state.credentials import Vault
from ccpr_assets.definitions import defs
from ccpr_assets.jobs import STEPS

Sync = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def home(tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new state folder, with the key file that the workers of the one Spark session know."""
    folder = tmp_path / "home"
    folder.mkdir()
    Vault(key_file).seal("", None)  # creates the key file
    shutil.copy(key_file, folder / "key")
    monkeypatch.setenv("CCPR_HOME", str(folder))
    monkeypatch.setenv("UPSTREAM_PASSWORD", "111")
    return tmp_path


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def sync(home: Path, instance: dg.DagsterInstance) -> Sync:
    """Materialize some assets (all five by default) of the subscription `replica` in a new run."""

    def run(assets: Sequence[str] = (), partition: str = "replica") -> dg.ExecuteInProcessResult:
        with closing(Workspace()) as workspace:
            sync_partitions(instance, workspace)
        return dg.materialize(
            STEPS,
            selection=dg.AssetSelection.assets(*assets) if assets else None,
            partition_key=partition,
            resources={**(defs.resources or {}), "spark": SparkResource(engine="spark")},
            instance=instance,
            raise_on_error=False,
        )

    return run
