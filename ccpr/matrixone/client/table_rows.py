"""The rows of a table at a snapshot, or those that changed between two, read by SELECT and DATA BRANCH DIFF as Arrow
record batches: what is in memory is one block of the answer. docs/upstream.md, "Values as text".
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.cell_values import cell_values
from ccpr.matrixone.client.column_stream import AnswerColumns
from ccpr.matrixone.client.errors import BadAnswer
from ccpr.matrixone.client.upstream_session import Session, integer
from ccpr.matrixone.objects import types
from ccpr.matrixone.schema import Column, Table

FLAG = "flag"  # of a difference: INSERT, UPDATE (with the new values) or DELETE (with the old ones)
_FLAGS = ("INSERT", "UPDATE", "DELETE")
RANGE_ROWS = 500_000  # that are worth a statement of their own
_BEFORE_DIFFERENCES = 2  # columns of a difference: what is compared, the flag


def read_rows(session: Session, statement: str, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """The answer of a SELECT of these columns, about 2 MB of it at a time, with the types of `types.arrow_schema`. An
    empty answer is one batch without rows.

    The session serves nothing else until the end. Raises `BadAnswer` for other columns or values, what `cell_values`
    raises, and what `Session.stream` raises: nothing is tried again.
    """
    schema = types.arrow_schema(columns)
    for block in _blocks(session, statement, columns):
        if len(block.names) != len(columns):
            _refuse(block.names, columns)
        arrays = [cell_values(cells, column) for cells, column in zip(block.arrays, columns, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_differences(session: Session, statement: str, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """The answer of a DATA BRANCH DIFF of a table with these columns, as `read_rows`; the first column is FLAG."""
    schema = types.arrow_schema(columns).insert(0, pa.field(FLAG, pa.string()))
    for block in _blocks(session, statement, columns):
        if [name.lower() for name in block.names[_BEFORE_DIFFERENCES:]] != [column.name.lower() for column in columns]:
            _refuse(block.names, columns)
        flags = block.arrays[1].cast(pa.string())
        if flags.null_count or not pc.all(pc.is_in(flags, pa.array(_FLAGS)), min_count=0).as_py():
            raise BadAnswer("a difference is neither INSERT nor UPDATE nor DELETE", subject="answer of the upstream")
        cells = zip(block.arrays[_BEFORE_DIFFERENCES:], columns, strict=True)
        arrays = [cell_values(found, column, numbered=True) for found, column in cells]
        yield pa.RecordBatch.from_arrays([flags, *arrays], schema=schema)


def key_ranges(session: Session, table: Table, column: Column, snapshot: str, rows: int, most: int) -> tuple[str, ...]:
    """Conditions by which a whole read is divided, each row in one of them: as many as the rows are worth, at most so
    many; one, without a condition, where the column of the key is no whole number. All read the same snapshot, so each
    can be read in a session of its own, and again if it is cut off.

    `column` is the first one of the key, or the hidden number of a row without one: none of them is NULL. What a range
    has is found by the zone maps; how many rows that are is not known before.
    """
    parts = min(rows // RANGE_ROWS, most)
    if column.type.oid not in types.WHOLE_NUMBERS or column.labels or parts < 2:
        return ("",)
    answer = session.read(upstream_sql.select_ends(table.database, table.name, column.name, snapshot))
    if len(answer.rows) != 1 or len(answer.rows[0]) != 2:
        raise BadAnswer("it is not two numbers", subject=f"column {column.name} of table {table.qualified_name}")
    low, high = (
        integer(cell, f"{column.name} of table {table.qualified_name}", greatest=2**64 - 1) for cell in answer.rows[0]
    )
    cuts = sorted({low + (high + 1 - low) * part // parts for part in range(1, parts)} - {low})
    bounds = [None, *cuts, None]
    return tuple(upstream_sql.in_range(column.name, *pair) for pair in pairwise(bounds))


def _blocks(session: Session, statement: str, columns: Sequence[Column]) -> Iterator[AnswerColumns]:
    if any(column.type.oid == types.TIMESTAMP for column in columns):
        session.query(upstream_sql.UTC_SESSION)
    return session.stream(statement, longest=sys.maxsize)


def _refuse(names: Sequence[str], columns: Sequence[Column]) -> NoReturn:
    expected = ", ".join(column.name for column in columns)
    raise BadAnswer(f"other columns came than {expected:.200}", subject=f"answer with columns {', '.join(names):.200}")
