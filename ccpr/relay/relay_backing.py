"""The publications of a state folder (`ccpr.relay.offers`) as one login sees them. See
`ccpr.matrixone.server.backing.Backing`.

A login sees the publications that it may use, and snapshots of its own. Whatever else there is does not exist for it.
A follower has a publication of its own and sees nothing else; to the others it is shown if they know its name and may
use all (decision logins-see-their-own).

A statement that names a publication is answered by its mirror alone (`published`). The catalog tables are read without
naming one: there the point of exactly that time decides, so that two subscriptions to databases of one name are kept
apart. A mirror that cannot be read costs no other login the catalog.
"""

from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.answers import Bytes, Cell, StatementError
from ccpr.matrixone.server.backing import CatalogAnswer, ServedCatalog, ServedPublication, Snapshot, internal
from ccpr.relay.mirror_publication import ACCOUNT, MirrorPublication, RelayedBacking
from ccpr.relay.offers import Offers, reason

T = TypeVar("T")


class StateFolder(RelayedBacking):
    """See `ccpr.matrixone.server.backing.Backing`. Thread-safe. `login`: who asks, in lower case; None = who runs the
    relay."""

    def __init__(self, offers: Offers, login: str | None = None) -> None:
        self.offers, self._login = offers, login

    def seen_by(self, login: str) -> "StateFolder":
        return StateFolder(self.offers, login.lower())

    @property
    def name(self) -> str:
        return "relay"

    def _permitted(self) -> frozenset[str] | None:
        return None if self._login is None else self.offers.permitted(self._login)

    def _shown(self) -> list[MirrorPublication]:
        """What is listed, by name."""
        permitted = self._permitted()
        if permitted is None:
            found = [one for _, one in sorted(self.offers.served().items())]
        else:
            found = [one for name in sorted(permitted) if (one := self.offers.find_known(name)) is not None]
        return [self._own(one) for one in found]

    def _found(self, publisher: str, name: str) -> MirrorPublication | None:
        permitted = self._permitted()
        if publisher != ACCOUNT or (permitted is not None and name not in permitted):
            return None
        found = self.offers.find(name)
        return None if found is None else self._own(found)

    def _own(self, publication: MirrorPublication) -> MirrorPublication:
        return publication if self._login is None else publication.seen_by(self._login)

    # ---- accounts and publications

    def publications(self, asked: Sequence[str] = ()) -> Sequence[tuple[str, ServedPublication]]:
        named = (self._found(ACCOUNT, name) for name in asked)
        shown = [one.offer for one in (*self._shown(), *named) if one is not None]
        return [(ACCOUNT, offer) for offer in dict.fromkeys(shown)]

    def publication(self, publisher: str, name: str) -> ServedPublication | None:
        found = self._found(publisher, name)
        return None if found is None else found.offer

    def published(self, publisher: str, name: str) -> MirrorPublication:
        found = self._found(publisher, name)
        if found is None:
            raise internal(f"publication {publisher}.{name} does not exist")
        self.offers.note_asked(name)
        return found

    # ---- catalog

    def catalog(self, account: str, snapshot: Snapshot | None = None) -> ServedCatalog:
        return _together([self._read(one, lambda one: one.catalog(account)) for one in self._shown()])

    def catalog_at(self, account: str | None, ts: int | None) -> ServedCatalog | None:
        found = [(one, self._read(one, lambda one: one.catalog_at(account, ts))) for one in self._shown()]
        there = [(one, catalog) for one, catalog in found if catalog is not None]
        exact = {one.served_as for one, _ in there if one.has_snapshot_of(ts)}
        chosen = [catalog for one, catalog in there if one.served_as not in exact or one.has_snapshot_of(ts)]
        return _together(chosen) if chosen else None

    def _read(self, one: MirrorPublication, read: Callable[[MirrorPublication], T]) -> T | ServedCatalog:
        """What is read of a mirror; its database without tables if it cannot be."""
        try:
            found = read(one)
        except (CcprError, StatementError) as error:
            why = reason(error)
            self.offers.note(one, why)
            return one.without_tables(why)
        if found is not None:  # else nothing was read
            self.offers.note(one, None)
        return found

    # ---- what needs a publication

    def snapshots(self, account: str) -> Sequence[Snapshot]:
        return [snapshot for one in self._shown() for snapshot in one.snapshots(account)]

    def find_snapshot(self, account: str, name: str) -> Snapshot:
        raise internal("a relay shows snapshots to statements that name a publication only")

    def create_snapshot(
        self, account: str, name: str, level: str, database: str, table: str, *, caller: str, if_not_exists: bool
    ) -> None:
        raise internal("a relay takes snapshots of publications only: CREATE SNAPSHOT … FROM sys PUBLICATION …")

    def drop_snapshot(self, account: str, name: str, *, if_exists: bool) -> None:
        raise internal("a relay drops snapshots of publications only: DROP SNAPSHOT … FROM sys PUBLICATION …")

    def flushable(self) -> Set[int]:
        """Of mirrors that cannot be read none."""
        found: set[int] = set()
        for one in self._shown():
            with suppress(CcprError, StatementError):
                found |= one.flushable()
        return found

    def object_list(self, account: str, target: Snapshot, base: Snapshot | None) -> Sequence[Sequence[Cell]]:
        return ()

    def object_size(self, name: str) -> int | None:
        return None

    def read_object(self, name: str, offset: int, size: int) -> Bytes:
        return b""


def _together(catalogs: Sequence[ServedCatalog]) -> ServedCatalog:
    """The rows of several catalogs."""
    if not catalogs:
        raise internal("the relay serves no subscription yet; make one with: ccpr subscribe")
    first, *rest = catalogs
    if not rest:
        return first

    def joined(what: str) -> CatalogAnswer:
        answers = [getattr(catalog, what) for catalog in catalogs]
        return replace(answers[0], rows=tuple(dict.fromkeys(row for answer in answers for row in answer.rows)))

    return ServedCatalog(
        databases=joined("databases"),
        ddl=joined("ddl"),
        indexes={},
        mo_database=joined("mo_database"),
        mo_tables=joined("mo_tables"),
        mo_columns=joined("mo_columns"),
        tables=tuple(table for catalog in catalogs for table in catalog.tables),
        missing={name: why for catalog in catalogs for name, why in catalog.missing.items()},
    )
