"""The Parquet file of an object: its rows in the order in which they are stored, a block at a time.

A row that no point will show any more is written as nulls, so that rolled back and deleted values are not in the lake.
With `visible_only`, which *copy on write* asks for, a file has the visible rows alone, and needs no deletion vector.
The name says what the content depends on: the object, the columns, and which rows are nulls. So an attempt that is
repeated finds its files, and other content never gets the same name. Source: decision lake-files.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccpr.lake.deletion_vectors import digest_of_rows
from ccpr.lake.errors import LakeChanged
from ccpr.lake.lake_columns import FIELD_ID, LakeColumns, file_schema
from ccpr.lake.lake_types import as_written
from ccpr.lake.statistics import statistics_of
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.schema import Reading, Table
from ccpr.mirror.as_asked import as_asked
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.store import Store
from ccpr.mirror.table_read import GROUP_ROWS, row_groups

_READ_ROWS = 1 << 15
_FORMAT = 2  # of what is written into a file; another one gives other names
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "store_schema": False,
    "coerce_timestamps": "us",
    "store_decimal_as_integer": True,
}


@dataclass(frozen=True, slots=True)
class FileShape:
    """What the files of a table have in common.


    Attributes
    ----------
    folder : of the table in the lake.
    visible_only : rows that do not exist are left out of the files.
    """

    folder: str
    table: Table
    columns: LakeColumns
    reading: Reading
    visible_only: bool = False

    def path(self, name: str, nulls: np.ndarray) -> str:
        """Of the file of an object, below the table."""
        columns = [(one.id, one.physical, one.seqnum, one.form) for one in self.columns.columns]
        rows = digest_of_rows(nulls)
        about = [_FORMAT, self.columns.generation, self.columns.table_id, columns, rows, self.visible_only]
        digest = hashlib.sha256(json.dumps(about, ensure_ascii=False).encode()).hexdigest()[:16]
        return f"data/{name}-{digest}.parquet"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file as an `add` names it. `new`: whether it was written now."""

    path: str
    size: int
    statistics: dict[str, Any]
    new: bool

    @property
    def rows(self) -> int:
        return self.statistics["numRecords"]


def write_file(store: Store, shape: FileShape, file: ObjectFile, name: str, nulls: np.ndarray) -> WrittenFile:
    """Write the file of an object, unless it is there.

    Parameters
    ----------
    name : of the object.
    nulls : numbers of the rows that are written as nulls, or are left out; sorted.

    Raises ObjectDamaged, ObjectMismatch, ObjectUnsupported, ValueRefused, StoreFailed.
    """
    path, schema = shape.path(name, nulls), file_schema(shape.table, shape.columns, shape.reading)
    stored_name = f"{shape.folder}/{path}"
    size = store.size(stored_name)
    rows = file.rows - (len(nulls) if shape.visible_only else 0)
    footer = None if size is None else _footer(store, stored_name, size)
    if size is not None and footer is not None and footer.num_rows == rows:
        return WrittenFile(path, size, statistics_of(footer, schema), new=False)
    footers: list[pq.FileMetaData] = []
    stored = store.put(
        stored_name, parquet_chunks(_batches(file, shape, schema, nulls), schema, footers), overwrite=size is not None
    )
    return WrittenFile(path, stored.size, statistics_of(footers[0], schema), new=True)


def file_batches(store: Store, folder: str, path: str, names: list[str]) -> Iterator[pa.RecordBatch]:
    """All rows of a file that is there, in order: some columns of it, as far as it has them. Raises LakeChanged,
    StoreFailed."""
    name = f"{folder}/{path}"
    try:
        with pq.ParquetFile(
            pa.PythonFile(_StoreReading(store, name, store.open(name).size), "r"), pre_buffer=False
        ) as file:
            there = set(file.schema_arrow.names)
            columns = [one for one in names if one in there] or None
            yield from file.iter_batches(_READ_ROWS, columns=columns, use_threads=False)
    except (MirrorDamaged, pa.ArrowException) as error:
        what = f"its file {path} cannot be read: {error!s:.120}"
        raise LakeChanged(what, subject=f"{store.url.partition('?')[0]}/{folder}") from error


def parquet_chunks(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, footers: list[pq.FileMetaData]
) -> Iterator[bytes]:
    """The content of a Parquet file, a row group at a time; its footer is added to `footers`. Memory: a row group,
    decoded and encoded."""
    sink = _Sink()
    described = _described(schema)
    options = {**_OPTIONS, "write_statistics": described, "use_dictionary": described}
    with pq.ParquetWriter(sink, schema, metadata_collector=footers, **options) as writer:
        for group in row_groups(batches, schema):
            writer.write_table(group, row_group_size=2 * GROUP_ROWS)
            yield sink.taken()
    yield sink.taken()


def _described(schema: pa.Schema) -> list[str]:
    """The columns that have bounds and dictionaries in a file: of floats, engines leave out NaN by the one and do not
    find -0.0 by the other. Source: decision lake-statistics."""
    return [
        field.name for field in schema if not pa.types.is_floating(field.type) and not pa.types.is_nested(field.type)
    ]


def _batches(file: ObjectFile, shape: FileShape, schema: pa.Schema, nulls: np.ndarray) -> Iterator[pa.RecordBatch]:
    """One for each block. Of rows that are nulls nothing is decoded: they may be gone because they cannot be."""
    user = shape.table.user_columns
    read_schema = arrow_schema(user)
    masks = []

    def shown() -> Iterator[pa.RecordBatch]:
        first = 0
        for block in file.blocks:
            if not block.rows:
                continue
            start, stop = np.searchsorted(nulls, [first, first + block.rows])
            mask = None
            if stop > start:
                mask = np.ones(block.rows, bool)
                mask[nulls[start:stop] - first] = False
            masks.append(mask)
            rows = None if mask is None else np.flatnonzero(mask)
            arrays = [file.column(block.number, column, rows) for column in user]
            yield pa.RecordBatch.from_arrays(arrays, schema=read_schema)
            first += block.rows

    for batch in as_asked(shown(), user, shape.reading, f"table {shape.table.qualified_name}"):
        mask = masks.pop()
        arrays = [as_written(values, field.type) for values, field in zip(batch.columns, schema, strict=True)]
        if mask is not None and not shape.visible_only:
            places = pa.array(np.cumsum(mask) - 1, mask=~mask)
            arrays = [values.take(places) for values in arrays]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Sink(io.RawIOBase):
    """What a writer has written and was not taken yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        content, self._parts = b"".join(self._parts), []
        return content


def _footer(store: Store, name: str, size: int) -> pq.FileMetaData | None:
    """Of a file that is there; None if it is no Parquet file."""
    try:
        return pq.read_metadata(pa.PythonFile(_StoreReading(store, name, size), "r"))
    except pa.ArrowException:
        return None


def has_element_ids(store: Store, name: str) -> bool:
    """Whether the elements of lists have numbers in a file, as Iceberg needs them: former releases gave them none."""
    size = store.size(name)
    schema = pq.ParquetFile(pa.PythonFile(_StoreReading(store, name, size or 0), "r")).schema_arrow
    lists = (one.type.value_field for one in schema if pa.types.is_list(one.type))
    return all(FIELD_ID in (one.metadata or {}) for one in lists)


class _StoreReading(io.RawIOBase):
    """A file of a store that is read in parts."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        self._content, self._size, self._at = store.open(name), size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._at, 0)
        part = bytes(self._content.slice(self._at, left if size < 0 else min(size, left)))
        self._at += len(part)
        return part
