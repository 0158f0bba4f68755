"""Dropping points that do not have to stay, and deleting the files that are due. Files are recorded in the transaction
that drops a point, and deleted an hour later (decision files-go-an-hour-later).

After a crash in between, the next sweep deletes them. A file that is not recorded is never deleted. All times are the
upstream's, as in `ccpr.retention.retention`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from ccpr.mirror.layout import lsn_of_point
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.store import is_name
from ccpr.retention.dropping import Replica, drop_points
from ccpr.retention.retention import PointInventory, Retention, read_inventory
from ccpr.state.database import batches, repeatable, together, transaction
from ccpr.state.history import PointHistory
from ccpr.state.kept_records import KeptChanged
from ccpr.state.ledger import Ledger

_CONFIRMED_FILES = 50  # files deleted between two checks of the lease
_SECOND = 10**9  # nanoseconds


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did. `files_waiting`: files that are recorded for deletion. `changed`: whether the head has to be
    published again."""

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
) -> Swept:
    """Drop points that do not have to stay, and delete files that are due.

    The caller holds the lease. `confirm` raises if it has lost it: the new owner may refer to a file again.
    `age_seconds`: at most so much time has passed since the newest snapshot, by which files become due. It counts
    towards the time that readers of a dropped point have, not against it. `grace_seconds`: how long files stay that no
    point names any more. `orphans`: look for files of attempts that came to nothing, which lists the whole mirror.
    """
    inventory, (waiting, first, last) = _look(replica)
    expired, ended = retention.expired(inventory), inventory.holds != inventory.kept.holds
    now = inventory.watermark // _SECOND
    latest = now + math.ceil(age_seconds) + grace_seconds
    if not (expired or orphans or ended) and (not waiting or (now < first and last <= latest)):
        return Swept(0, waiting)
    changed = False
    if expired or ended:
        confirm()
        with suppress(KeptChanged):  # since it was read; the next sweep knows it
            changed = drop_points(replica, inventory, expired, inventory.holds, latest)
    if orphans:
        _record_orphans(replica, confirm, latest)
    deleted, waiting = _delete_due(replica, confirm, now, latest)
    return Swept(deleted, waiting, changed)


@repeatable
def _look(replica: Replica) -> tuple[PointInventory, tuple[int, int, int]]:
    """And `Ledger.waiting`."""
    with together(replica.engine):
        return read_inventory(replica), replica.ledger.waiting()


def _record_orphans(replica: Replica, confirm: Callable[[], None], due_at: int) -> None:
    for lost in find_orphans(replica.history, replica.ledger, replica.mirror):
        confirm()
        with transaction(replica.engine) as connection:
            replica.ledger.schedule_deletion(connection, lost, due_at)


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


_PAGE = 5_000  # names
_FOLDERS = ("objects", "manifests", "ledger", "definitions", "kept", "points")
_LONGEST = 255  # characters of a path that can be recorded


class NamedFiles:
    """What the state database names, at the moment when this is made; objects, and files to be deleted, at the moment
    when they are asked for. It holds the names of some files for each point and for each table that a point changed,
    none of an object."""

    def __init__(self, history: PointHistory, ledger: Ledger) -> None:
        self._ledger = ledger
        self._names = {history.head().kept, *history.definitions().values()}
        self._names |= {point.ledger for point in history.global_points()}
        self._names |= {path for ref in history.all_refs() for path in ref.files}
        self._names |= {file.path for file in history.files()}
        self._oldest = min((file.lsn for file in history.chain()), default=0)

    def lacking(self, paths: Sequence[str]) -> list[str]:
        """Those of the files that neither a point nor the list of files to be deleted names."""
        return self._ledger.unknown([path for path in paths if self._may_be_orphan(path)])

    def _may_be_orphan(self, path: str) -> bool:
        if path in self._names or not is_name(path) or len(path) > _LONGEST:  # nobody of ours gave it such a name
            return False
        if path.startswith("points/"):
            lsn = lsn_of_point(path)  # those before the oldest may be what it differs from; they go with it
            return lsn is not None and lsn >= self._oldest
        return True


def find_orphans(history: PointHistory, ledger: Ledger, mirror: Mirror) -> Iterator[list[str]]:
    """Paths of files that neither a point nor the list of files to be deleted names, a page at a time. Lists the whole
    mirror.

    No iteration may be open: its files are named by nothing yet. Who holds the lease knows that none begins, and may
    record what is found. Who does not asks `NamedFiles` again when he does: another process may have committed what was
    found. Other changes do no harm: what a point named stays in the list of files to be deleted until it is gone.
    """
    named = NamedFiles(history, ledger)
    for folder in _FOLDERS:
        names = mirror.store.each_name(folder)
        while page := list(islice(names, _PAGE)):
            if lacking := named.lacking(page):
                yield lacking
