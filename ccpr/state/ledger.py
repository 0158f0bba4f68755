"""The ledger of a mirror's files: size and checksum of each copied object, which tables refer to it at which points,
and files to be deleted. Written in the transaction that commits a point, so that a sweep can rely on it.

Several tables may refer to one object (CLONE). It is garbage when no point that stays has a reference to it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from ccpr.mirror.layout import object_path
from ccpr.mirror.object_rows import ObjectDiff
from ccpr.state.database import batches, reading, transaction
from ccpr.state.records import Records, RowForm
from ccpr.state.settings import GRACE_SECONDS
from ccpr.state.tables import garbage, objects, references

_ROWS = 10_000  # of one page
_NAMES = 500  # names in one IN (…)
_OBJECTS = object_path("")

_WAITING = sa.select(sa.func.count(), sa.func.min(garbage.c.due_at), sa.func.max(garbage.c.due_at)).where(
    garbage.c.task_id == sa.bindparam("task")
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A copied object: size in bytes, SHA-256 of its content."""

    name: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class PointSize:
    """Bytes of objects. `shown`: of all objects that the point shows. `alone`: of those that no other point shows: what
    goes with it."""

    shown: int
    alone: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A table refers to an object from point `from_lsn` on. At `until_lsn` it no longer does; None if it still does."""

    name: str
    table_id: int
    from_lsn: int
    until_lsn: int | None

    def names_at(self, lsn: int) -> bool:
        return self.from_lsn <= lsn and (self.until_lsn is None or lsn < self.until_lsn)


_REFERENCE = RowForm(references, Reference, "a reference to an object cannot be read", {"name": "object_name"})


def due_time(watermark: int) -> int:
    """When a file may be deleted that nothing names since the watermark (nanoseconds): in seconds, by the upstream's
    clock."""
    return watermark // 10**9 + GRACE_SECONDS


class Ledger(Records):
    """The ledger of one subscription."""

    def record(
        self,
        connection: sa.Connection,
        lsn: int,
        copied: pa.Table,
        diff: ObjectDiff,
        kept: Collection[int],
        gone: Iterable[int],
    ) -> None:
        """Record what a point changes, in the caller's transaction. `copied`: LEDGER_SCHEMA, the objects that the point
        copied, or found in the store. `kept`: ids of the tables whose objects the mirror keeps; the ledger ignores all
        others. `gone`: ids of the tables that do not exist any more at the point."""
        self._record_objects(connection, copied)
        self._end_references(connection, lsn, diff.removed, kept, gone)
        rows = (
            {"object_name": name, "table_id": table_id, "from_lsn": lsn}
            for table_id, names in _names_by_table(diff.added, kept).items()
            for name in names
        )
        self._insert(connection, references, rows)

    def write(
        self, connection: sa.Connection, entries: Iterable[LedgerEntry], references_to: Iterable[Reference]
    ) -> None:
        """Write a ledger that was empty, in the caller's transaction."""
        named = ({"object_name": one.name, "size": one.size, "sha256": one.sha256} for one in entries)
        self._insert(connection, objects, named)
        self._insert(connection, references, map(_REFERENCE.cells, references_to))

    def _record_objects(self, connection: sa.Connection, copied: pa.Table) -> None:
        has_any = any(  # a first load may copy a million objects: none of them can be here
            connection.scalar(sa.select(sa.exists().where(table.c.task_id == self.task_id)))
            for table in (objects, garbage)
        )
        for batch in copied.to_batches(_ROWS):
            names, sizes, sums = (batch.column(name).to_pylist() for name in ("name", "size", "sha256"))
            # An object that is copied again is neither an old one nor garbage.
            for page in batches(names, _NAMES) if has_any else ():
                paths = [object_path(name) for name in page]
                connection.execute(objects.delete().where(self._mine(objects), objects.c.object_name.in_(page)))
                connection.execute(garbage.delete().where(self._mine(garbage), garbage.c.path.in_(paths)))
            rows = (
                {"object_name": name, "size": size, "sha256": sha256}
                for name, size, sha256 in zip(names, sizes, sums, strict=True)
            )
            self._insert(connection, objects, rows)

    def _end_references(
        self, connection: sa.Connection, lsn: int, removed: pa.Table, kept: Collection[int], gone: Iterable[int]
    ) -> None:
        def end(table_id: int, *also: sa.ColumnElement[bool]) -> None:
            of_table = self._mine(references, table_id=table_id, until_lsn=None)
            connection.execute(references.update().where(of_table, *also).values(until_lsn=lsn))

        for table_id, names in _names_by_table(removed, kept).items():
            for page in batches(names, _NAMES):
                end(table_id, references.c.object_name.in_(page))
        for table_id in gone:
            end(table_id)

    def changes(self, lsn: int) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """By table id, how many objects a point added and removed, and their bytes. What it removed is known as long as
        the point before it is there."""

        def counted(*of_point: sa.ColumnElement[bool]) -> dict[int, tuple[int, int]]:
            size = sa.func.coalesce(sa.func.sum(objects.c.size), 0)
            named = references.outerjoin(
                objects, self._mine(objects) & (objects.c.object_name == references.c.object_name)
            )
            query = sa.select(references.c.table_id, sa.func.count(), size).select_from(named)
            rows = self._rows(query.where(self._mine(references), *of_point).group_by(references.c.table_id))
            return {table_id: (count, int(total)) for table_id, count, total in rows}

        return counted(references.c.from_lsn == lsn), counted(references.c.until_lsn == lsn)

    def point_sizes(self, points: Sequence[int]) -> dict[int, PointSize]:
        """By lsn. An object that several tables share counts once, for all points from the first to the last that has
        it. `points`: lsn, oldest first."""
        sizes, begins, ends = self._spans()
        numbers = np.asarray(points, np.int64)
        first = np.searchsorted(numbers, begins)
        behind = np.where(ends < 0, len(numbers), np.searchsorted(numbers, ends))
        changes, alone = np.zeros(len(numbers) + 1, np.int64), np.zeros(len(numbers) + 1, np.int64)
        there = behind > first
        np.add.at(changes, first[there], sizes[there])
        np.subtract.at(changes, behind[there], sizes[there])
        single = behind == first + 1
        np.add.at(alone, first[single], sizes[single])
        shown = np.cumsum(changes)[:-1].tolist()
        return dict(zip(points, map(PointSize, shown, alone[:-1].tolist()), strict=True))

    def _spans(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each object its bytes, the point from which on a table has it, and from which on none has; -1 if one still
        has it."""
        open_ended = sa.func.max(sa.case((references.c.until_lsn.is_(None), 1), else_=0))
        query = (
            sa.select(
                sa.func.max(objects.c.size),
                sa.func.min(references.c.from_lsn),
                sa.case((open_ended == 1, -1), else_=sa.func.max(references.c.until_lsn)),
            )
            .join(objects, objects.c.object_name == references.c.object_name)
            .where(self._mine(references), self._mine(objects))
            .group_by(references.c.object_name)
        )
        with reading(self.engine) as connection:
            pages = connection.execution_options(yield_per=_ROWS).execute(query).partitions()
            found = np.concatenate(
                [np.empty((0, 3), np.int64), *(np.array([*map(tuple, page)], np.int64) for page in pages)]
            )
        return found[:, 0], found[:, 1], found[:, 2]

    def stored_objects(self, after: str = "") -> Iterator[LedgerEntry]:
        """Every object of the ledger whose name is greater, by name. Reads a page at a time."""
        last = after
        while True:
            query = (
                sa.select(objects)
                .where(self._mine(objects), objects.c.object_name > last)
                .order_by(objects.c.object_name)
                .limit(_ROWS)
            )
            with reading(self.engine) as connection:
                page = connection.execute(query).all()
            yield from (LedgerEntry(row.object_name, row.size, row.sha256) for row in page)
            if len(page) < _ROWS:
                return
            last = page[-1].object_name

    def look_up(self, names: Sequence[str]) -> dict[str, LedgerEntry]:
        """The entries of those names that the ledger has."""
        found = {}
        for page in batches(names, _NAMES):
            query = sa.select(objects).where(self._mine(objects), objects.c.object_name.in_(page))
            with reading(self.engine) as connection:
                found |= {
                    row.object_name: LedgerEntry(row.object_name, row.size, row.sha256)
                    for row in connection.execute(query)
                }
        return found

    def checksums(self, names: Sequence[str]) -> dict[str, bytes]:
        """SHA-256 of those names that the ledger has."""
        return {name: stored.sha256 for name, stored in self.look_up(names).items()}

    def stored_bytes(self) -> int:
        return int(self._scalar(sa.select(sa.func.sum(objects.c.size)).where(self._mine(objects))) or 0)

    def references_to(self, name: str) -> list[Reference]:
        return _REFERENCE.values(self._rows(sa.select(references).where(self._mine(references, object_name=name))))

    def kept_tables(self) -> set[int]:
        """The tables that refer to objects, or did until a point that is kept: an index table's objects are listed in
        manifests, and mostly not copied."""
        rows = self._rows(sa.select(references.c.table_id).where(self._mine(references)).distinct())
        return {row.table_id for row in rows}

    def end_references(self, connection: sa.Connection, until: int, after: int = -1) -> list[str]:
        """Delete references that no point has any more, as those between two were dropped, or all before one. Returns
        objects that lost their last one."""
        between = (references.c.from_lsn > after, references.c.until_lsn > after, references.c.until_lsn <= until)
        ended = (self._mine(references), *between)
        names = set(connection.scalars(sa.select(references.c.object_name).where(*ended)))
        connection.execute(references.delete().where(*ended))
        for page in batches(sorted(names), _NAMES):
            names -= self._referenced(connection, page)
        return sorted(names)

    def schedule_deletion(self, connection: sa.Connection, paths: Iterable[str], due_at: int) -> None:
        """Record files to be deleted from `due_at` on, in seconds since 1970 by the upstream's clock. A file recorded
        before keeps its time."""
        for page in batches(sorted(set(paths)), _NAMES):
            of_page = (self._mine(garbage), garbage.c.path.in_(page))
            known = set(connection.scalars(sa.select(garbage.c.path).where(*of_page)))
            self._insert(connection, garbage, ({"path": path, "due_at": due_at} for path in page if path not in known))

    def schedule_orphans(self, connection: sa.Connection, names: Sequence[str], due_at: int) -> None:
        """Record for deletion those objects that were copied and that no table refers to. The time of one recorded
        before is set again: it was needed until now."""
        for page in batches(names, _NAMES):
            paths = [object_path(name) for name in sorted(set(page) - self._referenced(connection, page))]
            if paths:
                connection.execute(garbage.delete().where(self._mine(garbage), garbage.c.path.in_(paths)))
                self._insert(connection, garbage, ({"path": path, "due_at": due_at} for path in paths))

    def _referenced(self, connection: sa.Connection, names: Sequence[str]) -> set[str]:
        """Those names that a table refers to."""
        query = sa.select(references.c.object_name).where(self._mine(references), references.c.object_name.in_(names))
        return set(connection.scalars(query))

    def waiting(self) -> tuple[int, int, int]:
        """How many files are recorded for deletion, and when the first and the last of them are due."""
        ((count, first, last),) = self._rows(_WAITING)
        return count, first or 0, last or 0

    def due_garbage(self, now: int, latest: int) -> tuple[list[str], int]:
        """Paths of a page of the files that may be deleted now (seconds since 1970 by the upstream's clock), and how
        many have to wait; the next page comes when these are forgotten. No file waits longer than until `latest`: a
        later time comes from a clock that was ahead."""
        mine, due = self._mine(garbage), garbage.c.due_at
        with transaction(self.engine) as connection:
            connection.execute(garbage.update().where(mine, due > latest).values(due_at=latest))
            paths = list(connection.scalars(sa.select(garbage.c.path).where(mine, due <= now).limit(_ROWS)))
            waiting = connection.scalar(sa.select(sa.func.count()).where(mine, due > now))
        return paths, waiting or 0

    def unknown(self, paths: Sequence[str]) -> list[str]:
        """Those of the files that are neither objects of the ledger nor recorded for deletion.

        What is recorded for deletion is asked for first: an object that is named again leaves that list when it is in
        the ledger, and one that nothing names any more stays in the ledger until it is deleted. So a file that is known
        all the time is found in one of the two, whatever other processes do in between.
        """
        found = []
        for page in batches(paths, _NAMES):
            names = [path.removeprefix(_OBJECTS) for path in page if path.startswith(_OBJECTS)]
            waiting = sa.select(garbage.c.path).where(self._mine(garbage), garbage.c.path.in_(page))
            stored = sa.select(objects.c.object_name).where(self._mine(objects), objects.c.object_name.in_(names))
            with reading(self.engine) as connection:
                known = set(connection.scalars(waiting))
                known |= {object_path(name) for name in (connection.scalars(stored) if names else ())}
            found += [path for path in page if path not in known]
        return found

    def forget(self, path: str) -> None:
        """Remove a file that has been deleted."""
        name = path.removeprefix(_OBJECTS)
        self._write(
            objects.delete().where(self._mine(objects, object_name=name)),
            garbage.delete().where(self._mine(garbage, path=path)),
        )


def _names_by_table(rows: pa.Table, kept: Collection[int]) -> dict[int, list[str]]:
    """The object names of each kept table. A loop over objects, not over rows of users."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name, table_id in zip(rows.column("name").to_pylist(), rows.column("table_id").to_pylist(), strict=True):
        if table_id in kept:
            found[table_id].append(name)
    return found
