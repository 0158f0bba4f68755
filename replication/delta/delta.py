"""Row deltas: which rows of a table are to be written and which deleted, to lead from one point of a mirror to another.

The cost goes by the change. Objects that stand in both points with the same visible rows are not read; a merge is
read, and leaves nothing. The changes are dealt into splits (`replication.delta.split`) that have no key in common.
Source: architecture.md, decision 7.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from matrixone.objects.identifiers import OBJECT_ID_SIZE, object_name, rowid_order
from matrixone.objects.stats import stats_columns
from matrixone.objects.timestamp import Timestamp
from matrixone.objects.visibility import ListedObject, count_deletions, not_after, open_listed, tombstones_of
from matrixone.schema import Table
from replication.delta.keys import ALL_KEYS, KeyRange, Zone, key_zone, row_key
from replication.delta.split import DeltaPart, DeltaShape, DeltaSplit, joined, run_split
from replication.mirror.mirror import Manifest, Mirror, files_of
from replication.mirror.points import Point, TableRef
from replication.mirror.pruning import stats_tell_of

SPLIT_ROWS = 1 << 20  # keys of so many rows are held at a time


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table at a point.

    Attributes
    ----------
    ref : names the manifest.
    at : the point's time. Rows are cut there, not at the time of the manifest, which may be that of an older point.
    """

    ref: TableRef
    at: Timestamp

    @classmethod
    def of(cls, point: Point, table_id: int) -> "TableAt":
        """Raises KeyError if the point does not show the table."""
        return cls(point.tables[table_id], point.at)


class Delta:
    """What leads from one point of a table to another.

    Attributes
    ----------
    table : as of the later point.
    shape : columns of the parts and the key.
    """

    def __init__(self, mirror: Mirror, table: Table, shape: DeltaShape, splits: Sequence[DeltaSplit]) -> None:
        self.mirror = mirror
        self.table = table
        self.shape = shape
        self._splits = tuple(splits)

    def splits(self) -> list[DeltaSplit]:
        """Shares for tasks: `run_split(delta.mirror.store.url, split)`. None = nothing changed."""
        return list(self._splits)

    def parts(self) -> Iterator[DeltaPart]:
        """The changes, computed here one split after the other. Raises what `run_split` raises."""
        return joined(part for split in self._splits for part in run_split(self.mirror, split))

    @property
    def bytes(self) -> int:
        """Stored bytes of the objects that are opened, an upper bound of what is read."""
        return sum(split.bytes for split in self._splits)


def table_delta(mirror: Mirror, before: TableAt | None, after: TableAt, *, split_rows: int = SPLIT_ROWS) -> Delta:
    """The delta of a table between two points; `before` is None for a table that is to be filled: all rows are upserts
    then.

    Reads manifests, and tombstones and commit times of what changed; the rest is left to the splits. `split_rows` is
    about how many rows a split looks at. Raises TableWithoutKey, DdlUnreadable, MirrorDamaged, ObjectDamaged,
    ObjectMismatch; ValueError for two different tables.
    """
    if before is not None and before.ref.table_id != after.ref.table_id:
        raise ValueError(f"table {before.ref.table_id} is not table {after.ref.table_id}")
    with files_of(after.ref.qualified_name):
        return _Plan(mirror, before, after, split_rows).delta()


class _Place(Enum):
    REMOVED = 0
    ADDED = 1
    KEPT = 2


@dataclass(frozen=True, slots=True)
class _Part:
    """A data object that changed, `rows` of it to be looked at."""

    listed: ListedObject
    place: _Place
    rows: int


