"""The states of a subscription: every one has a way out that keeps the checkpoint, and only the owner of the moment
commits."""

from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ccpr.matrixone.errors import Terminal, Transient
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.errors import LeaseLost, SubscriptionBusy, SubscriptionMissing, SubscriptionPaused, TransitionRefused
from ccpr.state.log import CcprLog
from ccpr.state.log_rows import Claim
from ccpr.state.migrations import open_database
from ccpr.state.states import IDLE, TRANSITIONS, Event, IterationState, Pair, Shown, State, after, shown
from ccpr.state.tables import mo_ccpr_log
from tests.support.values import NOW, a_subscription, commit

TTL = 30.0
PERSON = {Event.PAUSE, Event.RESUME, Event.REROUTE, Event.DROP}


def reachable() -> set[Pair]:
    found, new = {IDLE}, {IDLE}
    while new:
        new = {steps[pair] for steps in TRANSITIONS.values() for pair in new if pair in steps} - found
        found |= new
    return found


@pytest.mark.parametrize(
    ("state", "held", "failing", "applying", "word"),
    [
        (State.RUNNING, False, False, False, Shown.IDLE),
        (State.RUNNING, False, False, True, Shown.IDLE),
        (State.RUNNING, True, False, False, Shown.COPYING),
        (State.RUNNING, True, False, True, Shown.APPLYING),
        (State.RUNNING, True, True, True, Shown.FAILING),
        (State.RUNNING, False, True, False, Shown.FAILING),
        (State.ERROR, True, True, False, Shown.STOPPED),
        (State.PAUSED, False, True, False, Shown.PAUSED),
        (State.DROPPED, False, False, False, Shown.DROPPED),
    ],
)
def test_a_state_is_shown_in_a_word(state: State, held: bool, failing: bool, applying: bool, word: Shown) -> None:
    assert shown(state, held=held, failing=failing, applying=applying) is word


def test_what_can_be_reached_is_what_is_drawn() -> None:
    running, error, paused, dropped = State
    _, runs, complete, failed, cancel = IterationState
    assert reachable() == {
        Pair(running, complete),
        Pair(running, runs),
        Pair(error, failed),
        *(Pair(paused, iteration) for iteration in (complete, failed, cancel)),
        *(Pair(dropped, iteration) for iteration in (complete, failed, cancel)),
    }


@pytest.mark.parametrize("pair", sorted({Pair(s, i) for s in State for i in IterationState if s is not State.DROPPED}))
def test_every_state_leads_to_a_commit(pair: Pair) -> None:
    """Those that were never written, too: by resume, claim, start."""
    for event in (Event.RESUME, Event.CLAIM, Event.START, Event.COMMIT):
        pair = after(event, pair, "sub")
    assert pair == IDLE


def test_an_event_that_is_not_possible_is_an_error_with_a_way_out() -> None:
    with pytest.raises(SubscriptionPaused) as paused:
        after(Event.CLAIM, Pair(State.PAUSED, IterationState.COMPLETE), "shop")
    assert "ccpr resume shop" in paused.value.remedy
    with pytest.raises(SubscriptionMissing):
        after(Event.PAUSE, Pair(State.DROPPED, IterationState.COMPLETE), "shop")
    with pytest.raises(TransitionRefused):
        after(Event.COMMIT, IDLE, "shop")


class Flaky(Transient):
    """A test's."""

    code = "FLAKY"


class Broken(Terminal):
    """A test's."""

    code = "BROKEN"


OWNERS = st.sampled_from(["a", "b"])


