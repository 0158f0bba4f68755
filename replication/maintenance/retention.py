"""Which points stay readable, and what is deleted when one goes: recorded in one transaction first, deleted an hour
later (architecture 6).

A crash in between loses nothing: what is recorded as garbage is deleted by the next sweep, and nothing else ever is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from replication.mirror.mirror import Mirror
from replication.mirror.points import LaggingTable
from replication.state.database import transaction
from replication.state.history import GlobalPoint, PointHistory
from replication.state.ledger import Ledger
from replication.state.quarantine import Quarantine
from replication.state.targets import needed_points

GRACE_SECONDS = 3600
_CONFIRMED_FILES = 50  # deleted at a time, well within a lease


@dataclass(frozen=True, slots=True)
class Retention:
    """A point stays if it is among the newest `points`, or if it showed the replica at some time of the last
    `seconds`: so the newest that is older stays, too, however long ago it was made. 0 means that this rule keeps
    nothing, both 0 that all points stay. The newest point always stays, and so do the newest that shows a table which
    is behind, and those from which a target goes on.
    """

    points: int = 0
    seconds: int = 0

    def oldest_kept(
        self, points: Sequence[GlobalPoint], now: float, behind: Iterable[LaggingTable] = (), needed: Iterable[int] = ()
    ) -> int | None:
        """The lsn of the oldest point to keep; None if all stay. `points` oldest first; `behind` of the newest;
        `needed` by targets."""
        if not points or not (self.points or self.seconds):
            return None
        newest = points[-max(self.points, 1) :]
        older = [point for point in points if point.committed_at.timestamp() <= now - self.seconds]
        within = (older[-1:] or points[:1]) if self.seconds else []
        shown = [late.lsn for late in behind if late.lsn is not None]
        return min([point.lsn for point in [*newest, *within]] + shown + list(needed))


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did: points no longer readable, files deleted, files that wait for the end of their grace."""

    points_dropped: int
    files_deleted: int
    files_waiting: int


def sweep(
    history: PointHistory,
    ledger: Ledger,
    quarantine: Quarantine,
    mirror: Mirror,
    retention: Retention,
    now: float,
    *,
    confirm: Callable[[], None],
    grace_seconds: int = GRACE_SECONDS,
) -> Swept:
    """Drop points that need not stay, delete files whose grace is over. The caller holds the lease; `confirm` raises
    if it does not any more, for then a file may be named again by who does.
    """
    points = history.global_points()
    behind = quarantine.behind(points[-1].lsn).values() if points else ()
    oldest = retention.oldest_kept(points, now, behind, needed_points(history.engine, history.task_id))
    dropped = [point for point in points if oldest is not None and point.lsn < oldest]
    if dropped and oldest is not None:
        confirm()
        with transaction(history.engine) as connection:
            paths = history.drop_before(connection, oldest)
            paths += [f"objects/{name}" for name in ledger.end_references(connection, oldest)]
            paths += [point.ledger for point in dropped if point.ledger]
            paths += mirror.points_not_needed(oldest)
            quarantine.drop_before(connection, oldest)
            ledger.schedule_deletion(connection, paths, round(now) + grace_seconds)
    due = ledger.due_garbage(round(now))
    for start in range(0, len(due), _CONFIRMED_FILES):
        confirm()
        for path in due[start : start + _CONFIRMED_FILES]:
            mirror.store.delete(path)
            ledger.forget(path)
    return Swept(len(dropped), len(due), ledger.waiting())
