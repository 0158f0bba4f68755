"""An object file, read lazily: docs/format/object-file.md 2.8."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import ZERO_DATE, to_arrow
from ccpr.matrixone.objects.disk import is_framed, unframe
from ccpr.matrixone.objects.errors import ObjectChanged, ObjectDamaged, ObjectMismatch, ObjectUnsupported, ValueRefused
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE, object_name
from ccpr.matrixone.objects.object_layout import (
    HEADER_SIZE,
    TIMESTAMP_DTYPE,
    Block,
    ObjectBytes,
    Scratch,
    inflate_column,
    packed,
    read_header,
    read_metadata,
    stored_bytes,
    stored_columns,
    sum_of,
    unpacked,
)
from ccpr.matrixone.objects.stats import Extent, ObjectStats
from ccpr.matrixone.objects.types import SLOT_SIZES, TEXT_TYPES, VARLENA_TYPES, arrow_type
from ccpr.matrixone.objects.vectors import (
    HEAD_AND_TAIL_SIZE,
    NULLS_LIMIT_BASE,
    NULLS_LIMIT_PER_ROW,
    Vector,
    joined,
    parse_vector,
)
from ccpr.matrixone.objects.zonemap import parse_zonemap
from ccpr.matrixone.schema import Column, SqlType

_ROWID_SEQNUM = 0  # of tombstones
NEVER = 2**63 - 1  # physical part of the time of an aborted row
_TAILS = (
    (types.TS,),
    (types.TS, types.ROWID),
    (types.TS, types.BOOL),
    (types.TS, types.ROWID, types.BOOL),
)
_VARLENA_LIMIT = 2**32 - 1
_SPARSE = 8  # of so many rows one is asked for: its slot is copied before it is converted
_DAY_SIZE = 4  # bytes of a date
_DEEP_BASE, _DEEP_PER_BYTE = 1 << 30, 64  # bytes that a deep check decodes, by the size of the file


class ObjectFile:
    """One object: header and metadata are parsed at once, columns on demand.

    Whatever the bytes are, a method returns or raises `ObjectDamaged`, `ObjectUnsupported` or `ObjectMismatch`. A
    memory-mapped file must not be truncated while it is open: objects are immutable, and the store renames them into
    place.

    Attributes
    ----------
    object_id : 18 bytes.
    rows : of all blocks, visible or not.
    blocks : see `ccpr.matrixone.objects.object_layout.Block`.
    appendable : rows are in order of arrival, each with a commit time.
    sort_key : seqnum of the column that the rows are sorted by (if the stats say sorted), or None.
    max_seqnum : largest number of an ordinary column; larger ones in a block are special (rowids, commit times), even
        if the table has columns of these numbers by now.
    meta : extent of the metadata area.
    schema_version : of the table, when the object was written.
    size : bytes of the logical file.
    content : what it is read from.

    Parameters
    ----------
    sums : of the file when it was copied (`ccpr.matrixone.objects.object_layout`): what is read is compared with them
        before it is decoded, and an ObjectChanged if it differs. None = that is not known.
    """

    def __init__(self, data: ObjectBytes | bytes, *, subject: str = "object", sums: bytes | None = None) -> None:
        content: ObjectBytes = pa.py_buffer(data) if isinstance(data, bytes) else data
        self.content: ObjectBytes = (
            pa.py_buffer(unframe(content.slice(0, content.size), at=0, subject=subject))
            if is_framed(content)
            else content
        )
        self._subject = subject
        known = None if sums is None else unpacked(sums, subject)
        header = read_header(self.content, subject, known)
        metadata = read_metadata(self.content, header.meta, subject, known)
        self._made: dict[int, dict[int, int]] = {}  # sums of columns by block and seqnum
        self.meta: Extent = header.meta
        self.schema_version: int = header.schema_version
        self.size: int = self.content.size
        self.object_id: bytes = metadata.object_id
        self.rows: int = metadata.rows
        self.blocks: tuple[Block, ...] = metadata.blocks
        self.appendable: bool = metadata.appendable
        self.sort_key: int | None = metadata.sort_key
        self.columns: np.ndarray = metadata.columns
        self.max_seqnum: int = metadata.max_seqnum
        stored = sum(block.rows for block in self.blocks)
        if stored != self.rows:
            raise ObjectDamaged(f"{self.rows} rows announced, {stored} in the blocks", subject=subject)
        if self.appendable and len(self.blocks) > 1:
            raise ObjectDamaged(f"an appendable object of {len(self.blocks)} blocks", subject=subject)

    def reopen(self, content: ObjectBytes) -> None:
        """Read on from another opening of the same file, unless it is in memory."""
        if not isinstance(self.content, pa.Buffer):
            self.content = content

    def column(self, block: int, column: Column, rows: np.ndarray | None = None) -> pa.Array:
        """The values of a column in a block, of type `arrow_type(column)`; of all rows, or of some, given by number.

        Nulls where the object was written before the column existed (2.8). Raises `ObjectMismatch` if the file has
        another type than the schema. What is wrong with values of rows that were not asked for is no error: they may
        have been deleted because of it.
        """
        # Rowids and commit times are stored after the largest ordinary number. A column that was added in place later
        # can have the same number.
        try:
            vector = self._vector(block, column.seqnum, column.type.oid) if column.seqnum <= self.max_seqnum else None
        except (ObjectUnsupported, ObjectChanged) as error:
            raise type(error)(error.message, subject=f"column {column.name}, {error.subject}") from error
        if vector is None:
            return pa.nulls(self.blocks[block].rows if rows is None else len(rows), arrow_type(column))
        if rows is None:
            return to_arrow(vector, column, self._subject)
        if len(rows) * _SPARSE >= vector.rows:
            try:
                return to_arrow(vector, column, self._subject).take(pa.array(rows))
            except (ObjectDamaged, ValueRefused):
                pass  # of a row that nobody asked for, perhaps
        return to_arrow(vector.select(rows, SLOT_SIZES[column.type.oid]), column, self._subject)

    def values(self, blocks: Sequence[int], column: Column) -> pa.Array:
        """The values of a column in some blocks, one after another, as `column` gives them of each. Raises as that
        does.

        Values of one size are converted together: of small blocks, Python's own work is a third of the time.
        """
        if len(blocks) > 1 and column.type.oid not in VARLENA_TYPES:
            try:
                vector = self._joined(blocks, column)
                if vector is not None:
                    return to_arrow(vector, column, self._subject)
            except (ObjectDamaged, ObjectUnsupported, ValueRefused):
                pass  # the block that it is in says so better
        arrays = [self.column(block, column) for block in blocks]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)

    def _joined(self, blocks: Sequence[int], column: Column) -> Vector | None:
        """The vector of a column that has no area in some blocks; None if not all have it in one form."""
        if column.seqnum > self.max_seqnum:
            return None
        oid, scratch = column.type.oid, Scratch()
        vectors = (self._vector(block, column.seqnum, oid, scratch) for block in blocks)
        return joined(vectors, sum(self.blocks[block].rows for block in blocks), SLOT_SIZES[oid])

    def sums(self) -> bytes:
        """The sums of the file as it is. Those of columns that `check` has inflated were made while it had their
        bytes."""
        found = [self._sum(0, HEADER_SIZE), self._sum(self.meta.offset, self.meta.length)]
        for block in self.blocks:
            made = self._made.get(block.number)
            if made is None:
                made = {seqnum: self._sum(offset, length) for seqnum, _, offset, length in stored_columns(block)}
            found += [made.get(seqnum, 0) for seqnum in range(len(block.columns))]
        return packed(found)

    def _sum(self, offset: int, length: int) -> int:
        return sum_of(stored_bytes(self.content, offset, length, self._subject))

    def digits(self) -> dict[int, int]:
        """Of the decimal columns, by seqnum: how many digits the longest value has, in all rows, visible or not.
        Without those that have no value, and decimal256: zone maps do not say it, and it is read as text."""
        found = {}
        for seqnum in range(min(self.max_seqnum + 1, len(self.columns))):
            zone = parse_zonemap(self.columns["zonemap"][seqnum].tobytes())
            if zone is not None and zone.oid in types.MOST_DIGITS:
                found[seqnum] = len(str(max(abs(zone.minimum), abs(zone.maximum))))
        return found

    def zero_dates(self, without: Collection[int] = ()) -> dict[int, int]:
        """Of the columns of dates and times, by seqnum: how many values are the zero value, in all rows but those of
        aborted transactions. `without` names columns that are not looked at; those that have none are skipped. Blocks
        whose zone map excludes it are not read."""
        found: dict[int, int] = {}
        for seqnum in range(min(self.max_seqnum + 1, len(self.columns))):
            if seqnum in without or not _may_have_zero_date(self.columns["zonemap"][seqnum].tobytes()):
                continue
            for block in self.blocks:
                if _may_have_zero_date(block.columns["zonemap"][seqnum].tobytes()):
                    found[seqnum] = found.get(seqnum, 0) + self._count_zero_dates(block.number, seqnum)
        return {seqnum: count for seqnum, count in found.items() if count}

    def _count_zero_dates(self, block: int, seqnum: int) -> int:
        oid = int(self.blocks[block].columns["oid"][seqnum])
        vector = self._vector(block, seqnum, oid) if oid in types.ZERO_DATE_TYPES else None
        if vector is None:
            return 0
        zero = vector.fixed("<i4" if SLOT_SIZES[oid] == _DAY_SIZE else "<i8") == ZERO_DATE
        for without in (vector.null_mask(), self.aborted(block)):
            if without is not None:
                zero &= ~without
        return int(zero.sum())

    def commit_timestamps(self, block: int) -> np.ndarray | None:
        """Commit times of the rows, TIMESTAMP_DTYPE; None if the object has none. They have no meaning in an object
        created by a CN (1). A row whose transaction was aborted has NEVER: it exists at no time."""
        place, abort = self._special(block)
        if place is None:
            return None
        times = self._without_nulls(block, place, types.TS).fixed(TIMESTAMP_DTYPE)
        if abort is not None:
            times = times.copy()
            times["physical"][self._aborted(block, abort)] = NEVER
        return times

    def aborted(self, block: int) -> np.ndarray | None:
        """bool for each row: whether its transaction was aborted, so that the row does not exist; None if the object
        does not say so of any."""
        abort = self._special(block)[1]
        aborted = None if abort is None else self._aborted(block, abort)
        return aborted if aborted is not None and aborted.any() else None

    @property
    def has_abort_column(self) -> bool:
        """Whether it says which rows are of aborted transactions."""
        return any(self._special(block.number)[1] is not None for block in self.blocks)

    def _special(self, block: int) -> tuple[int | None, int | None]:
        """Places of the commit times and of the abort flags (5.1): at the end, with a rowid column between them or
        not. By types and not by `max_seqnum`: backups of 4.1 count the commit time among the ordinary columns, and no
        other column is of type TS."""
        oids = self.blocks[block].columns["oid"].tolist()
        for tail in _TAILS:
            if tuple(oids[-len(tail) :]) == tail:
                return len(oids) - len(tail), len(oids) - 1 if tail[-1] == types.BOOL else None
        return None, None

    def _aborted(self, block: int, place: int) -> np.ndarray:
        vector = self._vector(block, place, types.BOOL)
        if vector is None:
            raise ObjectDamaged(f"the abort column of block {block} is missing", subject=self._subject)
        null = vector.null_mask()
        aborted = vector.fixed("u1") != 0
        return aborted if null is None else aborted & ~null

    def rowids(self, block: int) -> np.ndarray:
        """The rowids that a block of a tombstone object deletes, ROWID_DTYPE (6)."""
        return self._without_nulls(block, _ROWID_SEQNUM, types.ROWID).fixed(ROWID_DTYPE)

    def check(self, stats: ObjectStats | None = None, *, inflate: bool = False, deep: bool = False) -> dict[int, str]:
        """Compare the object with its stats, and every extent with the file. `inflate` also decompresses every column
        of every block and compares its row count with the block's; `deep` decodes them as well. Returns the columns of
        a form that is not known, by seqnum, with the reason: that is no damage.

        Raises `ObjectMismatch` where file and stats disagree, else `ObjectDamaged`. The format
        has no checksums: a flipped bit inside a value can go unnoticed. Rows may share their bytes, so a small file can
        hold very long values: columns beyond a budget of decoded bytes are inflated and parsed, but not decoded. A
        column of a type that is not known is not returned either: the table's schema says its type.
        """
        if stats is not None:
            self._check_stats(stats)
        self._check_extents()
        unread: dict[int, str] = {}
        if not (inflate or deep):
            return unread
        budget, scratch = _DEEP_BASE + _DEEP_PER_BYTE * self.size, Scratch()
        for block in self.blocks:
            made = None if block.sums is not None else self._made.setdefault(block.number, {})
            for seqnum, oid, offset, length in stored_columns(block):
                try:
                    budget -= self._check_column(block.number, seqnum, oid, scratch, decode=deep and budget > 0)
                except ObjectUnsupported as error:
                    unread.setdefault(seqnum, error.message)
                if made is not None:  # the processor's cache has the bytes still
                    made[seqnum] = self._sum(offset, length)
        return unread

    def _check_extents(self) -> None:
        total = 0
        for block in self.blocks:
            for seqnum, _, offset, length in stored_columns(block):
                total += length
                if offset + length > self.meta.offset:
                    message = f"column {seqnum} of block {block.number} reaches into the metadata"
                    raise ObjectDamaged(message, subject=self._subject)
        if total > self.meta.offset:
            raise ObjectDamaged("columns overlap", subject=self._subject)

    def _check_stats(self, stats: ObjectStats) -> None:
        pairs = {
            "size": (self.size, stats.size),
            "metadata extent": (self.meta, stats.meta),
            "name": (object_name(self.object_id), stats.name),
            "rows": (self.rows, stats.rows),
            "blocks": (len(self.blocks), stats.blocks),
            "appendable": (self.appendable, stats.appendable),
        }
        for what, (file, listed) in pairs.items():
            if file != listed:
                message = f"{what}: the file has {file}, the object list {listed}"
                raise ObjectMismatch(message, subject=f"object {stats.name}")

    def _check_column(self, block: int, seqnum: int, oid: int, scratch: Scratch, *, decode: bool) -> int:
        """Inflate and parse a column, and decode it with `decode`; returns the number of decoded bytes. One of a type
        that is not known is inflated only."""
        if oid not in SLOT_SIZES:
            inflate_column(self.content, self.blocks[block], seqnum, _VARLENA_LIMIT, self._subject, scratch)
            return 0
        vector = self._vector(block, seqnum, oid, scratch)
        if vector is None or not decode:
            return 0
        # Without the schema text cannot be distinguished from packed keys, and neither labels nor the precision of
        # decimals are known.
        labels: tuple[str, ...] = ()
        if oid == types.ENUM:
            largest = int(vector.fixed("<u2").max()) if vector.rows else 1
            labels = tuple(map(str, range(1, max(largest, 1) + 1)))
        width = types.MAX_PRECISION.get(oid, vector.width)
        kind = SqlType(types.VARBINARY if oid in TEXT_TYPES else oid, width, vector.scale)
        column = Column(f"#{seqnum}", seqnum, kind, labels=labels, digits=types.MOST_DIGITS.get(oid, 0))
        arrow_type(column)
        try:
            return to_arrow(vector, column, self._subject).nbytes
        except ValueRefused:  # a value that readers do not have, and no damage
            return 0

    def _without_nulls(self, block: int, seqnum: int, oid: int) -> Vector:
        vector = self._vector(block, seqnum, oid)
        if vector is None or vector.nulls is not None:
            raise ObjectDamaged(f"column {seqnum} of block {block} is missing or has nulls", subject=self._subject)
        return vector

    def _vector(self, block: int, seqnum: int, oid: int, scratch: Scratch | None = None) -> Vector | None:
        """The vector of a column; None if the column is not stored."""
        rows, columns = self.blocks[block].rows, self.blocks[block].columns
        if not 0 <= seqnum < len(columns):
            return None
        file_oid = int(columns["oid"][seqnum])
        if file_oid == 0:
            return None
        if file_oid != oid:
            message = f"column {seqnum} has type {file_oid} in the file, {oid} in the schema"
            raise ObjectMismatch(message, subject=self._subject)
        if oid not in SLOT_SIZES:
            raise ObjectUnsupported(f"column type {oid}", subject=self._subject)
        slot_size = SLOT_SIZES[oid]
        if oid in VARLENA_TYPES:
            limit = _VARLENA_LIMIT  # the area is bounded by LZ4's best ratio only
        else:
            limit = HEAD_AND_TAIL_SIZE + slot_size * rows + NULLS_LIMIT_BASE + NULLS_LIMIT_PER_ROW * rows
        entry = inflate_column(self.content, self.blocks[block], seqnum, limit, self._subject, scratch)
        return parse_vector(entry, oid, slot_size, rows, self._subject, owned=scratch is None)


def _may_have_zero_date(zonemap: bytes) -> bool:
    zone = parse_zonemap(zonemap)
    return zone is not None and zone.oid in types.ZERO_DATE_TYPES and zone.minimum <= ZERO_DATE <= zone.maximum
