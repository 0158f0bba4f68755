"""The logins of the relay: a name, what the protocol compares a password with, sealed by the key file, and which
publications the login may use.

What is sealed is the `password_digest` of `ccpr.matrixone.server.server`, so the password itself is nowhere. Source:
decision logins-see-their-own.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from ccpr.state.credentials import Vault
from ccpr.state.database import fetch, reading, repeatable, transaction
from ccpr.state.errors import RelayUserExists, RelayUserMissing
from ccpr.state.subscription import check_subscription_name
from ccpr.state.tables import relay_users

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RelayUser:
    """A login; its name in lower case, the time of its creation in UTC. `publications`: the names, in lower case, of
    those that it may use; None = all."""

    name: str
    created_at: datetime
    publications: frozenset[str] | None = None


class RelayUsers:
    """The logins of one catalog database. Thread-safe."""

    def __init__(self, engine: sa.Engine, vault: Vault) -> None:
        self.engine, self.vault = engine, vault

    @repeatable
    def all(self) -> list[RelayUser]:
        """By name. One whose publications cannot be read may use none."""
        columns = (relay_users.c.user_name, relay_users.c.created_at, relay_users.c.publications)
        with reading(self.engine) as connection:
            found = fetch(connection, sa.select(*columns).order_by(relay_users.c.user_name))
        return [RelayUser(row.user_name, row.created_at, _publications(row)) for row in found]

    def add(self, name: str, digest: bytes, now: datetime, publications: Iterable[str] | None = None) -> None:
        """Raises BadName, RelayUserExists."""
        check_subscription_name(name)
        sealed = self.vault.seal(f"{name.lower()} {digest.hex()}", None)
        try:
            with transaction(self.engine) as connection:
                values = {
                    "user_name": name.lower(),
                    "sealed_digest": sealed,
                    "created_at": now,
                    "publications": _stored(publications),
                }
                connection.execute(relay_users.insert().values(values))
        except IntegrityError as error:
            raise RelayUserExists("the relay has a user of that name", subject=f"user {name}") from error

    def limit(self, name: str, publications: Iterable[str] | None) -> None:
        """To these publications; None = to none in particular: all. Raises RelayUserMissing."""
        with transaction(self.engine) as connection:
            one = relay_users.c.user_name == name.lower()
            if not connection.scalar(sa.select(sa.func.count()).select_from(relay_users).where(one)):
                raise _missing(name)  # an UPDATE counts changed rows only, in MySQL
            connection.execute(relay_users.update().where(one).values(publications=_stored(publications)))

    def drop(self, name: str) -> None:
        """Raises RelayUserMissing."""
        with transaction(self.engine) as connection:
            done = connection.execute(relay_users.delete().where(relay_users.c.user_name == name.lower()))
        if not done.rowcount:
            raise _missing(name)

    @repeatable
    def digest(self, name: str) -> bytes | None:
        """None for a user that does not exist. Raises StateUnreadable."""
        query = sa.select(relay_users.c.sealed_digest).where(relay_users.c.user_name == name.lower())
        with reading(self.engine) as connection:
            found = fetch(connection, query)
        if not found:
            return None
        owner, _, digest = self.vault.open(found[0].sealed_digest, None).partition(" ")
        return bytes.fromhex(digest) if owner == name.lower() else None


def _missing(name: str) -> RelayUserMissing:
    return RelayUserMissing("the relay has no user of that name", subject=f"user {name}")


def _stored(publications: Iterable[str] | None) -> str | None:
    return None if publications is None else json.dumps(sorted({name.lower() for name in publications}))


def _publications(row: sa.Row) -> frozenset[str] | None:
    if row.publications is None:
        return None
    try:
        names = json.loads(row.publications)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        _log.warning("the publications of user %s of the relay cannot be read: it may use none", row.user_name)
        return frozenset()
    return frozenset(names)
