"""The views and sequences of a simulated upstream."""

from collections.abc import Mapping
from dataclasses import replace

from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.databases import SYS
from ccpr_emulator.engine.definitions import define
from ccpr_emulator.engine.entries import SEQUENCE, VIEW, TableEntry
from ccpr_emulator.engine.tables import Tables
from ccpr_emulator.engine.transaction import as_rows


class Relations(Tables):
    """Views are in the catalog and have no rows; a sequence has one row."""

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
