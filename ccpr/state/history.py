"""The points of a subscription in the catalog database: global points and table points, written in the transaction that
ends the iteration.

A table has a row for each point in which it changed; the row with the greatest lsn up to L is its state at L. So
writing a point costs what changed, and reading an older one is one query. Source: docs/architecture.md, "One commit".
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, Table, integer_of, text_of
from ccpr.mirror.points import LaggingTable, Point, TableRef
from ccpr.state.context import Context
from ccpr.state.database import batches, fetch, reading, repeatable, understood
from ccpr.state.errors import StateUnreadable
from ccpr.state.point_rows import REF_COLUMNS, TablePoint, table_point, table_refs
from ccpr.state.records import Records, RowForm, converted
from ccpr.state.tables import figures, kept, kept_points, mo_ccpr_log, point_definitions, points, table_points

if TYPE_CHECKING:  # they import Arrow, which who asks for a status does not need
    from ccpr.mirror.layout import Head
    from ccpr.mirror.point_files import PointFile

_TASK, _LSN = sa.bindparam("task"), sa.bindparam("of")
_POINTS = sa.select(points).where(points.c.task_id == _TASK)
_POINT = _POINTS.where(points.c.lsn == _LSN)
_NEWEST = _POINTS.order_by(points.c.lsn.desc()).limit(1)
_AFTER = _POINTS.where(points.c.lsn > _LSN).order_by(points.c.lsn)
_LATER = _POINTS.where(points.c.snapshot_ts > _LSN).order_by(points.c.lsn)
_WATERMARK = sa.select(mo_ccpr_log.c.watermark).where(mo_ccpr_log.c.task_id == _TASK)
_UPDATE_ROWS = 1000  # of one UPDATE
_PARSED_ROWS = 10_000  # table points that are parsed together
_DELETE_ROWS = 400  # keys of one DELETE, two parameters each: SQLite may allow 999 only


def _chain_from(task_id: sa.ColumnElement[str]) -> sa.ColumnElement[int]:
    """Points before it are not in the chain (`ccpr.mirror.kept_points`)."""
    return sa.func.coalesce(sa.select(kept.c.chain_from).where(kept.c.task_id == task_id).scalar_subquery(), 0)


def _head() -> sa.Select:
    log = mo_ccpr_log.c
    mine = points.c.task_id == log.task_id
    linked = (mine, points.c.lsn >= _chain_from(log.task_id))
    oldest = sa.select(sa.func.min(points.c.lsn)).where(*linked).scalar_subquery()
    newest = sa.select(sa.func.max(points.c.lsn)).where(mine).scalar_subquery()
    file = sa.select(points.c.file).where(mine).order_by(points.c.lsn.desc()).limit(1).scalar_subquery()
    besides = sa.select(kept.c.file).where(kept.c.task_id == log.task_id).scalar_subquery()
    query = sa.select(oldest, newest, log.iteration_lsn, log.watermark, file, log.context, besides)
    return query.where(log.task_id == _TASK)


_HEAD = _head()


@dataclass(frozen=True, slots=True)
class GlobalPoint:
    """A point as the catalog database lists it: without its tables, with what it brought. `lsn`, `at`, `snapshot`,
    `committed_at`, `ledger`: as in `Point`. `tables_changed`, `objects_copied`, `bytes_copied`: what the iteration did
    (`ccpr.pipeline.changed_tables`). `file`: path of the point's file in the mirror."""

    lsn: int
    at: Timestamp
    snapshot: str
    committed_at: datetime
    ledger: str
    tables_changed: int
    objects_copied: int
    bytes_copied: int
    file: str = ""


_FORM = RowForm(
    points,
    GlobalPoint,
    "a stored point cannot be read",
    {
        "at": converted("snapshot_ts", lambda cell: Timestamp(integer_of(cell)), attrgetter("physical")),
        "file": converted("file", lambda cell: text_of(cell or ""), lambda file: file or None),
    },
    lambda row: f"task {row['task_id']}, point {row['lsn']}",
)


