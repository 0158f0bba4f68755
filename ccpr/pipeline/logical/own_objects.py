"""Rows that were read from an upstream, as objects of our own writer (decision logical-mode)."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from ccpr.matrixone.client.cell_values import not_carried
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.objects.identifiers import ROWID_SIZE, UUID_NOISE, object_name, uuid7
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE, ObjectBytes
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import DECIMAL64, DECIMAL128, arrow_schema
from ccpr.matrixone.objects.writing.packed_keys import packed_keys
from ccpr.matrixone.objects.writing.writer import (
    BLOCK_ROWS,
    WrittenObject,
    sorted_blocks,
    write_data,
    write_tombstones,
)
from ccpr.matrixone.objects.writing.zonemaps import rowid_order_columns
from ccpr.matrixone.schema import CLUSTER_KEY_PREFIX, COMPOSITE_KEY, FAKE_KEY, Column, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.delta.row_keys import RowKey, row_key
from ccpr.mirror.errors import TableWithoutKey
from ccpr.mirror.layout import object_path
from ccpr.mirror.object_rows import LISTED_SCHEMA, decode_stats
from ccpr.mirror.store import Store
from ccpr.pipeline.copying import COPY_OUTPUT
from ccpr.pipeline.errors import ColumnNotCarried
from ccpr.pipeline.findings import Findings

OBJECT_ROWS, _OBJECT_BYTES = 128 * BLOCK_ROWS, 32 << 20  # of an object at most, in Arrow: some times as much in memory
# What became of an object: LISTED_SCHEMA, and what the point needs of one that was written.
CHANGED_SCHEMA = pa.schema(
    [*LISTED_SCHEMA, *(COPY_OUTPUT.field(name) for name in ("sha256", "found", "sums")), pa.field("gone", pa.bool_())]
)
_DIGITS = {DECIMAL64: 19, DECIMAL128: 38}  # MatrixOne stores more digits than a column is declared with


def check_carried(table: Table) -> None:
    """Raises ColumnNotCarried."""
    for name, reason in not_carried(table.user_columns).items():
        raise ColumnNotCarried(reason, subject=f"column {name} of table {table.qualified_name}")


@dataclass(frozen=True, slots=True)
class StoredTable:
    """How a table's rows are stored.

    Attributes
    ----------
    table : with decimals as wide as values can be.
    key : see `row_key`.
    cluster : the columns of CLUSTER BY.
    sort : the column that the rows of an object are sorted by; None if there is neither key nor CLUSTER BY.
    """

    table: Table
    key: RowKey
    cluster: tuple[Column, ...]
    sort: Column | None

    @classmethod
    def of(cls, table: Table) -> "StoredTable":
        """Raises ColumnNotCarried, TableWithoutKey, DdlUnreadable."""
        check_carried(table)
        columns = tuple(
            replace(column, digits=_DIGITS.get(column.type.oid, 0), unread=None, zero_dates=None)
            for column in table.columns
        )
        table = replace(table, columns=columns)
        by_name, key = {column.name.lower(): column for column in columns}, row_key(table)
        names = [name.lower() for name in create_table_of(table).cluster_by] if key.hidden else ()
        cluster = tuple(by_name[name] for name in names if name in by_name)
        if len(cluster) != len(names):
            raise DdlUnreadable("its CLUSTER BY names other columns", subject=f"table {table.qualified_name}")
        sort: Column | None = key.match
        if key.hidden:
            packed = [column for column in columns if column.hidden and column.name.startswith(CLUSTER_KEY_PREFIX)]
            sort = cluster[0] if len(cluster) == 1 else packed[0] if packed else None
        return cls(table, key, cluster, sort)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The user's."""
        return self.table.user_columns

    def with_hidden(self, rows: pa.RecordBatch, first_number: int) -> pa.RecordBatch:
        """The rows with all columns that the table has; they have the user's and perhaps the hidden number of a row
        without a key. Without it they are numbered from `first_number`, by us: a difference does not say it."""
        names = [column.name for column in self.columns] + [FAKE_KEY]
        arrays = dict(zip(names, rows.columns, strict=False))
        found = list[pa.Array]()
        for column in self.table.columns:
            if not column.hidden or column.name in arrays:
                found.append(arrays[column.name])
            elif column.name == FAKE_KEY:
                found.append(_numbers(first_number, rows.num_rows))
            elif column.name == COMPOSITE_KEY:
                found.append(packed_keys(self.key.columns, [arrays[one.name] for one in self.key.columns]))
            elif column is self.sort:
                found.append(packed_keys(self.cluster, [arrays[one.name] for one in self.cluster], full=True))
            else:
                raise TableWithoutKey(
                    f"its hidden column {column.name} is not known", subject=f"table {self.table.qualified_name}"
                )
        return pa.RecordBatch.from_arrays(found, schema=arrow_schema(self.table.columns))

    def keys_of(self, rows: pa.RecordBatch) -> pa.Array:
        """The keys of rows of the user's columns; of a table that has one."""
        arrays = {column.name: rows.column(place) for place, column in enumerate(self.columns)}
        if self.key.match.name in arrays:
            return arrays[self.key.match.name]
        return packed_keys(self.key.columns, [arrays[one.name] for one in self.key.columns])

    def data(self, rows: pa.Table, commits: np.ndarray, at: Timestamp) -> WrittenObject:
        """An object of the time `at`, of one to OBJECT_ROWS rows with all columns, each with its commit time
        (TIMESTAMP_DTYPE)."""
        numbered = rows.append_column("", pa.array(np.arange(rows.num_rows)))
        blocks = sorted_blocks(self.table, numbered, None if self.sort is None else self.sort.seqnum)
        commits = commits[np.concatenate([block.columns[-1].to_numpy() for block in blocks])]
        return write_data(
            self.table,
            [block.remove_column(block.num_columns - 1) for block in blocks],
            name=new_name(at),
            appendable=False,
            by_cn=False,
            commit_ts=_cut(commits),
            primary_key=None if self.key.hidden else self.key.match.seqnum,
            cluster_by=None if self.sort is None else self.sort.seqnum,
            wkb=True,
        )

    def tombstones(self, rowids: np.ndarray, keys: pa.Array, commits: np.ndarray, at: Timestamp) -> WrittenObject:
        """An object of deleted rows: rowids (ROWID_DTYPE), their keys, and when they were deleted."""
        raw = np.ascontiguousarray(rowids).view(np.uint8).reshape(-1, ROWID_SIZE)
        order = np.lexsort(rowid_order_columns(raw)[::-1])
        raw, keys, commits = np.ascontiguousarray(raw[order]), keys.take(pa.array(order)), commits[order]
        stored = pa.Array.from_buffers(pa.binary(ROWID_SIZE), len(raw), [None, pa.py_buffer(raw)])
        starts = range(0, len(raw), BLOCK_ROWS)
        return write_tombstones(
            [stored.slice(start, BLOCK_ROWS) for start in starts],
            [keys.slice(start, BLOCK_ROWS) for start in starts],
            self.key.match,
            name=new_name(at),
            appendable=False,
            by_cn=False,
            commit_ts=_cut(commits),
        )


