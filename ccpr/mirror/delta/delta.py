"""Row deltas: which rows of a table have to be written and which deleted, to get from one point of a mirror to another.

The cost depends on the change. Objects that both points have with the same visible rows are not read. Merged objects
are read, and result in no change. The delta is divided into splits (`ccpr.mirror.delta.split`) that have no key in
common. Source: decision deltas-by-commit-time.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.identifiers import OBJECT_ID_SIZE, object_name, rowid_order
from ccpr.matrixone.objects.stats import stats_columns
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, count_deletions, not_after, open_listed, tombstones_of
from ccpr.matrixone.schema import Table
from ccpr.mirror.delta.duplicates import find_duplicates
from ccpr.mirror.delta.row_keys import ALL_KEYS, KeyRange, Zone, key_zone
from ccpr.mirror.delta.split import DeltaPart, DeltaShape, DeltaSplit, SplitRun, joined, run_split
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.points import Point, TableRef
from ccpr.mirror.pruning import stats_tell_of

T = TypeVar("T")
SPLIT_ROWS = 1 << 20  # rows of a split, roughly; their keys are in memory at a time
MOST_TIMES = 20_000_000  # rows whose commit times are read to find out whether a table has changed: about a second
MOST_BYTES = 4_000_000  # of objects whose keys and values are read for it, where the commit times do not tell


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table at a point.

    Attributes
    ----------
    ref : names the manifest.
    at : the point's time. It decides which rows are visible, not the time of the manifest, which may be of an older
        point.
    """

    ref: TableRef
    at: Timestamp

    @classmethod
    def of(cls, point: Point, table_id: int) -> "TableAt":
        """Raises KeyError if the point does not show the table."""
        return cls(point.tables[table_id], point.at)


class Delta:
    """The row delta of a table between two points.

    Attributes
    ----------
    table : the table at the later point.
    shape : the columns and the key of the changes.
    """

    def __init__(self, mirror: Mirror, table: Table, shape: DeltaShape, splits: Sequence[DeltaSplit]) -> None:
        self.mirror = mirror
        self.table = table
        self.shape = shape
        self._splits = tuple(splits)

    def splits(self) -> list[DeltaSplit]:
        """The splits, to be run in tasks by `run_split(delta.mirror.store.url, split)`. Empty if nothing changed."""
        return list(self._splits)

    def parts(self) -> Iterator[DeltaPart]:
        """The changes, computed in this process one split after the other. Raises what `run_split` raises."""
        return joined(part for split in self._splits for part in run_split(self.mirror, split))

    @property
    def bytes(self) -> int:
        """Stored bytes of the objects that are opened; an upper bound of what is read."""
        return sum(split.bytes for split in self._splits)


def table_delta(
    mirror: Mirror,
    before: TableAt | None,
    after: TableAt,
    *,
    split_rows: int = SPLIT_ROWS,
    last_of_key: bool = False,
) -> Delta:
    """The delta of a table between two points. With None for `before`, for a table to be loaded, all rows are upserts.

    `last_of_key`: of several visible rows of one key only the last counts, at both points (`find_duplicates`); this
    reads the keys of all rows. Otherwise such rows are an error if the delta has both of them, and each is an upsert if
    all rows are.

    Reads the manifests, and tombstones and commit times of what changed; the splits read the rest. `split_rows` is
    roughly how many rows a split reads. Raises TableWithoutKey, DdlUnreadable, MirrorDamaged, ObjectDamaged,
    ObjectMismatch, ObjectUnsupported; ValueError for two different tables.
    """
    if before is not None and before.ref.table_id != after.ref.table_id:
        raise ValueError(f"table {before.ref.table_id} is not table {after.ref.table_id}")
    with files_of(after.ref.qualified_name):
        then = None if before is None else mirror.manifest(before.ref)
        since = Timestamp(0) if before is None else before.at
        plan = _Plan(mirror, then, since, mirror.manifest(after.ref), after.at, split_rows)
        if last_of_key:
            left_out_then = {} if before is None else find_duplicates(mirror, before.ref, before.at).rows
            plan.leave_out(left_out_then, find_duplicates(mirror, after.ref, after.at).rows)
        return plan.delta()


def differ(mirror: Mirror, before: TableAt, after: TableAt) -> bool:
    """Whether a table has other rows at a later point. What would take too much reading to find out counts as a
    difference. Raises as `table_delta`."""
    delta = table_delta(mirror, before, after, split_rows=sys.maxsize)
    with files_of(after.ref.qualified_name):
        for split in delta.splits():
            is_large = split.bytes > MOST_BYTES
            if is_large and (mirror.store.folder is None or split.rows > MOST_TIMES):
                return True  # of a bucket whole objects would be fetched
            if SplitRun(mirror, split).is_same():
                continue
            if is_large or any(part.rows for part in run_split(mirror, split)):
                return True
    return False


