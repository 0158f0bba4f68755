"""The one place that says what is tried again: which errors, how often, with which pauses, and what then.

Within an iteration a statement that may run twice is repeated by RULES, class by class. What is still an error then
ends the iteration and is written into `mo_ccpr_log`. A Transient or Unknown one is tried again by the sensor after a
back-off (BACK_OFF; the log's row counts the failures), with the same recorded snapshot, so that an unknown outcome is
looked up and not repeated blindly. A Terminal one stops the subscription until a person runs it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential, wait_random

from matrixone.errors import Transient
from matrixone.upstream.errors import (
    ConnectionLost,
    NotFlushedYet,
    SnapshotOutcomeUnknown,
    UpstreamBusy,
    UpstreamUnreachable,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retry:
    """A rule. The pauses double from the first to the longest, with a random part on top so that many tasks do not
    come back together.

    Attributes
    ----------
    attempts : how often at most, the first one counted.
    first_pause, longest_pause, jitter : seconds.
    sleep : replaced in tests.
    """

    attempts: int = 5
    first_pause: float = 0.2
    longest_pause: float = 10.0
    jitter: float = 0.2
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class BackOff:
    """Between iterations: the subscription's interval, doubled with each failure in a row up to `longest` seconds, and
    a share of up to `jitter` of it on top that differs by subscription.
    """

    longest: float = 900.0
    jitter: float = 0.1


Rules: TypeAlias = tuple[tuple[type[Exception], Retry], ...]
Policy: TypeAlias = Retry | Rules
NO_RETRY = Retry(attempts=1)
RULES: Rules = (
    (
        UpstreamUnreachable,
        Retry(attempts=4, first_pause=0.5, longest_pause=4.0),
    ),  # a restart takes seconds; what takes longer is an outage
    (UpstreamBusy, Retry(attempts=7, first_pause=0.5, longest_pause=15.0)),
    (ConnectionLost, Retry()),
    (SnapshotOutcomeUnknown, Retry()),  # only for statements with IF [NOT] EXISTS on a recorded name
    (NotFlushedYet, NO_RETRY),  # `snapshots.wait_until_flushed` has waited already
)
DEFAULT_RETRY: Policy = RULES
BACK_OFF = BackOff()


def rule_for(kind: type[BaseException], policy: Policy = RULES) -> Retry:
    """What a policy says of a class of errors; NO_RETRY if nothing."""
    if isinstance(policy, Retry):
        return policy
    return next((rule for known, rule in policy if issubclass(kind, known)), NO_RETRY)


def with_retry(action: Callable[[], T], policy: Policy = DEFAULT_RETRY, *, also: tuple[type[Exception], ...] = ()) -> T:
    """The result of `action`, which is repeated while it raises Transient (or one of `also`) and the policy has
    attempts left for the class of its last error; then that error.

    Only for what may run twice: reads, and statements with IF [NOT] EXISTS.
    """

    def rule(state: RetryCallState) -> Retry:
        error = state.outcome.exception() if state.outcome is not None else None
        return NO_RETRY if error is None else rule_for(type(error), policy)

    def pause(state: RetryCallState) -> float:
        found = rule(state)
        return (wait_exponential(multiplier=found.first_pause, max=found.longest_pause) + wait_random(0, found.jitter))(
            state
        )

    return Retrying(
        stop=lambda state: state.attempt_number >= rule(state).attempts,
        wait=pause,
        retry=retry_if_exception_type((Transient, *also)),
        sleep=policy.sleep if isinstance(policy, Retry) else time.sleep,
        before_sleep=_note,
        reraise=True,
    )(action)


def _note(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    pause = state.next_action.sleep if state.next_action is not None else 0.0
    _log.warning("attempt %d failed, next in %.1f s: %s", state.attempt_number, pause, error)
