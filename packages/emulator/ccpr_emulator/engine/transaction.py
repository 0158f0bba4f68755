"""A transaction of a simulated upstream: snapshot isolation, a workspace of its own, conflicts at the commit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.bytejson import json_text
from ccpr.matrixone.objects.convert import decimal_text
from ccpr.matrixone.objects.errors import NotWritable
from ccpr.matrixone.objects.writing.column_encoding import encode
from ccpr.matrixone.objects.writing.json_and_geometry import json_binary
from ccpr.matrixone.schema import FAKE_KEY, Column
from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.clock import Clock
from ccpr_emulator.engine.definitions import Definition, Index
from ccpr_emulator.engine.entries import TableEntry, index_values
from ccpr_emulator.engine.live_keys import FEW_ROWS, Key, keys_in, unique_columns
from ccpr_emulator.engine.object_files import ObjectFiles
from ccpr_emulator.engine.stored_table import ALIVE, whole

Expression: TypeAlias = Any  # of pyarrow.compute
CreateAt: TypeAlias = Literal["commit", "prepare"]
Rows: TypeAlias = pa.Table | pa.RecordBatch | Mapping[str, Any] | Sequence[Mapping[str, Any]]


class WriteConflict(StatementError):
    """Another transaction changed the same row, inserted the same key or changed the table meanwhile. The transaction
    is rolled back."""

    def __init__(self, text: str) -> None:
        # The number is from MatrixOne's error table; no recording has it.
        super().__init__(20619, f"w-w conflict: {text}")


class DuplicateEntry(StatementError):
    """A key that exists already in the transaction's view. The statement has no effect; the transaction continues."""

    def __init__(self, table: str, key: str) -> None:
        super().__init__(1062, f"Duplicate entry for key '{key}' of table {table}", "23000")


@dataclass(eq=False)
class _Workspace:
    """What a transaction changed in one table: added `rows` with all stored columns, which of them are `kept` (not
    deleted again), the numbers of `deleted` rows, and the `keys` of the kept rows by key name."""

    definition: Definition
    rows: list[pa.Table] = field(default_factory=list)
    kept: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    deleted: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    keys: dict[str, set[Key]] | None = field(default_factory=dict)  # of the kept rows; None if that is not known

    def added(self) -> pa.Table | None:
        if not self.rows:
            return None
        joined = pa.concat_tables(self.rows)
        self.rows = [joined]
        return joined.filter(pa.array(self.kept))


class TransactionTables(Protocol):
    """What a transaction needs of the storage, which depends on this module.

    Attributes
    ----------
    cn_rows : a transaction that inserts or deletes at least so many rows writes them as objects of a compute node.
    create_at : see `ccpr_emulator.engine.storage.Storage`.
    files : say whether rows of aborted transactions are stored.
    """

    clock: Clock

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    cn_rows: int
    create_at: CreateAt
    files: ObjectFiles

    def table(self, database: str, table: str, *, account: str) -> TableEntry: ...

    def flush_full(self, entries: Iterable[TableEntry]) -> None:
        """Flush the tables that have too much in memory; the caller holds the lock."""
        ...


