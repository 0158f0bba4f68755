"""A point at which most tables are gone is not shown to a follower until that is approved."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer.testing

from ccpr.cli.main import app
from ccpr.relay.brake import held_back
from ccpr.relay.offers import Offers
from ccpr.relay.relay_backing import StateFolder
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower, FollowerRecords, FollowerStage, TaskSeen
from ccpr.state.settings import Settings
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, subscribed
from tests.support.driving import iterate

pytestmark = pytest.mark.integration

TASK = str(uuid.uuid4())


@dataclass
class Scene:
    storage: Storage
    workspace: Workspace
    records: FollowerRecords

    @property
    def follower(self) -> Follower:
        return self.records.get("site_b")

    def snapshot(self, number: int) -> int:
        """As the follower's cluster takes it. Returns the lsn of the point that it shows."""
        name = f"ccpr_{TASK}_{number}"
        publication = StateFolder(Offers(self.workspace)).published("sys", self.follower.publication)
        publication.create_snapshot("sys", name, "database", "d", "", caller="", if_not_exists=False)
        found = publication.pins.find(name)
        assert found is not None
        return found.lsn

    def failure(self, lsn: int) -> str:
        """What is shown of it when it has stood at a point for a while."""
        at = self.workspace.mirror(NAME).point(lsn).at.physical
        seen = TaskSeen(datetime.now(UTC), 0, 7, at, "")
        self.records.record_seen(self.follower, TASK, seen, None)
        found = held_back(self.workspace, self.follower, seen)
        return "" if found is None else f"{found.code}: {found.message}"


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    storage = Storage()
    storage.create_database("d")
    storage.create_publication("p", "d")
    for name in ("a", "b", "c", "e"):
        storage.create_table("d", name, {"n": "int not null"}, primary_key=["n"])
        with storage.begin() as transaction:
            transaction.insert("d", name, {"n": [1]})
    monkeypatch.setenv("CCPR_HOME", str(tmp_path / "home" / "home"))
    with ExitStack() as held:
        source = held.enter_context(SimulatedUpstream(storage))
        workspace = subscribed(source.port, tmp_path / "home", "d", settings=Settings(with_indexes=True))
        held.callback(workspace.close)
        iterate(workspace, NAME)
        task_id = workspace.log.row(NAME).task_id
        records, now = FollowerRecords(workspace.log.engine, task_id), datetime.now(UTC)
        to = "mysql://sys#root@127.0.0.1:6001"
        records.add(Follower(task_id, "site_b", to, "", "", "d", "127.0.0.1:6002", now, FollowerStage.FOLLOWING))
        yield Scene(storage, workspace, records)


def test_most_tables_that_are_gone_at_once_stay_until_that_is_approved(scene: Scene) -> None:
    first = scene.snapshot(0)
    scene.storage.rename_table("d", "a", "renamed")
    scene.storage.truncate("d", "b")
    between = iterate(scene.workspace, NAME).lsn
    for name in ("b", "c", "e"):
        scene.storage.drop_table("d", name)
    gone = iterate(scene.workspace, NAME).lsn
    assert scene.snapshot(1) == between, "the newest point that keeps them"
    assert first < between < gone
    for number in (2, 3):
        assert scene.snapshot(number) == between
    assert scene.failure(between).startswith("FOLLOWER_DROPS_HELD: 3 tables are gone")
    shown = typer.testing.CliRunner().invoke(app, ["follower", "approve", NAME, "site_b", "--json"])
    assert (shown.exit_code, scene.follower.approved_lsn) == (0, gone), shown.output
    assert scene.failure(between) == ""
    assert scene.snapshot(4) == gone


def test_what_is_there_again_goes_on_by_itself(scene: Scene) -> None:
    first = scene.snapshot(0)
    for name in ("a", "b", "c", "e"):
        scene.storage.drop_table("d", name)
    iterate(scene.workspace, NAME)
    assert scene.snapshot(1) == first
    for name in ("a", "b", "c"):
        scene.storage.create_table("d", name, {"n": "int not null"}, primary_key=["n"])
    newest = iterate(scene.workspace, NAME).lsn
    assert scene.snapshot(2) == newest
    assert scene.failure(newest) == ""


def test_a_few_tables_go_without_asking(scene: Scene) -> None:
    scene.snapshot(0)
    scene.storage.drop_table("d", "a")
    assert scene.snapshot(1) == iterate(scene.workspace, NAME).lsn - 1
    assert scene.snapshot(2) == scene.workspace.mirror(NAME).point().lsn
