"""The executor of a service against a simulated upstream: what an idle iteration costs, and what must not end it or
meet another subscription's."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import event

import ccpr
from ccpr.base.errors import Failure
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.results import Listed, StepResults
from ccpr.serve.holding import Holding
from ccpr.serve.listening import Listener
from ccpr.serve.replicator import Replicator
from ccpr.service.workspace import Workspace
from ccpr.state.errors import SubscriptionMissing
from ccpr.state.history import PointHistory
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.lost_objects import losing_objects

pytestmark = pytest.mark.integration

LIMIT_SECONDS = 120.0
MOST_TRANSACTIONS = 12  # of an idle iteration: 200 subscriptions at an interval of 10 s leave 50 ms of a core for each


class Watch(Listener):
    def __init__(self) -> None:
        self.reads = 0
        self.records: list[IterationRecord] = []

    def subscriptions_read(self, rows: list[LogRow]) -> None:
        self.reads += 1

    def iteration_ended(self, record: IterationRecord, mirror: object, seconds: float) -> None:
        self.records.append(record)


@pytest.fixture
def storage() -> Storage:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int not null"}, primary_key=["n"])
    storage.create_publication("p", "d")
    insert(storage, 1)
    return storage


def insert(storage: Storage, number: int) -> None:
    with storage.begin() as transaction:
        transaction.insert("d", "t", {"n": [number]})


@pytest.fixture
def workspace(storage: Storage, tmp_path: Path) -> Iterator[Workspace]:
    with SimulatedUpstream(storage) as upstream, closing(Workspace(tmp_path / "home")) as workspace:
        endpoint, _ = parse_uri(f"mysql://sys#dump@127.0.0.1:{upstream.port}")
        publication = Publication("p", "sys", 0)
        new = Subscription.new("s", endpoint, "111", workspace.vault, publication, "d", None, Settings(sync_interval=1))
        workspace.log.insert(new.to_row(datetime.now(UTC)))
        yield workspace


def rows(workspace: Workspace) -> list[int]:
    return sorted(ccpr.open_mirror(str(workspace.default_mirror("s"))).table("d.t").to_arrow().column("n").to_pylist())


def until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"not so in time: {what}"
        time.sleep(0.02)


def test_an_idle_iteration_does_few_transactions_and_leaves_no_files_of_its_steps(
    workspace: Workspace, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, counted, row = Watch(), Counter[str](), workspace.log.row("s")
    replicator = Replicator(workspace, [watch])
    holding = Holding(workspace, row, replicator._sessions)
    kept: list[Listed] = []
    keep = StepResults.keep_listed
    monkeypatch.setattr(StepResults, "keep_listed", lambda self, listed: (kept.append(listed), keep(self, listed))[1])
    for _ in range(3):
        ended = replicator._iterate(row, holding)
        assert ended.row is not None
        row = ended.row
    event.listen(workspace.log.engine, "begin", lambda _: counted.update(["transactions"]))
    kept.clear()
    for _ in range(3):
        ended = replicator._iterate(row, holding)
        row = workspace.log.row("s")
        assert ended.row == row, "as the iteration left it"
    looked = 3  # of this test
    assert not any(record.outcome.point for record in watch.records[3:])
    assert (counted["transactions"] - looked) / 3 <= MOST_TRANSACTIONS
    assert kept == []
    insert(storage, 2)
    replicator._iterate(row, holding)
    assert watch.records[-1].outcome.point
    assert rows(workspace) == [1, 2]
    replicator.stop()


def test_an_executor_of_whom_nothing_can_be_said_does_not_end_the_service(workspace: Workspace) -> None:
    stranger, row = str(uuid.uuid4()), workspace.log.row("s")
    (workspace.home / "executors" / f"{stranger}.lock").mkdir(parents=True)  # cannot be read as a file
    workspace.log.claim("s", stranger, 3.0, lambda _: False)
    watch = Watch()
    replicator = Replicator(workspace, [watch])
    replicator.start()
    until(lambda: watch.records or replicator.defect, "its lease has ended, and the subscription is run")
    assert not replicator.defect
    until(lambda: watch.reads > 1 or replicator.defect, "the row has changed, and is read again")
    replicator.stop()
    assert rows(workspace) == [1]
    assert workspace.log.row("s").fence > row.fence + 1


def test_an_iteration_that_another_executor_has_done_meanwhile_is_not_done_again(workspace: Workspace) -> None:
    row, watch = workspace.log.row("s"), Watch()
    replicator = Replicator(workspace, [watch])
    holding = Holding(workspace, row, replicator._sessions)
    with closing(Workspace(workspace.home)) as elsewhere:
        other = Replicator(elsewhere, [])
        done = other._iterate(row, Holding(elsewhere, row, other._sessions))
        other.stop()
    ended = replicator._iterate(row, holding)
    assert (ended.elsewhere, ended.row, watch.records) == (True, done.row, [])
    assert workspace.log.row("s").fence == row.fence + 1, "it was not even claimed"
    assert ended.row is not None
    assert not replicator._iterate(ended.row, holding).elsewhere
    replicator.stop()
    assert rows(workspace) == [1]


def test_subscriptions_of_one_login_share_few_sessions(workspace: Workspace) -> None:
    first = workspace.log.row("s")
    for number in range(12):
        workspace.log.insert(replace(first, task_id=str(uuid.uuid4()), subscription_name=f"s{number}"))
    watch = Watch()
    replicator = Replicator(workspace, [watch], workers=2)
    replicator.start()
    until(lambda: len({record.subscription for record in watch.records}) == 13, "each is run")
    assert not replicator.defect
    until(lambda: replicator._sessions.idle, "one is kept; those of iterations that are stopped are not")
    replicator.ask_to_stop()
    until(lambda: not replicator.unfinished, "those that run end")
    assert replicator._sessions.idle <= replicator._schedule.most_at_once
    replicator.stop()
    assert replicator._sessions.idle == 0


def test_what_was_kept_of_a_subscription_is_not_used_for_a_later_one_of_its_name(workspace: Workspace) -> None:
    row, watch = workspace.log.row("s"), Watch()
    replicator = Replicator(workspace, [watch])
    holding = Holding(workspace, row, replicator._sessions)
    assert not replicator._iterate(row, holding).failed
    workspace.log.drop("s")
    later = replace(row, task_id=str(uuid.uuid4()), fence=row.fence)
    workspace.log.insert(later)
    ended = replicator._iterate(row, holding)
    assert ended.elsewhere
    with pytest.raises(SubscriptionMissing), holding.iteration():
        pass
    assert workspace.log.row("s") == later, "nobody has claimed it"
    assert rows(workspace) == [1]
    replicator.stop()


def test_what_a_listener_raises_ends_neither_an_iteration_nor_the_service(workspace: Workspace) -> None:
    class Broken(Watch):
        def subscriptions_read(self, rows: list[LogRow]) -> None:
            raise ZeroDivisionError

        iteration_began = iteration_ended = subscriptions_read  # type: ignore[assignment]

    watch = Watch()
    replicator = Replicator(workspace, [Broken(), watch])
    replicator.start()
    until(lambda: len(watch.records) > 1 or replicator.defect, "two iterations")
    assert not replicator.defect
    assert replicator.listeners.errors > 3
    replicator.stop()
    assert rows(workspace) == [1]


def test_an_error_that_nothing_expects_is_red_from_the_first_and_tried_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failed(Watch):
        failures: ClassVar[list[tuple[Failure, str | None]]] = []

        def iteration_failed(self, row: LogRow, failure: Failure, seconds: float) -> None:
            self.failures.append((failure, row.error_message))

    def broken(iteration: Iteration, record: IterationRecord) -> None:
        raise OverflowError("a number of 20 digits")

    watch = Failed()
    replicator = Replicator(workspace, [watch])
    with monkeypatch.context() as patched:
        patched.setattr("ccpr.pipeline.driver.diff_catalog", broken)
        replicator.start()
        until(lambda: watch.failures, "it fails")
    failure, stored = watch.failures[0]
    assert (failure.code, failure.message) == ("UNEXPECTED", "OverflowError: a number of 20 digits")
    assert stored is not None
    assert stored.startswith("R:1:")
    until(lambda: watch.records, "it goes on by itself")
    until(lambda: not replicator.loop.failing(), "nothing fails any more")
    assert (replicator.loop.errors, replicator.loop.trouble()) == (len(watch.failures), None)
    replicator.stop()
    assert workspace.log.row("s").error_message is None
    assert rows(workspace) == [1]


def test_a_copied_object_that_is_not_in_the_store_fails_the_iteration_and_makes_no_point(workspace: Workspace) -> None:
    replicator, row = Replicator(workspace, [Watch()]), workspace.log.row("s")
    holding = Holding(workspace, row, replicator._sessions)
    with losing_objects() as lost:
        assert replicator._iterate(row, holding).failed
    assert f"MIRROR_DAMAGED: 1 copied objects are not in the store as copied [object {lost[0]}]" in str(
        workspace.log.row("s").error_message
    )
    assert PointHistory(workspace.log.engine, row.task_id).newest() is None
    assert not replicator._iterate(workspace.log.row("s"), holding).failed
    assert rows(workspace) == [1]
    replicator.stop()


def test_a_round_that_fails_is_not_the_last(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    replicator = Replicator(workspace, [watch])
    with monkeypatch.context() as patched:
        patched.setattr(replicator._schedule, "due", lambda: 1 / 0)
        replicator.start()
        until(lambda: replicator.loop.errors, "a round fails")
    until(lambda: watch.records or replicator.defect, "an iteration")
    assert not replicator.defect
    replicator.stop()
