"""An upstream's state, from which its statements are answered; a recording or a storage engine implements it. And who
may ask (docs/upstream.md 1, 2 and 4.2).

`ccpr.matrixone.server.server_session`, `internal` and `mo_catalog` answer every statement of it and know nothing else
of the upstream. `ccpr_emulator.replay.state` implements it with a recording,
`ccpr_emulator.simulated_upstream` with an engine.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from ccpr.matrixone.schema import SYSTEM_DATABASES as SYSTEM_DATABASES
from ccpr.matrixone.server.answers import Bytes, Cell, ResultColumn, ResultSet, StatementError

INDEX_COLUMNS: Final = (
    ResultColumn("table_id", 8),
    ResultColumn("name", 15),
    ResultColumn("algo_table_type", 15),
    ResultColumn("index_table_name", 15),
)


def internal(text: str) -> StatementError:
    return StatementError(20101, f"internal error: {text}")


def snapshot_not_found(name: str) -> StatementError:
    """The error by which a client finds out that a snapshot is gone (docs/upstream.md 5.2)."""
    return internal(f"failed to query snapshot: internal error: find 0 snapshot records by name({name}), expect only 1")


@dataclass(frozen=True, slots=True)
class ServedPublication:
    """What an account publishes. `tables` is empty for a whole database; `database` is `*` for a whole account;
    `accounts` may be `all`."""

    name: str
    database: str
    tables: tuple[str, ...]
    accounts: tuple[str, ...]
    comment: str = ""

    def admits(self, account: str) -> bool:
        return account in self.accounts or any(name.lower() == "all" for name in self.accounts)


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """One result set; cells are bytes, int or None."""

    columns: tuple[str, ...]
    types: tuple[int, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, columns: Mapping[str, int], rows: Iterable[Sequence[Cell]]) -> "CatalogAnswer":
        """From a type for each column name, and rows whose texts may be `str`."""
        cells = tuple(tuple(cell.encode() if isinstance(cell, str) else cell for cell in row) for row in rows)
        return cls(tuple(columns), tuple(columns.values()), cells)

    def result(self, charset: int = 0) -> ResultSet:
        return ResultSet(
            tuple(ResultColumn(name, kind, charset) for name, kind in zip(self.columns, self.types, strict=True)),
            self.rows,
        )

    def position(self, column: str) -> int:
        return self.columns.index(column)


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The cells of a row of `mo_tables` that the answers depend on."""

    id: int
    logical_id: int
    database: bytes
    name: bytes
    kind: bytes


