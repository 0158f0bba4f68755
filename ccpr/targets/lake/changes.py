"""Which rows a commit changes: proof that some files hold the rows of others, and the file of the changes.

A merge upstream gives other objects with the same rows. Whoever reads a table as a stream of changes is told so
(`dataChange=false`) where it is proved: by the key and the commit time of each row, or by its values, as deltas are.
Source: decisions lake-data-change, lake-change-data, deltas-by-commit-time.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_schema, arrow_type
from ccpr.matrixone.objects.visibility import ListedObject, not_after, open_listed
from ccpr.matrixone.schema import Column, Reading, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.delta.delta import Delta, manifest_delta
from ccpr.mirror.delta.images import Image, row_images
from ccpr.mirror.errors import KeysNotBytes, KeysNotUnique, TableWithoutKey
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.reading import as_asked
from ccpr.targets.lake.columns import file_schema
from ccpr.targets.lake.parquet import FileShape, parquet_chunks
from ccpr.targets.lake.types import as_written, lake_type

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


def has_reserved_names(table: Table) -> bool:
    """Whether a table has a column that a change data feed has, so that it can have none."""
    return any(column.name.casefold() in RESERVED for column in table.user_columns)


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


def all_images(
    mirror: Mirror,
    columns: Sequence[Column],
    reading: Reading,
    before: tuple[Manifest, Timestamp] | None,
    now: tuple[Manifest, Timestamp] | None,
) -> Iterator[tuple[Image, pa.RecordBatch]]:
    """All rows of a table at one point as deleted, and all at another as inserted: of one that was replaced, or of
    which rows at two points cannot be matched. `columns` are those of the version; of a former table those count that
    have the same name and form."""
    for image, shown in ((Image.DELETE, before), (Image.INSERT, now)):
        if shown is not None:
            manifest, at = shown
            known = {(one.name, lake_type(one, reading).form): one for one in manifest.table.user_columns}
            found = [known.get((one.name, lake_type(one, reading).form)) for one in columns]
            there = [one for one in found if one is not None]
            for batch in mirror.rows(manifest, there, at):
                values = iter(batch.columns)
                arrays = [
                    pa.nulls(batch.num_rows, arrow_type(column)) if one is None else next(values)
                    for column, one in zip(columns, found, strict=True)
                ]
                yield image, pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def changes_file(images: Iterator[tuple[Image, pa.RecordBatch]], shape: FileShape) -> Iterator[bytes] | None:
    """The file of the changes, in pieces; None if there are none. `images` have the user's columns. Raises, also while
    pieces are taken, what they raise, and ValueRefused."""
    schema = file_schema(shape.table, shape.columns, shape.reading).append(pa.field(KIND, pa.string()))
    batches = _feed(images, shape, schema)
    first = next(batches, None)
    return None if first is None else parquet_chunks(chain((first,), batches), schema, [])


def _feed(
    images: Iterator[tuple[Image, pa.RecordBatch]], shape: FileShape, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    kinds = []

    def rows() -> Iterator[pa.RecordBatch]:
        for image, batch in images:
            if batch.num_rows:
                kinds.append(image)
                yield batch

    subject = f"table {shape.table.qualified_name}"
    for batch in as_asked(rows(), shape.table.user_columns, shape.reading, subject):
        image = pa.array([kinds.pop().value]).take(pa.array(np.zeros(batch.num_rows, np.int64)))
        values = [as_written(column, field.type) for column, field in zip(batch.columns, schema, strict=False)]
        yield pa.RecordBatch.from_arrays([*values, image], schema=schema)
