"""The key by which rows of two points are matched, equality of values, and the order of keys in zone maps.

Source: decision deltas-by-commit-time; docs/format/object-file.md 1.2, 5.1, 8, 9.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, UNIX_EPOCH_US
from ccpr.matrixone.objects.errors import ObjectMismatch
from ccpr.matrixone.objects.invalid_text import stored_bytes
from ccpr.matrixone.objects.types import is_decimal_text, is_packed
from ccpr.matrixone.schema import COMPOSITE_KEY, FAKE_KEY, Column, Table
from ccpr.mirror.errors import KeysNotUnique, TableWithoutKey
from ccpr.mirror.pruning import zone_of

_EXACT = Context(prec=80)
_PARSED_TABLES = 4096  # CREATE TABLE texts whose primary keys are in memory
_INTEGERS = frozenset(
    (types.INT8, types.INT16, types.INT32, types.INT64, types.UINT8, types.UINT16, types.UINT32, types.YEAR, types.TIME)
)
_DECIMALS = frozenset((types.DECIMAL64, types.DECIMAL128, types.UINT64, types.BIT))
_TEXTS = types.BINARY_TYPES | {types.CHAR, types.VARCHAR, types.TEXT, types.UUID}
# Not floats (a NaN is in no range), bools (the server does not store a range), enums (not in the order of the labels).
_ORDERED = _INTEGERS | _DECIMALS | _TEXTS | {types.DATE, types.DATETIME, types.TIMESTAMP}


@dataclass(frozen=True, slots=True)
class RowKey:
    """A table's key.

    Attributes
    ----------
    columns : the columns of the user's primary key in its order, or the hidden `__mo_fake_pk_col`.
    match : the one stored column by which rows are matched: the single key column, or `__mo_cpkey_col`.
    """

    columns: tuple[Column, ...]
    match: Column

    @property
    def hidden(self) -> bool:
        """Whether the user declared no key."""
        return self.match.hidden and self.match.name == FAKE_KEY

    @property
    def texts(self) -> tuple[Column, ...]:
        """Of a key of several columns, those whose values a collation may take for the same that differ."""
        packed = self.match.name == COMPOSITE_KEY
        return tuple(column for column in self.columns if packed and column.type.oid in types.TEXT_TYPES)


def row_key(table: Table) -> RowKey:
    """Raises TableWithoutKey, DdlUnreadable."""
    by_name = {column.name: column for column in table.columns}
    if FAKE_KEY in by_name and by_name[FAKE_KEY].hidden:  # a user's column may be called so beside a primary key
        return RowKey((by_name[FAKE_KEY],), by_name[FAKE_KEY])
    subject = f"table {table.qualified_name}"
    names = _primary_key(table.ddl, table.comment, subject) if table.ddl else ()
    missing = [name for name in names if name not in by_name]
    match = COMPOSITE_KEY if len(names) > 1 else names[0] if names else ""
    if missing or match not in by_name:
        raise TableWithoutKey("its CREATE TABLE text and its columns name no primary key", subject=subject)
    return RowKey(tuple(by_name[name] for name in names), by_name[match])


@lru_cache(maxsize=_PARSED_TABLES)
def _primary_key(ddl: str, comment: str, subject: str) -> tuple[str, ...]:
    """Cached, because each target asks again at each point of a table, whose definition seldom changes."""
    return parse_create_table(ddl, comment=comment, subject=subject).primary_key


# ---- equality


def comparable(values: pa.Array) -> pa.Array:
    """The values in a form in which Arrow's equality is ours: floats by their bits, with all NaNs equal; lists of
    floats as bytes."""
    kind = values.type
    if pa.types.is_floating(kind):
        one_nan = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)
        return one_nan.view(pa.int32() if kind == pa.float32() else pa.int64())
    if pa.types.is_list(kind):
        return _list_bytes(values)
    return values


def _list_bytes(values: pa.ListArray) -> pa.Array:
    floats = values.flatten()
    if not pa.types.is_floating(floats.type):
        floats = floats.cast(pa.float32())  # small integers, exactly
    numbers = np.array(pc.if_else(pc.is_nan(floats), pa.scalar(float("nan"), floats.type), floats))
    ends = (
        np.concatenate([[0], np.cumsum(np.array(pc.fill_null(pc.list_value_length(values), 0), np.int64))])
        * numbers.itemsize
    )
    data = pa.Array.from_buffers(pa.large_binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(numbers)])
    return pc.if_else(values.is_valid(), data, pa.scalar(None, pa.large_binary()))


def same(left: pa.Array, right: pa.Array) -> np.ndarray:
    """bool for each pair of values: whether they are equal. Nulls are equal to nulls."""
    left, right = comparable(left), comparable(right)
    equal = pc.fill_null(pc.equal(left, right), False)
    if left.null_count and right.null_count:
        equal = pc.or_(equal, pc.and_(left.is_null(), right.is_null()))
    return equal.to_numpy(zero_copy_only=False)


def partners(before: Sequence[pa.Array], after: Sequence[pa.Array], column: Column, subject: str) -> np.ndarray:
    """For each row of `after`, the number of the row of `before` with the same key, or -1; int64. Both are lists of
    arrays of keys, whose rows are numbered from 0.

    Raises ObjectMismatch for a null key, and for a key that two rows of one point have: at one time a key has one row
    (docs/format/object-file.md 9.3).
    """
    pieces = [*before, *after]
    first_after, rows = sum(map(len, before)), sum(map(len, pieces))
    partner = np.full(rows - first_after, -1, np.int64)
    if first_after in (0, rows):
        return partner
    codes = key_codes(pieces, column, subject)
    order = np.argsort(codes, kind="stable")  # keys of sorted objects are sorted runs, which a stable sort only merges
    ranked = codes[order]
    pairs = np.flatnonzero(ranked[1:] == ranked[:-1])
    left, right = order[pairs], order[pairs + 1]
    if np.any(left >= first_after) or np.any(right < first_after):
        raise KeysNotUnique("two visible rows have the same key", subject=subject)
    partner[right - first_after] = left
    return partner


def key_codes(pieces: Sequence[pa.Array], column: Column, subject: str) -> np.ndarray:
    """A number for each key of all pieces; equal keys have equal numbers. Raises ObjectMismatch for a null key."""
    return _codes(pa.concat_arrays([hashable(piece, column, subject) for piece in pieces]))


def hashable(keys: pa.Array, column: Column, subject: str) -> pa.Array:
    """The keys in a form that Arrow can look up. Raises ObjectMismatch for a null key."""
    if keys.null_count:
        raise ObjectMismatch(f"{keys.null_count} keys are null", subject=f"{subject}, column {column.name}")
    if column.type.oid in (types.UINT64, types.BIT) and pa.types.is_decimal(keys.type):
        limbs = np.frombuffer(keys.buffers()[1], np.int64)[2 * keys.offset : 2 * (keys.offset + len(keys))]
        return pa.array(np.ascontiguousarray(limbs[::2]))  # of 128 bits; the upper 64 are zero
    if pa.types.is_string(keys.type) or pa.types.is_binary(keys.type):
        return keys.cast(pa.large_binary())
    return comparable(keys)


def _codes(keys: pa.Array) -> np.ndarray:
    """A number for each key; equal keys have equal numbers."""
    if pa.types.is_temporal(keys.type):
        keys = keys.view(pa.int32() if pa.types.is_date32(keys.type) else pa.int64())
    return (keys if pa.types.is_integer(keys.type) else pc.dictionary_encode(keys).indices).to_numpy(
        zero_copy_only=False
    )


# ---- order


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `low` on and before `high`, in the form and order of zone maps; None = unbounded."""

    low: Any = None
    high: Any = None

    def excludes(self, zone: "Zone | None") -> bool:
        """Whether no key of the zone is in the range. None, an unknown zone, is never excluded."""
        if zone is None:
            return False
        return (self.high is not None and zone.low >= self.high) or (
            self.low is not None and zone.high is not None and zone.high < self.low
        )

    def holds(self, zone: "Zone | None") -> bool:
        """Whether every key of the zone is in the range."""
        if self.low is None and self.high is None:
            return True
        if zone is None or (self.low is not None and zone.low < self.low):
            return False
        return self.high is None or (zone.high is not None and zone.high < self.high)

    def mask(self, keys: pa.Array, column: Column) -> np.ndarray:
        """bool for each key: whether it is in the range."""
        if pa.types.is_string(keys.type):
            keys = stored_bytes(keys)
        inside = np.ones(len(keys), bool)
        if self.low is not None:
            inside &= pc.greater_equal(keys, _scalar(self.low, keys.type, column)).to_numpy(zero_copy_only=False)
        if self.high is not None:
            inside &= pc.less(keys, _scalar(self.high, keys.type, column)).to_numpy(zero_copy_only=False)
        return inside