def manifest_delta(
    mirror: Mirror, then: Manifest, since: Timestamp, now: Manifest, at: Timestamp, *, split_rows: int = SPLIT_ROWS
) -> Delta:
    """The same between two manifests of a table, which may have some of its data objects only: what leads from the rows
    of those to the rows of these. Both have all tombstones of their point. Raises as `table_delta`."""
    with files_of(now.table.qualified_name):
        return _Plan(mirror, then, since, now, at, split_rows).delta()


class _Place(Enum):
    REMOVED = 0
    ADDED = 1
    KEPT = 2


@dataclass(frozen=True, slots=True)
class _Changed:
    """A data object in which rows changed, at most `rows` of them."""

    listed: ListedObject
    place: _Place
    rows: int


class _Plan:
    """Finds the objects of a delta and divides them into splits."""

    def __init__(
        self,
        mirror: Mirror,
        then: Manifest | None,
        since: Timestamp,
        now: Manifest,
        at: Timestamp,
        split_rows: int,
    ) -> None:
        self.mirror, self.split_rows = mirror, split_rows
        self.then = Manifest(now.table, now.objects.slice(0, 0)) if then is None else then
        self.now, self.since, self.at = now, since, at
        self.left_out_then: Mapping[bytes, np.ndarray] = {}
        self.left_out_now: Mapping[bytes, np.ndarray] = {}
        self.table, shape = now.table, DeltaShape.of(now.table)
        known = {(column.seqnum, column.type) for column in self.then.table.columns}
        self.shape = replace(shape, dated=all((column.seqnum, column.type) in known for column in shape.columns))

    def leave_out(self, then: Mapping[bytes, np.ndarray], now: Mapping[bytes, np.ndarray]) -> None:
        """Rows that count as deleted at each point, by object. An old one is new where it counts now."""
        self.left_out_then, self.left_out_now = then, now
        self.shape = replace(self.shape, dated=self.shape.dated and not then)

    def delta(self) -> Delta:
        splits = [self._as_split(objects, keys) for objects, keys in self._shares(self._changed())]
        return Delta(self.mirror, self.table, self.shape, splits)

    # ---- what changed

    def _changed(self) -> list[_Changed]:
        removed, kept = _compare(self.then, self.now)
        added, _ = _compare(self.now, self.then)
        objects = [_Changed(listed, _Place.REMOVED, listed.stats.rows) for listed in removed if not listed.tombstone]
        objects += [_Changed(listed, _Place.ADDED, listed.stats.rows) for listed in added if not listed.tombstone]
        return objects + (self._kept(removed, added, kept) if kept.num_rows else [])

    def _kept(self, removed: list[ListedObject], added: list[ListedObject], staying: pa.Table) -> list[_Changed]:
        """Data objects of both points whose visible rows may differ: because a tombstone was added or removed, or
        because a row was committed between the points."""
        counts: dict[bytes, int] = {}
        later = []  # tombstone objects of both points
        appendable = stats_columns(staying.column("stats").combine_chunks()).column("appendable")
        for listed in Manifest(self.table, staying.filter(appendable)).listed_objects():
            if listed.tombstone:
                later.append(listed)
            elif self._holds_later_rows(listed):
                counts[listed.stats.object_id] = listed.stats.rows
        changes = [
            ([listed for listed in added if listed.tombstone], self.at, None),
            ([listed for listed in removed if listed.tombstone], self.since, None),
            (later, self.at, self.since),
        ]
        if any(objects for objects, _, _ in changes):
            staying = staying.filter(pc.invert(staying.column("is_tombstone")))
            ids = frozenset(raw[:OBJECT_ID_SIZE] for raw in staying.column("stats").to_pylist())
            for objects, at, since in changes:
                for object_id, count in count_deletions(
                    objects, self.mirror.open_object, at, of=ids, since=since
                ).items():
                    counts[object_id] = counts.get(object_id, 0) + count
        for object_id in self.left_out_then.keys() | self.left_out_now.keys():
            nothing = np.empty(0, np.uint64)
            then, now = (one.get(object_id, nothing) for one in (self.left_out_then, self.left_out_now))
            if not np.array_equal(then, now):
                counts[object_id] = counts.get(object_id, 0) + len(np.setxor1d(then, now))
        touched = pc.is_in(
            stats_columns(staying.column("stats").combine_chunks()).column("name"),
            pa.array(map(object_name, counts), pa.string()),
        )
        listed = Manifest(self.table, staying.filter(touched)).listed_objects()
        return [_Changed(one, _Place.KEPT, min(counts[one.stats.object_id], one.stats.rows)) for one in listed]

    def _holds_later_rows(self, listed: ListedObject) -> bool:
        file = open_listed(listed, self.mirror.open_object)
        times = [file.commit_timestamps(block.number) for block in file.blocks]
        return any(t is not None and bool((not_after(t, self.at) & ~not_after(t, self.since)).any()) for t in times)

    # ---- shares

    def _shares(self, objects: list[_Changed]) -> Iterator[tuple[list[_Changed], KeyRange]]:
        """The objects in shares of about `split_rows` rows, so that all rows of a key are in one share."""
        if sum(changed.rows for changed in objects) <= self.split_rows:
            if objects:
                yield objects, ALL_KEYS
        elif all(changed.place is _Place.ADDED for changed in objects):
            # All rows are of one point, which has each key once: any division will do. The order of rowids keeps the
            # number of tombstone objects of a share small.
            objects = sorted(objects, key=lambda changed: rowid_order(changed.listed.stats.object_id))
            for share in in_shares(objects, attrgetter("rows"), self.split_rows):
                yield share, ALL_KEYS
        else:
            zones = self._zones(objects)
            for keys in _ranges(zones, objects, self.split_rows):
                yield [changed for changed, zone in zip(objects, zones, strict=True) if not keys.excludes(zone)], keys

    def _zones(self, objects: list[_Changed]) -> list[Zone | None]:
        """The zone of the keys of each object; None = unknown. The stats of a table without a key are about another
        column, so its files are read."""
        match = self.shape.key.match
        if self.shape.key.hidden:
            files = (open_listed(changed.listed, self.mirror.open_object) for changed in objects)
            raw = [
                file.columns["zonemap"][match.seqnum].tobytes() if match.seqnum < len(file.columns) else b""
                for file in files
            ]
        elif stats_tell_of(match.seqnum, self.table.columns):
            raw = [changed.listed.stats.sort_key_zonemap for changed in objects]
        else:
            return [None] * len(objects)
        return [key_zone(zonemap, match) for zonemap in raw]

    def _as_split(self, objects: list[_Changed], keys: KeyRange) -> DeltaSplit:
        removed, added, kept = (
            tuple(changed.listed for changed in objects if changed.place is place) for place in _Place
        )
        ids_before, ids_after = ([listed.stats.object_id for listed in (*moved, *kept)] for moved in (removed, added))
        tombstones_before = tuple(tombstones_of(self.tombstones_then, ids_before))
        tombstones_after = tuple(tombstones_of(self.tombstones_now, ids_after))
        return DeltaSplit(
            self.shape,
            self.since,
            self.at,
            removed,
            added,
            kept,
            tombstones_before,
            tombstones_after,
            keys,
            {key: rows for key, rows in self.left_out_then.items() if key in ids_before},
            {key: rows for key, rows in self.left_out_now.items() if key in ids_after},
        )

    @cached_property
    def tombstones_then(self) -> list[ListedObject]:
        return _tombstones(self.then)

    @cached_property
    def tombstones_now(self) -> list[ListedObject]:
        return _tombstones(self.now)


