"""The logins of the relay and of the port for MySQL clients: a name, what the protocol compares a password with, sealed
by the key file, what the login is for and what it may use.

What is sealed is the `password_digest` of `ccpr.matrixone.server.wrong_passwords`, so the password itself is nowhere.
Source: decision logins-see-their-own.
"""

import json
import logging
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase

import sqlalchemy as sa

from ccpr.mirror.errors import BadOption
from ccpr.state.credentials import Vault
from ccpr.state.database import fetch, reading, repeatable, transaction, unless_taken
from ccpr.state.errors import RelayUserExists, RelayUserMissing, StateUnreadable
from ccpr.state.subscription import check_subscription_name
from ccpr.state.tables import relay_users

_log = logging.getLogger(__name__)


class LoginRole(StrEnum):
    """`relay`: another cluster, at the relay. `reader`: a MySQL client. `operator`: one that may change subscriptions,
    and reads all of them."""

    RELAY = "relay"
    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What a reader sees of the tables: by patterns as in a shell, in which letter case does not count, of a table as
    `table` or `database.table`, of a column as `column`, `table.column` or `database.table.column`. `tables`: the
    tables that there are; none means all. `hidden`: columns that are not there. `rows`: patterns of tables, and the
    condition that their rows have to satisfy."""

    tables: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tables or self.hidden or self.rows)

    def shows(self, database: str, table: str) -> bool:
        return not self.tables or any(_is_of(pattern, database, table) for pattern in self.tables)

    def hides(self, database: str, table: str, column: str) -> bool:
        parts = (pattern.rpartition(".") for pattern in self.hidden)
        return any(_matches(column, name) and _is_of(of or "*", database, table) for of, _, name in parts)

    def conditions(self, database: str, table: str) -> tuple[str, ...]:
        """All of them count."""
        return tuple(condition for pattern, condition in self.rows if _is_of(pattern, database, table))


UNLIMITED = ReadLimits()


@dataclass(frozen=True, slots=True)
class PortLogin:
    """A login; its name in lower case, the time of its creation in UTC. `publications`: the names, in lower case, of
    the subscriptions that it may use; None = all."""

    name: str
    created_at: datetime
    role: LoginRole = LoginRole.RELAY
    publications: frozenset[str] | None = None
    limits: ReadLimits = UNLIMITED

    def check(self) -> None:
        """Raises BadOption for what its role cannot have."""
        subject = f"login {self.name} with the role {self.role}"
        if self.role is LoginRole.OPERATOR and self.publications is not None:
            raise BadOption(
                "an operator may use all subscriptions", subject=subject, remedy="Leave --subscription out."
            )
        if self.role is not LoginRole.READER and self.limits:
            text = "tables, columns and rows can be limited for a reader only"
            raise BadOption(text, subject=subject, remedy="Give it --role reader, or take its limits back.")


class PortLogins:
    """Those of one catalog database. Thread-safe."""

    def __init__(self, engine: sa.Engine, vault: Vault) -> None:
        self.engine, self.vault = engine, vault

    @repeatable
    def all(self) -> list[PortLogin]:
        """By name. One whose row cannot be read may use nothing."""
        columns = [column for column in relay_users.c if column is not relay_users.c.sealed_digest]
        with reading(self.engine) as connection:
            found = fetch(connection, sa.select(*columns).order_by(relay_users.c.user_name))
        return [_login(row) for row in found]

    def get(self, name: str) -> PortLogin:
        """Raises RelayUserMissing."""
        for login in self.all():
            if login.name == name.lower():
                return login
        raise _missing(name)

    def add(self, login: PortLogin, digest: bytes) -> None:
        """Raises BadName, BadOption, RelayUserExists."""
        check_subscription_name(login.name)
        values = {"user_name": login.name.lower(), "created_at": login.created_at, **self._values(login, digest)}
        taken = RelayUserExists("there is a login of that name", subject=f"login {login.name}")
        with unless_taken(taken), transaction(self.engine) as connection:
            connection.execute(relay_users.insert().values(values))

    def change(self, login: PortLogin, digest: bytes | None = None) -> None:
        """Make it what is given; None: its password stays. Raises BadOption, RelayUserMissing."""
        with transaction(self.engine) as connection:
            one = relay_users.c.user_name == login.name.lower()
            if not connection.scalar(sa.select(sa.func.count()).select_from(relay_users).where(one)):
                raise _missing(login.name)  # an UPDATE counts changed rows only, in MySQL
            connection.execute(relay_users.update().where(one).values(self._values(login, digest)))

    def drop(self, name: str) -> None:
        """Raises RelayUserMissing."""
        with transaction(self.engine) as connection:
            done = connection.execute(relay_users.delete().where(relay_users.c.user_name == name.lower()))
        if not done.rowcount:
            raise _missing(name)

    @repeatable
    def digest(self, name: str, roles: Collection[LoginRole] = tuple(LoginRole)) -> bytes | None:
        """None for a login that does not exist, or has another role; it takes as long, since then another one's is
        opened. Raises StateUnreadable."""
        columns = relay_users.c.user_name, relay_users.c.sealed_digest, relay_users.c.role
        query = sa.select(*columns).order_by(relay_users.c.user_name != name.lower()).limit(1)
        with reading(self.engine) as connection:
            found = fetch(connection, query)
        if not found:
            return None
        is_right = found[0].user_name == name.lower() and (found[0].role or LoginRole.RELAY) in roles
        try:
            owner, _, digest = self.vault.open(found[0].sealed_digest, None).partition(" ")
        except StateUnreadable:
            if is_right:
                raise
            return None
        return bytes.fromhex(digest) if is_right and owner == name.lower() else None

    def _values(self, login: PortLogin, digest: bytes | None) -> dict[str, str | None]:
        login.check()
        names = None if login.publications is None else json.dumps(sorted(name.lower() for name in login.publications))
        values = {
            "publications": names,
            "role": login.role.value,
            "limits": json.dumps(asdict(login.limits)) if login.limits else None,
        }
        if digest is not None:
            values["sealed_digest"] = self.vault.seal(f"{login.name.lower()} {digest.hex()}", None)
        return values


def _is_of(pattern: str, database: str, table: str) -> bool:
    of, dot, name = pattern.partition(".")
    return _matches(table, name) and _matches(database, of) if dot else _matches(table, pattern)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name.lower(), pattern.lower())


def _missing(name: str) -> RelayUserMissing:
    return RelayUserMissing("there is no login of that name", subject=f"login {name}")


def _login(row: sa.Row) -> PortLogin:
    try:
        limits = json.loads(row.limits or "{}")
        names = None if row.publications is None else json.loads(row.publications)
        tables, hidden = (tuple(_texts(limits.get(key, []))) for key in ("tables", "hidden"))
        pairs = [_texts(pair) for pair in limits.get("rows", [])]
        rows = tuple((pattern, condition) for pattern, condition in pairs)
        permitted = None if names is None else frozenset(_texts(names))
        role = LoginRole(row.role or LoginRole.RELAY)
        return PortLogin(row.user_name, row.created_at, role, permitted, ReadLimits(tables, hidden, rows))
    except (ValueError, TypeError, AttributeError, RecursionError):
        _log.warning("what login %s may use cannot be read: it may use nothing", row.user_name)
        return PortLogin(row.user_name, row.created_at, publications=frozenset())


def _texts(found: object) -> list[str]:
    """Raises ValueError."""
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("no list of texts")
    return found
