"""The states of a subscription and which event leads from one to another, as data. docs/reference/states.md shows them
as a diagram.

`CcprLog` looks up each change here before it writes, so a state that is not in the diagram is never stored. The codes
are MatrixOne's. Its own code never stores `cancel`; here it is an iteration that was cut off by a pause or a drop.
Source: docs/requirements.md N1, O4, O5, B11.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import NamedTuple

from ccpr.state.errors import SubscriptionMissing, SubscriptionPaused, TransitionRefused


class State(IntEnum):
    RUNNING = 0
    ERROR = 1
    PAUSED = 2
    DROPPED = 3


class IterationState(IntEnum):
    PENDING = 0
    RUNNING = 1
    COMPLETE = 2
    ERROR = 3
    CANCEL = 4


class Shown(StrEnum):
    """The state of a subscription in a word, where people and scripts look. It is not stored."""

    IDLE = "idle"  # up to date, or due; nothing runs it
    COPYING = "copying"  # snapshot, catalog, objects
    APPLYING = "applying"  # what was copied becomes a point; or targets are synced
    FAILING = "failing"  # the last attempt failed, and it is tried again
    PAUSED = "paused"  # by an operator
    STOPPED = "stopped"  # by an error that requires operator action
    DROPPED = "dropped"


def shown(state: int, *, held: bool = False, failing: bool = False, applying: bool = False) -> Shown:
    """`held`: an executor has it; `failing`: its last attempt failed; `applying`: the executor has copied already.
    Failures come first: an attempt under way does not hide that the one before failed."""
    match State(state):
        case State.PAUSED:
            return Shown.PAUSED
        case State.ERROR:
            return Shown.STOPPED
        case State.DROPPED:
            return Shown.DROPPED
        case State.RUNNING if failing:
            return Shown.FAILING
        case State.RUNNING if held:
            return Shown.APPLYING if applying else Shown.COPYING
        case State.RUNNING:
            return Shown.IDLE


class Event(StrEnum):
    """An event that changes the state of a subscription."""

    CLAIM = "claim"  # an executor becomes the owner
    START = "start"  # its iteration runs
    COMMIT = "commit"
    RETRY = "fail, trying again may help"
    FAIL = "fail, an operator must act"
    PAUSE = "pause"
    RESUME = "resume"
    REROUTE = "alter upstream"
    DROP = "drop"


class Pair(NamedTuple):
    """The columns `state` and `iteration_state` of a row."""

    state: State
    iteration: IterationState


_R, _E, _P, _D = State.RUNNING, State.ERROR, State.PAUSED, State.DROPPED
_PENDING, _RUNS, _COMPLETE, _FAILED, _CANCEL = IterationState
IDLE = Pair(_R, _COMPLETE)  # also the state of a new subscription
_WORKS = Pair(_R, _RUNS)
_WAITS = Pair(_R, _PENDING)  # never written here; in MatrixOne an iteration that was chosen and has not begun
_STOPPED = Pair(_E, _FAILED)
_CUT = {_PENDING: _CANCEL, _RUNS: _CANCEL}  # what becomes of an iteration that may not go on
# Pause, resume, alter and drop are possible in every state that is not dropped, even in one that is never written: so
# there is always a way out.
_LIVE = tuple(Pair(state, iteration) for state in (_R, _E, _P) for iteration in IterationState)

TRANSITIONS: Mapping[Event, Mapping[Pair, Pair]] = MappingProxyType(
    {
        # An iteration that a dead owner left pending or running counts as complete: running it again gives the same
        # result (O4).
        Event.CLAIM: {IDLE: IDLE, _WORKS: IDLE, _WAITS: IDLE, _STOPPED: _STOPPED},
        Event.START: {IDLE: _WORKS, _WORKS: _WORKS, _STOPPED: _WORKS},
        Event.COMMIT: {_WORKS: IDLE},
        Event.RETRY: {_WORKS: IDLE, IDLE: IDLE},
        Event.FAIL: {_WORKS: _STOPPED, IDLE: _STOPPED, _STOPPED: _STOPPED},
        Event.PAUSE: {pair: Pair(_P, _CUT.get(pair.iteration, pair.iteration)) for pair in _LIVE},
        Event.RESUME: {**dict.fromkeys(_LIVE, IDLE), _WORKS: _WORKS},
        Event.REROUTE: {**{pair: pair for pair in _LIVE}, _WORKS: IDLE, _WAITS: IDLE},
        Event.DROP: {pair: Pair(_D, _CUT.get(pair.iteration, pair.iteration)) for pair in _LIVE},
    }
)


def after(event: Event, now: Pair, name: str) -> Pair:
    """The states after an event.

    Raises SubscriptionPaused, SubscriptionMissing (it was dropped), TransitionRefused.
    """
    found = TRANSITIONS[event].get(now)
    if found is not None:
        return found
    subject = f"subscription {name}"
    if now.state is State.PAUSED:
        raise SubscriptionPaused(
            "it is paused", subject=subject, remedy=f"`ccpr resume {name}`: it continues from its checkpoint."
        )
    if now.state is State.DROPPED:
        raise SubscriptionMissing("it was dropped", subject=subject)
    text = f"not possible in state {now.state.name.lower()}, iteration {now.iteration.name.lower()}: {event}"
    raise TransitionRefused(
        text, subject=subject, remedy=f"`ccpr resume {name}` makes it run again, from its checkpoint."
    )