class PointHistory(Records):
    """The points of one subscription."""

    def head(self) -> "Head":
        """The committed state. Read by one statement, so that it is of one moment."""
        from ccpr.mirror.layout import Head

        found = self._rows(_HEAD)
        if not found:
            raise StateUnreadable(
                "mo_ccpr_log has no row of it",
                subject=f"task {self.task_id}",
                remedy="Restore the catalog database.",
            )
        oldest_lsn, newest_lsn, iteration_lsn, watermark, path, text, besides = found[0]
        context = Context.from_text(text)
        taken = tuple(ref for ref in (context.current, context.previous) if ref is not None)
        return Head(oldest_lsn, newest_lsn, iteration_lsn, watermark, path or "", taken, besides or "")

    def watermark(self) -> int:
        """Up to which time the replica is complete: nanoseconds, by the upstream's clock."""
        return int(self._scalar(_WATERMARK) or 0)

    def files(self) -> "list[PointFile]":
        """The files of all points, newest first."""
        return self._files()

    def chain(self) -> "list[PointFile]":
        """Those of the points that are linked with the newest, newest first."""
        return self._files(points.c.lsn >= _chain_from(points.c.task_id))

    def _files(self, *where: sa.ColumnElement[bool]) -> "list[PointFile]":
        from ccpr.mirror.point_files import PointFile

        query = sa.select(points.c.file, points.c.lsn, points.c.snapshot_ts).where(self._mine(points), *where)
        rows = self._rows(query.order_by(points.c.lsn.desc()))
        return [PointFile(path or "", lsn, at) for path, lsn, at in rows]

    def set_files(self, connection: sa.Connection, files: "Iterable[PointFile]") -> None:
        """The files of points were written again."""
        key = self._mine(points, lsn=sa.bindparam("of_lsn"))
        rows = [{"of_lsn": file.lsn, "path": file.path} for file in files]
        for batch in batches(rows, _UPDATE_ROWS):
            connection.execute(points.update().where(key).values(file=sa.bindparam("path")), batch)

    def global_points(self, after: int = -1) -> list[GlobalPoint]:
        """The points of a greater lsn than `after`, oldest first."""
        return _FORM.values(self._rows(_AFTER, of=after))

    def points_later_than(self, snapshot_ts: int) -> list[GlobalPoint]:
        """The points of a later time than that, nanoseconds by the upstream's clock; oldest first."""
        return _FORM.values(self._rows(_LATER, of=snapshot_ts))

    def point(self, lsn: int) -> GlobalPoint | None:
        """None if there is no such point, or no more."""
        return self._first(_FORM, _POINT, of=lsn)

    def point_of(self, snapshot_ts: int) -> GlobalPoint | None:
        """The point of exactly this time; None if there is none, or no more."""
        return self._first(_FORM, _POINTS.where(points.c.snapshot_ts == snapshot_ts))

    def newest(self) -> GlobalPoint | None:
        """None before the first point."""
        return self._first(_FORM, _NEWEST)

    def next_after(self, lsn: int) -> GlobalPoint | None:
        """The oldest point that is later than one; None if there is none."""
        return self._first(_FORM, _AFTER.limit(1), of=lsn)

    def tables(self, at_lsn: int, *, only: Sequence[int] | None = None) -> dict[int, TablePoint]:
        """The tables that exist at a point, by id; `only`: of these ids."""
        if only is not None:
            parts = [self._tables(at_lsn, table_points.c.table_id.in_(ids)) for ids in batches(only, _DELETE_ROWS)]
            return {table_id: table for part in parts for table_id, table in part.items()}
        return self._tables(at_lsn)

    def _tables(self, at_lsn: int, *where: sa.ColumnElement[bool]) -> dict[int, TablePoint]:
        rows = self._rows_at(at_lsn, table_points.c, *where)
        return {row.table_id: table_point(row._mapping) for row in rows}

    def _rows_at(
        self, at_lsn: int, columns: Iterable[sa.ColumnElement], *where: sa.ColumnElement[bool]
    ) -> list[sa.Row]:
        newest = self._newest_of_each(table_points.c.lsn <= at_lsn, *where)
        return self._rows(sa.select(*columns).select_from(newest).where(self._mine(table_points, gone=False)))

    def _newest_of_each(self, *where: sa.ColumnElement[bool]) -> sa.Join:
        """Of each table its newest table point of those that satisfy all conditions."""
        newest = (
            sa.select(table_points.c.table_id, sa.func.max(table_points.c.lsn).label("lsn"))
            .where(self._mine(table_points), *where)
            .group_by(table_points.c.table_id)
            .subquery()
        )
        same = (table_points.c.table_id == newest.c.table_id) & (table_points.c.lsn == newest.c.lsn)
        return table_points.join(newest, same)

    def refs(self, at_lsn: int) -> tuple[dict[int, TableRef], dict[int, int]]:
        """The tables that exist at a point, by id, as points name them: without their definitions. And of those that
        have live appendable objects, how many."""
        refs, appendable = table_refs(self._rows_at(at_lsn, REF_COLUMNS))
        counted = {ref.table_id: count for ref, count in zip(refs, appendable, strict=True) if count}
        return {ref.table_id: ref for ref in refs}, counted

    def states(self) -> Iterator[TablePoint]:
        """Every table point that has a manifest, by table and point."""
        query = sa.select(table_points).where(self._mine(table_points, gone=False))
        rows = self._rows(query.order_by(table_points.c.table_id, table_points.c.lsn))
        return (table_point(row._mapping) for row in rows)

    def all_refs(self) -> Iterator[TableRef]:
        """The tables of all points, as points name them: each once for every point that changed it."""
        rows = self._rows(sa.select(*REF_COLUMNS).where(self._mine(table_points, gone=False)))
        return (ref for page in batches(rows, _PARSED_ROWS) for ref in table_refs(page)[0])

    def changed(self, lsn: int) -> dict[int, TablePoint]:
        """The table points of one iteration by table id, those of tables that are gone included."""
        rows = self._rows(sa.select(table_points).where(self._mine(table_points, lsn=lsn)))
        return {row.table_id: table_point(row._mapping) for row in rows}

    def after(self, lsn: int, table_id: int, most: int) -> list[TablePoint]:
        """The present state of up to `most` tables, in the order of the points that changed rows or definition last,
        and of their ids, from behind a place in this order. Tables that are gone are not among them."""
        changed = sa.func.coalesce(table_points.c.same_since, table_points.c.lsn)
        place = sa.tuple_(changed, table_points.c.table_id)
        mine = self._mine(table_points, gone=False) & ~_replaced()
        query = sa.select(table_points).where(mine, place > sa.tuple_(lsn, table_id))
        rows = self._rows(query.order_by(changed, table_points.c.table_id).limit(most))
        return [table_point(row._mapping) for row in rows]

    def count_tables(self) -> int:
        """How many tables there are now, without index tables."""
        counted = self._mine(table_points, gone=False) & (table_points.c.kind != Kind.INDEX.value)
        query = sa.select(sa.func.count()).select_from(self._newest_of_each()).where(counted)
        return int(self._scalar(query))

    def changed_after(self, lsn: int) -> list[TablePoint]:
        """The table points of all later iterations, oldest first, those of tables that are gone included."""
        query = sa.select(table_points).where(self._mine(table_points), table_points.c.lsn > lsn)
        return [table_point(row._mapping) for row in self._rows(query.order_by(table_points.c.lsn))]

    def drop_between(self, connection: sa.Connection, until: int, after: int = -1) -> list[str]:
        """Delete the points between two that stay, and what no remaining point shows: table points and definitions.
        Returns their files. `after` is -1 where none before them stays."""
        other = table_points.alias()
        of_table = (other.c.task_id == table_points.c.task_id, other.c.table_id == table_points.c.table_id)
        shown_before = sa.select(other.c.lsn).where(*of_table, other.c.lsn <= after).exists()
        unseen = (
            self._mine(table_points),
            table_points.c.lsn > after,
            table_points.c.lsn <= until,
            _replaced(until=until) | (table_points.c.gone.is_(True) & ~shown_before),
        )
        columns = (table_points.c.table_id, table_points.c.lsn, table_points.c.manifest, table_points.c.parts)
        rows = connection.execute(sa.select(*columns).where(*unseen)).all()
        key = sa.tuple_(table_points.c.table_id, table_points.c.lsn)
        for batch in batches([(row.table_id, row.lsn) for row in rows], _DELETE_ROWS):
            connection.execute(table_points.delete().where(self._mine(table_points), key.in_(batch)))
        for table in (points, kept_points, figures):
            connection.execute(table.delete().where(self._mine(table), table.c.lsn > after, table.c.lsn < until))
        definitions = self._drop_definitions_between(connection, until, after)
        return sorted(self._not_shared(connection, rows)) + definitions

    def _not_shared(self, connection: sa.Connection, dropped: Sequence[sa.Row]) -> set[str]:
        """Files of table points that were dropped, without those that remaining ones have, too: a manifest goes on from
        earlier files."""
        files, divided = _files(dropped), {row.table_id for row in dropped if row.parts}
        for tables in batches(sorted({row.table_id for row in dropped}), _DELETE_ROWS):
            mine = self._mine(table_points) & table_points.c.table_id.in_(tables)
            shares = table_points.c.parts.is_not(None) | table_points.c.table_id.in_(divided.intersection(tables))
            query = sa.select(table_points.c.manifest, table_points.c.parts).where(mine, shares)
            files -= _files(connection.execute(query).all())
        return files

    def _drop_definitions_between(self, connection: sa.Connection, until: int, after: int) -> list[str]:
        """Returns the files that no remaining point names."""
        mine, file = self._mine(point_definitions), point_definitions.c.file
        old = (point_definitions.c.lsn > after) & (point_definitions.c.lsn < until)
        dropped = set(connection.scalars(sa.select(file).where(mine, old)))
        if not dropped:
            return []
        connection.execute(point_definitions.delete().where(mine, old))
        return sorted(dropped - set(connection.scalars(sa.select(file).where(mine).distinct())))

    def definitions(self) -> dict[int, str]:
        """The files of what the points have besides tables, by the points' lsn."""
        columns = (point_definitions.c.lsn, point_definitions.c.file)
        rows = self._rows(sa.select(*columns).where(self._mine(point_definitions)))
        return {lsn: text_of(file) for lsn, file in rows}

    def definitions_of(self, lsn: int) -> str:
        """That of one point; empty if there is none."""
        query = sa.select(point_definitions.c.file).where(self._mine(point_definitions, lsn=lsn))
        return self._scalar(query) or ""

    def known_definitions(self) -> list[Table]:
        """Every definition of a table that a point has, each once. Raises StateUnreadable."""
        rows = self._rows(sa.select(table_points.c.table_schema).where(self._mine(table_points)).distinct())
        with understood("a stored definition cannot be read", f"task {self.task_id}"):
            return [Table.from_json(json.loads(row.table_schema)) for row in rows]

    def write(
        self, connection: sa.Connection, point: GlobalPoint, tables: Iterable[TablePoint], definitions: str = ""
    ) -> None:
        """Table points first, the global point last, in the caller's transaction. `definitions`: see `Point`."""
        if definitions:
            self._insert(connection, point_definitions, [{"lsn": point.lsn, "file": definitions}])
        self._insert(connection, table_points, map(_table_cells, tables))
        self._insert(connection, points, [_FORM.cells(point)])


