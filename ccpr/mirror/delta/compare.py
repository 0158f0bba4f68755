"""What two points show differently of a table, for people: rows that were added, removed or changed, and in which
columns. DuckDB matches the rows of the earlier point with a row delta (decision deltas-by-commit-time)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ccpr.base.errors import require
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Reading, ZeroDates
from ccpr.mirror.delta.between import TableChanges, changes_between
from ccpr.mirror.delta.change_rows import change_batches, change_schema, part_of
from ccpr.mirror.duckdb_rows import ZONE, batches_ahead, quoted, rows_of
from ccpr.mirror.errors import BadOption, KeyChanged
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.mirror.table_read import plan_read
from ccpr.schema.ddl_diff import ddl_diff
from ccpr.values.cells import json_rows

_AS_STORED = Reading(zero_dates=ZeroDates.KEEP)  # a zero date is no null: a row may have become the one or the other
_ADDED, _REMOVED, _CHANGED = "added", "removed", "changed"


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that differs. `before` and `after` have the values of the columns that differ, or the whole row where it is
    at one point only, as JSON has them."""

    kind: str
    key: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    Attributes
    ----------
    added, removed, changed : how many rows.
    columns : in how many changed rows a column differs, of those that do; a column that is at one point only is null at
        the other.
    definition : what differs in CREATE TABLE, as a unified diff.
    rows : the first ones of each kind.
    """

    table: str
    since: int
    until: int
    added: int
    removed: int
    changed: int
    columns: dict[str, int] = field(default_factory=dict)
    definition: str = ""
    rows: tuple[RowChange, ...] = ()


def compare_points(mirror: Mirror, name: str, since: Point, until: Point, most_rows: int) -> Comparison:
    """The delta is held in memory. Raises what `changes_between` raises, BadOption, ExtraMissing without DuckDB, and
    KeyChanged if a column of the key is called otherwise."""
    require("duckdb", "duckdb")
    import duckdb

    if since.lsn > until.lsn:
        message = f"--from is point {since.lsn}, which is later than --to, point {until.lsn}"
        raise BadOption(message, subject=f"table {name}", remedy="Exchange the two points.")
    changes = changes_between(mirror, name, since, until)
    shape = changes.shape
    rows = pa.Table.from_batches(change_batches(shape, changes.parts(), _AS_STORED), change_schema(shape))
    delta = part_of(rows, shape)
    keys = [column.name for column in shape.key.columns]
    old = _rows_before(mirror, changes, since, keys)
    definition = _definition(mirror, changes)
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{ZONE}'")
        connection.register("up", delta.upserts)
        connection.register("gone", delta.deletes)
        connection.register("before", delta.upserts.schema.empty_table() if old is None else old.reader)
        try:
            connection.execute("CREATE TEMP TABLE old AS SELECT * FROM before")
        except duckdb.Error:
            if old is not None and old.error is not None:
                raise old.error from None
            raise
        return _Matched(connection, keys).comparison(shape.table, since.lsn, until.lsn, definition, most_rows)


def _definition(mirror: Mirror, changes: TableChanges) -> str:
    if changes.before is None or changes.after is None:
        return ""
    return ddl_diff(mirror.manifest(changes.before.ref).table, mirror.manifest(changes.after.ref).table)


def _rows_before(mirror: Mirror, changes: TableChanges, since: Point, keys: Sequence[str]) -> "_Stream | None":
    if changes.before is None:
        return None
    table = changes.before.ref.qualified_name
    known = {column.name: column for column in mirror.manifest(changes.before.ref).table.columns}
    if missing := [key for key in keys if key not in known]:
        message = f"the key's column {missing[0]} was not called so at point {since.lsn}"
        raise KeyChanged(message, subject=f"table {table}")
    names = [*(name for name, column in known.items() if not column.hidden or name in keys)]
    read = plan_read(mirror, table, since.lsn, columns=names, reading=_AS_STORED)
    return _Stream(read.schema, batches_ahead(read, mirror))


class _Stream:
    """Batches as a stream of Arrow. `error` is what ended them: who reads the stream gives its text only."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.error: CcprError | None = None
        self.reader = pa.RecordBatchReader.from_batches(schema, self._noted(batches))

    def _noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except CcprError as error:
            self.error = error
            raise


