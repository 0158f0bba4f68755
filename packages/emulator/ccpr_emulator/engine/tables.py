"""The tables, views and sequences of a simulated upstream: CREATE, DROP, TRUNCATE, RENAME and CLONE.

Ids change and stay as in MatrixOne (decision identity-by-id); each DDL statement is its own transaction. ALTER is in
`ccpr_emulator.engine.altered_tables`, that of partitions in `ccpr_emulator.engine.partitioned_tables`.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ccpr.matrixone.objects.types import MAX_PRECISION
from ccpr.matrixone.schema import Column
from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.databases import SYS, Databases
from ccpr_emulator.engine.definitions import Attributes, BadDefinition, Definition, Index, create_table, define
from ccpr_emulator.engine.entries import (
    INDEX,
    PARTITION,
    SEQUENCE,
    TABLE,
    VIEW,
    DatabaseEntry,
    TableEntry,
    index_definition,
    partition_definition,
)
from ccpr_emulator.engine.partitioning import Partitioning
from ccpr_emulator.engine.stored_table import StoredTable
from ccpr_emulator.engine.transaction import as_rows


class Tables(Databases):
    """Tables that are created, dropped and renamed as a whole."""

    def create_table(
        self,
        database: str,
        table: str,
        columns: Mapping[str, str],
        *,
        primary_key: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        indexes: Mapping[str, Sequence[str]] | None = None,
        unique: Mapping[str, Sequence[str]] | None = None,
        comment: str = "",
        unchecked: Collection[str] = (),
        attributes: Mapping[str, Attributes] | None = None,
        fulltext: Sequence[tuple[str, tuple[str, ...]]] = (),
        constraints: Sequence[str] = (),
        create_sql: str = "",
        partitioning: Partitioning | None = None,
        account: str = SYS,
    ) -> TableEntry:
        """`columns` maps names to type texts, with ``not null`` after them; `indexes` and `unique` map index names to
        columns. For the rest see `ccpr_emulator.engine.definitions.Definition`. Decimal columns that are `unchecked`
        store what their slots hold, as the server does with integers.

        Raises 1050 if the name exists, `BadDefinition` for an unknown type or column.
        """
        with self.lock:
            owner = self.database(database, account=account)
            self._check_free(database, table, account)
            made = [
                Index(name, tuple(names), is_unique, self._index_table(is_unique))
                for given, is_unique in ((unique or {}, True), (indexes or {}, False))
                for name, names in given.items()
            ]
            definition = define(
                database,
                table,
                columns,
                primary_key=primary_key,
                cluster_by=cluster_by,
                indexes=made,
                comment=comment,
                attributes=attributes,
                fulltext=fulltext,
                constraints=constraints,
                create_sql=create_sql,
            )
            if partitioning is not None:
                definition.column(partitioning.column)
                if made:
                    raise BadDefinition("a partitioned table has no indexes here")
                definition = replace(definition, partitioning=partitioning)
            if unchecked:
                definition = replace(definition, columns=tuple(_wide(one, unchecked) for one in definition.columns))
            return self._new_table(owner, definition, self.clock.next())

    def create_like(
        self, database: str, table: str, source: Definition, *, create_sql: str = "", account: str = SYS
    ) -> TableEntry:
        """An empty table with another's definition. Foreign keys are not copied."""
        with self.lock:
            owner = self.database(database, account=account)
            self._check_free(database, table, account)
            if source.partitioning is not None:
                raise BadDefinition("a partitioned table cannot be copied here")
            made = tuple(replace(index, table=self._index_table(index.unique)) for index in source.indexes)
            columns = tuple(replace(column, seqnum=number) for number, column in enumerate(source.columns))
            new = replace(
                source, database=database, name=table, columns=columns, indexes=made, constraints=(), version=0
            )
            return self._new_table(owner, replace(new, create_sql=create_sql or create_table(new)), self.clock.next())

    def clone_table(
        self, database: str, table: str, name: str, *, target: str | None = None, account: str = SYS
    ) -> TableEntry:
        """A new table of the same objects, which both tables list from then on; in the database `target`, or in the
        same."""
        with self.lock:
            source = self.table(database, table, account=account)
            if source.definition.indexes or source.partitions:
                raise BadDefinition("a table with indexes or partitions cannot be cloned here")
            owner = source.database if target is None else self.database(target, account=account)
            self._check_free(owner.name, name, account)
            source.stored.flush(source.definition, self.clock.next())
            tick = self.clock.next()
            entry = self._new_table(owner, replace(source.definition, name=name, database=owner.name), tick)
            entry.stored = source.stored.clone(tick)
            entry.next_seqnum, entry.next_fake_key = source.next_seqnum, source.next_fake_key
            entry.next_auto = source.next_auto
            return entry

    def drop_table(self, database: str, table: str, *, account: str = SYS) -> None:
        """A publication of single tables no longer has the table: a new table of the name is not published
        (docs/upstream.md 3.2)."""
        with self.lock:
            self._drop(self.table(database, table, account=account), self.clock.next())
            for key, publication in self.publications.items():
                if key[0] == account and publication.database == database and table in publication.tables:
                    kept = tuple(name for name in publication.tables if name != table)
                    # No table at all would mean the whole database.
                    self.publications[key] = replace(publication, tables=kept or ("",))

    def truncate(self, database: str, table: str, *, account: str = SYS) -> TableEntry:
        """The table has a new id and the same logical id."""
        with self.lock:
            old = self.table(database, table, account=account)
            tick = self.clock.next()
            self._drop(old, tick)
            return self._new_table(old.database, old.definition, tick, predecessor=old)

    def rename_table(self, database: str, table: str, name: str, *, account: str = SYS) -> None:
        """The table keeps its id and its objects."""
        with self.lock:
            self._check_free(database, name, account)
            entry = self.table(database, table, account=account)
            entry.part_suffix = name
            self._redefine(entry, lambda old: replace(old, name=name))

    # ---- entries

    def _index_table(self, unique: bool) -> str:
        return f"__mo_index_{'unique' if unique else 'secondary'}_{uuid.UUID(bytes=self.files.new_uuid())}"

    def _new_table(
        self,
        owner: DatabaseEntry,
        definition: Definition,
        tick: int,
        *,
        predecessor: TableEntry | None = None,
        kind: str = TABLE,
        part_suffix: str = "",
    ) -> TableEntry:
        indexes = {}
        for index in definition.indexes:
            id_ = self._new_id()
            hidden = index_definition(definition, index)
            indexes[index.name] = TableEntry(id_, id_, owner, INDEX, tick, [(tick, hidden)], StoredTable(self.files))
        id_ = self._new_id()
        logical_id = id_ if predecessor is None else predecessor.logical_id
        entry = TableEntry(
            id_, logical_id, owner, kind, tick, [(tick, definition)], StoredTable(self.files), indexes=indexes
        )
        entry.next_seqnum = max((column.seqnum for column in definition.columns), default=-1) + 1
        self.tables += [*indexes.values(), entry]
        for index in indexes.values():
            index.parent = entry
        if definition.partitioning is not None:
            entry.part_suffix = part_suffix or definition.name
            for part in definition.partitioning.parts:
                self.new_partition(entry, part.name, tick, logical_id=None if predecessor is None else logical_id)
        return entry

    def new_partition(
        self,
        entry: TableEntry,
        name: str,
        tick: int,
        *,
        logical_id: int | None = None,
        truncated: TableEntry | None = None,
    ) -> None:
        """The hidden table of a partition; in the place of a truncated one it is in the catalog like an ordinary table,
        and nothing but its name says whose it is."""
        id_ = self._new_id()
        logical_id = truncated.logical_id if truncated is not None else logical_id or id_
        definition = partition_definition(entry, name)
        made = TableEntry(
            id_, logical_id, entry.database, PARTITION, tick, [(tick, definition)], StoredTable(self.files)
        )
        made.parent = entry if truncated is None else None
        entry.partitions[name] = made
        self.tables.append(made)

    def _drop(self, entry: TableEntry, tick: int) -> None:
        for part in (entry, *entry.partitions.values(), *entry.indexes.values()):
            part.dropped = tick

    def _redefine(self, entry: TableEntry, change: Callable[[Definition], Definition]) -> None:
        """A new definition under the same id."""
        new = change(entry.definition)
        tick = self.clock.next()
        entry.definitions.append((tick, replace(new, version=new.version + 1)))
        for name, part in entry.partitions.items():
            part.definitions.append((tick, partition_definition(entry, name)))

    # ---- views, which are in the catalog and have no rows, and sequences, which have one

    def create_view(
        self,
        database: str,
        name: str,
        columns: Mapping[str, str],
        query: str,
        *,
        create_sql: str,
        account: str = SYS,
        replaces: bool = False,
    ) -> TableEntry:
        """A view is in the catalog and has no rows here: `query` is read by who reads it. Raises 1050."""
        with self.lock:
            owner = self.database(database, account=account)
            if replaces and (old := self.find(database, name, account=account)) is not None and old.kind == VIEW:
                self._drop(old, self.clock.next())
            self._check_free(database, name, account)
            defined = define(database, name, columns, create_sql=create_sql)
            shown = tuple(column for column in defined.columns if not column.hidden)
            definition = replace(defined, columns=shown, query=query)
            return self._new_table(owner, definition, self.clock.next(), kind=VIEW)

    def create_sequence(
        self, database: str, name: str, *, start: int = 1, increment: int = 1, create_sql: str = "", account: str = SYS
    ) -> TableEntry:
        """A sequence has one row, as in MatrixOne; `TableEntry.next_auto` is its next value. Raises 1050."""
        with self.lock:
            owner = self.database(database, account=account)
            self._check_free(database, name, account)
            types = {"min_value": "bigint", "max_value": "bigint", "start_value": "bigint", "increment_value": "bigint"}
            columns = {"last_seq_num": "bigint", **types, "cycle": "bool", "is_called": "bool"}
            definition = define(database, name, columns, create_sql=create_sql)
            entry = self._new_table(owner, definition, self.clock.next(), kind=SEQUENCE)
            entry.next_auto, entry.increment = start, increment
            row = (start, 1, 2**63 - 1, start, increment, False, False)
            rows = as_rows(definition, {column: [value] for column, value in zip(columns, row, strict=True)})
            entry.insert(entry.with_hidden_columns(rows), self.clock.next(), by_cn=False)
            return entry

    def next_value(self, entry: TableEntry) -> int:
        """NEXTVAL of a sequence."""
        with self.lock:
            value = entry.next_auto
            entry.next_auto += entry.increment
            self._write_value(entry, value, called=True)
            return value

    def set_value(self, entry: TableEntry, value: int, *, called: bool | None = None) -> None:
        """SETVAL of a sequence: the value that NEXTVAL gave last, or, unless `called`, the one that it gives next.
        None: as it was, which is what MatrixOne does with two arguments."""
        with self.lock:
            called = self._write_value(entry, value, called=called)
            entry.next_auto = value + (entry.increment if called else 0)

    def _write_value(self, entry: TableEntry, value: int, *, called: bool | None) -> bool:
        """Write the sequence's row. Returns `called`, or what it was."""
        row = entry.stored.visible(self.clock.last)
        values = entry.stored.values(row, entry.definition.user_columns).to_pylist()[0]
        called = bool(values["is_called"]) if called is None else called
        values |= {"last_seq_num": value, "is_called": called}
        changed = as_rows(entry.definition, {name: [cell] for name, cell in values.items()})
        tick = self.clock.next()
        entry.delete(row, tick, by_cn=False)
        entry.insert(entry.with_hidden_columns(changed), tick, by_cn=False)
        return called

    def drop_relation(self, database: str, name: str, kind: str, *, account: str = SYS) -> None:
        """A view or a sequence. Raises 1051."""
        with self.lock:
            entry = self.find(database, name, account=account)
            if entry is None or entry.kind != kind:
                raise StatementError(1051, f"Unknown table '{database}.{name}'", "42S02")
            self._drop(entry, self.clock.next())


def _wide(column: Column, unchecked: Collection[str]) -> Column:
    return replace(column, digits=MAX_PRECISION[column.type.oid]) if column.name in unchecked else column
