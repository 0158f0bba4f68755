"""A mirror of a storage engine, made without wire and iterations: it takes a point whenever it is asked to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Column, Kind, Table
from ccpr.mirror.layout import MANIFEST_SCHEMA_1, object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point, TableRef
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import TableEntry
from ccpr_emulator.engine.storage import Storage
from tests.support.publishing import write_manifest


@dataclass
class SimulatedMirror:
    """`take_points` writes what iterations would; `rows` are the engine's own rows at a point."""

    storage: Storage
    root: Path
    points: list[Point] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mirror = Mirror(LocalStore(self.root))

    def take_points(self, *meanwhile: Callable[[], None]) -> None:
        """A point of the present state, and one after each of some steps (no DDL). The tables are flushed after the
        last step only: so an object can have rows that are later than a point, and be live at several points.
        """
        tables = self.storage.tables_at(self.storage.now)
        moments = [self.storage.now]
        for step in meanwhile:
            step()
            moments.append(self.storage.now)
        self.storage.flush_ids(entry.id for entry, _ in tables)
        for at in moments:
            lsn = len(self.points)
            refs = {entry.id: self._write(entry, definition, at, lsn) for entry, definition in tables}
            self.points.append(Point(lsn, at, f"xr_test_{lsn}_0", datetime.now(UTC), "", refs))

    def rows(self, point: Point, table_id: int, columns: tuple[Column, ...]) -> pa.Table:
        """The rows that a table had, with any of its columns."""
        (entry,) = [entry for entry in self.storage.tables if entry.id == table_id]
        return entry.stored.values(entry.stored.visible(self.storage.clock.tick(point.at)), columns)

    def _write(self, entry: TableEntry, definition: Definition, at: Timestamp, lsn: int) -> TableRef:
        clock, rows = self.storage.clock, []
        for stored in entry.stored.listed(clock.tick(at)):
            written, created = stored.written, clock.time(stored.created)
            rows.append((written.stats, created.physical, created.logical, stored.tombstones is not None))
            if self.mirror.store.size(object_path(written.name)) is None:
                content = self.storage.files.read(written.name)
                assert content is not None
                self.mirror.store.put(object_path(written.name), [content])
        columns = [
            pa.array([row[number] for row in rows], field.type) for number, field in enumerate(MANIFEST_SCHEMA_1)
        ]
        table = Table(
            entry.id,
            entry.logical_id,
            definition.database,
            definition.name,
            Kind.TABLE,
            definition.columns,
            definition.create_sql,
            definition.comment,
        )
        name = write_manifest(self.mirror, table, pa.Table.from_arrays(columns, schema=MANIFEST_SCHEMA_1), lsn)
        return TableRef(entry.id, definition.database, definition.name, Kind.TABLE, lsn, name, len(rows), 0, 0)
