"""The rows of a target table, in the Arrow types of the mirror's rows; from the text protocol, without a driver's
conversions."""

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from matrixone.objects import types
from matrixone.objects.types import arrow_schema
from matrixone.schema import Column
from matrixone.sql.quoting import quote_name
from tests.support.mariadb import MariaDb


def target_rows(server: MariaDb, database: str, name: str, columns: Sequence[Column]) -> pa.Table:
    """The rows with these columns; fails if `SELECT *` shows others."""
    with closing(server.connect(database)) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {quote_name(name)} LIMIT 0")
            assert [column[0] for column in cursor.description] == [column.name for column in columns]
        connection.decoders, connection.use_unicode = {}, False
        # A float is shown with six digits, a double with all of them.
        selected = [
            quote_name(column.name) + (" + 0e0" if column.type.oid == types.FLOAT32 else "") for column in columns
        ]
        connection.query(f"SELECT {', '.join(selected)} FROM {quote_name(name)}")
        rows = connection._result.rows  # pyright: ignore[reportAttributeAccessIssue]
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    schema = arrow_schema(columns)
    arrays = [
        pa.array([None if cell is None else _reader(column, field.type)(cell) for cell in values], field.type)
        for column, field, values in zip(columns, schema, cells, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _reader(column: Column, kind: pa.DataType) -> Callable[[bytes], Any]:
    oid = column.type.oid
    if oid == types.BIT:
        return lambda cell: int.from_bytes(cell, "big")
    if oid == types.BOOL:
        return lambda cell: bool(int(cell))
    if oid == types.FLOAT32:
        return lambda cell: np.float32(float(cell))
    if oid in (types.VECF32, types.VECF64):
        item = np.float32 if oid == types.VECF32 else float
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


def _moment(cell: bytes) -> dt.datetime:
    return dt.datetime.fromisoformat(cell.decode()).replace(tzinfo=None)


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[bytes], Any]], ...] = (
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, lambda cell: Decimal(cell.decode())),
    (pa.types.is_date, lambda cell: dt.date.fromisoformat(cell.decode())),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
        lambda cell: _moment(cell).replace(tzinfo=dt.UTC),
    ),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_duration, _span),
    (pa.types.is_binary, bytes),
)