class Transaction:
    """Started by `Storage.begin`. A context manager: it commits at the end, and rolls back after an exception."""

    def __init__(self, tables: TransactionTables, account: str) -> None:
        self._tables = tables
        self._account = account
        self.started = tables.clock.last
        self._workspaces: dict[TableEntry, _Workspace] = {}
        self.open, self.prepared = True, False

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.open:
            self.rollback() if kind is not None else self.commit()

    def rows(self, database: str, table: str, where: Expression | None = None) -> pa.Table:
        """The user columns of the rows that the transaction sees."""
        with self._tables.lock:
            entry, workspace = self._of(database, table)
            seen, _ = self._seen(entry, workspace, where)
            return seen.select([column.name for column in workspace.definition.user_columns])

    def insert(self, database: str, table: str, rows: Rows) -> int:
        """Insert rows: an Arrow table, columns by name, or one mapping a row; missing columns are null. Returns their
        number.

        Raises DuplicateEntry, and StatementError 1048 for a null in a column that allows none.
        """
        with self._tables.lock:
            entry, workspace = self._of(database, table)
            added = entry.with_hidden_columns(as_rows(workspace.definition, rows))
            self._add(entry, workspace, added)
            return added.num_rows

    def delete(self, database: str, table: str, where: Expression | None = None) -> int:
        """Delete the rows that the expression selects (None: all). Returns their number."""
        with self._tables.lock:
            entry, workspace = self._of(database, table)
            _, numbers = self._seen(entry, workspace, where)
            self._remove(workspace, numbers)
            return len(numbers)

    def update(self, database: str, table: str, values: Mapping[str, Any], where: Expression | None = None) -> int:
        """Set columns to a Python value, or to the array that a function returns for the selected rows. Returns the
        number of rows.

        An update is a delete of the old row and an insert of the new one, which keeps a fake key.
        """
        with self._tables.lock:
            entry, workspace = self._of(database, table)
            seen, numbers = self._seen(entry, workspace, where)
            if not len(numbers):
                return 0
            definition = workspace.definition
            changed = seen
            for name, value in values.items():
                kind = types.arrow_type(definition.column(name))
                column: Any = value(seen) if callable(value) else pa.repeat(pa.scalar(value, kind), seen.num_rows)
                column = column.cast(kind) if isinstance(column, pa.ChunkedArray | pa.Array) else pa.array(column, kind)
                changed = changed.set_column(changed.column_names.index(name), name, column)
            fake = None if definition.primary_key else whole(seen.column(FAKE_KEY))
            user = changed.select([column.name for column in definition.user_columns])
            added = entry.with_hidden_columns(as_rows(definition, user), fake)
            self._exchange(entry, workspace, numbers, added)
            return len(numbers)

    # ---- by the numbers of rows, for SQL: those of its own uncommitted rows are -1, -2, …

    def scan(self, database: str, table: str) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """The user columns of all rows that ever were, mostly without a copy; their numbers; and which of them the
        transaction sees."""
        with self._tables.lock:
            entry, workspace = self._of(database, table)
            columns = workspace.definition.user_columns
            rows = entry.stored.every(columns)
            numbers = np.arange(rows.num_rows)
            seen = np.zeros(rows.num_rows, bool)
            seen[entry.stored.visible(self.started)] = True
            seen[workspace.deleted] = False
            if workspace.rows:
                added = pa.concat_tables(workspace.rows).select(rows.column_names)
                rows = pa.concat_tables([rows, added])
                numbers = np.concatenate([numbers, -1 - np.arange(added.num_rows)])
                seen = np.concatenate([seen, workspace.kept])
            return rows, numbers, seen

    def take(self, database: str, table: str, numbers: np.ndarray) -> pa.Table:
        """The user columns of some rows."""
        with self._tables.lock:
            entry, workspace = self._of(database, table)
            return self._stored_rows(entry, workspace, numbers).select(
                [column.name for column in workspace.definition.user_columns]
            )

    def remove(self, database: str, table: str, numbers: np.ndarray) -> int:
        """Delete rows."""
        with self._tables.lock:
            _, workspace = self._of(database, table)
            self._remove(workspace, numbers)
            return len(numbers)

    def replace(self, database: str, table: str, numbers: np.ndarray, rows: pa.Table) -> int:
        """Put `rows` in the place of the rows with these numbers, which keep their fake keys."""
        with self._tables.lock:
            entry, workspace = self._of(database, table)
            definition = workspace.definition
            fake = None
            if not definition.primary_key:
                fake = whole(self._stored_rows(entry, workspace, numbers).column(FAKE_KEY))
            self._exchange(entry, workspace, numbers, entry.with_hidden_columns(as_rows(definition, rows), fake))
            return len(numbers)

    def matches(self, database: str, table: str, rows: pa.Table) -> list[tuple[np.ndarray, np.ndarray]]:
        """For the primary key and each unique index: positions in `rows` (all user columns), and the number of the row
        that has the same key in the transaction's view."""
        with self._tables.lock:
            entry, workspace = self._of(database, table)
            live = None
            if not workspace.rows and not len(workspace.deleted) and entry.last_delete <= self.started:
                live = entry.live_keys(self._tables.clock.last)
            found: list[tuple[np.ndarray, np.ndarray]] = []
            for name, columns in unique_columns(workspace.definition).items():
                keys = keys_in(rows, columns)
                if live is None:
                    seen, numbers = self._seen(entry, workspace, None)
                    places = dict(zip(keys_in(seen, columns), numbers.tolist(), strict=True))
                    places.pop(None, None)
                else:
                    places = live.rows[name]
                hits = [(number, places[key]) for number, key in enumerate(keys) if key in places]
                positions, numbers = zip(*hits, strict=True) if hits else ((), ())
                found.append((np.array(positions, np.int64), np.array(numbers, np.int64)))
            return found

    def _stored_rows(self, entry: TableEntry, workspace: _Workspace, numbers: np.ndarray) -> pa.Table:
        columns = workspace.definition.columns
        if not workspace.rows:
            return entry.stored.values(numbers, columns)
        every = pa.concat_tables([entry.stored.every(columns), *workspace.rows])
        places = np.where(numbers >= 0, numbers, entry.stored.count - 1 - numbers)
        return every.take(pa.array(places)).combine_chunks()

    def _exchange(self, entry: TableEntry, workspace: _Workspace, numbers: np.ndarray, added: pa.Table) -> None:
        before = workspace.kept.copy(), workspace.deleted, workspace.keys
        self._remove(workspace, numbers)
        try:
            self._add(entry, workspace, added)
        except DuplicateEntry:
            workspace.kept, workspace.deleted, workspace.keys = before
            raise

    def commit(self) -> int:
        """Make all changes visible at one tick, which is returned (0 if there are none). Raises WriteConflict; then no
        change is made."""
        if self._tables.create_at == "prepare" and not self.prepared:
            self.prepare()
        self._end()
        with self._tables.lock:
            changed = self._changed()
            for entry, workspace in changed.items():
                self._check_conflicts(entry, workspace)
            if not changed:
                return 0
            tick = self._tables.clock.next()
            limit = self._tables.cn_rows
            for entry, workspace in changed.items():
                if len(workspace.deleted):
                    entry.delete(workspace.deleted, tick, by_cn=len(workspace.deleted) >= limit)
                added = workspace.added()
                if added is not None and added.num_rows:
                    entry.insert(added, tick, by_cn=added.num_rows >= limit)
            self._tables.flush_full(changed)
            return tick

    def prepare(self) -> None:
        """The first half of a commit of MatrixOne since 4.2 (`create_at` "prepare"): create the objects in memory that
        the rows will be in. What follows is `commit` or `rollback`, at any later time."""
        if not self.open:
            raise StatementError(20101, "internal error: the transaction has ended")
        with self._tables.lock:
            self.prepared = True
            tick, limit = self._tables.clock.next(), self._tables.cn_rows
            for entry, workspace in self._changed().items():
                if entry.dropped != ALIVE or entry.definition is not workspace.definition:
                    continue  # the commit will fail
                inserts, deletes = (0 < count < limit for count in (workspace.kept.sum(), len(workspace.deleted)))
                for part in entry.parts:
                    part.stored.prepare(part.definition, tick, inserts=inserts, deletes=deletes)

    def _changed(self) -> dict[TableEntry, _Workspace]:
        return {entry: space for entry, space in self._workspaces.items() if space.kept.any() or len(space.deleted)}

    def rollback(self) -> None:
        self._end()
        with self._tables.lock:
            if self.prepared and self._tables.files.abort_column:
                self._leave_aborted()
        self._workspaces.clear()

    def _leave_aborted(self) -> None:
        """What a transaction that is rolled back after it was prepared leaves in memory, marked."""
        tick, limit = self._tables.clock.next(), self._tables.cn_rows
        for entry, workspace in self._changed().items():
            if entry.dropped != ALIVE or entry.definition is not workspace.definition:
                continue
            if 0 < len(workspace.deleted) < limit:
                entry.delete(workspace.deleted, tick, by_cn=False, aborted=True)
            added = workspace.added()
            if added is not None and 0 < added.num_rows < limit:
                entry.insert(added, tick, by_cn=False, aborted=True)

    def _end(self) -> None:
        if not self.open:
            raise StatementError(20101, "internal error: the transaction has ended")
        self.open = False

    def _of(self, database: str, table: str) -> tuple[TableEntry, _Workspace]:
        if not self.open or self.prepared:
            raise StatementError(20101, "internal error: the transaction has ended")
        entry = self._tables.table(database, table, account=self._account)
        workspace = self._workspaces.setdefault(entry, _Workspace(entry.definition))
        if entry.created > self.started or workspace.definition is not entry.definition:
            raise WriteConflict(f"table {database}.{table} was changed")
        return entry, workspace

    def _seen(self, entry: TableEntry, workspace: _Workspace, where: Expression | None) -> tuple[pa.Table, np.ndarray]:
        """Stored columns of the selected rows in the transaction's view, and their numbers; its own uncommitted rows
        have the numbers -1, -2, …"""
        visible = entry.stored.visible(self.started)
        visible = visible[~np.isin(visible, workspace.deleted)]
        rows, numbers = entry.stored.values(visible, workspace.definition.columns), visible
        if workspace.rows:
            added = pa.concat_tables(workspace.rows)
            ours = np.flatnonzero(workspace.kept)
            rows = pa.concat_tables([rows, added.take(pa.array(ours))])
            numbers = np.concatenate([visible, -1 - ours])
        if where is not None:
            found = rows.append_column("", pa.array(numbers)).filter(where)
            rows, numbers = found.drop_columns([""]), found.column("").to_numpy()
        return rows.combine_chunks(), numbers

    def _remove(self, workspace: _Workspace, numbers: np.ndarray) -> None:
        workspace.deleted = np.concatenate([workspace.deleted, numbers[numbers >= 0]])
        kept = workspace.kept.copy()
        own = -1 - numbers[numbers < 0]
        kept[own] = False
        workspace.kept = kept
        if len(own):
            workspace.keys = None

    def _add(self, entry: TableEntry, workspace: _Workspace, added: pa.Table) -> None:
        entry.check_partitions(added)
        if not self._add_few_keys(entry, workspace, added):
            seen, _ = self._seen(entry, workspace, None)
            for name, keys_of in unique_keys(entry):
                keys = keys_of(added)
                repeats = pc.count_distinct(keys).as_py() < len(keys)
                if repeats or pc.any(pc.is_in(keys, value_set=keys_of(seen))).as_py():
                    raise DuplicateEntry(entry.definition.name, name)
        workspace.rows.append(added)
        workspace.kept = np.concatenate([workspace.kept, np.ones(added.num_rows, bool)])

    def _add_few_keys(self, entry: TableEntry, workspace: _Workspace, added: pa.Table) -> bool:
        """Check the keys of a few rows without reading the table; False if that cannot be done."""
        known, workspace.keys = workspace.keys, None
        if known is None or added.num_rows > FEW_ROWS or entry.last_delete > self.started:
            return False
        live = entry.live_keys(self._tables.clock.last)
        if live is None:
            return False
        new: dict[str, set[Key]] = {}
        for name, columns in live.columns.items():
            keys = [key for key in keys_in(added, columns) if key is not None]
            new[name] = set(keys)
            rows = np.array([live.rows[name][key] for key in keys if key in live.rows[name]], np.int64)
            rows = rows[~np.isin(rows, workspace.deleted)]
            is_seen = bool(len(rows)) and bool(entry.stored.is_older(rows, self.started).any())
            if len(new[name]) < len(keys) or is_seen or new[name] & known.get(name, set()):
                workspace.keys = known
                raise DuplicateEntry(entry.definition.name, name)
        for name, keys in new.items():
            known.setdefault(name, set()).update(keys)
        workspace.keys = known
        return True

    def _check_conflicts(self, entry: TableEntry, workspace: _Workspace) -> None:
        name = entry.definition.name
        if entry.dropped != ALIVE or entry.definition is not workspace.definition:
            raise WriteConflict(f"table {name} was changed")
        if not entry.stored.is_alive(workspace.deleted).all():
            raise WriteConflict(f"a row of table {name} was changed")
        added = workspace.added()
        if added is None or not added.num_rows:
            return
        if added.num_rows <= FEW_ROWS and (live := entry.live_keys(self._tables.clock.last)) is not None:
            for key, columns in live.columns.items():
                known = live.rows[key]
                rows = np.array([known[value] for value in keys_in(added, columns) if value in known], np.int64)
                if not np.isin(rows, workspace.deleted).all():
                    raise WriteConflict(f"key {key} of table {name} was inserted")
            return
        alive = entry.stored.visible(self._tables.clock.last)
        others = entry.stored.values(alive[~np.isin(alive, workspace.deleted)], workspace.definition.columns)
        for key, keys_of in unique_keys(entry):
            if pc.any(pc.is_in(keys_of(added), value_set=keys_of(others))).as_py():
                raise WriteConflict(f"key {key} of table {name} was inserted")


