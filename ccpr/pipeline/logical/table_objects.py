"""The objects of a table while it is read in logical mode: those of the last point less what went, and what was
written; and merges of our own, so that a table that changes every second does not become a thousand files (decision
logical-mode). A merge keeps rows, their keys and the times of their commits."""

import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import log

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.identifiers import ROWID_DTYPE
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.objects.visibility import (
    ListedObject,
    deleted_rows,
    not_after,
    open_listed,
    visible_blocks,
)
from ccpr.matrixone.objects.writing.writer import WrittenObject
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.logical.own_objects import CHANGED_SCHEMA, OBJECT_ROWS, StoredTable, commits_at, put_object

_TOGETHER = 8  # objects of a size, which differ by less than that factor, are merged into one
_MERGED_BYTES = 32 << 20  # of files that are merged at once, at most


@dataclass(slots=True)
class TableObjects:
    """
    Attributes
    ----------
    at : of the open snapshot.
    live : all objects.
    made : rows (CHANGED_SCHEMA) of those that were written, by name.
    gone : names of those that the last point has.

    Several threads may put objects, and take out what they have put.
    """

    mirror: Mirror
    stored: StoredTable
    at: Timestamp
    live: list[ListedObject]
    made: dict[str, pa.RecordBatch] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, written: WrittenObject, *, tombstone: bool = False) -> ListedObject:
        row = put_object(self.mirror.store, self.stored.table.id, written, self.at, tombstone=tombstone)
        listed = ListedObject(written.stats, self.at, None, tombstone, row.column("sums")[0].as_py())
        with self.lock:
            self.made[written.stats.name] = row
            self.live.append(listed)
        return listed

    def put_rows(self, rows: pa.Table, commits: np.ndarray) -> ListedObject:
        """Rows with all columns (`StoredTable.with_hidden`)."""
        return self.put(self.stored.data(rows, commits, self.at))

    def take_out(self, objects: Collection[ListedObject]) -> None:
        names = {listed.stats.name for listed in objects}
        with self.lock:
            self.live = [listed for listed in self.live if listed.stats.name not in names]
        for name in names:
            if self.made.pop(name, None) is None:
                self.gone.add(name)
            else:
                self.mirror.store.delete(object_path(name))

    def rows_of(self, objects: Collection[ListedObject]) -> pa.Table:
        """What was made, as CHANGED_SCHEMA."""
        return pa.Table.from_batches([self.made[listed.stats.name] for listed in objects], CHANGED_SCHEMA)

    def take_up(self, rows: pa.Table) -> int:
        """Put in what `rows_of` gave, which an earlier process made; how many rows it has."""
        count = 0
        for row in rows.combine_chunks().to_batches(max_chunksize=1):
            stats, sums = ObjectStats.parse(row.column("stats")[0].as_py()), row.column("sums")[0].as_py()
            listed = ListedObject(stats, self.at, None, tombstone=False, sums=sums)
            with self.lock:
                self.made[listed.stats.name] = row
                self.live.append(listed)
            count += listed.stats.rows
        return count

    def undo(self) -> None:
        """Nothing names what was written."""
        self.take_out([listed for listed in self.live if listed.stats.name in self.made])

    def rows(self) -> int:
        """How many there are. No object of rows is opened; none may be appendable."""
        data = [listed.stats for listed in self.live if not listed.tombstone]
        dead = deleted_rows(self.live, self.mirror.open_object, self.at, of={stats.object_id for stats in data})
        return sum(stats.rows for stats in data) - sum(map(len, dead.values()))

    def settle(self, last: Timestamp) -> None:
        """Write appendable objects again, as they were at the last point: others hold what was committed later, too."""
        chosen = [listed for listed in self.live if listed.stats.appendable]
        if chosen:
            self._write_again(chosen, last)

    def merge(self) -> None:
        """Merge what is due, at most one object of rows and one of deletions."""
        for tombstone in (False, True):
            chosen = _due([listed for listed in self.live if listed.tombstone == tombstone])
            if chosen:
                self._write_again(chosen, self.at)

    def _write_again(self, chosen: Collection[ListedObject], then: Timestamp) -> None:
        """What exists of these objects at a time, in new ones in their place."""
        data = [listed for listed in chosen if not listed.tombstone]
        former = list(self.live)
        if data:
            self._write_rows(data, [listed for listed in former if listed.tombstone], then)
        kept = {listed.stats.object_id for listed in former if not listed.tombstone and listed not in data}
        tombstones = [listed for listed in chosen if listed.tombstone]
        if tombstones:
            self._write_deletions(tombstones, kept, then)
        self.take_out(chosen)

    def _write_rows(self, data: list[ListedObject], tombstones: list[ListedObject], then: Timestamp) -> None:
        created = {listed.stats.object_id: listed.created for listed in data}
        columns = self.stored.table.columns
        schema, batches, times = arrow_schema(columns), list[pa.RecordBatch](), list[np.ndarray]()
        for visible in visible_blocks([*data, *tombstones], self.mirror.open_object, then):
            commits = visible.file.commit_timestamps(visible.blocks[0].number)
            if commits is None:
                commits = commits_at(created[visible.file.object_id], visible.stored)
            batches.append(visible.batch(columns, schema))
            times.append(commits if visible.rows is None else commits[visible.rows])
        rows = pa.Table.from_batches(batches, schema)
        every = np.concatenate([np.zeros(0, TIMESTAMP_DTYPE), *times])
        for start in range(0, rows.num_rows, OBJECT_ROWS):
            self.put_rows(rows.slice(start, OBJECT_ROWS), every[start : start + OBJECT_ROWS])

    def _write_deletions(self, tombstones: list[ListedObject], kept: Collection[bytes], then: Timestamp) -> None:
        """Those of rows in the objects that are kept."""
        column = replace(self.stored.key.match, seqnum=1)
        ids = np.array([np.void(one) for one in kept], ROWID_DTYPE["object"])
        rowids, keys, times = list[np.ndarray](), list[pa.Array](), list[np.ndarray]()
        for listed in tombstones:
            file = open_listed(listed, self.mirror.open_object)
            for block in file.blocks:
                commits = file.commit_timestamps(block.number)
                if commits is None or listed.stats.created_by_cn:
                    commits = commits_at(listed.created, block.rows)
                mine = file.rowids(block.number)
                rows = np.flatnonzero(not_after(commits, then) & np.isin(mine["object"], ids))
                rowids.append(mine[rows])
                keys.append(file.column(block.number, column, rows))
                times.append(commits[rows])
        deleted = np.concatenate(rowids)
        if len(deleted):
            self.put(
                self.stored.tombstones(deleted, pa.concat_arrays(keys), np.concatenate(times), self.at), tombstone=True
            )


def _due(objects: Collection[ListedObject]) -> list[ListedObject]:
    """The smallest objects that are of about one size, if they are many; none are due of many large ones."""
    tiers: dict[int, list[ListedObject]] = {}
    for listed in objects:
        tiers.setdefault(int(log(max(listed.stats.rows, 1), _TOGETHER)), []).append(listed)
    for _, tier in sorted(tiers.items()):
        chosen, size, rows = list[ListedObject](), 0, 0
        for listed in sorted(tier, key=lambda one: one.stats.size):
            size, rows = size + listed.stats.origin_size, rows + listed.stats.rows
            if size > _MERGED_BYTES or rows > OBJECT_ROWS:
                break
            chosen.append(listed)
        if len(chosen) >= _TOGETHER:
            return chosen
    return []
