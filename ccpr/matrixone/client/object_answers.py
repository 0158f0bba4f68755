"""The list of a snapshot's objects, and their bytes: docs/upstream.md 5.7 and 5.8."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.answer_packets import Cells
from ccpr.matrixone.client.column_stream import column_places
from ccpr.matrixone.client.errors import AnswerTooLong, ObjectListTooLong, ObjectSizeMismatch, UnreadableObjectList
from ccpr.matrixone.client.limits import ListLimit
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Session, integer
from ccpr.matrixone.objects.stats import STATS_SIZE, check_object_name, without_delete_mark
from ccpr.matrixone.objects.vectors import bounds_of

CHUNK_BYTES = 100 << 20
_OVERHEAD_BYTES = 1 << 16  # of an answer in addition to the chunk: names, numbers, packet headers

OBJECT_LIST_SCHEMA = pa.schema(
    [
        pa.field("database", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("stats", pa.binary(), nullable=False),
        pa.field("create_physical", pa.int64(), nullable=False),
        pa.field("create_logical", pa.int64(), nullable=False),
        pa.field("delete_physical", pa.int64()),
        pa.field("delete_logical", pa.int64()),
        pa.field("is_tombstone", pa.bool_(), nullable=False),
    ]
)
_CHUNK_COLUMNS = ("data", "total_size", "chunk_index", "total_chunks", "is_complete")
_LONGEST_NUMBER = 32  # longer than any valid number
_PHYSICAL_DIGITS, _LOGICAL_DIGITS = 19, 10
_LIST_COLUMNS = ("db name", "table name", "stats", "create_at", "delete_at", "is_tombstone")


def object_list(
    session: Session, snapshot: str, publication: Publication, *, against: str | None, longest: int = ListLimit().bytes
) -> Iterator[pa.RecordBatch]:
    """The objects of the snapshot (`against` None), or those created or deleted since the older snapshot `against`, in
    batches of some thousands.

    Columns as in OBJECT_LIST_SCHEMA: `stats` are 154 raw bytes; times are nanoseconds and a tie-breaker, null for "not
    deleted". An object may occur twice: the row with a delete is valid. There are no retries: after ConnectionLost
    call it again. Raises SnapshotGone, StaleRead, PartitionedTable, UnreadableObjectList; ObjectListTooLong for an
    answer of more than `longest` bytes.
    """
    statement = upstream_sql.object_list(snapshot, against, publication.publisher, publication.name)
    try:
        for columns in session.stream(statement, longest=longest):
            cells = columns.select(*_LIST_COLUMNS)
            if columns.rows:
                yield _batch(cells, snapshot)
    except AnswerTooLong as error:
        message = f"the object list is longer than {longest} bytes"
        raise ObjectListTooLong(message, subject=f"snapshot {snapshot}") from error


def _batch(cells: list[pa.BinaryArray], snapshot: str) -> pa.RecordBatch:
    subject = f"object list of snapshot {snapshot}"
    database, table, stats, create, delete, tombstone = cells
    if stats.null_count or not pc.all(pc.equal(pc.binary_length(stats), STATS_SIZE)).as_py():
        raise UnreadableObjectList(f"an object's stats are not {STATS_SIZE} bytes long", subject=subject)
    stats = without_delete_mark(stats)
    create_physical, create_logical = _times(create, "create_at", subject)
    if pc.any(_is_none(create_physical, create_logical)).as_py():
        raise UnreadableObjectList("an object was never created (create_at is 0-0)", subject=subject)
    delete_physical, delete_logical = _times(delete, "delete_at", subject)
    alive = _is_none(delete_physical, delete_logical)
    nothing = pa.scalar(None, pa.int64())
    columns = [
        _strings(database, "db name", subject),
        _strings(table, "table name", subject),
        stats,
        create_physical,
        create_logical,
        pc.if_else(alive, nothing, delete_physical),
        pc.if_else(alive, nothing, delete_logical),
        _flags(tombstone, subject),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OBJECT_LIST_SCHEMA)


def _strings(cells: pa.Array, what: str, subject: str) -> pa.Array:
    if cells.null_count:
        raise UnreadableObjectList(f"{what} is NULL", subject=subject)
    try:
        return cells.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise UnreadableObjectList(f"{what} is not UTF-8", subject=subject) from error


def _times(cells: pa.BinaryArray, what: str, subject: str) -> tuple[pa.Array, pa.Array]:
    """Two int64 columns from texts `physical-logical`, all digits but one."""
    if cells.null_count:
        raise UnreadableObjectList(f"{what} is NULL", subject=subject)
    bounds, data = bounds_of(cells), cells.buffers()[2]
    text = np.frombuffer(data or b"", np.uint8)
    is_other = text[bounds[0] : bounds[-1]] - np.uint8(ord("0")) >= 10  # what is less than 0 has become more than 200
    dashes = bounds[0] + np.flatnonzero(is_other)
    if len(dashes) != len(cells) or not (
        (text[dashes] == ord("-")).all()
        and _are_between(dashes - bounds[:-1], 1, _PHYSICAL_DIGITS)
        and _are_between(bounds[1:] - dashes - 1, 1, _LOGICAL_DIGITS)
    ):
        raise UnreadableObjectList(f"{what} is not of the form physical-logical", subject=subject)
    ends = np.append(np.stack([bounds[:-1], dashes, dashes + 1], axis=1).ravel(), bounds[-1]).astype(np.int32)
    parts = pa.Array.from_buffers(pa.string(), 3 * len(cells), [None, pa.py_buffer(ends), data])
    try:
        return _every_third(parts, 0).cast(pa.int64()), _every_third(parts, 2).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise UnreadableObjectList(f"{what} lies beyond 64 bits", subject=subject) from error


def _are_between(values: np.ndarray, least: int, greatest: int) -> bool:
    return bool(((values >= least) & (values <= greatest)).all())


def _every_third(parts: pa.StringArray, first: int) -> pa.StringArray:
    places = pa.py_buffer(np.arange(first, len(parts), 3))
    return parts.take(pa.Array.from_buffers(pa.int64(), len(parts) // 3, [None, places]))


def _is_none(physical: pa.Array, logical: pa.Array) -> pa.Array:
    return pc.and_(pc.equal(physical, 0), pc.equal(logical, 0))


def _flags(cells: pa.Array, subject: str) -> pa.Array:
    true = pc.equal(cells, b"1")
    if cells.null_count or not pc.all(pc.or_(true, pc.equal(cells, b"0"))).as_py():
        raise UnreadableObjectList("is_tombstone is neither 0 nor 1", subject=subject)
    return true


def get_object(session: Session, publication: Publication, name: str, size: int) -> Iterator[memoryview]:
    """The object's bytes, chunk by chunk (100 MiB each except the last), exactly `size` bytes in all, the size in its
    stats.

    Every answer must be consistent with the earlier ones and with `size`; never more than `size` bytes are yielded. A
    chunk is requested again after a lost connection, so the object is either complete or an error is raised. Raises
    BadObjectName, ObjectGone, ObjectSizeMismatch, BadAnswer.
    """
    subject = f"object {check_object_name(name)}"
    if size <= 0:
        raise ObjectSizeMismatch(f"an object cannot be {size} bytes long", subject=subject)
    done, chunk, chunks, full = 0, 1, 1, 0
    while chunk <= chunks:
        statement = upstream_sql.get_object(publication.publisher, publication.name, name, chunk)
        try:
            row = session.read_row(statement, longest=min(size - done, CHUNK_BYTES) + _OVERHEAD_BYTES)
        except AnswerTooLong as error:
            raise ObjectSizeMismatch("a chunk is longer than the object", subject=subject) from error
        data, total_size, index, total_chunks, complete = _cells(row)
        if chunk == 1:
            chunks, full = total_chunks, len(data)
        last, after = chunk == chunks, done + len(data)
        if total_size != size:
            raise ObjectSizeMismatch("its file has another size than its stats say", subject=subject)
        if index != chunk:
            raise ObjectSizeMismatch("another chunk came than was asked for", subject=subject)
        if total_chunks != chunks or complete != last:
            raise ObjectSizeMismatch("the number of chunks changed on the way", subject=subject)
        # The last chunk completes the object; all others are as long as the first, and are not its end.
        if after != size if last else not 0 < len(data) == full or after >= size:
            raise ObjectSizeMismatch("a chunk has another length than it must have", subject=subject)
        done = after
        chunk += 1
        del row
        yield data
        del data  # a chunk is large: release it before the next one arrives


def _cells(row: Cells) -> tuple[memoryview, int, int, int, bool]:
    cells = list(row.values())
    data, *numbers = (cells[place] for place in column_places(list(row), _CHUNK_COLUMNS))
    texts = (None if cell is None else bytes(cell[:_LONGEST_NUMBER]) for cell in numbers)
    total_size, index, total_chunks, complete = map(integer, texts, _CHUNK_COLUMNS[1:])
    return memoryview(b"") if data is None else data, total_size, index, total_chunks, complete == 1