class _Matched:
    """Rows of `up` and `gone` beside those of `old` with the same key."""

    def __init__(self, connection: Any, keys: Sequence[str]) -> None:
        self._connection, self._keys = connection, list(keys)
        self._up, self._old = self._names("up"), self._names("old")
        self._all = list(dict.fromkeys((*self._up, *self._old)))
        self._on = " AND ".join(f"up.{quoted(key)} IS NOT DISTINCT FROM old.{quoted(key)}" for key in keys)
        self._differs = {
            name: f"({_side('up', name, self._up)} IS DISTINCT FROM {_side('old', name, self._old)})"
            for name in self._all
            if name not in keys
        }

    def comparison(self, table: str, since: int, until: int, definition: str, most: int) -> Comparison:
        any_differs = " OR ".join(self._differs.values()) or "false"
        connection = self._connection
        gone = " AND ".join(f"gone.{quoted(key)} IS NOT DISTINCT FROM old.{quoted(key)}" for key in self._keys)
        added = f"FROM up ANTI JOIN old ON {self._on}"
        removed = f"FROM old SEMI JOIN gone ON {gone}"
        changed = f"FROM up JOIN old ON {self._on} WHERE {any_differs}"
        queries = (f"SELECT count(*) {source}" for source in (added, removed, changed))
        counts = [connection.execute(query).fetchall()[0][0] for query in queries]
        return Comparison(
            table,
            since,
            until,
            *counts,
            columns=self._columns(changed) if counts[2] else {},
            definition=definition,
            rows=(
                *self._whole(_ADDED, added, most),
                *self._whole(_REMOVED, removed, most),
                *self._parts(changed, most),
            ),
        )

    def _columns(self, changed: str) -> dict[str, int]:
        sums = ", ".join(f"count(*) FILTER ({differs})" for differs in self._differs.values())
        (counts,) = self._connection.execute(f"SELECT {sums} {changed}").fetchall()
        return {name: count for name, count in zip(self._differs, counts, strict=True) if count}

    def _whole(self, kind: str, source: str, most: int) -> Iterator[RowChange]:
        for row in self._rows(f"SELECT * {source}", most):
            key = {name: row[name] for name in self._keys}
            yield RowChange(kind, key, row if kind == _REMOVED else {}, row if kind == _ADDED else {})

    def _parts(self, changed: str, most: int) -> Iterator[RowChange]:
        names = list(self._differs)
        cells = [f"up.{quoted(key)}" for key in self._keys]
        for name, differs in self._differs.items():
            cells += [differs, _side("old", name, self._old), _side("up", name, self._up)]
        numbered = ", ".join(f"{cell} AS c{number}" for number, cell in enumerate(cells))
        for row in self._rows(f"SELECT {numbered} {changed}", most):
            values = list(row.values())
            key = dict(zip(self._keys, values, strict=False))
            rest = values[len(key) :]
            found = {name: rest[3 * place : 3 * place + 3] for place, name in enumerate(names)}
            before = {name: was for name, (differs, was, _) in found.items() if differs}
            yield RowChange(_CHANGED, key, before, {name: found[name][2] for name in before})

    def _rows(self, query: str, most: int) -> list[dict[str, Any]]:
        return json_rows(rows_of(self._connection.sql(f"{query} LIMIT {most}")).read_all())

    def _names(self, table: str) -> list[str]:
        return [row[0] for row in self._connection.execute(f"DESCRIBE {table}").fetchall()]


def _side(table: str, name: str, known: Sequence[str]) -> str:
    return f"{table}.{quoted(name)}" if name in known else "NULL"
