"""The rows of all subscriptions, read every second: whole where they have changed, else their marks only."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ccpr.state.database import reading, repeatable
from ccpr.state.log import CcprLog
from ccpr.state.log_rows import BadRow, LogRow, Mark, read_marks, read_rows, read_some

WHOLE_SECONDS = 60.0  # between two times that all are read whole: who writes them by hand may leave their marks


@dataclass(frozen=True, slots=True)
class ChangedLogRows:
    """Since the read before.

    Attributes
    ----------
    rows : those that are new or have changed.
    gone : task ids of those that were dropped, or cannot be read any more.
    bad : all that cannot be read.
    """

    rows: list[LogRow] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.gone)


class WatchedRows:
    """One thread uses it.

    Attributes
    ----------
    rows : by task id, as they were read last.
    """

    def __init__(self, log: CcprLog, steady: Callable[[], float] = time.monotonic) -> None:
        self.rows: dict[str, LogRow] = {}
        self._log, self._steady = log, steady
        self._marks: dict[str, Mark] = {}
        self._whole_at = float("-inf")

    def read(self) -> ChangedLogRows:
        """What has changed. Raises StateUnavailable, StateUnreadable; then nothing is forgotten."""
        whole = self._steady() - self._whole_at >= WHOLE_SECONDS
        marks, found, bad = self._read(whole)
        if whole:
            self._whole_at = self._steady()
        changed = [row for row in found if self.rows.get(row.task_id) != row]
        unreadable = {row.task_id for row in bad}
        gone = [task_id for task_id in self.rows if task_id not in marks or task_id in unreadable]
        for task_id in gone:
            del self.rows[task_id]
        self.rows.update((row.task_id, row) for row in changed)
        # What was written, or could not be read, since its mark was read is read again next time.
        self._marks = {task_id: mark for task_id, mark in marks.items() if task_id in self.rows}
        return ChangedLogRows(changed, gone, bad)

    @repeatable
    def _read(self, whole: bool) -> tuple[dict[str, Mark], list[LogRow], list[BadRow]]:
        with reading(self._log.engine) as connection:
            marks = read_marks(connection)
            if whole:
                return marks, *read_rows(connection)
            known = self._marks
            return marks, *read_some(connection, [key for key, mark in marks.items() if known.get(key) != mark])
