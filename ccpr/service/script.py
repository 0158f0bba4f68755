"""A point's tables as a file of SQL that `mysql` loads."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.errors import Failure
from ccpr.base.progress import Progress
from ccpr.matrixone.ddl.definition import CreateTable, ForeignKey, IndexKind, format_create_table
from ccpr.matrixone.ddl.parser import create_table_of
from ccpr.matrixone.objects.errors import ValueRefused
from ccpr.matrixone.schema import FAKE_KEY, Reading, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.quoting import quote_name, quote_names
from ccpr.mirror.as_asked import as_asked
from ccpr.mirror.delta.change_rows import for_database
from ccpr.mirror.errors import StoreFailed
from ccpr.schema.choices import Dialect
from ccpr.schema.render import HIDDEN_KEY, TRIED_LATER, target_table
from ccpr.schema.sync_mark import NotSyncable
from ccpr.schema.target_types import TargetUnfit
from ccpr.service.point_loading import PointSource
from ccpr.state.targets import LaggingTargetTable
from ccpr.targets.encoding import LoadColumn, for_target, load_columns
from ccpr.targets.errors import DeltaUnfit, TargetValueRefused
from ccpr.targets.expected_tables import check_types
from ccpr.values.cells import SQL, cells, content, ends_of, lines

# ---- the statements of a table
#
# CREATE TABLE as a target would have it once it is released, and INSERT with the values that LOAD DATA would be given
# (`ccpr.targets.encoding`).

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
    """A table of a script. `remarks`: what of its definition the dialect has not, or only a server can say that it has:
    an expression of the source may be none there, and would end the script."""

    source: Table
    create: CreateTable
    columns: tuple[LoadColumn, ...]
    remarks: tuple[str, ...]
    dialect: Dialect

    @classmethod
    def of(cls, source: Table, dialect: Dialect) -> "DumpTable":
        """Raises TargetUnfit, NotSyncable, DdlUnreadable."""
        check_types(source)
        made = target_table(create_table_of(source), dialect, database="")
        remarks = [one for one in made.remarks if not one.endswith(TRIED_LATER)]
        generated = [(one.name, one.generated.expression) for one in made.create.columns if one.generated]
        remarks += [f"column {name}: GENERATED ALWAYS AS ({text}) is skipped" for name, text in generated]
        remarks += [f"{check} is skipped" for check in made.create.checks]
        columns = tuple(replace(column, generated=None) for column in made.create.columns)
        create = replace(made.create, columns=columns, checks=())
        names = [create.name, *(one.name for one in (*create.columns, *create.indexes, *create.foreign_keys))]
        if any({*name} & {"\r", "\n"} for name in names):
            raise TargetUnfit("a name has a line end, which clients change", subject=f"table {source.qualified_name}")
        hidden, own = HIDDEN_KEY[dialect], {column.name for column in source.user_columns}
        given = [one for one in create.columns if one.name != hidden or one.name in own]  # the key counts by itself
        columns = load_columns(source, given, hidden, FAKE_KEY)
        return cls(source, create, columns, tuple(remarks), dialect)

    @property
    def statement(self) -> str:
        return f"{format_create_table(replace(self.create, database='', foreign_keys=()))};\n"

    def inserts(self, rows: Iterable[pa.Table | pa.RecordBatch]) -> Iterator[pa.Buffer]:
        """The statements, some at once. Raises TargetValueRefused."""
        name, subject = quote_name(self.create.name), f"table {self.source.qualified_name}"
        begin = f"INSERT INTO {name} ({quote_names([column.name for column in self.columns])}) VALUES\n".encode()
        for table in rows:
            self._check(table, subject)
            columns = [cells(for_target(table, one, subject), SQL, digits=one.digits) for one in self.columns]
            brackets = lines(columns, "(", [","] * (len(columns) - 1), "),\n")
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
                times = values.cast(pa.int64())
                bad = pc.or_(pc.greater(times, _LONGEST_TIME), pc.less(times, -_LONGEST_TIME))
            elif kind in ("enum", "set") and column.source is not None:
                members = pc.list_flatten(pc.split_pattern(values, ",")) if kind == "set" else values.drop_null()
                known = [*column.source.labels, *([""] if kind == "set" else [])]
                bad = pc.invert(pc.is_in(members, pa.array(known, pa.string())))
            else:
                continue
            if pc.any(bad).as_py():
                text = f"column {column.name} has a value that is beyond its {kind}, which the server cannot store"
                raise TargetValueRefused(text, subject=subject)


def foreign_keys(tables: Sequence[DumpTable]) -> tuple[list[str], dict[str, list[str]]]:
    """The statements that add the foreign keys of a script's tables, and by table those that they cannot have."""
    by_name = {(one.source.database, one.create.name): one.create for one in tables}
    names, statements, skipped = set[str](), list[str](), dict[str, list[str]]()
    for table in tables:
        for key in table.create.foreign_keys:
            parent = by_name.get((key.database or table.source.database, key.table))
            if parent is None or not _fits(key, table.create, parent):
                skipped.setdefault(table.source.qualified_name, []).append(f"{key} is skipped")
                continue
            unique = key.name if key.name.lower() not in names else ""  # in a whole database
            names.add(key.name.lower())
            made = replace(key, name=unique, database="")
            statements.append(f"ALTER TABLE {quote_name(table.create.name)} ADD {made};\n")
    return statements, skipped


