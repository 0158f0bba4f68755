"""Dropping points that do not have to stay, and deleting the files that are due. Files are recorded in the transaction
that drops a point, and deleted an hour later (decision files-go-an-hour-later).

After a crash in between, the next sweep deletes them. A file that is not recorded is never deleted. All times are the
upstream's, as in `ccpr.maintenance.retention`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ccpr.maintenance.dropping import Replica, drop_points
from ccpr.maintenance.orphans import find_orphans
from ccpr.maintenance.retention import Found, Retention, read_found
from ccpr.state.database import batches, repeatable, together, transaction
from ccpr.state.kept import KeptChanged

_CONFIRMED_FILES = 50  # files deleted between two checks of the lease
_SECOND = 10**9  # nanoseconds


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did.

    Attributes
    ----------
    points_dropped : points that are no longer readable.
    files_waiting : files that are recorded for deletion.
    changed : whether the head has to be published again.
    """

    points_dropped: int
    files_deleted: int
    files_waiting: int
    changed: bool = False


def sweep(
    replica: Replica,
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
    found, (waiting, first, last) = _look(replica)
    now = found.watermark // _SECOND
    latest = now + math.ceil(age_seconds) + grace_seconds
    dropped, holds, ended = retention.expired(found), found.holds, found.holds != found.kept.holds
    if not (dropped or orphans or ended) and (not waiting or (now < first and last <= latest)):
        return Swept(0, 0, waiting)
    changed = False
    if dropped or ended:
        confirm()
        try:
            changed = drop_points(replica, found.points, found.kept, dropped, holds, latest)
        except KeptChanged:  # since it was read; the next sweep knows it
            dropped = []
    for lost in find_orphans(replica.history, replica.ledger, replica.mirror) if orphans else ():
        confirm()
        with transaction(replica.history.engine) as connection:
            replica.ledger.schedule_deletion(connection, lost, latest)
    deleted, waiting = _delete_due(replica, confirm, now, latest)
    return Swept(len(dropped) if changed else 0, deleted, waiting, changed)


def _delete_due(replica: Replica, confirm: Callable[[], None], now: int, latest: int) -> tuple[int, int]:
    """How many files were deleted, and how many have to wait."""
    deleted, named = 0, None
    while True:
        due, waiting = replica.ledger.due_garbage(now, latest)
        if not due:
            return deleted, waiting
        named = replica.named() if named is None else named
        for batch in batches(due, _CONFIRMED_FILES):
            confirm()
            for path in batch:
                if path not in named:  # the same content has the same name: it may have been written again meanwhile
                    replica.mirror.store.delete(path)
                replica.ledger.forget(path)
        deleted += len(due)


@repeatable
def _look(replica: Replica) -> tuple[Found, tuple[int, int, int]]:
    """And `Ledger.waiting`."""
    with together(replica.history.engine):
        return read_found(replica.history, replica.quarantine, replica.kept), replica.ledger.waiting()
