"""Rounds of restarts: in each one event strikes the upstream, under writes; then everything has to become current by
itself, and equal."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.serving.cut_connection import CutByFault
from ccpr_emulator.serving.faults import (
    CutLogin,
    CutStatement,
    Delay,
    EmptyPast,
    FailLogin,
    FailStatement,
    Fault,
    Hold,
    NoCheckpoints,
)
from tests.restarts.answers import (
    CHANGES,
    CREATE,
    LOGIN,
    LOGINS,
    LOST,
    NOT_SEEN,
    STOPS,
    WAITS,
    Given,
    at_a_stop,
    given,
)
from tests.restarts.world import World

STRIKE_SECONDS = 2.5  # how long a fault may wait for its statement
MOST_ANSWERS = 4  # in one round
CALM_SECONDS = 0.3  # of writes before an event
# What an iteration of this subscription sends; the others are played by the test of the classification.
NOT_SENT = ("get_databases", "show_publication_coverage", "select_rows")


@dataclass
class Played:
    """A round.

    Attributes
    ----------
    said : what was answered, as far as the event chooses it.
    struck, seconds : how long the event took, and the whole round, in seconds.
    """

    number: int
    event: str = ""
    said: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    struck: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = [
            f"round {self.number}: {self.event} ({self.struck:.1f} of {self.seconds:.1f} s)",
            *(f"    answered {one}" for one in self.said),
        ]
        parts += [f"    failed   {one}" for one in self.failures]
        return "\n".join((*parts, *(f"    STOP     {one}" for one in self.stops)))


class Rounds:
    """Plays the rounds of a seed. Each answer is given once before one is given again."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        self._rng = random.Random(seed)
        self._deck: list[Given] = []
        self._events: list[Callable[[Played], None]] = []

    def play(self, number: int) -> Played:
        """One round; compares everything afterwards."""
        played = Played(number)
        if not self._events:
            self._events = [*self._all(), self._answers, self._answers, self._answers]
            self._rng.shuffle(self._events)
        event = self._events.pop()
        played.event = event.__name__.strip("_").replace("_", " ")
        self.world.service.failures()
        began = time.monotonic()
        with self.world.writer.writing():
            time.sleep(CALM_SECONDS)
            event(played)
        played.struck = time.monotonic() - began
        try:
            self.world.settle()
        except AssertionError as error:
            played.stops.append(f"not equal: {error}")
        played.failures += self.world.service.failures()
        played.stops += [stop.what for stop in self.world.stops]
        self.world.stops.clear()
        played.seconds = time.monotonic() - began
        return played

    def _all(self) -> list[Callable[[Played], None]]:
        return [
            self._orderly_restart,
            self._orderly_restart,
            self._kill,
            self._slow_start,
            self._logins,
            self._outcome_unknown,
            self._done_later,
            self._empty_past,
            self._no_checkpoints,
            self._lock_wait,
            self._lock_wait_given_up,
            self._silence,
        ]

    # ---- events

    def _orderly_restart(self, played: Played) -> None:
        self.world.server.shut_down(self._rng.uniform(0.1, 1.0), self._answering(played))
        time.sleep(self._rng.uniform(0.0, 1.0))
        self.world.server.restart()

    def _kill(self, played: Played) -> None:
        self.world.server.kill()
        time.sleep(self._rng.uniform(0.0, 1.0))
        self.world.server.restart()

    def _slow_start(self, played: Played) -> None:
        if self._rng.random() < 0.5:
            self.world.server.kill()
        else:
            self.world.server.shut_down(0.3, self._answering(played))
        time.sleep(self._rng.uniform(1.5, 3.0))
        self.world.server.restart()

    def _answers(self, played: Played) -> None:
        """Statements are answered once with an error each."""
        if len(self._deck) < MOST_ANSWERS:
            self._deck = [one for one in given((*STOPS, *LOGINS)) if one.kind not in NOT_SENT]
            kinds = sorted({one.kind for one in self._deck} - {LOGIN})
            self._deck += [Given(self._rng.choice(kinds), one.number, one.text) for one in (*WAITS, *NOT_SEEN)]
            self._rng.shuffle(self._deck)
        faults: list[Fault] = []
        for _ in range(self._rng.randint(1, MOST_ANSWERS)):
            one = self._deck.pop()
            done = one.kind in CHANGES and self._rng.random() < 0.5
            played.said.append(f"{one}{', and done' if done else ''}")
            faults.append(_fault(one, done=done))
        self._strike(faults, anew=True)

    def _logins(self, played: Played) -> None:
        """New logins fail, one after the other."""
        chosen = self._rng.choices(given(LOGINS), k=self._rng.randint(1, 3))
        played.said += map(str, chosen)
        self._strike([_fault(one, done=False) for one in chosen], anew=True)

    def _outcome_unknown(self, played: Played) -> None:
        """CREATE and DROP SNAPSHOT fail, and were done or not."""
        self._change_snapshots(played, later=0.0)

    def _done_later(self, played: Played) -> None:
        """The same, and they are done later."""
        self._change_snapshots(played, later=self._rng.uniform(0.2, 3.0))

    def _change_snapshots(self, played: Played, later: float) -> None:
        faults: list[Fault] = []
        for kind in CHANGES:
            one = self._rng.choice([answer for answer in given(STOPS) if answer.kind == kind])
            done, times = not later and self._rng.random() < 0.5, self._rng.randint(1, 2)
            played.said.append(
                f"{one}, {times} times, {'done' if done else f'done {later:.1f} s later' if later else 'not done'}"
            )
            fault = _fault(one, done=done)
            assert isinstance(fault, FailStatement | CutStatement)
            faults.append(replace(fault, later=later, times=times))
        self._strike(faults, anew=False)
        time.sleep(later)

    def _empty_past(self, played: Played) -> None:
        self._lose_past(EmptyPast(self._rng.uniform(1.0, 4.0)))

    def _no_checkpoints(self, played: Played) -> None:
        self._lose_past(NoCheckpoints(self._rng.uniform(1.0, 4.0)))

    def _lose_past(self, fault: EmptyPast | NoCheckpoints) -> None:
        self.world.server.kill()
        self.world.server.inject(fault)
        self.world.server.restart()
        time.sleep(fault.seconds)

    def _lock_wait(self, played: Played) -> None:
        """CREATE SNAPSHOT waits."""
        seconds = self._rng.uniform(1.0, 3.0)
        self.world.server.inject(Hold(CREATE, seconds))
        time.sleep(seconds)

    def _lock_wait_given_up(self, played: Played) -> None:
        """CREATE SNAPSHOT waits, its connection breaks, and it is executed when the lock is free."""
        seconds = self._rng.uniform(1.5, 3.0)
        self.world.server.inject(Hold(CREATE, seconds))
        time.sleep(seconds / 2)
        self.world.server.disconnect_all()
        time.sleep(seconds / 2)

    def _silence(self, played: Played) -> None:
        """A statement is answered late."""
        kind = self._rng.choice([one.kind for one in given(STOPS) if one.kind not in NOT_SENT])
        played.said.append(f"{kind}: late")
        self._strike([Delay(kind, self._rng.uniform(0.5, 2.0))], anew=False)

    # ---- what they share

    def _strike(self, faults: list[Fault], *, anew: bool) -> None:
        """Put faults, and wait until they have struck; those that find nothing to strike go. `anew`: after new logins
        more kinds of statements are sent."""
        self.world.server.inject(*faults)
        if anew:
            self.world.server.disconnect_all()
        end = time.monotonic() + STRIKE_SECONDS
        while self.world.server.faults_left and time.monotonic() < end:
            self.world.look()
            time.sleep(0.05)
        self.world.server.clear_faults()

    def _answering(self, played: Played) -> Callable[[str], NoReturn]:
        """What a stop answers, one of the texts that were seen for a kind of statement."""
        lock = threading.Lock()

        def answer(kind: str) -> NoReturn:
            with lock:
                one = self._rng.choice(at_a_stop(kind))
                played.said.append(f"{kind}: {one.number} {one.text[:100]}")
            if one.number == LOST:
                raise CutByFault("the server ends")
            raise StatementError(one.number, one.text)

        return answer


def _fault(one: Given, *, done: bool) -> Fault:
    if one.kind == LOGIN:
        return CutLogin() if one.number in (LOST, 2003) else FailLogin(one.number, one.text)
    if one.number == LOST:
        return CutStatement(one.kind, after_effect=done)
    return FailStatement(one.kind, one.number, one.text, after_effect=done)
