"""The steps of an iteration by name and number (docs/requirements.md N2), as logs, progress and tests call them; and
the stages in which they are taken."""

from enum import Enum, IntEnum

from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.mirror.store import Store

LISTED = "removed.arrow"  # the last file that step 2 leaves
COPIER = "copier.txt"  # who copies, and why
COPIED = "copied.arrow"  # that of step 3


class Step(IntEnum):
    """In the order of the notes; the outcome is written before snapshots are dropped, so 7 comes before 6."""

    INIT = 0
    CATALOG = 1  # request a snapshot upstream, read the catalog there
    OBJECT_LIST = 2
    COPY = 3
    FILTER = 4  # which objects make each changed table
    APPLY = 5  # manifests, and with them the partition state
    RELEASE = 6  # snapshots no longer needed, files no longer named, the lease
    OUTCOME = 7  # the commit of points and outcome, and its publication

    @property
    def label(self) -> str:
        return self.name.lower()

    def comes_after(self, other: "Step") -> bool:
        return _ORDER.index(self) > _ORDER.index(other)

    @property
    def title(self) -> str:
        """What is done, for a progress line."""
        return _TITLES[self]


class Stage(Enum):
    """What is taken in one go, in this order. After each the iteration can be left open, and is taken up by any
    process; in Dagster each is an asset.
    """

    SNAPSHOT = "snapshot"
    CATALOG = "catalog"
    OBJECT_LIST = "object list"
    COPY = "copy"
    APPLY = "apply"  # and all that follows of it


_ORDER = (Step.INIT, Step.CATALOG, Step.OBJECT_LIST, Step.COPY, Step.FILTER, Step.APPLY, Step.OUTCOME, Step.RELEASE)
_TITLES = {
    Step.INIT: "take the lease",
    Step.CATALOG: "snapshot and catalog upstream",
    Step.OBJECT_LIST: "flush, list and compare objects",
    Step.COPY: "copy objects",
    Step.FILTER: "cut at the snapshot",
    Step.APPLY: "write manifests",
    Step.RELEASE: "drop old snapshots and files",
    Step.OUTCOME: "commit and publish",
}


def step_under_way(open_snapshot: SnapshotRef | None, store: Store) -> Step | None:
    """The step at which an open iteration stands, by the results that it has left (no write is spent on it); None if
    none is open.
    """
    if open_snapshot is None:
        return None
    if open_snapshot.physical is None:
        return Step.CATALOG
    work = open_snapshot.work
    if store.size(f"{work}/{COPIED}") is not None:
        return Step.APPLY
    return Step.COPY if store.size(f"{work}/{LISTED}") is not None else Step.OBJECT_LIST
