"""Object lists, made row by row."""

import struct
from collections.abc import Sequence
from uuid import UUID

import pyarrow as pa

from ccpr.matrixone.client.object_answers import OBJECT_LIST_SCHEMA
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.pipeline.object_list import deduplicate, read_list

NAMES = {"db": {"t": 1, "u": 2, "out_of_scope": None}}
AT = Timestamp(1000)


def stats_of(
    number: int,
    *,
    size: int = 500,
    rows: int = 10,
    blocks: int = 1,
    appendable: bool = False,
    meta_end: int | None = None,
) -> bytes:
    """154 bytes of an object whose id is made of a number."""
    meta_end = size - 64 if meta_end is None else meta_end
    segment = UUID(int=number)
    name = f"{segment}_00000".encode()
    extent = struct.pack("<BIII", 1, 64, max(0, meta_end - 64), 300)
    return (
        segment.bytes
        + struct.pack("<H", 0)
        + name
        + extent
        + struct.pack("<II", rows, blocks)
        + bytes(64)
        + struct.pack("<IIB", size, 900, appendable)
    )


Row = tuple[str, str, bytes, int, int | None, bool]  # database, table, stats, create, delete, is_tombstone


def a_list(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    columns = list(zip(*rows, strict=True)) if rows else [[]] * 6
    database, table, stats, create, delete, tombstone = map(list, columns)
    zeros = [0] * len(rows)
    gone = [None if value is None else 0 for value in delete]
    values = dict(
        zip(OBJECT_LIST_SCHEMA.names, [database, table, stats, create, zeros, delete, gone, tombstone], strict=True)
    )
    return [pa.RecordBatch.from_pydict(values, schema=OBJECT_LIST_SCHEMA)]


def listed(rows: Sequence[Row]) -> pa.Table:
    return deduplicate(read_list(a_list(rows), NAMES, "a test"), "a test")


def live(number: int, create: int = 10, table: str = "t", **about) -> Row:
    return ("db", table, stats_of(number, **about), create, None, False)


def dead(number: int, create: int = 10, delete: int = 20, table: str = "t") -> Row:
    return ("db", table, stats_of(number), create, delete, False)
