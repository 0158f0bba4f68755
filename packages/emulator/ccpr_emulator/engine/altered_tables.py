"""ALTER TABLE on a simulated upstream: columns, keys and indexes. What MatrixOne does in place keeps the table's id;
else the table is copied to a new one (decision identity-by-id)."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.types import CHAR, VARCHAR, arrow_type
from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.databases import SYS
from ccpr_emulator.engine.definitions import (
    NO_ATTRIBUTES,
    Attributes,
    BadDefinition,
    Definition,
    Index,
    create_table,
    define,
    make_column,
    renamed_column,
)
from ccpr_emulator.engine.entries import INDEX, TableEntry, index_definition, index_values
from ccpr_emulator.engine.live_keys import keys_in
from ccpr_emulator.engine.stored_table import StoredTable, whole
from ccpr_emulator.engine.tables import Tables
from ccpr_emulator.engine.transaction import DuplicateEntry, as_rows

WIDENED_IN_PLACE = (CHAR, VARCHAR)
Fill: TypeAlias = Callable[[pa.Table], pa.Array]  # the values of a new column for the rows that are there


class AlteredTables(Tables):
    """Tables whose definitions change."""

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

    def _refuse_key_column(self, definition: Definition, column: str) -> None:
        definition.column(column)
        by = () if definition.partitioning is None else (definition.partitioning.column,)
        if column in (*definition.primary_key, *definition.cluster_by, *by):
            raise BadDefinition(f"column {column} belongs to a key or an index")

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
