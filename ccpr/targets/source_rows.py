"""The rows of a sync: those of a table to be loaded, and what changed in one since the location that it is at. They are
read from the mirror, as deltas; which of them a target needs says `ccpr.targets.sync`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from ccpr.base.progress import Progress
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject
from ccpr.matrixone.schema import Reading
from ccpr.mirror.delta.change_rows import readable_part
from ccpr.mirror.delta.delta import Delta, TableAt, run_split, table_delta
from ccpr.mirror.delta.duplicates import find_duplicates
from ccpr.mirror.delta.split import DeltaPart, DeltaSplit
from ccpr.mirror.errors import KeysNotUnique
from ccpr.mirror.mirror import Mirror
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.point_rows import TablePoint
from ccpr.targets.base import LoadPart, SplitRows
from ccpr.targets.errors import TargetDuplicateKeys, TargetKeyRefused, TargetPointGone

# Of a piece of an initial load: several connections have work, and an interruption costs little.
LOAD_ROWS = 1 << 17


class SourceRows:
    """The rows of the mirror that one sync brings a target to. One thread, but for the reading of parts.

    Parameters
    ----------
    tables : the point's, by id.
    last_of_key : of several visible rows of one key only the last counts.
    progress : `on_rows` is called with what is read.
    on_loaded : called with the id of a table and rows that are loaded, as they were read and as they are given; from
        several threads.

    Attributes
    ----------
    oldest : lsn of the oldest point that is kept.
    """

    def __init__(
        self,
        mirror: Mirror,
        history: PointHistory,
        point: GlobalPoint,
        tables: Mapping[int, TablePoint],
        *,
        last_of_key: bool,
        progress: Progress,
        reading: Reading,
        on_loaded: Callable[[int, pa.Table, pa.Table], None],
    ) -> None:
        self.last_of_key, self.reading = last_of_key, reading
        self.on_rows, self.on_loaded = progress.on_rows, on_loaded
        self._mirror, self._history, self._tables, self._at = mirror, history, tables, point.at
        self._location = Location(point.lsn, point.at.physical)
        oldest = history.head().oldest_point
        self.oldest = point.lsn if oldest is None else oldest
        self._older: dict[int, dict[int, TablePoint]] = {}

    def whole(self, table_id: int, location: Location) -> "TableRows":
        """All rows of a table at a location. Raises TargetPointGone, and what `table_delta` raises."""
        table = self._table_at(table_id, location)
        delta = table_delta(self._mirror, None, table, split_rows=LOAD_ROWS, last_of_key=self.last_of_key)
        return TableRows(self, table, delta)

    def since(self, table_id: int, reached: Location) -> "TableRows":
        """What changed in a table from a location to the point. Raises as `whole`."""
        table = self._newest(table_id)
        delta = table_delta(self._mirror, self._table_at(table_id, reached), table, last_of_key=self.last_of_key)
        return TableRows(self, table, delta)

    def _newest(self, table_id: int) -> TableAt:
        ref = self._tables[table_id].ref
        assert ref is not None
        return TableAt(ref, self._at)

    def _table_at(self, table_id: int, location: Location) -> TableAt:
        if location == self._location:
            return self._newest(table_id)
        if location.lsn not in self._older:
            self._older[location.lsn] = self._history.tables(location.lsn)
        found = self._older[location.lsn].get(table_id)
        if location.lsn < self.oldest or found is None or found.ref is None:
            table = self._tables[table_id].table
            raise TargetPointGone(
                f"the mirror does not have the table at point {location.lsn} any more",
                subject=f"table {table.qualified_name}",
            )
        return TableAt(found.ref, Timestamp(location.snapshot_ts))


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table, not read yet.

    Attributes
    ----------
    table : as it is with them.
    """

    source: SourceRows
    table: TableAt
    delta: Delta

    def to_load(self) -> list[LoadPart]:
        """The upserts in pieces that are loaded independently; several threads may read them."""
        return [LoadPart(part_key(rows.split), partial(self._read, rows.split), rows) for rows in self.for_tasks()]

    def for_tasks(self) -> list[SplitRows]:
        """All of them, for other processes."""
        url = self.delta.mirror.store.url
        return [SplitRows(url, split, self.source.reading) for split in self.delta.splits()]

    def parts(self) -> Iterator[DeltaPart]:
        """All of them, read one after another."""
        for part in self.delta.parts():
            self.source.on_rows(part.rows, part.upserts.nbytes + part.deletes.nbytes)
            yield readable_part(part, self.delta.shape, self.source.reading)

    @contextmanager
    def naming_duplicates(self) -> Iterator[None]:
        """An error of the block about rows with the same key becomes TargetDuplicateKeys if the source has such."""
        try:
            yield
        except (TargetKeyRefused, KeysNotUnique) as error:
            try:
                self.check_unique()
            except TargetDuplicateKeys as found:
                raise found from error
            raise

    def check_unique(self) -> None:
        """Raises TargetDuplicateKeys."""
        found = find_duplicates(self.delta.mirror, self.table.ref, self.table.at)
        if found.keys:
            raise TargetDuplicateKeys(
                f"{found.keys} keys have several visible rows: {found.example}",
                subject=f"table {self.table.ref.qualified_name}",
            )

    def _read(self, split: DeltaSplit) -> Iterator[pa.Table]:
        for part in run_split(self.delta.mirror, split):
            self.source.on_rows(part.upserts.num_rows, part.upserts.nbytes)
            given = readable_part(part, self.delta.shape, self.source.reading).upserts
            self.source.on_loaded(self.table.ref.table_id, part.upserts, given)
            yield given


# ---- the key of a piece in `ccpr_load_parts`
#
# A digest of all that decides which rows the piece has. The encoding is written out field by field and has a version,
# so that renaming anything in the code changes no stored key.

_VERSION = "2-"


def part_key(split: DeltaSplit) -> str:
    """At one location the same key always means the same rows. At most 64 characters."""
    shape = split.shape
    value = {
        "table": shape.table,
        "columns": [column.to_json() for column in shape.columns],
        "key": [column.name for column in shape.key.columns],
        "match": shape.key.match.name,
        "dated": shape.dated,
        "times": [_time(split.before), _time(split.after)],
        "objects": [_objects(objects) for objects in (split.removed, split.added, split.kept)],
        "tombstones": [_objects(objects) for objects in (split.tombstones_before, split.tombstones_after)],
        "range": [_bound(split.keys.low), _bound(split.keys.high)],
    }
    if split.left_out_after:
        value["left out"] = sorted([key.hex(), rows.tolist()] for key, rows in split.left_out_after.items())
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return _VERSION + hashlib.sha256(text.encode()).hexdigest()[:40]


def _time(at: Timestamp) -> list[int]:
    return [at.physical, at.logical]


def _objects(objects: Iterable[ListedObject]) -> list[list[object]]:
    return [
        [one.stats.raw.hex(), _time(one.created), None if one.deleted is None else _time(one.deleted), one.tombstone]
        for one in objects
    ]


def _bound(value: int | bytes | None) -> object:
    """Numbers and bytes are distinguished, whatever digits the bytes are."""
    return {"bytes": value.hex()} if isinstance(value, bytes) else value
