"""The entries of a simulated upstream's catalog: databases, and tables with all their definitions."""

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.writing.packed_keys import packed_keys
from ccpr.matrixone.schema import COMPOSITE_KEY, FAKE_KEY, Column, SqlType
from ccpr_emulator.engine.definitions import Definition, Index, create_table
from ccpr_emulator.engine.live_keys import FEW_ROWS, LiveKeys, has_exact_keys, unique_columns
from ccpr_emulator.engine.partitioning import NoPartition, table_of
from ccpr_emulator.engine.stored_table import ALIVE, NO_ROW, StoredTable, whole

INDEX_COLUMN, INDEX_KEY_COLUMN = "__mo_index_idx_col", "__mo_index_pri_col"
TABLE, INDEX, VIEW, SEQUENCE, PARTITION = "r", "i", "v", "S", "partition"  # relkind
SUBSCRIPTION = "subscription"  # dat_type


@dataclass(slots=True, eq=False)
class DatabaseEntry:
    """`created` and `dropped` are ticks; `dropped` is `ALIVE` while the database exists. `kind` is `dat_type`."""

    id: int
    account: str
    name: str
    created: int
    dropped: int = ALIVE
    kind: str = ""

    def exists_at(self, tick: int) -> bool:
        return self.created <= tick < self.dropped


@dataclass(slots=True, eq=False)
class TableEntry:
    """A table under one physical id.

    Attributes
    ----------
    id, logical_id : `rel_id`, `rel_logical_id`.
    kind : relkind.
    definitions : (tick, definition), oldest first: the definition from that tick on.
    stored : its rows and objects.
    indexes : hidden tables by index name.
    index_rows : by index name, for each row of this table the number of its row in the index table, or `NO_ROW`.
    partitions : of a partitioned table, the hidden tables by partition name; they have its objects.
    partition_rows : by partition name, as `index_rows`.
    lost : rows that went with their partition.
    part_suffix : of a partitioned table, what the names of its partitions end with.
    parent : of a hidden table, the table that it belongs to, as far as the catalog says so.
    next_seqnum, next_fake_key, next_auto : never assigned twice; the last is of the AUTO_INCREMENT column, or of a
        sequence, which takes steps of `increment`.
    last_delete : the tick of the last commit that deleted rows.
    """

    id: int
    logical_id: int
    database: DatabaseEntry
    kind: str
    created: int
    definitions: list[tuple[int, Definition]]
    stored: StoredTable
    dropped: int = ALIVE
    indexes: dict[str, "TableEntry"] = field(default_factory=dict)
    index_rows: dict[str, np.ndarray] = field(default_factory=dict)
    partitions: dict[str, "TableEntry"] = field(default_factory=dict)
    partition_rows: dict[str, np.ndarray] = field(default_factory=dict)
    lost: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    part_suffix: str = ""
    parent: "TableEntry | None" = None
    next_seqnum: int = 0
    next_fake_key: int = 1
    next_auto: int = 1
    increment: int = 1
    last_delete: int = 0
    _keys: LiveKeys | None = None

    @property
    def definition(self) -> Definition:
        return self.definitions[-1][1]

    @property
    def parts(self) -> "tuple[TableEntry, ...]":
        """What has its objects: itself or its partitions, and its index tables."""
        return (*(self.partitions.values() or (self,)), *self.indexes.values())

    def definition_at(self, tick: int) -> Definition | None:
        """None if the table did not exist."""
        if not self.created <= tick < self.dropped:
            return None
        return next(definition for since, definition in reversed(self.definitions) if since <= tick)

    def with_hidden_columns(self, rows: pa.Table, keys: pa.Array | None = None) -> pa.Table:
        """User columns plus the key columns that the server adds; `keys` are the fake keys of rows that keep theirs (an
        update)."""
        definition = self.definition
        arrays = dict(zip(rows.column_names, [whole(column) for column in rows.columns], strict=True))
        for column in definition.columns:
            if not column.hidden:
                continue
            if column.name == FAKE_KEY:
                arrays[column.name] = self._fake_keys(rows.num_rows) if keys is None else keys
            else:
                is_key = column.name == COMPOSITE_KEY
                names = definition.primary_key if is_key else definition.cluster_by
                parts = [definition.column(name) for name in names]
                arrays[column.name] = packed_keys(parts, [arrays[name] for name in names], full=not is_key)
        return pa.table(
            [arrays[column.name] for column in definition.columns], schema=types.arrow_schema(definition.columns)
        )

    def _fake_keys(self, count: int) -> pa.Array:
        numbers = np.zeros((count, 2), "<u8")
        numbers[:, 0] = np.arange(self.next_fake_key, self.next_fake_key + count)
        self.next_fake_key += count
        return pa.Array.from_buffers(pa.decimal128(20, 0), count, [None, pa.py_buffer(numbers)])

    def live_keys(self, last: int) -> LiveKeys | None:
        """The keys of the rows that are alive at the last tick; None if they cannot be compared as Python values."""
        definition = self.definition
        if self._keys is None or self._keys.definition is not definition:
            if not has_exact_keys(definition):
                return None
            alive = self.stored.visible(last)
            names = {name for columns in unique_columns(definition).values() for name in columns}
            rows = self.stored.values(alive, [definition.column(name) for name in sorted(names)])
            self._keys = LiveKeys.of(definition, rows, alive)
        return self._keys

    def insert(
        self,
        rows: pa.Table,
        tick: "int | np.ndarray",
        *,
        by_cn: bool,
        keyed: bool = False,
        aborted: bool = False,
    ) -> None:
        """Insert rows with all stored columns, and the rows of the index tables. `tick` may be one for each row, not
        decreasing. `keyed`: their keys are known already. Rows of an aborted transaction never exist."""
        in_objects = by_cn and not self.partitions
        numbers = self.stored.insert(self.definition, rows, tick, by_cn=in_objects, aborted=aborted)
        if self.partitions:
            self._share_out(numbers, rows, tick, by_cn=by_cn, aborted=aborted)
        if self._keys is not None and not keyed and not aborted:
            if rows.num_rows > FEW_ROWS or self._keys.definition is not self.definition:
                self._keys = None
            else:
                self._keys.add(rows, numbers)
        for index in self.definition.indexes:
            self.fill_index(index, numbers, rows, tick, by_cn=by_cn, aborted=aborted)

    def fill_index(
        self,
        index: Index,
        numbers: np.ndarray,
        rows: pa.Table,
        tick: "int | np.ndarray",
        *,
        by_cn: bool,
        aborted: bool = False,
    ) -> None:
        """Insert the index rows of these rows (their numbers, their stored columns) into the index's table."""
        entry = self.indexes[index.name]
        values = index_values(self.definition, index, entry.definition, rows)
        filled = np.flatnonzero(values.column(0).is_valid().to_numpy())
        values = values.take(pa.array(filled))
        ticks = tick if isinstance(tick, int) else tick[filled]
        added = entry.stored.insert(entry.definition, values, ticks, by_cn=by_cn, aborted=aborted)
        self._map(self.index_rows, index.name, numbers[filled], added)

    def _map(self, known: dict[str, np.ndarray], name: str, numbers: np.ndarray, added: np.ndarray) -> None:
        mapping = np.full(self.stored.count, NO_ROW, np.int64)
        before = known.get(name, np.empty(0, np.int64))
        mapping[: len(before)] = before
        mapping[numbers] = added
        known[name] = mapping

    def check_partitions(self, rows: pa.Table) -> None:
        """Raises NoPartition."""
        partitioning = self.definition.partitioning
        if partitioning is not None and (partitioning.places(rows.column(partitioning.column)) < 0).any():
            raise NoPartition

    def _share_out(
        self, numbers: np.ndarray, rows: pa.Table, tick: "int | np.ndarray", *, by_cn: bool, aborted: bool
    ) -> None:
        partitioning = self.definition.partitioning
        assert partitioning is not None
        places = partitioning.places(rows.column(partitioning.column))
        for place, part in enumerate(partitioning.parts):
            entry, mine = self.partitions[part.name], np.flatnonzero(places == place)
            ticks = tick if isinstance(tick, int) else tick[mine]
            added = np.empty(0, np.int64)
            if len(mine):
                taken = rows.take(pa.array(mine))
                added = entry.stored.insert(entry.definition, taken, ticks, by_cn=by_cn, aborted=aborted)
            self._map(self.partition_rows, part.name, numbers[mine], added)

    def forget_keys(self, rows: np.ndarray) -> None:
        if self._keys is None:
            return
        if len(rows) > FEW_ROWS or self._keys.definition is not self.definition:
            self._keys = None
            return
        names = dict.fromkeys(name for columns in self._keys.columns.values() for name in columns)
        self._keys.remove(self.stored.values(rows, [self.definition.column(name) for name in names]))

    def delete(self, rows: np.ndarray, tick: int, *, by_cn: bool, aborted: bool = False) -> None:
        if not aborted:
            self.last_delete = tick
            self.forget_keys(rows)
        in_objects = by_cn and not self.partitions
        self.stored.delete(self.definition, rows, tick, by_cn=in_objects, aborted=aborted)
        hidden = [(self.indexes[index.name], self.index_rows[index.name]) for index in self.definition.indexes]
        hidden += [(self.partitions[name], mapping) for name, mapping in self.partition_rows.items()]
        for entry, mapping in hidden:
            theirs = mapping[rows]
            theirs = theirs[theirs != NO_ROW]
            if len(theirs):
                entry.stored.delete(entry.definition, theirs, tick, by_cn=by_cn, aborted=aborted)


