"""How an iteration is asked for: what it may do by itself, how long it waits, who follows it, and its sessions with the
upstream."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ccpr.base.progress import SILENT, Progress
from ccpr.matrixone.client.retry import DEFAULT_RETRY, STALE_READ_RULES, Policy
from ccpr.matrixone.client.upstream_session import READ_SECONDS, Session
from ccpr.pipeline.list_check import ListCheck, check_list


class Sessions:
    """One session, opened when a step first needs it, and others beside it.

    Parameters
    ----------
    connect : logs in anew.
    kept : gives a session that stays connected afterwards; None opens one for this iteration.
    """

    def __init__(self, connect: Callable[[], Session], kept: Callable[[], Session] | None = None) -> None:
        self.connect, self._kept = connect, kept
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = self.connect() if self._kept is None else self._kept()
        return self._session

    def close(self) -> None:
        """End the session, if it was opened here."""
        if self._session is not None and self._kept is None:
            self._session.close()


FLUSH_TIMEOUT_SECONDS = 1800.0  # how long an iteration waits for the upstream to flush its snapshot


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long an iteration waits for its upstream, in seconds; `read` is the longest silence (`Session`).

    Attributes
    ----------
    stale_read : how often a difference is asked for until the upstream is taken to have lost its base; None never asks
        again and draws no conclusion: StaleRead is raised.
    """

    connect: float = 10.0
    read: float = READ_SECONDS
    flush: float = FLUSH_TIMEOUT_SECONDS
    retry: Policy = DEFAULT_RETRY
    stale_read: Policy | None = STALE_READ_RULES


@dataclass(frozen=True, slots=True)
class Resync:
    """A full list was asked for, whatever the difference would say.

    Attributes
    ----------
    table : `db.t`, also compared with the bytes that are really in the store; None = all tables, and files that are
        not there at all.
    """

    table: str | None = None


@dataclass(frozen=True, slots=True)
class IterationOptions:
    """
    Attributes
    ----------
    allow_resync : if the upstream has lost the last point's snapshot, go on with a full list, whatever it costs.
    resync : ask for a full list, whatever the difference would say.
    progress : what is called while the iteration works.
    sleep : how it waits for the upstream's flush; may raise, to end the wait.
    is_extra : it was asked for outside of the schedule: if it fails, the next scheduled attempt is when it would be
        without it.
    check_list : what is asked whether an object list is sound.
    """

    allow_resync: bool = False
    resync: Resync | None = None
    timeouts: Timeouts = Timeouts()
    progress: Progress = SILENT
    sleep: Callable[[float], None] = time.sleep
    is_extra: bool = False
    check_list: ListCheck = check_list


DEFAULT_OPTIONS = IterationOptions()