def as_rows(definition: Definition, rows: Rows) -> pa.Table:
    """Rows as an Arrow table of the user columns, in their order and types. Raises StatementError for unknown columns,
    nulls that are not allowed, and values that cannot be written."""
    if isinstance(rows, Sequence):
        names = dict.fromkeys(name for row in rows for name in row)
        rows = {name: [row.get(name) for row in rows] for name in names}
    source: Any = rows
    given = (
        dict(zip(source.schema.names, source.columns, strict=True))
        if isinstance(source, pa.Table | pa.RecordBatch)
        else dict(source)
    )
    unknown = given.keys() - {column.name for column in definition.user_columns}
    if unknown:
        raise StatementError(20301, f"invalid input: column {min(unknown)} does not exist")
    count = len(next(iter(given.values()))) if given else 0
    arrays = []
    for column in definition.user_columns:
        kind = types.arrow_type(column)
        values = given.get(column.name)
        if values is None:
            array = pa.nulls(count, kind)
        elif isinstance(values, pa.Array | pa.ChunkedArray):
            array = values.cast(kind)
        else:
            array = pa.array(values, kind)
        if array.null_count and not column.nullable:
            raise StatementError(1048, f"Column '{column.name}' cannot be null", "23000")
        try:
            array = _as_read(whole(array) if isinstance(array, pa.ChunkedArray) else array, column)
            encode(array, column)  # raises now for a value that a later flush could not write
        except (NotWritable, pa.ArrowException) as error:
            raise StatementError(20301, f"invalid input: column {column.name}: {error}") from error
        arrays.append(array)
    return pa.table(arrays, schema=types.arrow_schema(definition.user_columns))


