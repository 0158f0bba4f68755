"""What the mirror's store holds and who needs it: each copied object's size and checksum, which tables name it from
when to when, and files that nobody names any more. Written in the transaction that commits a point, so that a sweep
can trust it.

An object may stand in several tables (CLONE); it is garbage when the last reference has ended before the oldest point
that is kept.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import sqlalchemy as sa

from replication.mirror.object_rows import ObjectDiff
from replication.state.database import transaction
from replication.state.tables import garbage, objects, references

_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A copied object as the ledger has it: size in bytes, sha256 of the content."""

    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Reference:
    """A table names an object from one point on until another (None: still)."""

    table_id: int
    from_lsn: int
    until_lsn: int | None


class Ledger:
    """The ledger of one subscription."""

    def __init__(self, engine: sa.Engine, task_id: str) -> None:
        self.engine = engine
        self.task_id = task_id

    def record(
        self,
        connection: sa.Connection,
        lsn: int,
        copied: pa.Table,
        diff: ObjectDiff,
        kept: Collection[int],
        gone: Iterable[int],
    ) -> None:
        """A point's part, in the caller's transaction.

        Parameters
        ----------
        copied : LEDGER_SCHEMA, what the point brought or found again.
        kept : ids of the tables whose objects the mirror keeps; others leave no trace here.
        gone : ids of the tables that the point no longer has.
        """
        mine = {"task_id": self.task_id}
        for batch in copied.to_batches(_BATCH):
            names = batch.column("name").to_pylist()
            for table in (objects, garbage):  # a name that comes again is neither old nor garbage
                column = table.c.object_name if table is objects else table.c.path
                keys = names if table is objects else [f"objects/{name}" for name in names]
                for start in range(0, len(keys), 500):
                    connection.execute(
                        table.delete().where(table.c.task_id == self.task_id, column.in_(keys[start : start + 500]))
                    )
            values = zip(names, batch.column("size").to_pylist(), batch.column("sha256").to_pylist(), strict=True)
            connection.execute(
                objects.insert(),
                [{**mine, "object_name": name, "size": size, "sha256": sha} for name, size, sha in values],
            )
        ends = (
            references.update()
            .where(
                references.c.task_id == self.task_id,
                references.c.object_name == sa.bindparam("ended"),
                references.c.table_id == sa.bindparam("of_table"),
                references.c.until_lsn.is_(None),
            )
            .values(until_lsn=lsn)
        )
        for name, table_id in _pairs(diff.removed, kept):
            connection.execute(ends, {"ended": name, "of_table": table_id})
        for table_id in gone:
            of_table = (
                references.c.task_id == self.task_id,
                references.c.table_id == table_id,
                references.c.until_lsn.is_(None),
            )
            connection.execute(references.update().where(*of_table).values(until_lsn=lsn))
        rows = [
            {**mine, "object_name": name, "table_id": table_id, "from_lsn": lsn}
            for name, table_id in _pairs(diff.added, kept)
        ]
        for start in range(0, len(rows), _BATCH):
            connection.execute(references.insert(), rows[start : start + _BATCH])

    def stored_objects(self) -> Iterator[LedgerEntry]:
        """Every object of the ledger, in the order of names, a page at a time."""
        last = ""
        while True:
            query = (
                sa.select(objects)
                .where(objects.c.task_id == self.task_id, objects.c.object_name > last)
                .order_by(objects.c.object_name)
                .limit(_BATCH)
            )
            with transaction(self.engine) as connection:
                page = connection.execute(query).all()
            yield from (LedgerEntry(row.object_name, row.size, row.sha256) for row in page)
            if len(page) < _BATCH:
                return
            last = page[-1].object_name

    def look_up(self, names: Sequence[str]) -> dict[str, LedgerEntry]:
        """Those of some names that the ledger has."""
        found = {}
        for start in range(0, len(names), 500):
            query = sa.select(objects).where(
                objects.c.task_id == self.task_id, objects.c.object_name.in_(names[start : start + 500])
            )
            with transaction(self.engine) as connection:
                found |= {
                    row.object_name: LedgerEntry(row.object_name, row.size, row.sha256)
                    for row in connection.execute(query)
                }
        return found

    def checksums(self, names: Sequence[str]) -> dict[str, bytes]:
        """SHA-256 of those of some names that the ledger has."""
        return {name: stored.sha256 for name, stored in self.look_up(names).items()}

    def stored_bytes(self) -> int:
        with transaction(self.engine) as connection:
            return int(
                connection.scalar(sa.select(sa.func.sum(objects.c.size)).where(objects.c.task_id == self.task_id)) or 0
            )

    def references_to(self, name: str) -> list[Reference]:
        query = sa.select(references).where(references.c.task_id == self.task_id, references.c.object_name == name)
        with transaction(self.engine) as connection:
            return [Reference(row.table_id, row.from_lsn, row.until_lsn) for row in connection.execute(query)]

    def end_references(self, connection: sa.Connection, oldest_lsn: int) -> list[str]:
        """Forget references that ended at or before the oldest point kept; names that nothing refers to any more."""
        ended = (references.c.task_id == self.task_id, references.c.until_lsn <= oldest_lsn)
        names = set(connection.scalars(sa.select(references.c.object_name).where(*ended)))
        connection.execute(references.delete().where(*ended))
        unnamed = sorted(names)
        for start in range(0, len(unnamed), 500):
            page = unnamed[start : start + 500]
            query = sa.select(references.c.object_name).where(
                references.c.task_id == self.task_id, references.c.object_name.in_(page)
            )
            names -= set(connection.scalars(query))
        return sorted(names)

    def schedule_deletion(self, connection: sa.Connection, paths: Iterable[str], due_at: int) -> None:
        """Files that may be deleted after a time; one that is waiting already keeps its time."""
        known = set(connection.scalars(sa.select(garbage.c.path).where(garbage.c.task_id == self.task_id)))
        rows = [{"task_id": self.task_id, "path": path, "due_at": due_at} for path in sorted(set(paths) - known)]
        for start in range(0, len(rows), _BATCH):
            connection.execute(garbage.insert(), rows[start : start + _BATCH])

    def schedule_strays(self, connection: sa.Connection, names: Sequence[str], due_at: int) -> None:
        """Objects that were copied and that no table names: they are deleted after a time, counted anew each time that
        they are wanted."""
        for start in range(0, len(names), 500):
            page = list(names[start : start + 500])
            named = sa.select(references.c.object_name).where(
                references.c.task_id == self.task_id, references.c.object_name.in_(page)
            )
            paths = [f"objects/{name}" for name in sorted(set(page) - set(connection.scalars(named)))]
            if paths:
                connection.execute(garbage.delete().where(garbage.c.task_id == self.task_id, garbage.c.path.in_(paths)))
                connection.execute(
                    garbage.insert(), [{"task_id": self.task_id, "path": path, "due_at": due_at} for path in paths]
                )

    def due_garbage(self, now: int) -> list[str]:
        with transaction(self.engine) as connection:
            return list(
                connection.scalars(
                    sa.select(garbage.c.path).where(garbage.c.task_id == self.task_id, garbage.c.due_at <= now)
                )
            )

    def waiting(self) -> int:
        """How many files wait for the end of their grace."""
        with transaction(self.engine) as connection:
            return connection.scalar(sa.select(sa.func.count()).where(garbage.c.task_id == self.task_id)) or 0

    def forget(self, path: str) -> None:
        """A file that has been deleted."""
        name = path.removeprefix("objects/")
        with transaction(self.engine) as connection:
            connection.execute(objects.delete().where(objects.c.task_id == self.task_id, objects.c.object_name == name))
            connection.execute(garbage.delete().where(garbage.c.task_id == self.task_id, garbage.c.path == path))


def _pairs(rows: pa.Table, kept: Collection[int]) -> list[tuple[str, int]]:
    """(object name, table id) of the rows of kept tables, for the database; objects, not rows of users."""
    names, ids = (rows.column(column).to_pylist() for column in ("name", "table_id"))
    return [(name, table_id) for name, table_id in zip(names, ids, strict=True) if table_id in kept]
