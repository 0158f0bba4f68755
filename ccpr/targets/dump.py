"""Tables as a script of SQL that `mysql` loads: CREATE TABLE as a target would have them once they are released, and
INSERT with the values that LOAD DATA would be given (`ccpr.targets.encoding`)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.ddl.definition import CreateTable, format_create_table
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import FAKE_KEY, Table
from ccpr.matrixone.sql.quoting import quote_name, quote_names
from ccpr.schema.dialects import Dialect
from ccpr.schema.render import HIDDEN_KEY, target_table
from ccpr.targets.encoding import LoadColumn, load_columns, texts_of

_ROWS, _BYTES = 1_000, 1 << 20  # of one statement: a server takes 16 MB at least, and a client a line of it
HEAD = """\
-- {title}
SET NAMES utf8mb4;
SET time_zone = '+00:00';
SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO';
SET foreign_key_checks = 0;
SET unique_checks = 0;
"""
TAIL = """\
SET unique_checks = 1;
SET foreign_key_checks = 1;
"""


@dataclass(frozen=True, slots=True)
class DumpTable:
    """A table of a script. `remarks`: what of its definition the dialect has not."""

    source: Table
    create: CreateTable
    columns: tuple[LoadColumn, ...]
    remarks: tuple[str, ...]

    @classmethod
    def of(cls, source: Table, dialect: Dialect) -> "DumpTable":
        """Raises TargetUnfit, NotSyncable, DdlUnreadable."""
        made = target_table(create_table_of(source), dialect, database="")
        create = made.create
        hidden = HIDDEN_KEY[dialect]  # it counts by itself
        columns = load_columns(source, [one for one in create.columns if one.name != hidden], hidden, FAKE_KEY)
        return cls(source, create, columns, tuple(made.remarks))

    @property
    def statement(self) -> str:
        return f"{format_create_table(replace(self.create, database=''))};\n"

    def inserts(self, rows: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Buffer]:
        """The statements, some at once. Raises TargetValueRefused."""
        name, subject = quote_name(self.create.name), f"table {self.source.qualified_name}"
        begin = f"INSERT INTO {name} ({quote_names([column.name for column in self.columns])}) VALUES\n"
        for table in rows:
            whole = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
            step = max(1, min(_ROWS, whole.num_rows * _BYTES // max(1, 2 * whole.nbytes)))
            for start in range(0, whole.num_rows, step):
                yield _statement(begin, texts_of(whole.slice(start, step), self.columns, subject), self.columns)


def _statement(begin: str, values: Sequence[pa.Array], columns: Sequence[LoadColumn]) -> pa.Buffer:
    literals = [_literals(texts, column) for texts, column in zip(values, columns, strict=True)]
    bracketed = _joined("(", reduce(lambda left, right: _joined(left, right, ","), literals), ")", "")
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(bracketed)], bracketed.cast(pa.string())), ",\n")
    return pa.py_buffer(begin.encode() + joined[0].as_buffer().to_pybytes() + b";\n")


def _literals(values: pa.Array, column: LoadColumn) -> pa.Array:
    """As SQL; `values` are as for LOAD DATA, with backslashes doubled."""
    if column.is_bytes:
        literals = _quoted("x'", values.cast(pa.large_string()))
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        literals = _quoted("'", pc.replace_substring(values.cast(pa.large_string()), "'", "''"))
    elif pa.types.is_temporal(values.type):
        literals = _quoted("'", values.cast(pa.string()).cast(pa.large_string()))
    else:
        literals = values.cast(pa.string()).cast(pa.large_string())
    return pc.fill_null(literals, pa.scalar("NULL", pa.large_string()))


def _quoted(begin: str, values: pa.Array) -> pa.Array:
    return _joined(begin, values, "'", "")


def _joined(*parts: str | pa.Array) -> pa.Array:
    """The last is put between the others."""
    texts = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts)