def in_shares(objects: Iterable[T], rows_of: Callable[[T], int], split_rows: int) -> Iterator[list[T]]:
    """Consecutive objects, each time until they have `split_rows` rows."""
    share: list[T] = []
    rows = 0
    for one in objects:
        share.append(one)
        rows += rows_of(one)
        if rows >= split_rows:
            yield share
            share, rows = [], 0
    if share:
        yield share


def _ranges(zones: Sequence[Zone | None], objects: Sequence[_Changed], split_rows: int) -> list[KeyRange]:
    """Ranges that contain all keys together, each beginning where the keys of an object begin. One range if the zone
    of an object is unknown."""
    known = [(zone.low, changed.rows) for zone, changed in zip(zones, objects, strict=True) if zone is not None]
    cuts, rows = [], 0
    if len(known) == len(objects):
        known.sort(key=itemgetter(0))
        for number, (low, count) in enumerate(known):
            if rows >= split_rows and low > known[number - 1][0]:
                cuts.append(low)
                rows = 0
            rows += count
    return [KeyRange(low, high) for low, high in pairwise([None, *cuts, None])]


def _tombstones(manifest: Manifest) -> list[ListedObject]:
    return Manifest(manifest.table, manifest.objects.filter(manifest.objects.column("is_tombstone"))).listed_objects()


def _compare(manifest: Manifest, other: Manifest) -> tuple[list[ListedObject], pa.Table]:
    """The objects that the other manifest does not have, and those that both have (MANIFEST_SCHEMA)."""
    objects = manifest.objects
    both = pc.is_in(
        objects.column("stats").cast(pa.binary()), other.objects.column("stats").cast(pa.binary()).combine_chunks()
    )
    return Manifest(manifest.table, objects.filter(pc.invert(both))).listed_objects(), objects.filter(both)
