"""A point's tables as a file of SQL."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ccpr.base.failure import Failure
from ccpr.base.progress import Progress
from ccpr.matrixone.objects.errors import ValueRefused
from ccpr.matrixone.schema import Reading
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.as_asked import as_asked
from ccpr.mirror.delta.change_rows import for_database
from ccpr.mirror.errors import StoreFailed
from ccpr.schema.choices import Dialect
from ccpr.schema.sync_mark import NotSyncable
from ccpr.schema.target_types import TargetUnfit
from ccpr.service.point_loading import PointSource
from ccpr.state.targets import LaggingTargetTable
from ccpr.targets.dump_statements import HEAD, TAIL, DumpTable, foreign_keys
from ccpr.targets.errors import DeltaUnfit, TargetValueRefused

_OF_A_TABLE = (TargetUnfit, NotSyncable, DdlUnreadable, TargetValueRefused, ValueRefused, DeltaUnfit)


@dataclass(frozen=True, slots=True)
class Script:
    """What was written.

    Attributes
    ----------
    remarks : by table, what of its definition the server has not.
    behind : tables that are not in it, and why.
    """

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
