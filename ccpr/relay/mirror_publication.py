"""One subscription's mirror as a publication: snapshots are pins of its points, lists and differences come from its
manifests. See `ccpr.matrixone.server.backing.Backing`.

A snapshot is of the newest point. A snapshot of a MatrixOne (by its name, `ccpr_<task>_<number>`) is of the newest one
that it can go on to from the one before (`ccpr.relay.served_points.bearable`), and shows tables with other ids
(`ServedPoint.replica_id`). Source: docs/decisions/relay.md.
"""

import copy
import hashlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.clock import Clock, utc_now
from ccpr.base.newest import Newest
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.errors import CcprError, Transient
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.matrixone.server.answers import Bytes, Cell
from ccpr.matrixone.server.backing import (
    Backing,
    ServedCatalog,
    ServedPublication,
    Snapshot,
    internal,
    snapshot_not_found,
)
from ccpr.mirror.errors import PointGone, PointNotReached
from ccpr.mirror.mirror import Mirror
from ccpr.relay.brake import gone_at_once
from ccpr.relay.served_catalog import served_catalog
from ccpr.relay.served_content import ServedContent
from ccpr.relay.served_points import ServedPoint, ServedPoints, bearable
from ccpr.relay.texts import next_number
from ccpr.retention.pinning import PinStore
from ccpr.state.errors import RelayPinned
from ccpr.state.ledger import LedgerEntry
from ccpr.state.pins import Pin

ACCOUNT = "sys"
SEEN_SECONDS = 60  # how exactly it is known when a snapshot was last used
_ATTEMPTS = 5  # at a point that retention drops meanwhile
_NATIVE = re.compile(r"(ccpr_[0-9a-f-]{36}_)([0-9]{1,18})")
_NEVER = "0-0"
_MOST_CATALOGS = 4
_log = logging.getLogger(__name__)


class RelayedBacking(Backing):
    """What a relay answers of any mirror: there is account sys, and all of a point is in storage."""

    def accounts(self) -> Mapping[str, int]:
        return {ACCOUNT: 0}

    def owns_data(self, account: str) -> bool:
        return account == ACCOUNT

    def flush(self, table_ids: set[int]) -> None:
        """There is nothing to write."""

    def checkpoint(self) -> None:
        raise internal("invalid operation: a relay has nothing to checkpoint")

    def collect(self) -> int:
        raise internal("invalid operation: a relay collects nothing")

    def is_flushed(self, account: str, snapshot: Snapshot) -> bool:
        return True


