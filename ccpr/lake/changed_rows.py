"""Which rows a commit changes: proof that some files hold the rows of others, and the file of the changes.

A merge upstream gives other objects with the same rows. Whoever reads a table as a stream of changes is told so
(`dataChange=false`) where it is proved: by the key and the commit time of each row, or by its values, as deltas are.
Source: decisions lake-change-data, deltas-by-commit-time.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from ccpr.lake.errors import LakeTableRefused
from ccpr.lake.lake_columns import LakeColumn, LakeColumns, file_schema
from ccpr.lake.lake_types import as_written
from ccpr.lake.object_files import stored_rows
from ccpr.lake.parquet import FileShape, file_batches, parquet_chunks
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, not_after, open_listed
from ccpr.matrixone.schema import Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.as_asked import as_asked
from ccpr.mirror.delta.change_rows import Image, row_images
from ccpr.mirror.delta.delta import Delta, manifest_delta
from ccpr.mirror.errors import KeysNotBytes, KeysNotUnique, TableWithoutKey
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.store import Store

KIND = "_change_type"
RESERVED = (KIND, "_commit_version", "_commit_timestamp")  # names of columns that a change data feed has
_CHANGES = re.compile(r"_change_data/([0-9]{20})\.parquet")
# Rows at two points cannot be matched.
NOT_MATCHED = (KeysNotUnique, KeysNotBytes, TableWithoutKey, DdlUnreadable)


def changes_path(version: int) -> str:
    """Of the changes of a version, below the table."""
    return f"_change_data/{version:020}.parquet"


def changes_version(path: str) -> int | None:
    """None for the path of another file."""
    found = _CHANGES.fullmatch(path)
    return None if found is None else int(found[1])


def check_feed_names(table: Table) -> None:
    """Raises LakeTableRefused for a table with a column that a change data feed has: nobody could read it."""
    if taken := [column.name for column in table.user_columns if column.name.casefold() in RESERVED]:
        remedy = (
            "Rename the column upstream, leave the table out with `--tables`, or publish it in a lake without "
            "`--change-data`."
        )
        what = f"the change data feed has a column {taken[0]} of its own"
        raise LakeTableRefused(what, subject=f"table {table.qualified_name}", remedy=remedy)


@dataclass(frozen=True)
class TableChange:
    """A table at the point of one version, and at the point of the next one; it has the same id at both."""

    mirror: Mirror
    before: Manifest
    since: Timestamp
    now: Manifest
    at: Timestamp

    def moved(self, gone: Collection[str], new: Collection[str]) -> frozenset[str]:
        """The names of objects, gone and new, whose rows are proved to be the same, as multisets: all that are gone,
        with those new ones whose rows are older than the version before. None, if that is not proved. An object that
        is still there lost its file since none of its rows is visible."""
        gone = set(gone).difference(listed.stats.name for listed in self._data_objects(gone))
        old = [listed for listed in self._data_objects(new) if self._is_old(listed)]
        if not gone or not old:
            return frozenset()
        names = frozenset(listed.stats.name for listed in old)
        before, now = self.before.only(sorted(gone)), self.now.only(sorted(names))
        try:
            delta = manifest_delta(self.mirror, before, self.since, now, self.at)
            differ = any(part.rows for part in delta.parts())
        except NOT_MATCHED:
            return frozenset()
        return frozenset() if differ else frozenset(gone) | names

    @cached_property
    def delta(self) -> Delta:
        """Of the whole table."""
        return manifest_delta(self.mirror, self.before, self.since, self.now, self.at)

    def images(self) -> Iterator[tuple[Image, pa.RecordBatch]]:
        """The changed rows, before and after; the user's columns. Raises NOT_MATCHED, and what `run_split` raises."""
        user = self.now.table.user_columns
        places = [self.delta.shape.columns.index(column) for column in user]
        for split in self.delta.splits():
            for image, batch in row_images(self.mirror, split):
                yield image, batch.select(places)

    def _data_objects(self, names: Collection[str]) -> list[ListedObject]:
        return [one for one in self.now.only(sorted(names)).listed_objects() if not one.tombstone]

    def _is_old(self, listed: ListedObject) -> bool:
        """Whether all rows of an object were committed by the version before, as those of a merge were."""
        if listed.stats.created_by_cn:  # its times, if any, may be another cluster's
            return False
        with files_of(self.now.table.qualified_name):
            file = open_listed(listed, self.mirror.open_object)
            times = [file.commit_timestamps(block.number) for block in file.blocks]
        return all(one is not None and bool(not_after(one, self.since).all()) for one in times)


