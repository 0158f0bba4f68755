"""Which points stay readable, and which files are deleted when a point expires. The files are recorded in one
transaction and deleted an hour later (decision files-go-an-hour-later).

After a crash in between, the next sweep deletes them. A file that is not recorded is never deleted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from replication.mirror.layout import object_path
from replication.mirror.mirror import Mirror
from replication.mirror.points import LaggingTable
from replication.state.database import batches, transaction
from replication.state.history import GlobalPoint, PointHistory
from replication.state.ledger import Ledger
from replication.state.quarantine import Quarantine
from replication.state.targets import needed_points

GRACE_SECONDS = 3600
_CONFIRMED_FILES = 50  # files deleted between two checks of the lease


@dataclass(frozen=True, slots=True)
class Retention:
    """Which points stay.

    A point stays if it is among the newest `points`, or was the newest point at some time during the last `seconds`;
    so the newest of the older ones stays, too. The newest point always stays, and all points since the newest one that
    shows a table which is behind, or since one that a target needs.

    Attributes
    ----------
    points, seconds : 0 = no point stays by this rule; if both are 0, all points stay.
    """

    points: int = 0
    seconds: int = 0

    def oldest_kept(
        self, points: Sequence[GlobalPoint], now: float, behind: Iterable[LaggingTable] = (), needed: Iterable[int] = ()
    ) -> int | None:
        """The lsn of the oldest point to keep; None if all stay.

        Parameters
        ----------
        points : oldest first.
        now : seconds since 1970.
        behind : the tables that the newest point does not show.
        needed : lsn of points that targets need.
        """
        if not points or not (self.points or self.seconds):
            return None
        newest = points[-max(self.points, 1) :]
        older = [point for point in points if point.committed_at.timestamp() <= now - self.seconds]
        within = (older[-1:] or points[:1]) if self.seconds else []
        shown = [late.lsn for late in behind if late.lsn is not None]
        return min([point.lsn for point in [*newest, *within]] + shown + list(needed))


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did.

    Attributes
    ----------
    points_dropped : points that are no longer readable.
    files_waiting : files that are recorded for deletion.
    """

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
    """Drop points that do not have to stay, and delete files that are due.

    The caller holds the lease. `confirm` raises if it has lost it: the new owner may refer to a file again.
    """
    points = history.global_points()
    behind = quarantine.behind(points[-1].lsn).values() if points else ()
    oldest = retention.oldest_kept(points, now, behind, needed_points(history.engine, history.task_id))
    dropped = [point for point in points if oldest is not None and point.lsn < oldest]
    if dropped and oldest is not None:
        confirm()
        with transaction(history.engine) as connection:
            paths = history.drop_before(connection, oldest)
            paths += [object_path(name) for name in ledger.end_references(connection, oldest)]
            paths += [point.ledger for point in dropped if point.ledger]
            paths += mirror.points_not_needed(oldest)
            quarantine.drop_before(connection, oldest)
            ledger.schedule_deletion(connection, paths, round(now) + grace_seconds)
    due = ledger.due_garbage(round(now))
    for batch in batches(due, _CONFIRMED_FILES):
        confirm()
        for path in batch:
            mirror.store.delete(path)
            ledger.forget(path)
    return Swept(len(dropped), len(due), ledger.waiting())