def index_definition(definition: Definition, index: Index) -> Definition:
    """The hidden table of an index: the indexed value, packed unless the index is unique and has one column, and the
    row's key."""
    key = definition.key
    single = definition.column(index.columns[0])
    packed = SqlType(types.VARCHAR, 65535, 0)
    columns = (
        Column(
            INDEX_COLUMN,
            0,
            single.type if index.unique and len(index.columns) == 1 else packed,
            nullable=False,
            indexed=True,
        ),
        Column(INDEX_KEY_COLUMN, 1, key.type, nullable=False, indexed=True),
    )
    return Definition(definition.database, index.table, columns, {}, (INDEX_COLUMN,))


def partition_definition(entry: TableEntry, name: str) -> Definition:
    """Of the hidden table of a partition."""
    own = table_of(name, entry.part_suffix)
    hidden = replace(entry.definition, name=own, indexes=(), fulltext=(), constraints=(), partitioning=None)
    return replace(hidden, create_sql=create_table(hidden))


def index_values(definition: Definition, index: Index, hidden: Definition, rows: pa.Table) -> pa.Table:
    """Rows of the index table for rows of the table. A unique index has no row for a row with a null: the value is null
    here."""
    parts = [definition.column(name) for name in index.columns]
    arrays = [whole(rows.column(name)) for name in index.columns]
    key = whole(rows.column(definition.key.name))
    if not index.unique:
        value: pa.Array = packed_keys([*parts, definition.key], [*arrays, key], full=True)
    else:
        value = arrays[0] if len(parts) == 1 else packed_keys(parts, arrays)
    schema = types.arrow_schema(hidden.columns)
    return pa.table([value.cast(schema.field(0).type), key.cast(schema.field(1).type)], schema=schema)