class MirrorPublication(RelayedBacking):
    """See `ccpr.matrixone.server.backing.Backing`. `Snapshot.index` is the lsn of its point. Thread-safe.

    Parameters
    ----------
    name : of the subscription.
    offered_as : of the publication; None = the subscription's.
    database, table : what it replicates.
    entry : an object's entry in the ledger of the mirror.
    consistent : only points at which no table lags.
    at : the only point that is served; None = always the newest.
    served_as : the database's name here; None = its own.
    writable : texts without the mark of a replica.
    approved : of a follower's: the lsn up to which it may drop however many tables; None: no brake
        (`ccpr.relay.brake`).
    verified : the snapshot that the source was last seen at, of an iteration that made a point or was idle.
    only : whether a table of a database is served, with its index tables; None = all are.
    clock : seconds since 1970.
    """

    def __init__(
        self,
        name: str,
        mirror: Mirror,
        database: str,
        table: str | None,
        pins: PinStore,
        entry: Callable[[str], LedgerEntry | None],
        clock: Clock,
        *,
        consistent: bool = True,
        at: int | None = None,
        served_as: str | None = None,
        writable: bool = False,
        only: Callable[[str, str], bool] | None = None,
        offered_as: str | None = None,
        approved: Callable[[], int] | None = None,
        verified: Callable[[], SnapshotRef | None] = lambda: None,
    ) -> None:
        self._name, self.mirror, self.database, self.table, self.pins = name, mirror, database, table, pins
        self.served_as, self._offered_as = served_as or database, offered_as or name
        self._at, self._writable, self._only, self._consistent, self._clock = at, writable, only, consistent, clock
        self._states, self._content = ServedPoints(mirror), ServedContent(mirror, entry)
        self._catalogs = Newest[tuple[int, bool], ServedCatalog](_MOST_CATALOGS)
        self._numbers = Newest[int, dict[int, int | None]](1)
        self._seen: Newest[str, float] = Newest(1000)
        self._approved, self._verified = approved, verified

    @property
    def name(self) -> str:
        return self._name

    def seen_by(self, login: str) -> "MirrorPublication":
        """The same, with the snapshots of this login only."""
        found = copy.copy(self)
        found.pins = self.pins.seen_by(login)
        return found

    @property
    def offer(self) -> ServedPublication:
        """What is published."""
        # What is chosen of a point is a whole database of its own: a MatrixOne subscribes to one or to single tables.
        single = (self.table,) if self.table is not None and self._at is None else ()
        return ServedPublication(self._offered_as.lower(), self.served_as, single, ("all",))

    # ---- accounts and publications

    def publications(self, asked: Sequence[str] = ()) -> Sequence[tuple[str, ServedPublication]]:
        return [(ACCOUNT, self.offer)]

    def publication(self, publisher: str, name: str) -> ServedPublication | None:
        return self.offer if (publisher, name) == (ACCOUNT, self.offer.name) else None

    def published(self, publisher: str, name: str) -> "MirrorPublication":
        return self

    # ---- catalog

    def catalog(self, account: str, snapshot: Snapshot | None = None) -> ServedCatalog:
        if snapshot is None:
            return self._served(self._newest(), replica=False)
        return self._served(self._states.at(snapshot.index), replica=_is_native(snapshot.name))

    def catalog_at(self, account: str | None, ts: int | None) -> ServedCatalog | None:
        if ts is None:
            return self._served(self._newest(), replica=False)
        try:
            return self._served(self._scoped(self._states.of(self.mirror.point(_instant(ts)))), replica=False)
        except PointGone:
            return None
        except PointNotReached:
            return self._served(self._newest(), replica=False)

    def _served(self, state: ServedPoint | None, *, replica: bool) -> ServedCatalog:
        key = (-1 if state is None else state.point.lsn, replica)
        known = self._catalogs.get(key) if state is not None else None
        if known is None:
            number = 1 + int.from_bytes(hashlib.sha256(self.mirror.store.url.encode()).digest()[:5], "big")
            scoped = None if state is None else self._scoped(state)
            known = served_catalog(
                scoped,
                self.served_as,
                number,
                name=self._name,
                writable=self._writable,
                replica=replica,
                next_numbers=None if scoped is None else self.next_numbers(scoped),
            )
            self._catalogs.put(key, known)
        return known

    def without_tables(self, why: str) -> ServedCatalog:
        """The catalog of a mirror that cannot be read."""
        return replace(self._served(None, replica=False), missing={self.served_as: why})

    def next_numbers(self, state: ServedPoint) -> dict[int, int | None]:
        """Where AUTO_INCREMENT goes on, by table id; of what cannot be written to none. Raises RelayText,
        MirrorDamaged."""
        if not self._writable:
            return {}
        known = self._numbers.get(state.point.lsn)
        if known is None:
            counting = (table_id for table_id, table in state.tables.items() if table.kind is Kind.TABLE)
            known = {table_id: next_number(self.mirror, state, table_id) for table_id in counting}
            self._numbers.put(state.point.lsn, known)
        return known

    def _scoped(self, state: ServedPoint) -> ServedPoint:
        """With the tables that are served."""
        if self._only is None:
            return state
        asked = {table_id for table_id, table in state.tables.items() if self._only(table.database, table.name)}
        chosen = {table_id for table_id in state.tables if table_id in asked or state.parents.get(table_id) in asked}
        tables = {table_id: table for table_id, table in state.tables.items() if table_id in chosen}
        return ServedPoint(state.point, tables, {child: of for child, of in state.parents.items() if child in chosen})

    def _newest(self) -> ServedPoint | None:
        """The newest point that is served; None before the first."""
        head = self.mirror.published_head()
        if head is None or head.newest_point is None:
            return None
        if self._at is not None:
            return self._states.at(self._at)
        newest = self._states.at(head.newest_point)
        if newest.point.consistent or not self._consistent:
            return newest
        for lsn in reversed(self.mirror.lsns()):
            state = self._states.at(lsn)
            if state.point.consistent:
                return state
        raise internal(f"tables of {self._name} lag at every point; see: ccpr status {self._name}")

    def shown(self) -> ServedPoint:
        """What is served now. Raises StatementError before the first point."""
        state = self._newest()
        if state is None:
            raise internal(f"the mirror of {self._name} has no point yet; run: ccpr run {self._name}")
        return self._scoped(state)

    def has_abort_column(self, state: ServedPoint) -> bool:
        """See `ServedPoints.has_abort_column`."""
        return self._states.has_abort_column(state)

    # ---- snapshots

    def snapshots(self, account: str) -> Sequence[Snapshot]:
        return [self._shown(pin) for pin in self.pins.all()]

    def has_snapshot_of(self, ts: int | None) -> bool:
        """Whether a snapshot shows exactly this time."""
        return ts is not None and any(pin.at == ts for pin in self.pins.all())

    def find_snapshot(self, account: str, name: str) -> Snapshot:
        pin = self.pins.find(name)
        if pin is None or not self._is_there(pin):
            raise snapshot_not_found(name)
        now = self._clock()
        if now - (self._seen.get(name) or 0.0) > SEEN_SECONDS:
            self.pins.seen(name, datetime.fromtimestamp(now, UTC))
            self._seen.put(name, now)
        return self._shown(pin)

    def snapshot_age(self, snapshot: Snapshot) -> int:
        """Since the iteration that last verified the newest point; of an older one since its own time."""
        last, head = self._verified(), self.mirror.published_head()
        if last is None or last.physical is None or last.taken_at is None:
            return max(0, round(self._clock() * 1e9) - snapshot.ts)
        is_newest = head is not None and head.newest_point == snapshot.index
        older = 0 if is_newest else last.physical - snapshot.ts
        return max(0, round((self._clock() - last.taken_at + (last.age or 0.0)) * 1e9) + older)

    def _is_there(self, pin: Pin) -> bool:
        """Whether its point is the one that it was: mirror or state may have been restored from an older copy."""
        try:
            return self._states.at(pin.lsn).point.at == Timestamp(pin.at)
        except (PointGone, PointNotReached):
            return False

    def _shown(self, pin: Pin) -> Snapshot:
        level = "database" if pin.table is None else "table"
        return Snapshot(pin.name, pin.at, pin.lsn, level, self.served_as, pin.table or "", None)

    def create_snapshot(
        self, account: str, name: str, level: str, database: str, table: str, *, caller: str, if_not_exists: bool
    ) -> None:
        if level not in ("database", "table") or database.lower() != self.served_as.lower():
            raise internal(f"publication {self._name} covers database {self.served_as} and nothing else")
        if self.pins.find(name) is not None:
            if if_not_exists:
                return
            raise internal(f"snapshot {name} already exists")
        for _ in range(_ATTEMPTS):
            state = self._next(name)
            single = next((one.name for one in state.tables.values() if one.name.lower() == table.lower()), None)
            if table and single is None:
                raise internal(f"table {database}.{table} does not exist")
            now = utc_now(self._clock)
            try:
                self.pins.add(Pin(name, state.point.lsn, state.point.at.physical, single if table else None, now, now))
            except PointGone:  # retention drops it at this moment
                continue
            except RelayPinned as error:  # by another session at this moment
                if if_not_exists and self.pins.find(name) is not None:  # else it is another login's
                    return
                raise internal(f"snapshot {name} already exists") from error
            return
        raise internal(f"the points of {self._name} go faster than they can be pinned: service unavailable")

    def _next(self, name: str) -> ServedPoint:
        """What a snapshot of this name shows."""
        newest = self._newest()
        if newest is None:
            raise internal(f"the mirror of {self._name} has no point yet; run: ccpr run {self._name}")
        if newest.point.behind:
            late = ", ".join(table.qualified_name for table in newest.point.behind.values())
            _log.warning("publication %s skips lagging tables: %s", self._name, late)
        before = self._before(name)
        if before is None or self._may_follow(before, newest):
            return newest
        _log.warning("publication %s: %s waits at point %s", self._name, name, before.point.lsn)
        for lsn in reversed([one for one in self.mirror.lsns() if before.point.lsn < one < newest.point.lsn]):
            state = self._states.at(lsn)
            if (state.point.consistent or not self._consistent) and self._may_follow(before, state):
                return state
        return before

    def _may_follow(self, before: ServedPoint, state: ServedPoint) -> bool:
        """Whether a MatrixOne that has `before` can go on to a state, and does not lose most of its tables by that."""
        after = self._scoped(state)
        if self._approved is not None:
            gone = gone_at_once(before.tables.values(), after.tables.values())
            if gone and state.point.lsn > self._approved():
                _log.warning("publication %s: %d tables are gone at point %d", self._name, len(gone), state.point.lsn)
                return False
        return bearable(self._states, before, after)

    def _before(self, name: str) -> ServedPoint | None:
        """What the snapshot before shows to the MatrixOne that takes this one."""
        found = _NATIVE.fullmatch(name)
        if found is None or int(found[2]) == 0:
            return None
        pin = self.pins.find(f"{found[1]}{int(found[2]) - 1}")
        return None if pin is None or not self._is_there(pin) else self._scoped(self._states.at(pin.lsn))

    def drop_snapshot(self, account: str, name: str, *, if_exists: bool) -> None:
        if not self.pins.drop(name) and not if_exists:
            raise internal(f"snapshot {name} does not exist")

    # ---- flushing and objects

    def flushable(self) -> Set[int]:
        state = self._newest()
        return set() if state is None else set(state.tables)

    def object_list(self, account: str, target: Snapshot, base: Snapshot | None) -> Sequence[Sequence[Cell]]:
        state = self._scoped(self._states.at(target.index))
        native = _is_native(target.name)
        names = None
        if target.level != "database":
            names = self.catalog(account, target).scope("table", self.served_as, target.table)
        before = None if base is None else self._scoped(self._states.at(base.index))
        known = {} if before is None else {_id(before, table_id, native=native): table_id for table_id in before.tables}
        rows: list[tuple[Cell, ...]] = []
        for table_id, table in sorted(state.tables.items()):
            if names is not None and (self.served_as.encode(), table.name.encode()) not in names:
                continue
            row = partial(_rows, self.served_as, table.name)
            if before is None or known.get(_id(state, table_id, native=native)) != table_id:
                rows += row(self._states.objects(state, table_id, native=native), _NEVER)
                continue
            found = self._states.difference(before, state, table_id, native=native)
            rows += row(found.came, _NEVER) + row(found.gone, str(state.point.at))
            rows += row(self._states.came_to_light(before, state, table_id, found.kept), _NEVER)
        return rows

    def object_size(self, name: str) -> int | None:
        return self._content.size(name)

    def read_object(self, name: str, offset: int, size: int) -> Bytes:
        return self._content.read(name, offset, size)


