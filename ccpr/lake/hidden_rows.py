"""Which rows of an object exist at a point, by their number in the object's file.

A row that does not exist now either may exist later (an appendable object has rows that were committed after the point)
or never will: it was rolled back, or deleted. Source: docs/format/object-file.md 9; decision lake-files.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from ccpr.matrixone.objects.identifiers import OBJECT_ID_SIZE
from ccpr.matrixone.objects.reader import NEVER, ObjectFile
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import (
    ROW_BITS,
    ListedObject,
    Opener,
    check_deletions,
    count_deletions,
    not_after,
    open_listed,
    visible_mask,
)
from ccpr.mirror.manifests import Manifest

_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """The rows of an object that a point does not show; sorted numbers in the file, int64.

    Attributes
    ----------
    hidden : all of them.
    gone : those that no later point shows either.
    """

    hidden: np.ndarray
    gone: np.ndarray

    @property
    def pending(self) -> bool:
        """Whether a later point may show more rows, although the object is the same."""
        return len(self.hidden) > len(self.gone)


def hidden_rows(listed: ListedObject, file: ObjectFile, deletions: np.ndarray | None, at: Timestamp) -> HiddenRows:
    """`deletions` are the object's, from `deleted_rows` at that time. Raises ObjectMismatch, ObjectDamaged."""
    check_deletions(listed, file, deletions)
    first, hidden, gone = 0, [_NOTHING], [_NOTHING]
    for block in file.blocks:
        mask = visible_mask(listed, file, block.number, deletions, at)
        if mask is not None and not mask.all():
            numbers = np.flatnonzero(~mask)
            hidden.append(numbers + first)
            if listed.stats.appendable:
                numbers = numbers[_never(file, block.number, numbers, deletions, at)]
            gone.append(numbers + first)
        first += block.rows
    return HiddenRows(np.concatenate(hidden), np.concatenate(gone))


def _never(
    file: ObjectFile, block: int, numbers: np.ndarray, deletions: np.ndarray | None, at: Timestamp
) -> np.ndarray:
    """bool for each hidden row of an appendable object: rolled back, or committed and deleted by now."""
    times = file.commit_timestamps(block)
    assert times is not None  # `visible_mask` has refused one without
    times = times[numbers]
    never = not_after(times, at) | (times["physical"] == NEVER)  # committed and hidden: deleted; or rolled back
    if deletions is not None:
        never |= np.isin((np.int64(block) << ROW_BITS | numbers).astype(np.uint64), deletions)
    return never


def touched_by_tombstones(before: Manifest, now: Manifest, open_object: Opener) -> Collection[bytes]:
    """Ids of the data objects whose tombstones may have come or gone between two points: those named by a tombstone
    object that is in one manifest only, or that is appendable."""
    ids = frozenset(raw[:OBJECT_ID_SIZE] for raw in now.data_objects.column("stats").to_pylist())
    found: set[bytes] = set()
    for one, other in ((before, now), (now, before)):
        found |= count_deletions(_tombstones(one, other), open_object, _ALL_TIMES, of=ids).keys()
    return found


_ALL_TIMES = Timestamp(2**63 - 1, 2**31 - 1)


def _tombstones(manifest: Manifest, other: Manifest) -> Sequence[ListedObject]:
    known = other.objects.column("stats").cast("binary").combine_chunks()
    missing = pc.invert(pc.is_in(manifest.objects.column("stats").cast("binary"), known))
    tombstones = manifest.objects.column("is_tombstone")
    listed = Manifest(manifest.table, manifest.objects.filter(tombstones)).listed_objects()
    apart = missing.filter(tombstones).to_pylist()
    return [one for one, new in zip(listed, apart, strict=True) if new or one.stats.appendable]


def later_tombstones(objects: Sequence[ListedObject], open_object: Opener, at: Timestamp) -> bool:
    """Whether a tombstone object has rows that were committed after a time, so that a later point hides more."""
    return any(
        listed.tombstone and listed.stats.appendable and _has_later(open_listed(listed, open_object), at)
        for listed in objects
    )


def _has_later(file: ObjectFile, at: Timestamp) -> bool:
    for block in file.blocks:
        times = file.commit_timestamps(block.number)
        if times is not None and bool((~not_after(times, at) & (times["physical"] != NEVER)).any()):
            return True
    return False
