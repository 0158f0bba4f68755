"""The accounts, databases and publications of a simulated upstream, and its tables by their names.

The DDL of tables is in `ccpr_emulator.engine.tables`, their rows are in `ccpr_emulator.engine.storage`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.server.answers import Cell, StatementError
from ccpr.matrixone.server.backing import SYSTEM_DATABASES, ServedPublication, internal
from ccpr_emulator.engine.clock import Clock
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import INDEX, PARTITION, TABLE, DatabaseEntry, TableEntry
from ccpr_emulator.engine.object_files import ObjectFiles
from ccpr_emulator.engine.row_locks import RowLocks
from ccpr_emulator.engine.single_rows import LateRows, StorageLock
from ccpr_emulator.engine.stored_table import ALIVE

SYS = "sys"
FIRST_ID = 300_000


class Databases:
    """Accounts, databases and publications, and the entries of tables. Thread-safe; a table is named by `database`,
    `table` and an account. For the parameters see `ccpr_emulator.engine.storage.Storage`."""

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
        self.roles: list[tuple[Cell, ...]] = []  # of `mo_role`
        self.row_rules: list[tuple[Cell, ...]] = []  # of `mo_role_rule`
        self.row_locks = RowLocks()
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

    # ---- tables by name

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

    def find(self, database: str, name: str, *, account: str = SYS) -> TableEntry | None:
        """A table, view or sequence; None if there is none."""
        return next((entry for entry in self._named(database, name, account) if entry.kind != INDEX), None)

    def _entry(self, database: str, table: str, kinds: tuple[str, ...], account: str) -> TableEntry:
        found = next((entry for entry in self._named(database, table, account) if entry.kind in kinds), None)
        if found is None:
            raise StatementError(1146, f"no such table {database}.{table}", "42S02")
        return found

    def _exists(self, database: str, name: str, account: str) -> bool:
        return any(True for _ in self._named(database, name, account))

    def _check_free(self, database: str, name: str, account: str) -> None:
        """Raises 1050 if something is called so."""
        if self._exists(database, name, account):
            raise StatementError(1050, f"table {name} already exists", "42S01")

    def _named(self, database: str, name: str, account: str) -> Iterator[TableEntry]:
        """What is called so now, of any kind."""
        for entry in self.tables:
            if (
                entry.dropped == ALIVE
                and (entry.definition.name, entry.definition.database) == (name, database)
                and entry.database.account == account
            ):
                yield entry

    # ---- accounts and databases

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

    def _databases(self, account: str) -> list[DatabaseEntry]:
        return [entry for entry in self.databases if entry.account == account and entry.dropped == ALIVE]

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # ---- publications

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
