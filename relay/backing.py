"""All subscriptions of a state folder as publications of account sys, except those to several databases. See
`wire.backing.Backing`. Each follower has a publication of its own besides, which is shown to whoever knows its name.

A statement that names a publication is answered by its mirror alone (`published`). The catalog tables are read without
naming one: there the point of exactly that time decides, so that two subscriptions to databases of one name are kept
apart.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock

import sqlalchemy as sa

from matrixone.errors import CcprError
from matrixone.upstream.publication import EVERYTHING
from relay.publication import ACCOUNT, FlushedByNature, MirrorPublication
from replication.service.workspace import Workspace
from replication.state.database import fetch, repeatable, transaction
from replication.state.followers import SERVED, Follower, all_followers
from replication.state.ledger import LedgerEntry
from replication.state.log_rows import LogRow
from replication.state.pins import Pins
from replication.state.publishing import check_agreement
from replication.state.states import State
from replication.state.subscription import Subscription
from replication.state.tables import objects
from wire.answers import Cell
from wire.backing import CatalogAnswer, ServedCatalog, ServedPublication, Snapshot, internal

LOOK_SECONDS = 1.0  # how long a list of subscriptions is used
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    """A subscription that is served; `settings` is what `publication` was made for."""

    publication: MirrorPublication
    settings: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Quiet:
    """For how many seconds no statement has named a publication; `since_start`: none has since the relay began."""

    seconds: float = 0.0
    since_start: bool = False


class StateFolder(FlushedByNature):
    """See `wire.backing.Backing`. Thread-safe."""

    def __init__(self, workspace: Workspace, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._workspace, self._monotonic, self._lock = workspace, monotonic, Lock()
        self._known: dict[str, _Known] = {}  # by task id
        self._served: dict[str, MirrorPublication] = {}  # by publication
        self._followed: dict[str, MirrorPublication] = {}  # the same, for followers
        self._asked: dict[str, float] = {}  # by publication: when a statement last named it
        self._looked = float("-inf")
        self._started = monotonic()

    @property
    def name(self) -> str:
        return "relay"

    @property
    def snapshots_created(self) -> int:
        return sum(one.snapshots_created for one in self.served().values())

    def served(self) -> dict[str, MirrorPublication]:
        """By the publication's name. Two subscriptions whose names differ in letter case only are not served: names of
        publications have none."""
        with self._lock:
            if self._monotonic() - self._looked >= LOOK_SECONDS:
                self._served = self._look()
                self._looked = self._monotonic()
            return self._served

    def _found(self, publisher: str, name: str) -> MirrorPublication | None:
        if publisher != ACCOUNT:
            return None
        found = self.served().get(name) or self._followed.get(name)
        if found is None:  # a follower that was added a moment ago
            with self._lock:
                self._looked = float("-inf")
            found = self.served().get(name) or self._followed.get(name)
        return found

    def quiet(self, name: str) -> Quiet:
        asked = self._asked.get(name)
        return Quiet(self._monotonic() - (self._started if asked is None else asked), since_start=asked is None)

    def _look(self) -> dict[str, MirrorPublication]:
        rows, _ = self._workspace.log.all_rows()
        followers, bad = all_followers(self._workspace.log.engine)
        for error in bad:
            _log.warning("a follower is not served: %s", error)
        live = [row for row in rows if State(row.state) is not State.DROPPED and row.db_name != EVERYTHING]
        found: dict[str, list[MirrorPublication]] = {}
        known: dict[str, _Known] = {}
        followed: dict[str, MirrorPublication] = {}
        for row in live:
            mine = [one for one in followers if one.task_id == row.task_id and one.stage in SERVED]
            try:
                one = self._publication(row)
                for follower in mine:
                    made = self._publication(row, follower)
                    known[follower.publication] = made
                    followed[follower.publication] = made.publication
            except CcprError as error:
                _log.warning("subscription %s is not served: %s", row.subscription_name, error)
                continue
            known[row.task_id] = one
            found.setdefault(row.subscription_name.lower(), []).append(one.publication)
        self._known, self._followed = known, followed
        for name, several in found.items():
            if len(several) > 1:
                _log.warning("%s subscriptions are called %s and are not served", len(several), name)
        return {name: several[0] for name, several in found.items() if len(several) == 1}

    def _publication(self, row: LogRow, follower: Follower | None = None) -> _Known:
        """Of a subscription, or of one of its followers: then it is a whole database, under the name there."""
        subscription = Subscription.from_row(row)
        database = None if follower is None else follower.database
        kept = subscription.settings
        settings = (subscription.name, kept.mirror, kept.consistency, row.epoch, database)
        known = self._known.get(row.task_id if follower is None else follower.publication)
        if known is not None and known.settings == settings:
            return known
        mirror, engine = self._workspace.mirror_of(subscription), self._workspace.log.engine
        if row.iteration_lsn:
            check_agreement(self._workspace.log, row, mirror)
        made = MirrorPublication(
            subscription.name,
            mirror,
            subscription.database,
            subscription.table if follower is None else None,
            Pins(engine, row.task_id, None if follower is None else follower.name),
            partial(ledger_entry, engine, row.task_id),
            self._workspace.clock,
            consistent=not kept.isolated,
            served_as=database,
            offered_as=None if follower is None else follower.publication,
        )
        return _Known(made, settings)

    # ---- accounts and publications

    def accounts(self) -> Mapping[str, int]:
        return {ACCOUNT: 0}

    def owns_data(self, account: str) -> bool:
        return account == ACCOUNT

    def publications(self, asked: Sequence[str] = ()) -> Sequence[tuple[str, ServedPublication]]:
        named = [self._found(ACCOUNT, name) for name in asked]
        shown = [*(one for _, one in sorted(self.served().items())), *filter(None, named)]
        return [(ACCOUNT, one.offer) for one in dict.fromkeys(shown)]

    def publication(self, publisher: str, name: str) -> ServedPublication | None:
        found = self._found(publisher, name)
        return None if found is None else found.offer

    def published(self, publisher: str, name: str) -> MirrorPublication:
        found = self._found(publisher, name)
        if found is None:
            raise internal(f"publication {publisher}.{name} does not exist")
        self._asked[name] = self._monotonic()
        return found

    # ---- catalog

    def catalog(self, account: str, snapshot: Snapshot | None = None) -> ServedCatalog:
        return _together([one.catalog(account) for one in self.served().values()])

    def catalog_at(self, account: str | None, ts: int | None) -> ServedCatalog | None:
        found = [(one, one.catalog_at(account, ts)) for one in self.served().values()]
        there = [(one, catalog) for one, catalog in found if catalog is not None]
        exact = {one.served_as for one, _ in there if one.has_snapshot_of(ts)}
        chosen = [catalog for one, catalog in there if one.served_as not in exact or one.has_snapshot_of(ts)]
        return _together(chosen) if chosen else None

    # ---- what needs a publication

    def snapshots(self, account: str) -> Sequence[Snapshot]:
        return [snapshot for one in self.served().values() for snapshot in one.snapshots(account)]

    def find_snapshot(self, account: str, name: str) -> Snapshot:
        raise internal("a relay shows snapshots to statements that name a publication only")

    def create_snapshot(
        self, account: str, name: str, level: str, database: str, table: str, *, caller: str, if_not_exists: bool
    ) -> None:
        raise internal("a relay takes snapshots of publications only: CREATE SNAPSHOT … FROM sys PUBLICATION …")

    def drop_snapshot(self, account: str, name: str, *, if_exists: bool) -> None:
        raise internal("a relay drops snapshots of publications only: DROP SNAPSHOT … FROM sys PUBLICATION …")

    def flushable(self) -> Set[int]:
        return {table_id for one in self.served().values() for table_id in one.flushable()}

    def object_list(self, account: str, target: Snapshot, base: Snapshot | None) -> Sequence[Sequence[Cell]]:
        return ()

    def object_size(self, name: str) -> int | None:
        return None

    def read_object(self, name: str, offset: int, size: int) -> bytes | memoryview:
        return b""


@repeatable
def ledger_entry(engine: sa.Engine, task_id: str, name: str) -> LedgerEntry | None:
    """An object that the mirror has."""
    query = sa.select(objects).where(objects.c.task_id == task_id, objects.c.object_name == name)
    with transaction(engine) as connection:
        found = fetch(connection, query)
    return LedgerEntry(name, int(found[0].size), bytes(found[0].sha256)) if found else None


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
    )
