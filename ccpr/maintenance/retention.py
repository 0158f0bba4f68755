"""Which points stay readable, and which files are deleted when a point expires. The files are recorded in one
transaction and deleted an hour later (decision files-go-an-hour-later).

After a crash in between, the next sweep deletes them. A file that is not recorded is never deleted.

All times are the upstream's: those of its snapshots, which are in the order of the iterations. Our clock may jump, and
nothing expires by it (decision expiry-by-upstream-clock).
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from ccpr.base.wording import first_names
from ccpr.maintenance.errors import PointsNeeded
from ccpr.maintenance.orphans import find_orphans
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import LaggingTable
from ccpr.state.database import batches, repeatable, together, transaction
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.ledger import Ledger
from ccpr.state.pins import needed_by_pins, pinned_before
from ccpr.state.quarantine import Quarantine
from ccpr.state.targets import needed_points

_CONFIRMED_FILES = 50  # files deleted between two checks of the lease
_SECOND = 10**9  # nanoseconds


class Dated(Protocol):
    """A point, as far as retention needs it."""

    @property
    def lsn(self) -> int: ...

    @property
    def at(self) -> Timestamp: ...


@dataclass(frozen=True, slots=True)
class Retention:
    """Which points stay.

    A point stays if it is among the newest `points`, or was the newest point at some time during the last `seconds`
    before the watermark; so the newest of the older ones stays, too. The newest point always stays, and all points
    since the newest one that shows a table which lags, or since one that a target needs or a relay has pinned.

    Attributes
    ----------
    points, seconds : 0 = no point stays by this rule; if both are 0, all points stay.
    """

    points: int = 0
    seconds: int = 0

    def oldest_kept(
        self,
        points: Sequence[Dated],
        watermark: int,
        behind: Iterable[LaggingTable] = (),
        needed: Iterable[int] = (),
    ) -> int | None:
        """The lsn of the oldest point to keep; None if all stay.

        Parameters
        ----------
        points : oldest first.
        watermark : up to which time the replica is complete; the upstream's clock, nanoseconds.
        behind : the tables that the newest point does not show.
        needed : lsn of points that targets need.
        """
        if not points or not (self.points or self.seconds):
            return None
        kept = [points[-max(self.points, 1) :][0].lsn]
        if self.seconds:
            start = watermark - self.seconds * _SECOND
            kept += [point.lsn for point, successor in pairwise(points) if successor.at.physical > start][:1]
        shown = [late.lsn for late in behind if late.lsn is not None]
        return min(kept + shown + list(needed))


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
    age_seconds: float,
    *,
    confirm: Callable[[], None],
    grace_seconds: int,
    orphans: bool = False,
    before: int | None = None,
) -> Swept:
    """Drop points that do not have to stay, and delete files that are due.

    The caller holds the lease. `confirm` raises if it has lost it: the new owner may refer to a file again.

    Parameters
    ----------
    age_seconds : at most so much time has passed since the newest snapshot, by which files become due. It counts
        towards the time that readers of a dropped point have, not against it.
    grace_seconds : how long files stay that no point names any more.
    orphans : look for files of attempts that came to nothing, which lists the whole mirror.
    before : drop all points before this one, too. Raises PointsNeeded if one of them has to stay.
    """
    points, watermark, behind, needed, (waiting, first, last) = _look(history, quarantine, ledger)
    now = watermark // _SECOND
    latest = now + math.ceil(age_seconds) + grace_seconds
    oldest = retention.oldest_kept(points, watermark, behind, needed)
    if before is not None:
        _check_not_needed(before, points, behind, needed, f"points before {before} of {mirror.store.url}")
        oldest = before if oldest is None else max(before, oldest)
    dropped = [point for point in points if oldest is not None and point.lsn < oldest]
    if not (dropped or orphans) and (not waiting or (now < first and last <= latest)):
        return Swept(0, 0, waiting)
    if dropped and oldest is not None:
        confirm()
        with transaction(history.engine) as connection:
            if pinned_before(connection, history.task_id, oldest):  # since they were read; the next sweep knows it
                dropped = []
            else:
                paths = history.drop_before(connection, oldest)
                paths += [object_path(name) for name in ledger.end_references(connection, oldest)]
                paths += [point.ledger for point in dropped if point.ledger]
                paths += mirror.points_not_needed(oldest)
                quarantine.drop_before(connection, oldest)
                ledger.schedule_deletion(connection, paths, latest)
    if orphans and (found := list(find_orphans(history, ledger, mirror))):
        confirm()
        with transaction(history.engine) as connection:
            ledger.schedule_deletion(connection, found, latest)
    due, waiting = ledger.due_garbage(now, latest)
    for batch in batches(due, _CONFIRMED_FILES):
        confirm()
        for path in batch:
            mirror.store.delete(path)
            ledger.forget(path)
    return Swept(len(dropped), len(due), waiting)


def _check_not_needed(
    before: int, points: Sequence[Dated], behind: Collection[LaggingTable], needed: Collection[int], subject: str
) -> None:
    """Raises PointsNeeded."""
    if points and before > points[-1].lsn:
        raise PointsNeeded(f"point {points[-1].lsn} is the newest, and stays", subject=subject)
    if late := [one.qualified_name for one in behind if one.lsn is not None and one.lsn < before]:
        raise PointsNeeded(f"table {first_names(late)} is in quarantine, and shown there last", subject=subject)
    if needed and min(needed) < before:
        raise PointsNeeded(f"a target, a lake or a relay needs point {min(needed)}", subject=subject)


@repeatable
def _look(
    history: PointHistory, quarantine: Quarantine, ledger: Ledger
) -> tuple[list[GlobalPoint], int, Collection[LaggingTable], list[int], tuple[int, int, int]]:
    """The points, oldest first, the watermark, the tables that the newest point does not show, the points that are
    needed, `Ledger.waiting`."""
    with together(history.engine):
        points = history.global_points()
        behind = quarantine.behind(points[-1].lsn).values() if points else ()
        needed = needed_points(history.engine, history.task_id) + needed_by_pins(history.engine, history.task_id)
        return points, history.watermark(), behind, needed, ledger.waiting()