@dataclass(frozen=True, kw_only=True)
class ServedCatalog:
    """An account's catalog at a time, as the answers to the statements that read it.

    `missing` has databases whose tables cannot be told now, by name, and why: they are listed without tables, and a
    statement that is about one of them is answered with that.
    """

    databases: CatalogAnswer
    ddl: CatalogAnswer
    indexes: Mapping[int, CatalogAnswer]
    mo_database: CatalogAnswer
    mo_tables: CatalogAnswer
    mo_columns: CatalogAnswer
    tables: tuple[CatalogTable, ...] = field(default=())
    own: Mapping[str, CatalogAnswer] = field(default_factory=dict)  # tables that each account has for itself, by name
    missing: Mapping[str, str] = field(default_factory=dict)

    def index_table_names(self, table_id: int) -> set[bytes]:
        answer = self.indexes.get(table_id)
        if answer is None:
            return set()
        names = (row[answer.position("index_table_name")] for row in answer.rows)
        return {name for name in names if isinstance(name, bytes) and name}

    def table(self, database: str, name: str) -> CatalogTable | None:
        key = (database.encode(), name.encode())
        return next((table for table in self.tables if (table.database, table.name) == key), None)

    def has_database(self, database: str) -> bool:
        name = database.encode()
        return any(row[self.mo_database.position("datname")] == name for row in self.mo_database.rows)

    def database_id(self, database: str) -> Cell:
        name, id_ = self.mo_database.position("datname"), self.mo_database.position("dat_id")
        return next((row[id_] for row in self.mo_database.rows if row[name] == database.encode()), 0)

    def indexes_of(self, table_id: int) -> ResultSet:
        answer = self.indexes.get(table_id)
        return ResultSet(INDEX_COLUMNS, ()) if answer is None else answer.result()

    def scope(self, level: str, database: str, table: str) -> set[tuple[bytes, bytes]] | None:
        """(database, table) names that a snapshot of this level covers; None for all."""
        if level in ("account", "cluster"):
            return None
        if level == "database":
            return {(entry.database, entry.name) for entry in self.tables if entry.database == database.encode()}
        found = self.table(database, table)
        indexes = self.index_table_names(found.id) if found is not None else set()
        return {(database.encode(), table.encode())} | {(database.encode(), name) for name in indexes}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that a client took.

    Attributes
    ----------
    name : in lower case.
    ts : nanoseconds since 1970.
    index : the state that it shows: a recorded snapshot's number, or a tick of a simulated upstream.
    level : cluster, account, database or table; `database` and `table` are empty if the level has none.
    object_id : `obj_id` of `mo_snapshots`; None if it follows from the catalog.
    """

    name: str
    ts: int
    index: int
    level: str
    database: str = ""
    table: str = ""
    object_id: int | None = None


@runtime_checkable
class Aged(Protocol):
    """What is served is a copy, which may be older than it is asked for: of a relay only."""

    def snapshot_age(self, snapshot: Snapshot) -> int:
        """How old the snapshot's data is, in nanoseconds: since it was last known to be the source's."""
        ...


class Backing(Protocol):
    """The state of an upstream. Thread-safe. Accounts are given by name; names of snapshots, publications and accounts
    are in lower case."""

    @property
    def name(self) -> str:
        """The name of the recording or the engine, for SHOW EMULATOR STATUS."""
        ...

    def accounts(self) -> Mapping[str, int]: ...

    def owns_data(self, account: str) -> bool:
        """Whether the account's own databases are known here."""
        ...

    def publications(self, asked: Sequence[str] = ()) -> Sequence[tuple[str, ServedPublication]]:
        """(publisher, publication) of all accounts; `asked` are the names in the statement's conditions."""
        ...

    def publication(self, publisher: str, name: str) -> ServedPublication | None: ...

    def published(self, publisher: str, name: str) -> "Backing":
        """What the statements that name this publication, which exists, are answered from. MatrixOne answers them from
        all that the publisher has (docs/upstream.md 1)."""
        ...

    def catalog(self, account: str, snapshot: Snapshot | None = None) -> ServedCatalog:
        """An account's catalog at a snapshot, or now."""
        ...

    def catalog_at(self, account: str | None, ts: int | None) -> ServedCatalog | None:
        """The catalog of an account (None: of all accounts) at a time, or now. None for a time before the first."""
        ...

    def snapshots(self, account: str) -> Sequence[Snapshot]: ...

    def find_snapshot(self, account: str, name: str) -> Snapshot:
        """Raises `snapshot_not_found`."""
        ...

    def create_snapshot(
        self, account: str, name: str, level: str, database: str, table: str, *, caller: str, if_not_exists: bool
    ) -> None:
        """Raises 20101 if the name exists (with `if_not_exists` the old snapshot stays), or if the database or table
        does not exist."""
        ...

    def drop_snapshot(self, account: str, name: str, *, if_exists: bool) -> None: ...

    def flush(self, table_ids: set[int]) -> None: ...

    def flushable(self) -> Set[int]:
        """Ids of the tables that can be flushed by id."""
        ...

    def checkpoint(self) -> None:
        """Flush all tables."""
        ...

    def collect(self) -> int:
        """Collect garbage now; returns the number of removed objects. Raises StatementError if nothing can be
        collected."""
        ...

    def is_flushed(self, account: str, snapshot: Snapshot) -> bool: ...
    def object_list(self, account: str, target: Snapshot, base: Snapshot | None) -> Sequence[Sequence[Cell]]:
        """Rows of the object list in the target's scope. Raises the upstream's error if it cannot list the objects."""
        ...

    def object_size(self, name: str) -> int | None:
        """The size of an object's file in bytes; None if the file does not exist."""
        ...

    def read_object(self, name: str, offset: int, size: int) -> Bytes: ...


@dataclass(frozen=True, slots=True)
class Login:
    """An account, a user of it, and the current role."""

    account: str
    user: str
    role: str

    @property
    def is_sys(self) -> bool:
        return self.account == "sys"

    @property
    def is_admin(self) -> bool:
        return self.role == ("moadmin" if self.is_sys else "accountadmin")


def parse_login(text: str) -> Login:
    """Parse `user`, `account:user[:role]` or `account#user[#role]`. `%3A` is a colon; the text after a `?` is a label
    for the proxy. If there is a colon, it separates the parts and not `#`.

    Raises 1045 for an empty user or account and for too many parts. A login without a role has its account's admin
    role.
    """
    plain = text.partition("?")[0].replace("%3A", ":").replace("%3a", ":")
    parts = plain.split(":" if ":" in plain else "#")
    if len(parts) > 3 or not all(parts):
        raise StatementError(
            1045, f"Access denied for user '{text}': it should read user, account:user or account:user:role", "28000"
        )
    account = parts[0].lower() if len(parts) > 1 else "sys"
    role = parts[2].lower() if len(parts) == 3 else ("moadmin" if account == "sys" else "accountadmin")
    return Login(account, parts[min(1, len(parts) - 1)], role)


def require_sys(login: Login, command: str) -> None:
    if not login.is_sys:
        raise internal(
            f"tenant {login.account} user {login.user} is not allowed to execute publication internal command {command}"
        )


def require_admin(login: Login) -> None:
    if not login.is_admin:
        raise internal("do not have privilege to execute the statement")


def can_be_publication(name: str) -> bool:
    """Whether a publication can have this name: stored names are in lower case, without blanks and quotes
    (docs/upstream.md 3.2)."""
    return bool(name) and name == name.lower() and re.search(r"[\s'\"`;]", name) is None


def require_publication(backing: Backing, login: Login, publisher: str, publication: str) -> None:
    """Raises 20101 unless the publication exists and admits the login. Names are compared as they are: the caller
    converts them to lower case where the upstream does."""
    known = backing.publication(publisher, publication)
    if known is None:
        raise internal(f"publication {publisher}.{publication} does not exist")
    if not known.admits(login.account):
        message = f"account {login.account} does not have permission to access publication {publisher}.{publication}"
        raise internal(message)
