"""The accounts, databases, publications and tables of a simulated upstream, and the DDL that changes them.

Ids change and stay as in MatrixOne (decision identity-by-id); each DDL statement is its own transaction. The rows of
the tables are in `emulator.engine.storage`.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from emulator.engine.clock import Clock
from emulator.engine.definitions import (
    NO_ATTRIBUTES,
    Attributes,
    BadDefinition,
    Definition,
    Index,
    create_table,
    define,
    make_column,
)
from emulator.engine.entries import (
    INDEX,
    PARTITION,
    SEQUENCE,
    TABLE,
    VIEW,
    DatabaseEntry,
    TableEntry,
    index_definition,
    index_values,
    whole,
)
from emulator.engine.live_keys import keys_in
from emulator.engine.object_files import ObjectFiles
from emulator.engine.partitioning import Partitioning, table_of
from emulator.engine.single_rows import LateRows, StorageLock
from emulator.engine.stored_table import ALIVE, StoredTable
from emulator.engine.transaction import DuplicateEntry, as_rows
from matrixone.objects.timestamp import Timestamp
from matrixone.objects.types import CHAR, MAX_PRECISION, VARCHAR, arrow_type
from matrixone.schema import Column
from wire.backing import SYSTEM_DATABASES, ServedPublication, internal
from wire.server import Cell, StatementError

SYS = "sys"
FIRST_ID = 300_000
WIDENED_IN_PLACE = (CHAR, VARCHAR)
Fill: TypeAlias = Callable[[pa.Table], pa.Array]  # the values of a new column for the rows that are there


class Tables:
    """Accounts, databases, publications and tables. Thread-safe; a table is named by `database`, `table` and an
    account.

    Parameters
    ----------
    now : the clock, nanoseconds since 1970.
    seed : of object and index names.
    cn_rows : inserts and deletes of at least so many rows in one transaction are written as objects by the compute
        node.
    object_rows : the most rows of one object of a merge.
    """

    def __init__(self, now: Callable[[], int], seed: int, cn_rows: int, object_rows: int) -> None:
        self.late: LateRows | None = None
        self.lock: StorageLock = StorageLock(self._store_late)
        self.clock = Clock(now)
        self.files = ObjectFiles(self.clock, seed, object_rows)
        self.cn_rows = cn_rows
        self.accounts: dict[str, int] = {SYS: 0}
        self.databases: list[DatabaseEntry] = []
        self.tables: list[TableEntry] = []
        self.publications: dict[tuple[str, str], ServedPublication] = {}
        self.functions: list[tuple[Cell, ...]] = []  # rows of `mo_user_defined_function` of account sys
        self.role_privileges: list[tuple[Cell, ...]] = []  # and of `mo_role_privs`
        self._last_id = FIRST_ID

    def _store_late(self) -> None:
        late, self.late = self.late, None
        if late is not None and late.rows:
            late.store()

    @property
    def now(self) -> Timestamp:
        """The time of the newest event."""
        with self.lock:
            return self.clock.time(self.clock.last)

    def tables_at(
        self, at: Timestamp, *, account: str = SYS, kinds: Iterable[str] = (TABLE,)
    ) -> list[tuple[TableEntry, Definition]]:
        """The tables that existed at a time."""
        with self.lock:
            tick = self.clock.tick(at)
            found = [
                (entry, entry.definition_at(tick))
                for entry in self.tables
                if entry.kind in kinds and entry.database.account == account
            ]
            return [(entry, definition) for entry, definition in found if definition is not None]

    def table(self, database: str, table: str, *, account: str = SYS) -> TableEntry:
        """Raises StatementError 1146."""
        return self._entry(database, table, (TABLE,), account)

    def with_objects(self, database: str, table: str, *, account: str = SYS) -> TableEntry:
        """A table, or the hidden table of a partition by its own name. Raises StatementError 1146."""
        return self._entry(database, table, (TABLE, PARTITION), account)

    def _entry(self, database: str, table: str, kinds: tuple[str, ...], account: str) -> TableEntry:
        for entry in self.tables:
            names = (entry.definition.database, entry.definition.name)
            if (
                entry.dropped == ALIVE
                and entry.kind in kinds
                and names == (database, table)
                and entry.database.account == account
            ):
                return entry
        raise StatementError(1146, f"no such table {database}.{table}", "42S02")

    # ---- accounts, databases, publications

    def create_account(self, name: str) -> int:
        with self.lock:
            if name in self.accounts:
                raise internal(f"the tenant {name} exists")
            self.accounts[name] = max(self.accounts.values()) + 1
            return self.accounts[name]

    def create_database(self, name: str, *, account: str = SYS, kind: str = "") -> DatabaseEntry:
        """`kind` SUBSCRIPTION: the tables are those of another account's publication, and not in this one's catalog."""
        with self.lock:
            if account not in self.accounts:
                raise internal(f"there is no tenant {account}")
            if name in SYSTEM_DATABASES or any(entry.name == name for entry in self._databases(account)):
                raise StatementError(1007, f"database {name} already exists")
            entry = DatabaseEntry(self._new_id(), account, name, self.clock.next(), kind=kind)
            self.databases.append(entry)
            return entry

    def drop_database(self, name: str, *, account: str = SYS) -> None:
        """Raises 20101 while the database is published, 1049 if it does not exist."""
        with self.lock:
            database = self.database(name, account=account)
            if any(publisher == account and p.database == name for (publisher, _), p in self.publications.items()):
                raise internal(f"can not drop database '{name}' which is publishing")
            database.dropped = self.clock.next()
            for entry in self.tables:
                if entry.database is database and entry.dropped == ALIVE:
                    entry.dropped = database.dropped

    def database(self, name: str, *, account: str = SYS) -> DatabaseEntry:
        """Raises StatementError 1049."""
        found = next((entry for entry in self._databases(account) if entry.name == name), None)
        if found is None:
            raise StatementError(1049, f"Unknown database {name}", "42000")
        return found

    def create_publication(
        self,
        name: str,
        database: str,
        *,
        tables: Sequence[str] = (),
        accounts: Sequence[str] = ("all",),
        comment: str = "",
        account: str = SYS,
    ) -> None:
        """`database` may be `*`. Every account may publish to all accounts, as with the upstream's setting
        `pub-all-accounts`. Raises 1062, 20101."""
        with self.lock:
            if (account, name.lower()) in self.publications:
                raise StatementError(
                    1062,
                    f"Duplicate entry '({self.accounts[account]},{name})' for key '(account_id,pub_name)'",
                    "23000",
                )
            self._publish(ServedPublication(name.lower(), database, tuple(tables), tuple(accounts), comment), account)

    def alter_publication(
        self,
        name: str,
        *,
        database: str | None = None,
        tables: Sequence[str] | None = None,
        accounts: Sequence[str] | None = None,
        comment: str | None = None,
        account: str = SYS,
    ) -> None:
        """Change the given parts. Raises 20101."""
        with self.lock:
            old = self.publications.get((account, name.lower()))
            if old is None:
                raise internal(f"publication '{name}' does not exist")
            whole = () if database is not None else old.tables
            self._publish(
                ServedPublication(
                    old.name,
                    old.database if database is None else database,
                    whole if tables is None else tuple(tables),
                    old.accounts if accounts is None else tuple(accounts),
                    old.comment if comment is None else comment,
                ),
                account,
            )

    def _publish(self, publication: ServedPublication, account: str) -> None:
        database, tables = publication.database, publication.tables
        if database in SYSTEM_DATABASES:
            raise internal(f"Unknown database name '{database}', not support publishing system database")
        if database == "*" and tables:
            raise internal("account level publication (DATABASE *) cannot specify tables")
        if database != "*" and not any(entry.name == database for entry in self._databases(account)):
            raise internal(f"database '{database}' does not exist")
        missing = [table for table in tables if not self._exists(database, table, account)]
        if missing:
            raise internal(f"table '{missing[0]}' not exists")
        admitted = tuple(sorted(name.lower() for name in publication.accounts))
        if account in admitted:
            raise internal("can't publish to self")
        unknown = [name for name in admitted if name not in (*self.accounts, "all")]
        if unknown:
            raise internal(f"not existed account name '{unknown[0]}'")
        self.publications[account, publication.name] = replace(
            publication, tables=tuple(sorted(tables)), accounts=admitted
        )

    def drop_publication(self, name: str, *, account: str = SYS) -> None:
        with self.lock:
            if self.publications.pop((account, name.lower()), None) is None:
                raise internal(f"publication '{name}' does not exist")

    # ---- tables

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
        columns. For the rest see `emulator.engine.definitions.Definition`. Decimal columns that are `unchecked` store
        what their slots hold, as the server does with integers.

        Raises 1050 if the name exists, `BadDefinition` for an unknown type or column.
        """
        with self.lock:
            owner = self.database(database, account=account)
            if self._exists(database, table, account):
                raise StatementError(1050, f"table {table} already exists", "42S01")
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
            if self._exists(database, table, account):
                raise StatementError(1050, f"table {table} already exists", "42S01")
            if source.partitioning is not None:
                raise BadDefinition("a partitioned table cannot be copied here")
            made = tuple(replace(index, table=self._index_table(index.unique)) for index in source.indexes)
            columns = tuple(replace(column, seqnum=number) for number, column in enumerate(source.columns))
            new = replace(
                source, database=database, name=table, columns=columns, indexes=made, constraints=(), version=0
            )
            return self._new_table(owner, replace(new, create_sql=create_sql or create_table(new)), self.clock.next())

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
            if self._exists(database, name, account):
                raise StatementError(1050, f"table {name} already exists", "42S01")
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
            if self._exists(database, name, account):
                raise StatementError(1050, f"table {name} already exists", "42S01")
            types = {"min_value": "bigint", "max_value": "bigint", "start_value": "bigint", "increment_value": "bigint"}
            columns = {"last_seq_num": "bigint", **types, "cycle": "bool", "is_called": "bool"}
            definition = define(database, name, columns, create_sql=create_sql)
            entry = self._new_table(owner, definition, self.clock.next(), kind=SEQUENCE)
            entry.next_auto, entry.increment = start, increment
            row = (start, 1, 2**63 - 1, start, increment, False, False)
            rows = as_rows(definition, {column: [value] for column, value in zip(columns, row, strict=True)})
            entry.insert(entry.with_hidden_columns(rows), self.clock.next(), by_cn=False)
            return entry

    def move_sequence(self, entry: TableEntry, value: int, *, called: bool | None) -> bool:
        """Write its row: the value that NEXTVAL gave last, or, unless `called`, the one that it gives next. `called`
        None: as it was. Returns it."""
        with self.lock:
            row = entry.stored.visible(self.clock.last)
            columns = entry.definition.user_columns
            values = entry.stored.values(row, columns).to_pylist()[0]
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

    def find(self, database: str, name: str, *, account: str = SYS) -> TableEntry | None:
        """A table, view or sequence; None if there is none."""
        for entry in self.tables:
            definition = entry.definition
            if (
                entry.dropped == ALIVE
                and entry.kind != INDEX
                and (definition.name, definition.database) == (name, database)
                and entry.database.account == account
            ):
                return entry
        return None

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
            if self._exists(database, name, account):
                raise StatementError(1050, f"table {name} already exists", "42S01")
            entry = self.table(database, table, account=account)
            entry.part_suffix = name
            self._redefine(entry, lambda old: replace(old, name=name))

    def rename_column(self, database: str, table: str, column: str, name: str, *, account: str = SYS) -> None:
        """In place, in keys and indexes too. A column of a cluster key cannot be renamed."""
        with self.lock:
            entry = self.table(database, table, account=account)
            old = entry.definition
            old.column(column)
            if column in old.cluster_by:
                raise BadDefinition(f"column {column} belongs to the cluster key")
            if any(known.name.lower() == name.lower() != column.lower() for known in old.columns):
                raise StatementError(1060, f"Duplicate column name '{name}'", "42S21")
            self._redefine(entry, lambda old: renamed_column(old, column, name))

    def comment_table(self, database: str, table: str, comment: str, *, account: str = SYS) -> None:
        with self.lock:
            self._redefine(self.table(database, table, account=account), lambda old: replace(old, comment=comment))

    def add_column(
        self,
        database: str,
        table: str,
        column: str,
        type_text: str,
        *,
        in_place: bool = False,
        place: int | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
        fill: Fill | None = None,
        account: str = SYS,
    ) -> TableEntry:
        """The table is copied to a new id, as MatrixOne's SQL does it; with `in_place` it keeps its id, and the column
        has a new seqnum. Old rows get what `fill` makes of them, or are null in it. `place` is its number among the
        user columns; None = last.
        """
        with self.lock:
            entry = self.table(database, table, account=account)
            old = entry.definition
            if any(known.name == column for known in old.columns):
                raise StatementError(1060, f"Duplicate column name '{column}'", "42S21")
            made, printed = make_column(column, type_text, entry.next_seqnum)
            if not made.nullable and fill is None and len(entry.stored.visible(self.clock.last)):
                raise BadDefinition(f"column {column}: NOT NULL needs a default")
            user = list(old.user_columns)
            user.insert(len(user) if place is None else place, made)
            hidden = tuple(known for known in old.columns if known.hidden)
            new = replace(
                old,
                columns=(*user, *hidden),
                type_texts={**old.type_texts, column: printed},
                attributes={**old.attributes, column: attributes},
            )
            return self._altered(entry, new, in_place=in_place, fills={} if fill is None else {column: fill})

    def drop_column(
        self, database: str, table: str, column: str, *, in_place: bool = False, account: str = SYS
    ) -> TableEntry:
        """See `add_column`. Indexes of the column alone go with it; columns of keys cannot be dropped here."""
        with self.lock:
            entry = self.table(database, table, account=account)
            old = entry.definition
            self._refuse_key_column(old, column)
            columns = tuple(known for known in old.columns if known.name != column)
            if not any(not known.hidden for known in columns):
                raise StatementError(1090, "You can't delete all columns with ALTER TABLE", "42000")
            texts = {name: text for name, text in old.type_texts.items() if name != column}
            indexes = tuple(
                replace(index, columns=kept)
                for index in old.indexes
                if (kept := tuple(name for name in index.columns if name != column))
            )
            new = replace(old, columns=columns, type_texts=texts, indexes=indexes)
            return self._altered(entry, new, in_place=in_place)

    def modify_column(
        self,
        database: str,
        table: str,
        column: str,
        type_text: str,
        *,
        name: str | None = None,
        place: int | None = None,
        attributes: Attributes | None = None,
        account: str = SYS,
    ) -> TableEntry:
        """A CHAR or VARCHAR that only becomes wider is changed in place; otherwise the table is copied to a new id and
        its values are cast.

        Columns of cluster keys cannot be modified here. Also raises BadDefinition for values that the new type cannot
        hold.
        """
        with self.lock:
            entry = self.table(database, table, account=account)
            old = entry.definition
            before = old.column(column)
            if column in old.cluster_by:
                raise BadDefinition(f"column {column} belongs to a key or an index")
            made, printed = make_column(column, type_text, before.seqnum, not_null=column in old.primary_key)
            user = [made if known.name == column else known for known in old.user_columns]
            if place is not None:
                user.insert(place, user.pop(user.index(made)))
            new = replace(
                old,
                columns=(*user, *(known for known in old.columns if known.hidden)),
                type_texts={**old.type_texts, column: printed},
                attributes=old.attributes if attributes is None else {**old.attributes, column: attributes},
            )
            new = new if name is None or name == column else renamed_column(new, column, name)
            widened = (
                before.type.oid == made.type.oid
                and before.type.oid in WIDENED_IN_PLACE
                and made.type.width >= before.type.width
            )
            indexed = any(column in index.columns for index in old.indexes) or column in old.primary_key
            same = widened and made.nullable == before.nullable and place is None and not indexed
            return self._altered(entry, new, in_place=same)

    def alter_keys(self, database: str, table: str, primary_key: Sequence[str], *, account: str = SYS) -> TableEntry:
        """Another primary key, or none: the table is copied to a new id. Raises 1062 for values that repeat, 1068 if
        there is one already."""
        with self.lock:
            entry = self.table(database, table, account=account)
            old = entry.definition
            if primary_key and old.primary_key:
                raise StatementError(1068, "Multiple primary key defined", "42000")
            texts = {
                column.name: old.type_texts[column.name] + ("" if column.nullable else " not null")
                for column in old.user_columns
            }
            again = define(old.database, old.name, texts, primary_key=[old.column(name).name for name in primary_key])
            visible = entry.stored.visible(self.clock.last)
            names = {column.name: column.seqnum for column in old.columns}
            columns = tuple(replace(known, seqnum=names.get(known.name, 10**6)) for known in again.columns)
            columns = tuple(
                replace(known, labels=old.column(known.name).labels) if known.name in names else known
                for known in columns
            )
            keys = keys_in(entry.stored.values(visible, [old.column(n) for n in again.primary_key]), again.primary_key)
            if primary_key and None in keys:
                raise StatementError(1048, f"Column '{primary_key[0]}' cannot be null", "23000")
            if primary_key and len(set(keys)) < len(keys):
                raise DuplicateEntry(table, "PRIMARY")
            return self._altered(entry, replace(old, columns=columns, primary_key=again.primary_key), in_place=False)

    def redefine(
        self, database: str, table: str, change: Callable[[Definition], Definition], *, account: str = SYS
    ) -> None:
        """Change attributes or constraints in place: nothing that concerns rows."""
        with self.lock:
            self._redefine(self.table(database, table, account=account), change)

    def create_index(
        self, database: str, table: str, name: str, columns: Sequence[str], *, unique: bool = False, account: str = SYS
    ) -> None:
        """In place: a new index table, filled from the table's rows. Raises 1061, and 1062 if values of a unique index
        repeat."""
        with self.lock:
            entry = self.table(database, table, account=account)
            old = entry.definition
            if old.partitioning is not None:
                raise BadDefinition("a partitioned table has no indexes here")
            if any(known.name == name for known in old.indexes):
                raise StatementError(1061, f"Duplicate key name '{name}'", "42000")
            index = Index(name, tuple(old.column(column).name for column in columns), unique, self._index_table(unique))
            visible = entry.stored.visible(self.clock.last)
            rows = entry.stored.values(visible, old.columns)
            hidden = index_definition(old, index)
            keys = index_values(old, index, hidden, rows).column(0).drop_null()
            if unique and len(keys.unique()) < len(keys):
                raise DuplicateEntry(table, name)
            self._redefine(entry, lambda old: replace(old, indexes=(*old.indexes, index)))
            tick, id_ = self.clock.last, self._new_id()
            entry.indexes[name] = TableEntry(
                id_, id_, entry.database, INDEX, tick, [(tick, hidden)], StoredTable(self.files)
            )
            entry.indexes[name].parent = entry
            self.tables.append(entry.indexes[name])
            entry.fill_index(index, visible, rows, tick, by_cn=len(visible) >= self.cn_rows)

    def drop_index(self, database: str, table: str, name: str, *, account: str = SYS) -> None:
        """In place. Raises 1091."""
        with self.lock:
            entry = self.table(database, table, account=account)
            if name not in entry.indexes:
                raise StatementError(1091, f"Can't DROP '{name}'; check that column/key exists", "42000")
            self._redefine(
                entry, lambda old: replace(old, indexes=tuple(index for index in old.indexes if index.name != name))
            )
            entry.indexes.pop(name).dropped = self.clock.last
            entry.index_rows.pop(name, None)

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
            if self._exists(owner.name, name, account):
                raise StatementError(1050, f"table {name} already exists", "42S01")
            source.stored.flush(source.definition, self.clock.next())
            tick = self.clock.next()
            entry = self._new_table(owner, replace(source.definition, name=name, database=owner.name), tick)
            entry.stored = source.stored.clone(tick)
            entry.next_seqnum, entry.next_fake_key = source.next_seqnum, source.next_fake_key
            entry.next_auto = source.next_auto
            return entry

    # ---- entries

    def _databases(self, account: str) -> list[DatabaseEntry]:
        return [entry for entry in self.databases if entry.account == account and entry.dropped == ALIVE]

    def _exists(self, database: str, table: str, account: str) -> bool:
        return any(
            entry.dropped == ALIVE
            and (entry.definition.database, entry.definition.name) == (database, table)
            and entry.database.account == account
            for entry in self.tables
        )

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

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

    def _refuse_key_column(self, definition: Definition, column: str) -> None:
        definition.column(column)
        by = () if definition.partitioning is None else (definition.partitioning.column,)
        if column in (*definition.primary_key, *definition.cluster_by, *by):
            raise BadDefinition(f"column {column} belongs to a key or an index")

    def _redefine(self, entry: TableEntry, change: Callable[[Definition], Definition]) -> None:
        """A new definition under the same id."""
        new = change(entry.definition)
        tick = self.clock.next()
        entry.definitions.append((tick, replace(new, version=new.version + 1)))
        for name, part in entry.partitions.items():
            part.definitions.append((tick, partition_definition(entry, name)))

    def _altered(
        self, entry: TableEntry, new: Definition, *, in_place: bool, fills: Mapping[str, Fill] | None = None
    ) -> TableEntry:
        if in_place:
            entry.next_seqnum = max(entry.next_seqnum, max(column.seqnum for column in new.columns) + 1)
            self._redefine(entry, lambda _: new)
            return entry
        visible = entry.stored.visible(self.clock.last)
        rows = _cast(entry, visible, new, fills or {})
        copied = replace(
            new, columns=tuple(replace(column, seqnum=number) for number, column in enumerate(new.columns)), version=0
        )
        copied = replace(copied, create_sql=create_table(copied))
        tick = self.clock.next()
        self._drop(entry, tick)
        suffix = f"{copied.name}_copy_{uuid.UUID(bytes=self.files.new_uuid())}" if entry.partitions else ""
        made = self._new_table(entry.database, copied, tick, predecessor=entry, part_suffix=suffix)
        made.next_fake_key, made.next_auto = entry.next_fake_key, entry.next_auto
        if len(visible):
            both_fake = not copied.primary_key and not entry.definition.primary_key
            fake = whole(entry.stored.values(visible, [entry.definition.key]).column(0)) if both_fake else None
            made.insert(made.with_hidden_columns(rows, fake), tick, by_cn=len(visible) >= self.cn_rows)
        return made


