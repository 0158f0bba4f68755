"""The sessions of an iteration with its upstream: one, opened when a step first needs it, and others beside it."""

from collections.abc import Callable

from ccpr.matrixone.client.upstream_session import Session


class Sessions:
    """
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