class _Plan:
    def __init__(self, mirror: Mirror, before: TableAt | None, after: TableAt, split_rows: int) -> None:
        self.mirror = mirror
        self.split_rows = split_rows
        self.now = mirror.manifest(after.ref)
        self.then = (
            mirror.manifest(before.ref)
            if before is not None
            else Manifest(self.now.table, self.now.objects.slice(0, 0))
        )
        self.at, self.since = after.at, before.at if before is not None else Timestamp(0)
        table = self.now.table
        key = row_key(table)
        columns = table.user_columns + (key.columns if key.hidden else ())
        known = {(column.seqnum, column.type) for column in self.then.table.columns}
        self.shape = DeltaShape(
            table.qualified_name, columns, key, all((column.seqnum, column.type) in known for column in columns)
        )
        self.table = table

    def delta(self) -> Delta:
        splits = [self._as_split(parts, keys) for parts, keys in self._shares(self._changed())]
        return Delta(self.mirror, self.table, self.shape, splits)

    # ---- what changed

    def _changed(self) -> list[_Part]:
        removed, kept = _split(self.then, self.now)
        added, _ = _split(self.now, self.then)
        parts = [_Part(listed, _Place.REMOVED, listed.stats.rows) for listed in removed if not listed.tombstone]
        parts += [_Part(listed, _Place.ADDED, listed.stats.rows) for listed in added if not listed.tombstone]
        return parts + (self._kept(removed, added, kept) if kept.num_rows else [])

    def _kept(self, removed: list[ListedObject], added: list[ListedObject], kept: pa.Table) -> list[_Part]:
        """Data objects of both points that may show other rows now: by a tombstone that came or went, or because time
        reached a row."""
        counts: dict[bytes, int] = {}
        later = []  # tombstone objects of both points
        appendable = stats_columns(kept.column("stats").combine_chunks()).column("appendable")
        for listed in Manifest(self.table, kept.filter(appendable)).listed_objects():
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
            kept = kept.filter(pc.invert(kept.column("is_tombstone")))
            ids = frozenset(raw[:OBJECT_ID_SIZE] for raw in kept.column("stats").to_pylist())
            for objects, at, since in changes:
                for object_id, count in count_deletions(
                    objects, self.mirror.open_object, at, of=ids, since=since
                ).items():
                    counts[object_id] = counts.get(object_id, 0) + count
        touched = pc.is_in(
            stats_columns(kept.column("stats").combine_chunks()).column("name"),
            pa.array(map(object_name, counts), pa.string()),
        )
        listed = Manifest(self.table, kept.filter(touched)).listed_objects()
        return [_Part(one, _Place.KEPT, min(counts[one.stats.object_id], one.stats.rows)) for one in listed]

    def _holds_later_rows(self, listed: ListedObject) -> bool:
        file = open_listed(listed, self.mirror.open_object)
        times = [file.commit_timestamps(block.number) for block in file.blocks]
        return any(t is not None and bool((not_after(t, self.at) & ~not_after(t, self.since)).any()) for t in times)

    # ---- shares

    def _shares(self, parts: list[_Part]) -> Iterator[tuple[list[_Part], KeyRange]]:
        """The parts in shares of about `split_rows`: cut between keys, so that all rows of a key are in one share."""
        if sum(part.rows for part in parts) <= self.split_rows:
            if parts:
                yield parts, ALL_KEYS
        elif all(part.place is _Place.ADDED for part in parts):  # rows of one point: each key once, wherever it is cut
            parts = sorted(
                parts, key=lambda part: rowid_order(part.listed.stats.object_id)
            )  # so that few tombstone objects concern a share
            for share in _runs(parts, self.split_rows):
                yield share, ALL_KEYS
        else:
            zones = self._zones(parts)
            for keys in _ranges(zones, parts, self.split_rows):
                yield [part for part, zone in zip(parts, zones, strict=True) if not keys.excludes(zone)], keys

    def _zones(self, parts: list[_Part]) -> list[Zone | None]:
        """Where the keys of each part lie; None = anywhere. Stats of a table without a key tell of another column:
        files are asked."""
        match = self.shape.key.match
        if self.shape.key.hidden:
            files = (open_listed(part.listed, self.mirror.open_object) for part in parts)
            raw = [
                file.columns["zonemap"][match.seqnum].tobytes() if match.seqnum < len(file.columns) else b""
                for file in files
            ]
        elif stats_tell_of(match.seqnum, self.table.columns):
            raw = [part.listed.stats.sort_key_zonemap for part in parts]
        else:
            return [None] * len(parts)
        return [key_zone(zonemap, match) for zonemap in raw]

    def _as_split(self, parts: list[_Part], keys: KeyRange) -> DeltaSplit:
        removed, added, kept = (tuple(part.listed for part in parts if part.place is place) for place in _Place)
        ids_before, ids_after = ([listed.stats.object_id for listed in (*moved, *kept)] for moved in (removed, added))
        tombstones_before = tuple(tombstones_of(self.tombstones_then, ids_before))
        tombstones_after = tuple(tombstones_of(self.tombstones_now, ids_after))
        return DeltaSplit(
            self.shape, self.since, self.at, removed, added, kept, tombstones_before, tombstones_after, keys
        )

    @cached_property
    def tombstones_then(self) -> list[ListedObject]:
        return _tombstones(self.then)

    @cached_property
    def tombstones_now(self) -> list[ListedObject]:
        return _tombstones(self.now)


def _runs(parts: list[_Part], split_rows: int) -> Iterator[list[_Part]]:
    share: list[_Part] = []
    for part in parts:
        share.append(part)
        if sum(one.rows for one in share) >= split_rows:
            yield share
            share = []
    if share:
        yield share


def _ranges(zones: Sequence[Zone | None], parts: Sequence[_Part], split_rows: int) -> list[KeyRange]:
    """Ranges that hold all keys together, cut where the keys of an object begin. One range if a part's keys may lie
    anywhere."""
    known = [(zone.low, part.rows) for zone, part in zip(zones, parts, strict=True) if zone is not None]
    cuts, rows = [], 0
    if len(known) == len(parts):
        known.sort(key=itemgetter(0))
        for number, (low, count) in enumerate(known):
            if rows >= split_rows and low > known[number - 1][0]:
                cuts.append(low)
                rows = 0
            rows += count
    return [KeyRange(low, high) for low, high in pairwise([None, *cuts, None])]


def _tombstones(manifest: Manifest) -> list[ListedObject]:
    return Manifest(manifest.table, manifest.objects.filter(manifest.objects.column("is_tombstone"))).listed_objects()


def _split(manifest: Manifest, other: Manifest) -> tuple[list[ListedObject], pa.Table]:
    """The objects that the other point does not have, and those that both have (MANIFEST_SCHEMA)."""
    objects = manifest.objects
    both = pc.is_in(
        objects.column("stats").cast(pa.binary()), other.objects.column("stats").cast(pa.binary()).combine_chunks()
    )
    return Manifest(manifest.table, objects.filter(pc.invert(both))).listed_objects(), objects.filter(both)
