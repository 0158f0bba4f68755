"""The rows of a target table, in the Arrow types of the mirror's rows; from the text protocol, without a driver's
conversions."""

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.schema import Column
from ccpr.matrixone.sql.quoting import quote_name
from ccpr.schema.choices import Dialect
from ccpr.schema.render import HIDDEN_KEY
from tests.support.mariadb import MariaDb
from tests.support.matrixone_server import MatrixOneServer

_EPOCH, _DAY_US = dt.date(1970, 1, 1).toordinal(), 86_400_000_000
_ZERO_DAY = -_EPOCH  # as MatrixOne stores 0000-00-00: the day, or the microsecond, before 0001-01-01


def target_rows(server: MariaDb | MatrixOneServer, database: str, name: str, columns: Sequence[Column]) -> pa.Table:
    """The rows with these columns; fails if `SELECT *` shows others."""
    with closing(server.connect(database)) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {quote_name(name)} LIMIT 0")
            shown = [column[0] for column in cursor.description]
            if server.dialect is Dialect.MATRIXONE and shown[-1] == HIDDEN_KEY[server.dialect]:
                shown.pop()  # MatrixOne has no invisible columns
            names = [column.name for column in columns]
            if server.dialect is Dialect.MATRIXONE:  # an answer of it has no capitals in its columns' names
                shown, names = ([name.lower() for name in those] for those in (shown, names))
            assert shown == names
        connection.decoders, connection.use_unicode = {}, False
        # A float is shown with six digits, a double with all of them.
        selected = [
            quote_name(column.name) + (" + 0e0" if column.type.oid == types.FLOAT32 else "") for column in columns
        ]
        connection.query(f"SELECT {', '.join(selected)} FROM {quote_name(name)}")
        rows = connection._result.rows  # pyright: ignore[reportAttributeAccessIssue]
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    schema = arrow_schema(columns)
    arrays = [_array(column, field.type, values) for column, field, values in zip(columns, schema, cells, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(column: Column, kind: pa.DataType, cells: Sequence[bytes | None]) -> pa.Array:
    """Dates and times by their numbers: Python has no day 0000-00-00."""
    stored = pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
    read = _reader(column, kind)
    array = pa.array([None if cell is None else read(cell) for cell in cells], stored)
    return array if stored is kind else array.view(kind)


def _reader(column: Column, kind: pa.DataType) -> Callable[[bytes], Any]:
    oid = column.type.oid
    if oid == types.BIT:
        return lambda cell: int.from_bytes(cell, "big")
    if oid == types.BOOL:
        return lambda cell: bool(int(cell))
    if oid == types.FLOAT32:
        return lambda cell: np.float32(float(cell))
    if oid in types.VECTOR_TYPES:
        wide, whole = oid == types.VECF64, oid in (types.VECINT8, types.VECUINT8)
        item = int if whole else float if wide else np.float32
        return lambda cell: [item(float(number)) for number in cell.decode()[1:-1].split(", ") if number]
    for holds, read in _READERS:
        if holds(kind):
            return read
    return lambda cell: cell.decode()


def _span(cell: bytes) -> dt.timedelta:
    hours, minutes, seconds = cell.decode().lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    span = dt.timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=int(fraction.ljust(6, "0") or 0)
    )
    return -span if cell.startswith(b"-") else span


def _day(cell: bytes) -> int:
    """Days since 1970."""
    return _ZERO_DAY if cell.startswith(b"0000-00-00") else dt.date.fromisoformat(cell.decode()).toordinal() - _EPOCH


def _moment(cell: bytes) -> int:
    """Microseconds since 1970."""
    if cell.startswith(b"0000-00-00"):
        return (_ZERO_DAY + 1) * _DAY_US - 1
    return (dt.datetime.fromisoformat(cell.decode()) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[bytes], Any]], ...] = (
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, lambda cell: Decimal(cell.decode())),
    (pa.types.is_date, _day),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_duration, _span),
    (pa.types.is_binary, bytes),
)
