"""A read of a table as a value: which table at which point, which columns, which filters. It can be shared out to tasks
and pickled; rows come from `Mirror.rows`. And how many rows a reader would see, from as few columns as possible. Needs
no Spark.

Source: docs/architecture.md; decisions idle-means-no-row, filters-leave-out-blocks.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.stats import stats_columns
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import JSON, arrow_schema, check_readable
from ccpr.matrixone.objects.visibility import visible_blocks
from ccpr.matrixone.schema import DEFAULT_READING, Column, InvalidText, Reading, ZeroDates
from ccpr.mirror.as_asked import as_asked, read_schema
from ccpr.mirror.errors import BadOption
from ccpr.mirror.filters import Filter, FilterTuple, conditions, mask_of, parse_filters
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, choose_columns, files_of
from ccpr.mirror.open_store import open_store
from ccpr.mirror.points import Point, TableRef, parse_at
from ccpr.mirror.pruning import prune

# Of object files, three to five times that in Arrow: some 0.1 s to decode, twice that to hand over to Spark.
TASK_BYTES = 16 << 20
_SHARE = pa.schema([pa.field("name", pa.string()), pa.field("task", pa.int32())])
GROUP_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table at a point. The point is resolved once, where the read is planned: every task reads the same state.

    Attributes
    ----------
    store_url : the mirror's store.
    lsn : of the point.
    ref : the table there; names its manifest.
    at : the time at which rows are cut.
    columns : what to read, in this order.
    filters : only rows that satisfy all; objects and blocks that cannot hold one are not read.
    reading : how values are given that Arrow does not hold; filters do not see it.
    """

    store_url: str
    lsn: int
    ref: TableRef
    at: Timestamp
    columns: tuple[Column, ...]
    filters: tuple[Filter, ...] = ()
    reading: Reading = DEFAULT_READING

    @property
    def schema(self) -> pa.Schema:
        return read_schema(arrow_schema(self.columns), self.columns, self.reading)

    @property
    def json_columns(self) -> tuple[str, ...]:
        """The columns of type JSON, whose values are text in Arrow."""
        return tuple(column.name for column in self.columns if column.type.oid == JSON)

    def shares(self, task_bytes: int = TASK_BYTES) -> pa.Table:
        """The live data objects (name, task), tasks numbered from 0. The objects of a task follow each other in the
        order of their ids, so that few tombstone objects concern it; tasks differ by an object's bytes at most.
        Nothing to read = no rows.
        """
        mirror = Mirror(open_store(self.store_url))
        manifest = mirror.manifest(self.ref)
        if self.filters:
            manifest = manifest.only([one.stats.name for one in mirror.objects_for(manifest, self.filters)])
        live = manifest.data_objects
        stats = stats_columns(live.column("stats").combine_chunks())
        stats = stats.take(pc.sort_indices(stats, [("name", "ascending")]))
        sizes = stats.column("size").to_numpy()
        total = int(sizes.sum())
        tasks = min(-(-total // task_bytes), len(sizes))
        middles = np.cumsum(sizes) - sizes / 2
        numbers = (middles * (tasks / max(total, 1))).astype(np.int64)
        numbers = np.unique(numbers, return_inverse=True)[1]  # a huge object can leave a number without any
        return pa.Table.from_arrays([stats.column("name"), pa.array(numbers.astype(np.int32))], schema=_SHARE)

    def batches(
        self,
        names: Sequence[str] | pa.Array | None = None,
        *,
        mirror: Mirror | None = None,
        manifest: Manifest | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows, in batches as `Mirror.rows` gives them. Raises what that raises.

        Parameters
        ----------
        names : data objects, as `shares` gives them; all without.
        mirror, manifest : the mirror where it is open, and the table's manifest there; else they are read.
        """
        opened = mirror or Mirror(open_store(self.store_url))
        found = manifest or opened.manifest(self.ref)
        batches = opened.rows(found, self.columns, self.at, filters=self.filters, names=names)
        return as_asked(batches, self.columns, self.reading, f"table {self.ref.qualified_name}")


def with_json(rows: list[dict[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows, in which the texts of these columns become what they say. It changes them in place."""
    for name in columns:
        for row in rows:
            if isinstance(text := row[name], str):
                row[name] = json.loads(text)
    return rows


def first_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The batches with at most so many rows; None = all. Nothing is read that is not needed for them."""
    if limit is None:
        yield from batches
        return
    left = limit
    for batch in batches if limit > 0 else ():
        yield batch.slice(0, min(left, batch.num_rows))
        left -= batch.num_rows
        if left <= 0:
            return


def plan_read(
    mirror: Mirror | str,
    table: str,
    at: int | datetime | str | None = None,
    *,
    columns: Sequence[str] | None = None,
    filters: Iterable[FilterTuple | Filter] = (),
    hidden: bool = False,
    reading: Reading = DEFAULT_READING,
) -> TableRead:
    """Resolve a table at a point; the mirror may be its URL.

    Parameters
    ----------
    at : see `point_at`.
    columns : names, hidden ones too; without them the user's, in declared order.
    filters : values or tuples, see `ccpr.mirror.filters.parse_filters`.
    hidden : the server's own key columns, too.
    reading : see `reading_of`.

    Raises PointNotReached, PointGone, TableMissingInMirror (also for a column), ObjectUnsupported, BadFilter,
    BadOption, BadName, MirrorDamaged.
    """
    if isinstance(columns, str):
        remedy = f'Write columns=["{columns}"].'
        raise BadOption("columns is one text, not a list of names", subject=f"table {table}", remedy=remedy)
    opened = Mirror(open_store(mirror)) if isinstance(mirror, str) else mirror
    parsed = parse_filters(filters)
    point = point_at(opened, at)
    ref = point.table(table)
    described = opened.manifest(ref).table
    check_readable(described, (condition.column for condition in conditions(parsed, described)))
    chosen = choose_columns(described, columns, hidden=hidden)
    return TableRead(opened.store.url, point.lsn, ref, point.at, chosen, parsed, reading)


def reading_of(invalid_text: str, zero_dates: str) -> Reading:
    """By the names of `ccpr.matrixone.schema.InvalidText` and `ZeroDates`. Raises BadOption."""
    for subject, name, known in (("invalid_text", invalid_text, InvalidText), ("zero_dates", zero_dates, ZeroDates)):
        if name not in tuple(known):
            raise BadOption(f"{name!r:.80} is not known", subject=subject, remedy=f"Write one of {', '.join(known)}.")
    return Reading(InvalidText(invalid_text), ZeroDates(zero_dates))


def point_at(mirror: Mirror, at: int | datetime | str | None) -> Point:
    """As `Mirror.point`; `at` may also be text: an lsn, an ISO time (UTC unless it names a zone), or the name of a held
    point.

    Raises PointNotReached, PointGone, HoldMissing, BadOption.
    """
    remedy = "Give a point, a datetime, an ISO time (2026-11-20T12:30:00, UTC without a zone), or a held point's name."
    if isinstance(at, str):
        try:
            at = parse_at(at.strip())
        except ValueError as error:
            message = f"at = {at!r:.80} is neither a point nor a time"
            raise BadOption(message, subject=mirror.store.url, remedy=remedy) from error
    if isinstance(at, bool) or not isinstance(at, int | datetime | str | None):
        message = f"at = {at!r:.80} ({type(at).__name__}) is neither a point nor a time"
        raise BadOption(message, subject=mirror.store.url, remedy=remedy)
    return mirror.point(at)


def row_groups(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, most_bytes: int | None = None
) -> Iterator[pa.Table]:
    """The rows of some batches, none copied, in tables that end with the batch by which they have GROUP_ROWS rows, or
    `most_bytes` in Arrow."""
    held, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or (most_bytes is not None and size >= most_bytes):
            yield pa.Table.from_batches(held, schema)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema)


MOST_OBJECTS = 1_000
MOST_ROWS_READ = 5_000_000  # row ids and commit times; some tens of MB


def count_rows(
    mirror: Mirror, manifest: Manifest, at: Timestamp, filters: Sequence[Filter] = (), *, limit: int | None = None
) -> int:
    """The number of rows that `Mirror.rows` gives at that time with these filters, or `limit` if it is less.

    Raises BadFilter, MirrorDamaged, ObjectDamaged, ObjectMismatch, ObjectUnsupported, StoreFailed. Values of a column
    without a filter are not looked at, so what is wrong with them is no error.
    """
    tests, pruning = conditions(filters, manifest.table), prune(filters, manifest.table.columns)
    count = 0
    with files_of(manifest.table.qualified_name):
        objects = mirror.objects_for(manifest, filters)
        for visible in visible_blocks(objects, mirror.open_object, at, choose=pruning.blocks):
            if limit is not None and count >= limit:
                return limit
            if pruning.covers(visible.file, visible.blocks[0]):
                count += visible.count
            else:
                count += mask_of(tests, cache(visible.column)).true_count
    return count if limit is None else min(count, limit)


def count_visible(
    mirror: Mirror,
    manifest: Manifest,
    at: Timestamp,
    *,
    most_objects: int = MOST_OBJECTS,
    most_rows_read: int = MOST_ROWS_READ,
) -> int | None:
    """As `count_rows`. None if more objects, or more row ids and commit times, would have to be read for it."""
    if manifest.objects.num_rows > most_objects:
        return None
    objects = [listed for listed in manifest.listed_objects() if listed.takes_part(at)]
    if sum(listed.stats.rows for listed in objects if listed.tombstone or listed.stats.appendable) > most_rows_read:
        return None
    return count_rows(mirror, manifest, at)