@repeatable
def newest_points(engine: sa.Engine) -> dict[str, int]:
    """Lsn of the newest point of each subscription, by task id."""
    query = sa.select(points.c.task_id, sa.func.max(points.c.lsn).label("lsn")).group_by(points.c.task_id)
    with reading(engine) as connection:
        return {row.task_id: row.lsn for row in fetch(connection, query)}


def as_mirror_point(
    point: GlobalPoint, tables: Mapping[int, TableRef], behind: Mapping[int, LaggingTable], definitions: str = ""
) -> Point:
    """The point as the mirror publishes it. It does not show lagging tables."""
    refs = {number: ref for number, ref in tables.items() if number not in behind}
    return Point(point.lsn, point.at, point.snapshot, point.committed_at, point.ledger, refs, behind, definitions)


def _table_cells(point: TablePoint) -> dict[str, object]:
    table, ref = point.table, point.ref
    return {
        "table_id": table.id,
        "lsn": point.lsn,
        "gone": ref is None,
        "database_name": table.database,
        "table_name": table.name,
        "kind": table.kind.value,
        "table_schema": json.dumps(table.to_json(), ensure_ascii=False),
        "manifest": ref.manifest if ref else "",
        "parts": json.dumps(ref.parts) if ref and ref.parts else None,
        "same_since": ref.same_since if ref else None,
        "objects": ref.objects if ref else 0,
        "appendable": point.appendable,
        "row_count": ref.rows if ref else 0,
        "bytes": ref.bytes if ref else 0,
    }


def _replaced(until: int | None = None) -> sa.ColumnElement[bool]:
    """Whether a table point has a later one of the same table, at `until` at the latest."""
    later = table_points.alias()
    same = (later.c.task_id == table_points.c.task_id, later.c.table_id == table_points.c.table_id)
    in_time = () if until is None else (later.c.lsn <= until,)
    return sa.select(later.c.lsn).where(*same, later.c.lsn > table_points.c.lsn, *in_time).exists()


def _files(rows: Sequence[sa.Row]) -> set[str]:
    """The manifests of table points, and the files that these go on from."""
    found = {row.manifest for row in rows if row.manifest}
    return found.union(*(json.loads(row.parts) for row in rows if row.parts))
