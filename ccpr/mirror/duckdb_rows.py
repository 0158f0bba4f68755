"""What DuckDB gives for a statement, as Arrow: each column under a name of its own, each INTERVAL as a duration, and
what Arrow has not (BIT, BIGNUM, a time of day with a zone) as text.

A TIME is an INTERVAL in DuckDB. Its way to Arrow counts nanoseconds, and 64 bits of these hold 292 years: a longer TIME
would come out as another one. So it is asked for in microseconds (decision one-text-of-a-value).
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

ZONE = "UTC"  # of TIMESTAMP unless another one is asked for: that of the machine would make another answer elsewhere
_INTERVAL, _TEXT = "INTERVAL", "VARCHAR"
# Also in the name of a list or a struct; a field's name has quotes.
_NESTED = re.compile(r'(?<!")\b(?:INTERVAL|BIT|BIGNUM|TIME WITH TIME ZONE)\b(?!")')
_BATCH_ROWS = 8192
_NO_LENGTH = "an interval of months or years has no fixed length; write CAST(... AS VARCHAR) for it"
_MICROSECONDS = (
    "CASE WHEN #{0} IS NULL THEN NULL WHEN datepart('year', #{0}) = 0 AND datepart('month', #{0}) = 0 "
    "THEN epoch_us(#{0}) ELSE error('{1}') END"
)


def rows_of(relation: "duckdb.DuckDBPyRelation") -> pa.RecordBatchReader:
    """The rows as a stream. An error of a statement comes while batches are taken, as duckdb.Error or pa.ArrowException
    (an interval of months is one)."""
    names, kinds = unique_names(relation.columns), [str(kind) for kind in relation.types]
    intervals = [place for place, kind in enumerate(kinds) if kind == _INTERVAL]
    cells = [_cell(number, kind) for number, kind in enumerate(kinds, 1)]
    if names != relation.columns or any(cell != f"#{number}" for number, cell in enumerate(cells, 1)):
        named = (f"{cell} AS {quoted(name)}" for cell, name in zip(cells, names, strict=True))
        relation = relation.project(", ".join(named))
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    if not intervals:
        return reader
    schema = reader.schema
    for place in intervals:
        schema = schema.set(place, schema.field(place).with_type(pa.duration("us")))
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in reader))


def _cell(number: int, kind: str) -> str:
    """A column as an expression; what Arrow has not, and intervals in lists and structs, are text as DuckDB writes
    it."""
    if kind == _INTERVAL:
        return _MICROSECONDS.format(number, _NO_LENGTH)
    plain = _NESTED.sub(_TEXT, kind)
    return f"#{number}" if plain == kind else f"CAST(#{number} AS {plain})"


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, with `_1`, `_2` and so on behind one that came before, in whatever letter case: as DuckDB calls the
    columns of a table that it makes of them."""
    unique, next_number = list[str](), dict[str, int]()
    for name in names:
        free = name
        while free.lower() in next_number:
            number = next_number[name.lower()]
            free, next_number[name.lower()] = f"{name}_{number}", number + 1
        next_number[free.lower()] = 1
        unique.append(free)
    return unique


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