def feed_schema(shape: FileShape) -> pa.Schema:
    """Of the file of the changes."""
    return file_schema(shape.table, shape.columns, shape.reading).append(pa.field(KIND, pa.string()))


def feed_rows(images: Iterator[tuple[Image, pa.RecordBatch]], shape: FileShape) -> Iterator[pa.RecordBatch]:
    """Images of the user's columns as the feed has them. Raises ValueRefused, and what taking them raises."""
    kinds, schema = list[Image](), feed_schema(shape)

    def rows() -> Iterator[pa.RecordBatch]:
        for image, batch in images:
            if batch.num_rows:
                kinds.append(image)
                yield batch

    subject = f"table {shape.table.qualified_name}"
    for batch in as_asked(rows(), shape.table.user_columns, shape.reading, subject):
        values = [as_written(column, field.type) for column, field in zip(batch.columns, schema, strict=False)]
        yield _of_kind(kinds.pop(), values, batch.num_rows, schema)


def deleted_files(
    store: Store, shape: FileShape, before: LakeColumns, adds: Iterable[Mapping[str, Any]]
) -> Iterator[pa.RecordBatch]:
    """All rows that files of the version before show, as deleted: what readers had, whatever became of the mirror.

    A column has the values of the one that had its name, else of itself under its former name; null if there was
    neither, or where its type does not hold them. Raises LakeChanged, StoreFailed.
    """
    schema, sources = feed_schema(shape), [_source(column, before) for column in shape.columns.columns]
    for add in adds:
        hidden, first = stored_rows(store, shape.folder, add.get("deletionVector")), 0
        for batch in file_batches(store, shape.folder, add["path"], [name for name in sources if name is not None]):
            shown = np.ones(batch.num_rows, bool)
            shown[hidden[slice(*np.searchsorted(hidden, [first, first + batch.num_rows]))] - first] = False
            first += batch.num_rows
            rows = batch.filter(pa.array(shown))
            if rows.num_rows:
                values = [_held(rows, name, field.type) for name, field in zip(sources, schema, strict=False)]
                yield _of_kind(Image.DELETE, values, rows.num_rows, schema)


def changes_file(rows: Iterator[pa.RecordBatch], shape: FileShape) -> Iterator[bytes] | None:
    """The file of the changes, in pieces; None if there are none. Raises, also while pieces are taken, what taking the
    rows raises."""
    first = next(rows, None)
    return None if first is None else parquet_chunks(chain((first,), rows), feed_schema(shape), [])


def _of_kind(kind: Image, values: list[pa.Array], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*values, pa.repeat(kind.value, rows)], schema=schema)


def _source(column: LakeColumn, before: LakeColumns) -> str | None:
    """The name in the former files of what a column was."""
    named = {one.name: one.physical for one in before.columns}
    numbered = {one.id: one.physical for one in before.columns}
    return named.get(column.name, numbered.get(column.id))


def _held(rows: pa.RecordBatch, name: str | None, kind: pa.DataType) -> pa.Array:
    place = -1 if name is None else rows.schema.get_field_index(name)
    try:
        return pa.nulls(rows.num_rows, kind) if place < 0 else as_written(rows.column(place), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(rows.num_rows, kind)
