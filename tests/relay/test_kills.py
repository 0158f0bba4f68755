"""kill -9 of the relay at any statement that a follower sends, and of the follower's cluster at any that it sends:
started again, it ends with the rows of each point.

KILLS=all takes every statement, before and after it (`make relay-kills`); otherwise a sample of the kinds is taken,
the first statement of each.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest

from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.errors import CcprError
from ccpr.relay.following import FollowerDestination, follow, unfollow
from ccpr.state.followers import FollowerRecords
from ccpr.state.pins import Pins
from ccpr.state.settings import Settings
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, subscribed
from tests.relay.killing import WAIT_SECONDS, Mortal, Strike, downstream_process, relay_process
from tests.support.driving import iterate
from tests.support.native_client import NativeClient, NativeCopies, NativeTask
from tests.support.ports import free_port
from tests.support.relayed import assert_has_point, relaying

pytestmark = [pytest.mark.long, pytest.mark.kills]
ALL = os.environ.get("KILLS") == "all"
ITERATION = (  # docs/upstream.md 9: what a MatrixOne sends
    "CREATE SNAPSHOT",
    "__++__internal_get_snapshot_ts",
    "DROP SNAPSHOT",
    "__++__internal_check_snapshot_flushed",
    "__++__internal_get_databases",
    "__++__internal_get_ddl",
    "__++__internal_get_mo_indexes",
    "__++__internal_object_list",
    "__++__internal_get_object",
)
KINDS = ("SHOW PUBLICATION", *ITERATION)
EVERY = [(kind, after) for kind in KINDS for after in (False, True)]
OF_RELAY, OF_CLUSTER = (EVERY, EVERY) if ALL else (EVERY[::5], EVERY[3::5])


class Desk:
    """A simulated upstream, a subscription to it, and what happens there while somebody follows."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.storage, self.number = Storage(), 0
        self.storage.create_database("d")
        self.storage.create_publication("p", "d")
        for name in ("a", "b"):
            columns = {"n": "int not null", "v": "varchar(20)"}
            self.storage.create_table("d", name, columns, primary_key=["n"], indexes={"iv": ["v"]})
            self.insert(name)
        source = held.enter_context(SimulatedUpstream(self.storage))
        settings = Settings(with_indexes=True, retain=2)
        self.workspace = held.enter_context(closing(subscribed(source.port, folder, "d", settings=settings)))
        self.mirror = self.workspace.mirror(NAME)

    def insert(self, table: str) -> None:
        numbers = list(range(self.number, self.number + 50))
        self.number += 50
        with self.storage.begin() as transaction:
            transaction.insert("d", table, {"n": numbers, "v": [f"v{number}" for number in numbers]})

    def create(self) -> None:
        """As it is when somebody begins to follow."""

    def change(self) -> None:
        self.insert("a")
        with self.storage.begin() as transaction:
            transaction.delete("d", "b")
        self.insert("b")

    def define(self) -> None:
        self.storage.truncate("d", "b")
        self.insert("b")
        self.storage.rename_table("d", "a", "c")

    def change_again(self) -> None:
        self.insert("c")
        self.insert("b")

    def follow(self, downstream: int, relay: int) -> None:
        """Typed until it succeeds."""
        place = FollowerDestination(
            Endpoint("127.0.0.1", downstream, "sys", "root"), "111", relay_address=f"127.0.0.1:{relay}"
        )
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                follow(self.workspace, NAME, "b", place)
                return
            except CcprError:
                assert time.monotonic() < end

    def follow_to_the_end(self, downstream: int, relay: int, copies: Callable[[], NativeCopies]) -> None:
        """The rows are there at each point, and nothing is left when it ends."""
        for step in (self.create, self.change, self.define, self.change_again):
            step()
            iterate(self.workspace, NAME)
            if step == self.create:
                self.follow(downstream, relay)
            found = self._wait(copies)
            assert assert_has_point(found, only_task(found), self.mirror) >= 100
        unfollow(self.workspace, NAME, "b", drop_database=True)
        found, task_id = copies(), self.workspace.log.row(NAME).task_id
        assert (found.tasks, found.databases) == ({}, {})
        assert FollowerRecords(self.workspace.log.engine, task_id).all() == []
        assert Pins(self.workspace.log.engine, task_id).all() == []

    def _wait(self, copies: Callable[[], NativeCopies]) -> NativeCopies:
        end = time.monotonic() + WAIT_SECONDS
        while only_task(found := copies()).watermark < self.mirror.point().at.physical:
            assert time.monotonic() < end, only_task(found)
            time.sleep(0.05)
        return found


def only_task(found: NativeCopies) -> NativeTask:
    (task,) = found.tasks.values()
    assert task.state == 0, task.error
    return task


@pytest.mark.parametrize(("kind", "after"), OF_RELAY)
def test_a_relay_that_is_killed_at_any_statement_is_gone_on_with(kind: str, after: bool, tmp_path: Path) -> None:
    def deaths(folder: Path, strike: Strike) -> int:
        with ExitStack() as held:
            desk = Desk(folder, held)
            relay = Mortal(relay_process, port := free_port(), folder / "home")
            held.enter_context(relay.living(strike))
            client = held.enter_context(NativeClient())
            desk.follow_to_the_end(client.port, port, lambda: client)
        assert relay.kinds.keys() >= set(KINDS)
        return relay.deaths

    assert_killed(deaths, kind, after, tmp_path)


@pytest.mark.parametrize(("kind", "after"), OF_CLUSTER)
def test_a_cluster_that_is_killed_at_any_statement_goes_on(kind: str, after: bool, tmp_path: Path) -> None:
    def deaths(folder: Path, strike: Strike) -> int:
        with ExitStack() as held:
            desk = Desk(folder, held)
            relay = held.enter_context(relaying(desk.workspace))
            cluster = Mortal(downstream_process, port := free_port(), folder / "cluster")
            held.enter_context(cluster.living(strike))
            desk.follow_to_the_end(port, relay.port, lambda: NativeCopies(folder / "cluster"))
        assert cluster.kinds.keys() == set(KINDS)
        return cluster.deaths

    assert_killed(deaths, kind, after, tmp_path)


def assert_killed(deaths: Callable[[Path, Strike], int], kind: str, after: bool, folder: Path) -> None:
    """At the first statement of a kind; or at each, until there is none any more."""
    for number in count(1) if ALL else [1]:
        found = deaths(folder / str(number), Strike(kind, number, after))
        if number > 1 and not found:
            return
        assert found == 1
