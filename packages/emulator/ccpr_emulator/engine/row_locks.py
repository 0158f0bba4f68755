"""Rows that a session has locked by SELECT … FOR UPDATE until its transaction ends. A lock is of a table and a
condition as text: two conditions that find the same row do not meet."""

import threading

from ccpr.matrixone.server.answers import StatementError

_SECONDS = 30.0


class RowLocks:
    """Of one storage. Sessions are compared by identity."""

    def __init__(self) -> None:
        self._holders: dict[tuple[str, ...], object] = {}
        self._changed = threading.Condition()

    def take(self, session: object, key: tuple[str, ...]) -> None:
        """Lock rows, waiting until they are free."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._holders.get(key, session) is session, _SECONDS):
                raise StatementError(20101, "internal error: a lock was waited for too long")
            self._holders[key] = session

    def free(self, session: object) -> None:
        """All locks of a session, when its transaction has ended."""
        with self._changed:
            self._holders = {key: holder for key, holder in self._holders.items() if holder is not session}
            self._changed.notify_all()