def partition_definition(entry: TableEntry, name: str) -> Definition:
    """Of the hidden table of a partition."""
    own = table_of(name, entry.part_suffix)
    hidden = replace(entry.definition, name=own, indexes=(), fulltext=(), constraints=(), partitioning=None)
    return replace(hidden, create_sql=create_table(hidden))


def renamed_column(definition: Definition, column: str, name: str) -> Definition:
    """The definition with another name for a user column, wherever it is named."""
    partitioning = definition.partitioning
    if partitioning is not None and partitioning.column == column:
        partitioning = replace(partitioning, column=name)

    def changed(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name if known == column else known for known in names)

    return replace(
        definition,
        columns=tuple(replace(known, name=name) if known.name == column else known for known in definition.columns),
        type_texts={name if known == column else known: text for known, text in definition.type_texts.items()},
        primary_key=changed(definition.primary_key),
        indexes=tuple(replace(index, columns=changed(index.columns)) for index in definition.indexes),
        attributes={name if known == column else known: found for known, found in definition.attributes.items()},
        fulltext=tuple((index, changed(columns)) for index, columns in definition.fulltext),
        partitioning=partitioning,
    )


def _cast(entry: TableEntry, rows: np.ndarray, new: Definition, fills: Mapping[str, Fill]) -> pa.Table:
    """The user columns of some rows in the types of a new definition. Raises BadDefinition for values that do not
    fit."""
    known = {column.seqnum: column for column in entry.definition.user_columns}
    before = entry.stored.values(rows, entry.definition.user_columns) if fills else pa.table({})
    arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
    for column in new.user_columns:
        old = known.get(column.seqnum)
        if column.name in fills:
            arrays[column.name] = fills[column.name](before)
        elif old is None:
            arrays[column.name] = pa.nulls(len(rows), arrow_type(column))
        else:
            arrays[column.name] = entry.stored.values(rows, [old]).column(0)
    try:
        return as_rows(new, pa.table(arrays))
    except pa.ArrowException as error:
        raise BadDefinition(f"table {new.name}: {error}") from error


def _wide(column: Column, unchecked: Collection[str]) -> Column:
    return replace(column, digits=MAX_PRECISION[column.type.oid]) if column.name in unchecked else column