def _instant(ts: int) -> datetime | int:
    """As `Mirror.point` takes a time; smaller numbers would be an lsn."""
    return ts if ts >= 10**15 else datetime.fromtimestamp(ts / 1e9, UTC)


def _is_native(name: str) -> bool:
    return _NATIVE.fullmatch(name) is not None


def _id(state: ServedPoint, table_id: int, *, native: bool) -> int:
    return state.replica_id(table_id) if native else table_id


def _rows(database: str, table: str, objects: pa.Table, deleted: str) -> list[tuple[Cell, ...]]:
    created = pc.binary_join_element_wise(
        objects.column("create_physical").cast(pa.string()), objects.column("create_logical").cast(pa.string()), "-"
    ).to_pylist()
    stats, tombstones = objects.column("stats").to_pylist(), objects.column("is_tombstone").to_pylist()
    names = (database, table)
    return [
        (*names, raw, time, deleted, int(tombstone))
        for raw, time, tombstone in zip(stats, created, tombstones, strict=True)
    ]


def error_text(error: CcprError) -> str:
    """An error of ours in an answer. A MatrixOne tries again if the text says so (its `R:` errors)."""
    again = ": service unavailable" if isinstance(error, Transient) else ""
    return f"{error.code}: {error.message} ({error.subject}){again}"