class Lives(RuleBasedStateMachine):
    """Two executors, an operator and a clock at one row. The model knows who owns it; the log has to agree."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.log = CcprLog(open_database("sqlite://"), lambda: self.now)
        self.claims: dict[str, Claim] = {}
        self.owner: str | None = None  # whose claim is valid, as far as the fence goes
        self.expires = 0.0
        self.lsn = self.watermark = 0
        self.pair = IDLE

    @initialize()
    def subscribe(self) -> None:
        self.log.insert(a_subscription().to_row(NOW))

    def teardown(self) -> None:
        """Whatever happened: a way to the next commit, from the same lsn and watermark."""
        if self.pair.state is not State.DROPPED:
            self.now += 10 * TTL
            self.log.resume("sub")
            claim = self.log.claim("sub", "rescue", TTL, lambda owner: False)
            assert claim.lsn == self.lsn
            self.log.start(claim, Context())
            commit(self.log, claim, self.watermark + 1)
            row = self.log.row("sub")
            assert (row.pair, row.iteration_lsn, row.watermark) == (IDLE, self.lsn + 1, self.watermark + 1)
        self.log.engine.dispose()

    @rule(seconds=st.sampled_from([1.0, TTL / 2, TTL + 1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(owner=OWNERS, dead=st.booleans())
    def claim(self, owner: str, dead: bool) -> None:
        def claim() -> Claim:
            return self.log.claim("sub", owner, TTL, lambda other: dead)

        if self.pair.state is State.DROPPED:
            refused(SubscriptionMissing, claim)
        elif self.pair.state is State.PAUSED:
            refused(SubscriptionPaused, claim)
        elif self.owner not in (None, owner) and self.expires > self.now and not dead:
            refused(SubscriptionBusy, claim)
        else:
            self.claims[owner] = claim()
            self.owner, self.expires = owner, self.now + TTL
            self.pair = after(Event.CLAIM, self.pair, "sub")

    def holds(self, owner: str, event: Event) -> bool:
        """May this executor take a step of its iteration?"""
        return self.owner == owner and self.claims[owner].lsn == self.lsn and self.pair in TRANSITIONS[event]

    def step(self, owner: str, event: Event, act: Any) -> None:
        if self.holds(owner, event):
            act()
            self.pair = after(event, self.pair, "sub")
            return
        with pytest.raises((LeaseLost, TransitionRefused)):
            act()

    @precondition(lambda self: self.claims)
    @rule(owner=OWNERS)
    def start(self, owner: str) -> None:
        if owner in self.claims:
            self.step(owner, Event.START, lambda: self.log.start(self.claims[owner], Context()))

    @precondition(lambda self: self.claims)
    @rule(owner=OWNERS)
    def finish(self, owner: str) -> None:
        if owner not in self.claims:
            return
        allowed = self.holds(owner, Event.COMMIT)
        self.step(owner, Event.COMMIT, lambda: commit(self.log, self.claims[owner], self.watermark + 5))
        if allowed:
            self.lsn, self.watermark = self.lsn + 1, self.watermark + 5

    @precondition(lambda self: self.claims)
    @rule(owner=OWNERS, error=st.sampled_from([Flaky("x", subject="y"), Broken("x", subject="y")]))
    def fail(self, owner: str, error: Transient | Terminal) -> None:
        if owner in self.claims:
            event = Event.FAIL if isinstance(error, Terminal) else Event.RETRY
            self.step(
                owner, event, lambda: self.log.fail(self.claims[owner], Context(), error, ends=event is Event.FAIL)
            )

    @precondition(lambda self: self.claims)
    @rule(owner=OWNERS)
    def renew(self, owner: str) -> None:
        if owner in self.claims:
            assert self.log.renew(self.claims[owner], TTL) == (self.owner == owner)
            if self.owner == owner:
                self.expires = self.now + TTL

    @precondition(lambda self: self.claims)
    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        if owner in self.claims:
            self.log.release(self.claims[owner])
            if self.owner == owner:
                self.expires = 0.0

    @rule(event=st.sampled_from(sorted(PERSON - {Event.DROP}) * 4 + [Event.DROP]))
    def person(self, event: Event) -> None:
        acts = {
            Event.PAUSE: lambda: self.log.pause("sub"),
            Event.RESUME: lambda: self.log.resume("sub"),
            Event.REROUTE: lambda: self.log.alter(
                self.log.row("sub"), {"upstream_conn": "mysql://x@y:1"}, reroute=True
            ),
            Event.DROP: lambda: self.log.drop("sub"),
        }
        if self.pair.state is State.DROPPED:
            refused(SubscriptionMissing, acts[event])
            return
        acts[event]()
        self.pair = after(event, self.pair, "sub")
        if event is not Event.RESUME:
            self.owner = None

    @invariant()
    def the_row_is_as_it_should_be(self) -> None:
        with transaction(self.log.engine) as connection:
            rows = connection.execute(sa.select(mo_ccpr_log)).all()
        for row in rows:
            assert (row.state, row.iteration_state) == self.pair
            assert (row.iteration_lsn, row.watermark) == (self.lsn, self.watermark)
            assert (row.live_name is None) == (self.pair.state is State.DROPPED)


def refused(error: type[Exception], act: Any) -> None:
    with pytest.raises(error):
        act()


@pytest.mark.slow
def test_generated_lives() -> None:
    run_state_machine_as_test(Lives, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