def _fits(key: ForeignKey, table: CreateTable, parent: CreateTable) -> bool:
    """Whether a server has the key: columns of equal types, over a key of the parent."""
    mine, theirs = ({column.name: column for column in one.columns} for one in (table, parent))
    unique = [tuple(p.column for p in one.parts) for one in parent.indexes if one.kind is IndexKind.UNIQUE]
    if key.referenced not in (parent.primary_key, *unique) or not {*key.columns} <= mine.keys():
        return False
    pairs = [(mine[name], theirs[other]) for name, other in zip(key.columns, key.referenced, strict=True)]
    nulls = "SET NULL" in (key.on_delete.upper(), key.on_update.upper())
    return all(a.type == b.type and a.charset == b.charset and (a.nullable or not nulls) for a, b in pairs)


# ---- the file

_OF_A_TABLE = (TargetUnfit, NotSyncable, DdlUnreadable, TargetValueRefused, ValueRefused, DeltaUnfit)


@dataclass(frozen=True, slots=True)
class Script:
    """What was written. `remarks`: by table, what of its definition the server has not. `behind`: tables that are not
    in it, and why."""

    file: Path
    lsn: int
    tables: int
    rows: int
    bytes: int
    seconds: float
    remarks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    behind: tuple[LaggingTargetTable, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "file": str(self.file), "seconds": round(self.seconds, 3)}


def write_script(source: PointSource, to: Path, dialect: Dialect, reading: Reading, progress: Progress) -> Script:
    """A table that the dialect cannot have is left out. Raises StoreFailed, what reading raises, and what is wrong with
    the first table if none is left. A script is complete, or is not there."""
    started, point = time.monotonic(), source.point
    tables, behind, rows = list[DumpTable](), list[LaggingTargetTable](), 0
    temporary, problem = to.with_name(f".{to.name}.part"), None
    title = f"Database {source.database} as of point {point.lsn} ({point.at})"
    try:
        with temporary.open("xb") as file:
            file.write(HEAD.format(title=title.replace("\n", " ")).encode())
            for each in source.chosen().values():
                begin = file.tell()
                try:
                    table = DumpTable.of(each, dialect)
                    rows += _write(file, source, table, reading, progress)
                    tables.append(table)
                except _OF_A_TABLE as error:
                    problem = problem or error
                    behind.append(LaggingTargetTable(each.qualified_name, Failure.of(error)))
                    file.seek(begin)
                    file.truncate()
            if problem is not None and not tables:
                raise problem
            keys, skipped = foreign_keys(tables)
            file.write("".join((*keys, TAIL)).encode())
            size = file.tell()
        temporary.replace(to)
    except OSError as error:
        text = f"could not write the file: {error.strerror or error}"
        raise StoreFailed(text, subject=str(to), remedy="Choose another --out, or free space.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    names = {table.source.qualified_name: table.remarks for table in tables}
    remarks = {name: lost for name, some in names.items() if (lost := (*some, *skipped.get(name, ())))}
    return Script(to, point.lsn, len(tables), rows, size, time.monotonic() - started, remarks, tuple(behind))


def _write(file: BinaryIO, source: PointSource, table: DumpTable, reading: Reading, progress: Progress) -> int:
    """Returns how many rows."""
    rows = 0
    file.write(table.statement.encode())
    for batch in _rows(source, table, reading):
        for piece in table.inserts([batch]):
            file.write(piece)
        rows += batch.num_rows
        progress.on_rows(batch.num_rows, batch.nbytes)
    return rows


def _rows(source: PointSource, table: DumpTable, reading: Reading) -> Iterator[pa.RecordBatch]:
    manifest = source.mirror.manifest(source.point.tables[table.source.id])
    columns = [column.source for column in table.columns if column.source is not None]
    batches = source.mirror.rows(manifest, columns, source.point.at)
    return as_asked(batches, columns, for_database(reading), f"table {table.source.qualified_name}")
