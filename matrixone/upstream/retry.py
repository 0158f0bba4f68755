"""The one place where something is tried again: what may be repeated, how often, with which pauses."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random

from matrixone.errors import Transient

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retry:
    """A policy. The pauses double from the first to the longest, with a random part on top so that many tasks do not come back together.

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


DEFAULT_RETRY = Retry()
NO_RETRY = Retry(attempts=1)


def with_retry(action: Callable[[], Result], policy: Retry = DEFAULT_RETRY, *, also: tuple[type[Exception], ...] = ()) -> Result:
    """The result of `action`, which is repeated while it raises Transient (or one of `also`); after the last attempt, its error.

    Only for what may run twice: reads, and statements with IF [NOT] EXISTS.
    """
    return Retrying(
        stop=stop_after_attempt(policy.attempts),
        wait=wait_exponential(multiplier=policy.first_pause, max=policy.longest_pause) + wait_random(0, policy.jitter),
        retry=retry_if_exception_type((Transient, *also)),
        sleep=policy.sleep,
        before_sleep=_note,
        reraise=True,
    )(action)


def _note(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    pause = state.next_action.sleep if state.next_action is not None else 0.0
    _log.warning("attempt %d failed, next in %.1f s: %s", state.attempt_number, pause, error)
