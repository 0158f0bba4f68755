"""Tables as a script of SQL that `mysql` loads: CREATE TABLE as a target would have them once they are released, and
INSERT with the values that LOAD DATA would be given (`ccpr.targets.encoding`)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.ddl.definition import CreateTable, format_create_table
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.schema import FAKE_KEY, Table
from ccpr.matrixone.sql.quoting import quote_name, quote_names
from ccpr.schema.dialects import Dialect
from ccpr.schema.render import HIDDEN_KEY, target_table
from ccpr.schema.types import TargetUnfit
from ccpr.targets.encoding import LoadColumn, cells_of, load_columns
from ccpr.targets.errors import TargetValueRefused
from ccpr.values.cells import SQL, content, ends_of, lines

_LONGEST_TIME = (839 * 3600) * 10**6 - 1  # microseconds
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
    dialect: Dialect

    @classmethod
    def of(cls, source: Table, dialect: Dialect) -> "DumpTable":
        """Raises TargetUnfit, NotSyncable, DdlUnreadable."""
        made = target_table(create_table_of(source), dialect, database="")
        create = made.create
        names = [create.name, *(one.name for one in (*create.columns, *create.indexes, *create.foreign_keys))]
        if any({*name} & {"\r", "\n"} for name in names):
            raise TargetUnfit("a name has a line end, which clients change", subject=f"table {source.qualified_name}")
        hidden = HIDDEN_KEY[dialect]  # it counts by itself
        columns = load_columns(source, [one for one in create.columns if one.name != hidden], hidden, FAKE_KEY)
        return cls(source, create, columns, tuple(made.remarks), dialect)

    @property
    def statement(self) -> str:
        return f"{format_create_table(replace(self.create, database=''))};\n"

    def inserts(self, rows: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Buffer]:
        """The statements, some at once. Raises TargetValueRefused."""
        name, subject = quote_name(self.create.name), f"table {self.source.qualified_name}"
        begin = f"INSERT INTO {name} ({quote_names([column.name for column in self.columns])}) VALUES\n".encode()
        for table in rows:
            self._check(table, subject)
            cells = cells_of(table, self.columns, SQL, subject)
            brackets = lines(cells, "(", [","] * (len(cells) - 1), "),\n")
            ends, start = ends_of(brackets), 0
            while start < len(brackets):
                stop = int(np.searchsorted(ends, ends[start] + _BYTES, "right")) - 1
                stop = max(start + 1, min(stop, start + _ROWS))
                yield pa.py_buffer(begin + content(brackets, start, stop).to_pybytes()[:-2] + b";\n")
                start = stop

    def _check(self, rows: pa.Table | pa.RecordBatch, subject: str) -> None:
        """A value that the server refuses would end the script there. Raises TargetValueRefused."""
        for column in self.columns if self.dialect.speaks_mysql else ():
            values, kind = rows.column(column.arrow_name), column.target.type.name
            if kind == "time":
                bad = pc.greater(pc.abs_checked(values.cast(pa.int64())), _LONGEST_TIME)
            elif kind in ("enum", "set") and column.source is not None:
                members = pc.list_flatten(pc.split_pattern(values, ",")) if kind == "set" else values.drop_null()
                known = [*column.source.labels, *([""] if kind == "set" else [])]
                bad = pc.invert(pc.is_in(members, pa.array(known, pa.string())))
            else:
                continue
            if pc.any(bad).as_py():
                text = f"column {column.name} has a value that is beyond its {kind}, which the server cannot store"
                raise TargetValueRefused(text, subject=subject)
