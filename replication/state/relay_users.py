"""The logins of the relay: a name, and what the protocol compares a password with, sealed by the key file.

What is sealed is the `password_digest` of `wire.server`, so the password itself is nowhere. Source: decision
relay-logins.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from replication.errors import RelayUserExists, RelayUserMissing
from replication.state.credentials import Vault
from replication.state.database import fetch, repeatable, stored_time, transaction
from replication.state.subscription import check_subscription_name
from replication.state.tables import relay_users


class RelayUsers:
    """The logins of one catalog database. Thread-safe."""

    def __init__(self, engine: sa.Engine, vault: Vault) -> None:
        self.engine, self.vault = engine, vault

    @repeatable
    def all(self) -> list[tuple[str, datetime]]:
        """Each name with the time of its creation, UTC."""
        with transaction(self.engine) as connection:
            query = sa.select(relay_users.c.user_name, relay_users.c.created_at).order_by(relay_users.c.user_name)
            return [(row.user_name, row.created_at) for row in fetch(connection, query)]

    def add(self, name: str, digest: bytes, now: datetime) -> None:
        """Raises BadName, RelayUserExists."""
        check_subscription_name(name)
        sealed = self.vault.seal(f"{name.lower()} {digest.hex()}", None)
        try:
            with transaction(self.engine) as connection:
                values = {"user_name": name.lower(), "sealed_digest": sealed, "created_at": stored_time(now)}
                connection.execute(relay_users.insert().values(values))
        except IntegrityError as error:
            raise RelayUserExists("the relay has a user of that name", subject=f"user {name}") from error

    def drop(self, name: str) -> None:
        """Raises RelayUserMissing."""
        with transaction(self.engine) as connection:
            done = connection.execute(relay_users.delete().where(relay_users.c.user_name == name.lower()))
        if not done.rowcount:
            raise RelayUserMissing("the relay has no user of that name", subject=f"user {name}")

    @repeatable
    def digest(self, name: str) -> bytes | None:
        """None for a user that does not exist. Raises StateUnreadable."""
        query = sa.select(relay_users.c.sealed_digest).where(relay_users.c.user_name == name.lower())
        with transaction(self.engine) as connection:
            found = fetch(connection, query)
        if not found:
            return None
        owner, _, digest = self.vault.open(found[0].sealed_digest, None).partition(" ")
        return bytes.fromhex(digest) if owner == name.lower() else None
