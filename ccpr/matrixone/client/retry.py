"""The only place that defines what is tried again: which errors, how often, with which pauses, and what happens then.

Within an iteration a statement that may run twice is repeated as RULES say, by the class of its error. An error that
remains ends the iteration and is written into `mo_ccpr_log`. After a Transient or Unknown one it is tried again later
(BACK_OFF; the log's row counts the failures) with the same recorded snapshot, so that an unknown outcome is looked up
and not repeated blindly. A Terminal one stops the subscription until it is run by hand; one that the upstream said
(Refused) does so once it is confirmed (`ccpr.pipeline.ends`).
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ccpr.matrixone.client.errors import (
    ConnectionLost,
    DatabaseMissing,
    HistoryUnreadable,
    NotFlushedYet,
    SnapshotOutcomeUnknown,
    SnapshotWaits,
    StaleRead,
    StatementFailed,
    UpstreamBusy,
    UpstreamStopping,
    UpstreamUnreachable,
)
from ccpr.matrixone.errors import Transient

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retry:
    """A rule. The pauses double from the first to the longest, plus a random part so that many tasks do not try again
    at the same time.

    Attributes
    ----------
    attempts : the largest number of attempts, including the first.
    first_pause, longest_pause, jitter : seconds.
    """

    attempts: int = 5
    first_pause: float = 0.2
    longest_pause: float = 10.0
    jitter: float = 0.2


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pause between iterations: the subscription's interval, doubled with each consecutive failure up to `longest`
    seconds, plus up to a fraction `jitter` of it that differs by subscription.
    """

    longest: float = 300.0
    jitter: float = 0.1


Rules: TypeAlias = tuple[tuple[type[Exception], Retry], ...]
Policy: TypeAlias = Retry | Rules
NO_RETRY = Retry(attempts=1)
RULES: Rules = (
    # A restart takes seconds; what takes longer is an outage.
    (UpstreamUnreachable, Retry(attempts=4, first_pause=0.5, longest_pause=4.0)),
    (UpstreamStopping, Retry(attempts=4, first_pause=0.5, longest_pause=4.0)),
    (HistoryUnreadable, Retry(attempts=3, first_pause=1.0, longest_pause=2.0)),
    (UpstreamBusy, Retry(attempts=7, first_pause=0.5, longest_pause=15.0)),
    (ConnectionLost, Retry()),
    (SnapshotWaits, Retry(attempts=30, first_pause=0.2, longest_pause=1.0)),  # of two minutes each: the server's hour
    (SnapshotOutcomeUnknown, Retry()),  # only for statements with IF [NOT] EXISTS on a recorded name
    (NotFlushedYet, NO_RETRY),  # `snapshots.wait_until_flushed` has waited already
)
# Between two checkpoints, 5 minutes apart since 4.2.0, a server may not reach back to a snapshot that it can answer for
# some seconds later. Five pauses of 30 s in all, and only then the base of a difference counts as lost.
_STALE_READ = Retry(attempts=6, first_pause=2.0, longest_pause=8.0)
STALE_READ_RULES: Rules = ((StaleRead, _STALE_READ), (HistoryUnreadable, _STALE_READ), (DatabaseMissing, _STALE_READ))
DEFAULT_RETRY: Policy = RULES
BACK_OFF = BackOff()
_MOST_DOUBLINGS = 32


def doubled(first: float, times: int, longest: float) -> float:
    """A pause that doubles each time, up to the longest."""
    return min(longest, first * 2.0 ** min(max(times, 0), _MOST_DOUBLINGS))


def rule_for(kind: type[BaseException], policy: Policy = RULES) -> Retry:
    """The rule of a policy for a class of errors; NO_RETRY if it has none. What no rule of the classification knows is
    not repeated here but with the next iteration: some statements are asked to see whether they are refused."""
    if issubclass(kind, StatementFailed):
        return NO_RETRY
    if isinstance(policy, Retry):
        return policy
    return next((rule for known, rule in policy if issubclass(kind, known)), NO_RETRY)


def with_retry(action: Callable[[], T], policy: Policy = DEFAULT_RETRY, *, also: tuple[type[Exception], ...] = ()) -> T:
    """The result of `action`. It is repeated while it raises Transient (or one of `also`) and the policy has attempts
    left for the class of the last error; then that error is raised.

    Only for actions that may run twice: reads, and statements with IF [NOT] EXISTS.
    """
    attempts, kinds = 1, (Transient, *also)
    while True:
        try:
            return action()
        except kinds as error:
            rule = rule_for(type(error), policy)
            if attempts >= rule.attempts:
                raise
            pause = doubled(rule.first_pause, attempts - 1, rule.longest_pause) + random.uniform(0, rule.jitter)
            _log.warning("attempt %d failed, next in %.1f s: %s", attempts, pause, error)
        time.sleep(pause)
        attempts += 1