@dataclass(frozen=True, slots=True)
class Zone:
    """The least and the greatest key of an object or block by its zone map; None for `high` = unbounded."""

    low: Any
    high: Any

    def those_within(self, keys: pa.Array, column: Column) -> pa.Array:
        """Those of the keys (texts as they are stored) that the zone may have."""
        inside = KeyRange(low=self.low).mask(keys, column)
        if self.high is not None:
            high = _scalar(self.high, keys.type, column)
            inside &= pc.less_equal(keys, high).to_numpy(zero_copy_only=False)
        return keys.filter(pa.array(inside))


ALL_KEYS = KeyRange()


def key_zone(zonemap: bytes, column: Column) -> Zone | None:
    """The zone of the keys in this column; None if the zone map says nothing about them."""
    if column.type.oid not in _ORDERED or (column.labels and not is_packed(column)) or is_decimal_text(column):
        return None
    zone = zone_of(zonemap, column)
    return None if zone is None else Zone(*zone)


def _scalar(stored: Any, kind: pa.DataType, column: Column) -> pa.Scalar:
    """A key of a zone map as Arrow has it."""
    oid = column.type.oid
    if oid in _DECIMALS:
        scale = column.type.scale if oid in types.MAX_PRECISION else 0
        # The bound may have more digits than the column's precision.
        return pa.scalar(Decimal(stored).scaleb(-scale, _EXACT), pa.decimal128(38, scale))
    if oid == types.DATE:
        return pa.scalar(stored - UNIX_EPOCH_DAYS, pa.int32()).cast(kind)
    if oid in (types.DATETIME, types.TIMESTAMP):
        return pa.scalar(stored - UNIX_EPOCH_US, pa.int64()).cast(kind)
    if oid == types.TIME:
        return pa.scalar(stored, pa.int64()).cast(kind)
    return pa.scalar(stored, kind)
