"""The log: one owner at a time, and a commit that only the owner can make."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from ccpr.matrixone.errors import Terminal, Transient
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.errors import LeaseLost, SubscriptionBusy, SubscriptionExists, SubscriptionMissing, SubscriptionPaused
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.log import CcprLog
from ccpr.state.log_rows import Claim
from ccpr.state.migrations import open_database
from ccpr.state.states import IterationState, State
from ccpr.state.tables import mo_ccpr_log
from tests.support.values import NOW, a_subscription, commit

pytestmark = pytest.mark.integration

TTL = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def nobody_is_dead(owner: str) -> bool:
    return False


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(catalog_url: str, clock: Clock) -> Iterator[CcprLog]:
    log = CcprLog(open_database(catalog_url), clock)
    log.insert(a_subscription().to_row(NOW))
    yield log
    log.engine.dispose()


def test_two_machines_whose_clocks_differ_by_a_lease_do_not_take_over_in_turns(log: CcprLog, clock: Clock) -> None:
    """The one whose clock is ahead sees the other's lease as over and takes over; the other sees its lease as
    longer."""
    ahead = CcprLog(log.engine, lambda: clock.now + TTL + 1)
    taken = 0
    behind_claim: Claim | None = None
    claim = log.claim("sub", "behind", TTL, nobody_is_dead)
    stolen = ahead.claim("sub", "ahead", TTL, nobody_is_dead)
    assert not log.renew(claim, TTL)
    for _ in range(20):  # ten seconds each, as executors renew
        clock.now += TTL / 3
        assert ahead.renew(stolen, TTL)
        try:
            behind_claim = log.claim("sub", "behind", TTL, nobody_is_dead)
        except SubscriptionBusy:
            taken += 1
    assert (taken, behind_claim) == (20, None)
    ahead.release(stolen)
    assert log.claim("sub", "behind", TTL, nobody_is_dead).fence == stolen.fence + 1


def test_a_new_subscription_has_run_nothing(log: CcprLog) -> None:
    row = log.row("sub")
    assert (row.state, row.iteration_state, row.iteration_lsn, row.watermark) == (
        State.RUNNING,
        IterationState.COMPLETE,
        0,
        0,
    )


def test_readers_of_matrixones_own_table_find_its_columns_in_its_order_and_its_codes() -> None:
    native = (
        "task_id subscription_name subscription_account_name sync_level account_id db_name table_name upstream_conn "
        "sync_config state iteration_state iteration_lsn watermark context cn_uuid error_message created_at drop_at"
    )
    assert [column.name for column in mo_ccpr_log.columns][:18] == native.split()
    assert {state.name: state.value for state in State} == {"RUNNING": 0, "ERROR": 1, "PAUSED": 2, "DROPPED": 3}
    codes = {state.name: state.value for state in IterationState}
    assert codes == {"PENDING": 0, "RUNNING": 1, "COMPLETE": 2, "ERROR": 3, "CANCEL": 4}
    row = a_subscription(table="t").to_row(NOW)
    assert (row.sync_level, row.db_name, row.table_name) == ("table", "db", "t")
    assert json.loads(row.sync_config)["sync_interval"] == 60


def test_names_are_unique(log: CcprLog) -> None:
    with pytest.raises(SubscriptionExists):
        log.insert(a_subscription().to_row(NOW))


def test_an_unknown_name_is_an_error(log: CcprLog) -> None:
    with pytest.raises(SubscriptionMissing):
        log.row("nobody")


def test_a_living_owner_is_not_displaced(log: CcprLog, clock: Clock) -> None:
    log.claim("sub", "a", TTL, nobody_is_dead)
    clock.now += TTL - 1
    with pytest.raises(SubscriptionBusy):
        log.claim("sub", "b", TTL, nobody_is_dead)


@pytest.mark.parametrize(("wait", "is_dead"), [(TTL + 1, nobody_is_dead), (0, lambda owner: owner == "a")])
def test_an_owner_whose_lease_ran_out_or_who_is_dead_is_displaced_and_can_no_longer_commit(
    wait: float, is_dead: Callable[[str], bool], log: CcprLog, clock: Clock
) -> None:
    old = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(old, Context())
    clock.now += wait
    new = log.claim("sub", "b", TTL, is_dead)
    assert new.fence > old.fence
    assert log.row("sub").iteration_state == IterationState.COMPLETE  # O4
    log.start(new, Context())
    assert not log.renew(old, TTL)
    with pytest.raises(LeaseLost):
        commit(log, old, 7)
    log.release(old)
    assert log.row("sub").lease_expires_at > 0, "a displaced owner frees nothing"
    commit(log, new, 7)
    assert (log.row("sub").iteration_lsn, log.row("sub").watermark) == (1, 7)


def test_an_owner_takes_its_own_lease_again_with_a_new_fence(log: CcprLog) -> None:
    """Two runs in one process, as in Dagster's daemon: the earlier one is superseded, too, though the owner is the
    same."""
    first = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(first, Context())
    second = log.claim("sub", "a", TTL, nobody_is_dead)
    assert second.fence == first.fence + 1
    log.start(second, Context())
    assert not log.renew(first, TTL)
    log.release(first)
    assert log.row("sub").lease_expires_at > 0
    for step in (
        lambda: commit(log, first, 7),
        lambda: log.remember(first, Context()),
        lambda: log.start(first, Context()),
    ):
        with pytest.raises(LeaseLost):
            step()
    assert log.row("sub").iteration_lsn == 0
    commit(log, second, 7)


def test_a_lease_of_a_clock_that_was_ahead_keeps_nobody_out_for_long(log: CcprLog, clock: Clock) -> None:
    """Written by a machine that is dead now and cannot be judged from here."""
    clock.now += 86_400
    old = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(old, Context())
    clock.now -= 86_400
    assert not log.is_held(log.row("sub"))
    new = log.claim("sub", "b", TTL, nobody_is_dead)
    log.start(new, Context())
    with pytest.raises(LeaseLost):
        commit(log, old, 7)
    commit(log, new, 7)


def test_a_lease_of_a_clock_that_is_a_little_ahead_counts(log: CcprLog, clock: Clock) -> None:
    clock.now += 60
    log.claim("sub", "a", TTL, nobody_is_dead)
    clock.now -= 60
    with pytest.raises(SubscriptionBusy):
        log.claim("sub", "b", TTL, nobody_is_dead)


def test_a_commit_needs_a_running_iteration_and_its_own_lsn(log: CcprLog) -> None:
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    with pytest.raises(LeaseLost):
        commit(log, claim, 7)
    log.start(claim, Context())
    commit(log, claim, 7)
    for step in (
        lambda: log.start(claim, Context()),
        lambda: log.fail(claim, Context(), Broken("late", subject="upstream"), ends=True),
        lambda: commit(log, claim, 8),
    ):
        with pytest.raises(LeaseLost):
            step()
    assert (log.row("sub").watermark, log.row("sub").error_message) == (7, None)


def test_a_commit_is_of_the_iteration_that_the_row_has(log: CcprLog) -> None:
    """Nothing here makes such a row; a restored catalog database could."""
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(claim, Context())
    with transaction(log.engine) as connection:
        connection.exec_driver_sql("UPDATE mo_ccpr_log SET iteration_lsn = 5")
    with pytest.raises(LeaseLost):
        commit(log, claim, 7)
    assert (log.row("sub").iteration_lsn, log.row("sub").watermark) == (5, 0)


def test_a_refused_commit_writes_nothing_of_the_point(log: CcprLog) -> None:
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    history = PointHistory(log.engine, claim.task_id)
    point = GlobalPoint(0, Timestamp(7), "xr_a_0_0", NOW, "", 0, 0, 0)
    with pytest.raises(LeaseLost):
        commit(log, claim, 7, lambda connection: history.write(connection, point, []))
    assert history.newest() is None


def test_a_point_that_cannot_be_written_rolls_the_outcome_back(log: CcprLog) -> None:
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(claim, Context())

    def broken(connection: sa.Connection) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        commit(log, claim, 7, broken)
    assert log.row("sub").iteration_lsn == 0


class Flaky(Transient):
    code = "FLAKY"


class Broken(Terminal):
    code = "BROKEN"


def test_failures_are_written_as_matrixone_writes_them(log: CcprLog, clock: Clock) -> None:
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(claim, Context())
    log.fail(claim, Context(), Flaky("line down", subject="upstream"), ends=False)
    clock.now += 10
    log.fail(claim, Context(), Flaky("line down", subject="upstream"), ends=False)
    row = log.row("sub")
    assert row.error_message is not None
    assert row.error_message.startswith("R:2:1000000:1000010:FLAKY: line down")
    assert (row.state, row.iteration_state, row.iteration_lsn) == (State.RUNNING, IterationState.COMPLETE, 0)
    log.fail(claim, Context(), Broken("gone", subject="upstream"), ends=True)
    row = log.row("sub")
    assert row.error_message is not None
    assert row.error_message.startswith("N:1000010:BROKEN: gone")
    assert (row.state, row.iteration_state) == (State.ERROR, IterationState.ERROR)
    log.start(claim, Context())
    commit(log, claim, 7)
    assert (log.row("sub").state, log.row("sub").error_message) == (State.RUNNING, None)


def test_running_ends_state_error(log: CcprLog) -> None:
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(claim, Context())
    log.fail(claim, Context(), Broken("gone", subject="upstream"), ends=True)
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    assert log.row("sub").pair == (State.ERROR, IterationState.ERROR)
    log.start(claim, Context())
    assert log.row("sub").pair == (State.RUNNING, IterationState.RUNNING)
    commit(log, claim, 7)
    assert log.row("sub").pair == (State.RUNNING, IterationState.COMPLETE)


# ---- administration


def test_a_pause_ends_what_runs_and_resume_goes_on_from_the_same_lsn(log: CcprLog) -> None:
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(claim, Context(attempts=3))
    assert log.pause("sub").pair == (State.PAUSED, IterationState.CANCEL)
    assert not log.renew(claim, TTL)
    fail = Flaky("x", subject="y")
    for step in (
        lambda: commit(log, claim, 7),
        lambda: log.remember(claim, Context()),
        lambda: log.fail(claim, Context(), fail, ends=False),
    ):
        with pytest.raises(LeaseLost, match="paused"):
            step()
    with pytest.raises(SubscriptionPaused):
        log.claim("sub", "b", TTL, nobody_is_dead)
    row = log.resume("sub")
    assert (row.pair, row.iteration_lsn, Context.from_text(row.context).attempts) == (
        (State.RUNNING, IterationState.COMPLETE),
        0,
        3,
    )
    again = log.claim("sub", "b", TTL, nobody_is_dead)
    log.start(again, Context())
    commit(log, again, 7)


def test_resume_ends_an_error_and_a_wait_after_failures(log: CcprLog) -> None:
    for error in (Broken("gone", subject="upstream"), Flaky("line down", subject="upstream")):
        claim = log.claim("sub", "a", TTL, nobody_is_dead)
        log.start(claim, Context())
        log.fail(claim, Context(), error, ends=isinstance(error, Broken))
        row = log.resume("sub")
        assert (row.pair, row.error_message) == ((State.RUNNING, IterationState.COMPLETE), None)


def test_a_dropped_one_keeps_its_checkpoint_and_frees_its_name(log: CcprLog) -> None:
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(claim, Context().opened("uid", 0))
    commit(log, claim, 7)
    log.drop("sub")
    with pytest.raises(LeaseLost, match="dropped"):
        log.remember(claim, Context())
    with pytest.raises(SubscriptionMissing):
        log.drop("sub")
    row = log.dropped_row("sub")
    assert row is not None
    assert (row.iteration_lsn, row.watermark, log.rows()) == (1, 7, [])
    log.insert(replace(a_subscription().to_row(NOW), task_id="another"))
    assert log.row("sub").task_id == "another"


def test_to_alter_what_was_altered_meanwhile_is_an_error(log: CcprLog) -> None:
    row = log.row("sub")
    log.alter(row, {"sync_config": "{}"}, reroute=False)
    with pytest.raises(SubscriptionBusy, match="altered"):
        log.alter(row, {"sync_config": "[]"}, reroute=False)


def test_settings_change_beneath_a_running_iteration_and_a_new_upstream_ends_it(log: CcprLog) -> None:
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(claim, Context())
    log.alter(log.row("sub"), {"sync_config": '{"retain": 2}'}, reroute=False)
    assert log.renew(claim, TTL)
    log.alter(log.row("sub"), {"upstream_conn": "mysql://x@y:1"}, reroute=True)
    with pytest.raises(LeaseLost, match="altered"):
        commit(log, claim, 7)
    assert log.row("sub").pair == (State.RUNNING, IterationState.COMPLETE)


def test_of_many_that_claim_at_once_one_owns_and_commits(log: CcprLog) -> None:
    """Threads with connections of their own, as processes have them."""
    claims: list[Claim] = []
    busy: list[SubscriptionBusy] = []
    gate = threading.Barrier(8)

    def claim(owner: str) -> None:
        gate.wait()
        try:
            claims.append(log.claim("sub", owner, TTL, nobody_is_dead))
        except SubscriptionBusy as error:
            busy.append(error)

    threads = [threading.Thread(target=claim, args=(f"owner-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(claims), len(busy)) == (1, 7)
    log.start(claims[0], Context())
    commit(log, claims[0], 7)


def test_two_new_ones_of_one_name_at_once_are_one(log: CcprLog) -> None:
    results: list[str] = []

    def insert(number: int) -> None:
        row = replace(a_subscription("new").to_row(NOW), task_id=f"task-{number}")
        try:
            log.insert(row, lambda others: results.append("looked"))
            results.append("made")
        except SubscriptionExists:
            results.append("exists")

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["exists"] * 3 + ["looked"] * 4 + ["made"]
