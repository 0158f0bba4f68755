"""A state folder with rows of `mo_ccpr_log` to evaluate ticks on."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription

Subscribe = Callable[..., LogRow]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    with closing(Workspace()) as workspace:
        yield workspace


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def subscribe(workspace: Workspace) -> Subscribe:
    """Write the row of a subscription (interval 60 s) to an upstream that does not exist; values given for columns
    replace those of the new row."""
    sealed = workspace.vault.seal("111", Endpoint("127.0.0.1", 1, "sys", "dump"))

    def insert(name: str, **columns: object) -> LogRow:
        endpoint = Endpoint("127.0.0.1", 1, "sys", "dump")
        new = Subscription.new(
            name, endpoint, "", workspace.vault, Publication("pub", "sys", 0), "db", None, Settings(sync_interval=60)
        )
        row = replace(replace(new, sealed_password=sealed).to_row(datetime.now(UTC)), **columns)
        workspace.log.insert(row)
        return row

    return insert