def _as_read(values: pa.Array, column: Column) -> pa.Array:
    """Values in the form in which they will be read, for types that are texts in Arrow: JSON, decimals beyond 38
    digits, sets."""
    if column.type.oid == types.JSON:
        return json_text(json_binary(values, subject=column.name), subject=column.name)
    if column.type.oid == types.DECIMAL256:
        precision, scale = column.type.width, column.type.scale
        numbers = values.cast(pa.decimal256(precision, scale)).cast(pa.decimal256(76, scale))
        return decimal_text(numbers.view(pa.decimal256(76, 0)), scale)
    if column.type.oid in (types.VECF16, types.VECBF16):
        return pa.ListArray.from_arrays(values.offsets, _halved(values, column.type.oid), mask=values.is_null())
    if types.is_set(column):
        given = pc.unique(values.drop_null())
        ordered = [",".join(label for label in column.labels if label in text.split(",")) for text in given.to_pylist()]
        known = all(set(text.split(",")) <= {"", *column.labels} for text in given.to_pylist())
        return pa.array(ordered, pa.string()).take(pc.index_in(values, given)) if known else values
    return values


def _halved(values: pa.Array, oid: int) -> pa.Array:
    """The numbers of vectors as 16 bits hold them: rounded to the nearest, and of two to the even one."""
    numbers = values.values.to_numpy(zero_copy_only=False).astype("<f4")
    if oid == types.VECF16:
        return pa.array(numbers.astype("<f2").astype("<f4"))
    bits = numbers.view("<u4")
    return pa.array(((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype("<u4").view("<f4"))


def unique_keys(entry: TableEntry) -> list[tuple[str, Callable[[pa.Table], pa.Array]]]:
    """The name of the primary key and of each unique index, with a function from stored rows to their keys."""
    definition = entry.definition
    unique: list[tuple[str, Callable[[pa.Table], pa.Array]]] = [
        (index.name, partial(_indexed, definition=definition, index=index, hidden=entry.indexes[index.name].definition))
        for index in definition.indexes
        if index.unique
    ]
    primary = ("PRIMARY", lambda rows: rows.column(definition.key.name))
    return [primary, *unique] if definition.primary_key else unique


def _indexed(rows: pa.Table, *, definition: Definition, index: Index, hidden: Definition) -> pa.Array:
    """The keys of a unique index, without nulls, which may repeat."""
    return index_values(definition, index, hidden, rows).column(0).drop_null()