def objects_of(stored: StoredTable, batches: Iterable[pa.RecordBatch], first: int = 0) -> Iterator[pa.Table]:
    """Rows with all columns (`StoredTable.with_hidden`), in tables of one object each."""
    held, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        for start in range(0, batch.num_rows, OBJECT_ROWS):
            part = stored.with_hidden(batch.slice(start, OBJECT_ROWS), first)
            first += part.num_rows
            if held and (rows + part.num_rows > OBJECT_ROWS or size + part.nbytes > _OBJECT_BYTES):
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
            held.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if held:
        yield pa.Table.from_batches(held)


def commits_at(at: Timestamp, rows: int) -> np.ndarray:
    times = np.empty(rows, TIMESTAMP_DTYPE)
    times["physical"], times["logical"] = at.physical, at.logical
    return times


def new_name(at: Timestamp) -> str:
    """Of an object, as the server makes them: a UUID of version 7, and the number of a file."""
    return object_name(uuid7(at.physical // 1_000_000, secrets.randbits(UUID_NOISE)) + bytes(2))


def put_object(store: Store, table_id: int, made: WrittenObject, at: Timestamp, *, tombstone: bool) -> pa.RecordBatch:
    """Write it into the store, after it was read back and checked; its row (CHANGED_SCHEMA)."""
    found = list[Findings]()
    stored = store.put(object_path(made.stats.name), [made.content], check=partial(_check, made.stats, found))
    row = listed_row(table_id, made.stats.raw, at, tombstone=tombstone)
    extra = {"sha256": stored.sha256, "found": found[0].to_text(), "sums": found[0].sums, "gone": False}
    for name, value in extra.items():
        field = CHANGED_SCHEMA.field(name)
        row = row.append_column(field, pa.array([value], field.type))
    return row


def _check(stats: ObjectStats, found: list[Findings], content: ObjectBytes) -> None:
    found.append(Findings.of(content, stats))


def listed_row(table_id: int, stats: bytes, at: Timestamp, *, tombstone: bool) -> pa.RecordBatch:
    cells = {
        "table_id": table_id,
        "stats": stats,
        "create_physical": at.physical,
        "create_logical": at.logical,
        "is_tombstone": tombstone,
    }
    names = ("table_id", "stats", "create_physical", "create_logical", "delete_physical", "delete_logical")
    arrays = [pa.array([cells.get(name)], LISTED_SCHEMA.field(name).type) for name in (*names, "is_tombstone")]
    return decode_stats(pa.RecordBatch.from_arrays(arrays, names=[*names, "is_tombstone"]))


def gone_rows(listed: pa.Table) -> pa.Table:
    """Objects that went (LISTED_SCHEMA), as CHANGED_SCHEMA."""
    for name in ("sha256", "found", "sums"):
        field = CHANGED_SCHEMA.field(name)
        listed = listed.append_column(field, pa.nulls(listed.num_rows, field.type))
    return listed.append_column(CHANGED_SCHEMA.field("gone"), pa.repeat(pa.scalar(True), listed.num_rows))


def _numbers(first: int, count: int) -> pa.Array:
    """As the server's numbers of rows without a key are read: u64."""
    limbs = np.zeros((count, 2), "<u8")
    limbs[:, 0] = np.arange(first, first + count)
    return pa.Array.from_buffers(pa.decimal128(20, 0), count, [None, pa.py_buffer(limbs)])


def _cut(times: np.ndarray) -> Sequence[np.ndarray]:
    return [times[start : start + BLOCK_ROWS] for start in range(0, len(times), BLOCK_ROWS)]
