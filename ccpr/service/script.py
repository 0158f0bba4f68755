"""A point's tables as a file of SQL."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ccpr.base.progress import Progress
from ccpr.matrixone.schema import Reading
from ccpr.mirror.delta.change_rows import for_database
from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.reading import as_asked
from ccpr.schema.dialects import Dialect
from ccpr.service.point_loading import PointSource
from ccpr.targets.dump import HEAD, TAIL, DumpTable


@dataclass(frozen=True, slots=True)
class Script:
    """What was written. `remarks`: by table, what of its definition the server has not."""

    file: Path
    lsn: int
    tables: int
    rows: int
    bytes: int
    seconds: float
    remarks: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "lsn": self.lsn,
            "tables": self.tables,
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "remarks": {table: list(lost) for table, lost in self.remarks.items()},
        }


def write_script(source: PointSource, to: Path, dialect: Dialect, reading: Reading, progress: Progress) -> Script:
    """Raises StoreFailed, and what reading and rendering raise. A script is complete, or is not there."""
    started, point = time.monotonic(), source.point
    tables = [DumpTable.of(table, dialect) for table in source.chosen().values()]
    temporary, rows, size = to.with_name(f".{to.name}.part"), 0, 0
    title = f"Database {source.database} as of point {point.lsn} ({point.at})"
    try:
        with temporary.open("xb") as file:
            size += file.write(HEAD.format(title=title.replace("\n", " ")).encode())
            for table in tables:
                size += file.write(table.statement.encode())
                for batch in _rows(source, table, reading):
                    for piece in table.inserts([batch]):
                        size += file.write(piece)
                    rows += batch.num_rows
                    progress.on_rows(batch.num_rows, batch.nbytes)
            size += file.write(TAIL.encode())
        temporary.replace(to)
    except OSError as error:
        text = f"could not write the file: {error.strerror or error}"
        raise StoreFailed(text, subject=str(to), remedy="Choose another --out, or free space.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    remarks = {table.source.qualified_name: table.remarks for table in tables if table.remarks}
    return Script(to, point.lsn, len(tables), rows, size, time.monotonic() - started, remarks)


def _rows(source: PointSource, table: DumpTable, reading: Reading) -> Iterator[pa.RecordBatch]:
    manifest = source.mirror.manifest(source.point.tables[table.source.id])
    columns = [column.source for column in table.columns if column.source is not None]
    batches = source.mirror.rows(manifest, columns, source.point.at)
    return as_asked(batches, columns, for_database(reading), f"table {table.source.qualified_name}")
