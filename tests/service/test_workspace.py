"""A workspace: opening it changes nothing, and an iteration of it copies with its own key."""

import os
from pathlib import Path

import pytest

from ccpr.service.workspace import HOME_VARIABLE, Workspace
from ccpr.state.credentials import KEY_FILE_VARIABLE
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import iterate, subscribed

pytestmark = pytest.mark.integration


def test_opening_a_workspace_changes_neither_the_environment_nor_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    before = dict(os.environ)
    with Workspace() as workspace:
        assert workspace.vault.path == tmp_path / "home" / "key"
        assert not workspace.has_catalog
    assert dict(os.environ) == before
    assert not (tmp_path / "home").exists()


def test_it_is_closed_at_the_end_of_its_block_also_after_an_error(tmp_path: Path) -> None:
    def fail(workspace: Workspace) -> None:
        with workspace:
            assert workspace.executor.id
            assert list((tmp_path / "executors").glob("*.lock"))
            raise ZeroDivisionError

    workspace = Workspace(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fail(workspace)
    assert list((tmp_path / "executors").glob("*.lock")) == []
    workspace.close()


@pytest.mark.parametrize("foreign", [None, "key of another state folder"])
def test_an_iteration_copies_with_the_key_of_its_workspace(
    foreign: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if foreign is None:
        monkeypatch.delenv(KEY_FILE_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / foreign))
    storage = Storage()
    storage.create_database("src")
    storage.create_table("src", "t", {"id": "bigint not null"}, primary_key=["id"])
    storage.create_publication("p", "src")
    with storage.begin() as transaction:
        transaction.insert("src", "t", {"id": [1, 2, 3]})
    with SimulatedUpstream(storage) as emulator, subscribed(emulator.port, tmp_path, "src") as workspace:
        assert iterate(workspace).objects_copied > 0
    assert os.environ.get(KEY_FILE_VARIABLE) == (None if foreign is None else str(tmp_path / foreign))
