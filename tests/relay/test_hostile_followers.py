"""Clusters that answer what no MatrixOne does: each is shown as failing, and the others are asked all the same."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccpr.matrixone.client.endpoint import Endpoint, parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.server.answers import VAR_STRING, Answer, Cell, Done, ResultColumn, ResultSet
from ccpr.matrixone.server.server import Server
from ccpr.relay.follower_watching import Watcher
from ccpr.relay.offers import Quiet
from ccpr.service.workspace import Workspace
from ccpr.state.followers import Follower, FollowerRecords, FollowerStage, publication_of, seal_login
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription

pytestmark = pytest.mark.integration

NAMES = ("task_id", "db_name", "subscription_name", "state", "iteration_lsn", "watermark", "error_message")
COLUMNS = tuple(ResultColumn(name, VAR_STRING, 33) for name in NAMES)
TASK = "00000000-0000-0000-0000-000000000000"


class Cluster:
    """Answers every statement about its subscriptions with one row. It is its own session."""

    def __init__(self, publication: str) -> None:
        self.cells: dict[str, Cell] = dict(zip(NAMES, (TASK, "d", publication, 0, 7, 1, ""), strict=True))
        self.asked = 0
        self.server = Server(self, port=0)
        self.server.start()

    def open(self, user: str, connection_id: int) -> "Cluster":
        return self

    def use(self, database: str) -> None: ...
    def close(self) -> None: ...

    def split(self, text: bytes) -> list[bytes]:
        return [text]

    def query(self, text: bytes) -> Answer | None:
        if b"mo_ccpr_log" not in text:
            return Done()
        self.asked += 1
        return ResultSet(COLUMNS, [tuple(self.cells.values())])


@pytest.fixture
def workspace(home: Path) -> Iterator[Workspace]:
    with closing(Workspace()) as workspace:
        publication = Publication("p", "sys", 0)
        upstream = Endpoint("127.0.0.1", 1, "sys", "dump")
        new = Subscription.new("s", upstream, "111", workspace.vault, publication, "d", None, Settings())
        workspace.log.insert(new.to_row(datetime.now(UTC)))
        yield workspace


@pytest.fixture
def clusters(workspace: Workspace) -> Iterator[tuple[Cluster, Cluster]]:
    """That of follower `a`, which is asked first, and that of `b`."""
    task, vault = workspace.log.row("s").task_id, workspace.vault
    found: list[Cluster] = []
    with ExitStack() as stack:
        for name in ("a", "b"):
            publication = publication_of(task, name)
            cluster = Cluster(publication)
            stack.callback(cluster.server.stop)
            uri = f"mysql://sys#root@127.0.0.1:{cluster.server.port}"
            sealed, login = vault.seal("x", parse_uri(uri)[0]), seal_login(vault, publication, "p")
            place = "127.0.0.1:1"
            follower = Follower(task, name, uri, sealed, login, "d", place, datetime.now(UTC), FollowerStage.FOLLOWING)
            FollowerRecords(workspace.log.engine, task).add(follower)
            found.append(cluster)
        yield found[0], found[1]


def records(workspace: Workspace) -> FollowerRecords:
    return FollowerRecords(workspace.log.engine, workspace.log.row("s").task_id)


def watched(watcher: Watcher, holds: Callable[[], bool]) -> None:
    watcher.start()
    end = time.monotonic() + 60
    try:
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.02)
        assert watcher.loop.trouble() is None
    finally:
        watcher.stop()


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("iteration_lsn", "99999999999999999999"),
        ("iteration_lsn", str(2**63)),
        ("iteration_lsn", "-1"),
        ("iteration_lsn", "seven"),
        ("watermark", str(2**64 - 1)),
        ("state", "32768"),
        ("task_id", "x" * 1000),
        ("error_message", b"\xff\xfe"),
        ("error_message", "x" * (20 << 20)),
    ],
)
def test_an_answer_that_cannot_be_is_shown_and_the_others_are_asked(
    workspace: Workspace, clusters: tuple[Cluster, Cluster], cell: str, value: Cell
) -> None:
    hostile, well = clusters
    hostile.cells[cell] = value
    watched(Watcher(workspace, seconds=0.02), lambda: well.asked >= 3)
    failing = records(workspace).get("a").failing
    assert failing is not None
    assert failing.failure.code in ("BAD_ANSWER", "ANSWER_TOO_LONG")
    assert records(workspace).get("b").failing is None


def test_the_largest_numbers_and_a_long_error_are_kept(workspace: Workspace, clusters: tuple[Cluster, Cluster]) -> None:
    clusters[0].cells |= {"iteration_lsn": 2**63 - 1, "watermark": 2**63 - 1, "state": 1, "error_message": "é" * 9999}
    watched(Watcher(workspace, seconds=0.02), lambda: clusters[1].asked >= 2)
    seen = records(workspace).get("a").seen
    assert seen is not None
    assert (seen.iterations, seen.watermark, seen.error) == (2**63 - 1, 2**63 - 1, "é" * 5000)


def test_whatever_one_follower_raises_the_others_are_asked(
    workspace: Workspace, clusters: tuple[Cluster, Cluster]
) -> None:
    def quiet(publication: str) -> Quiet:
        if publication == clusters[0].cells["subscription_name"]:
            raise ZeroDivisionError
        return Quiet()

    watcher = Watcher(workspace, quiet, seconds=0.02)
    watched(watcher, lambda: clusters[1].asked >= 3)
    assert (clusters[0].asked, watcher.loop.errors >= 2) == (0, True)
    assert [error.code for error in watcher.loop.failing().values()] == ["UNEXPECTED"]


def test_a_row_that_cannot_be_read_is_counted(workspace: Workspace, clusters: tuple[Cluster, Cluster]) -> None:
    records(workspace).change("a", stage="nonsense")
    watcher = Watcher(workspace, seconds=0.02)
    watched(watcher, lambda: clusters[1].asked >= 3)
    assert [error.code for error in watcher.loop.failing().values()] == ["STATE_UNREADABLE"]
