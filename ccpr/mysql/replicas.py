"""The databases of a state folder as a login sees them, and the points that statements read: each is pinned while one
reads it, so that retention leaves it alone (`ccpr.retention.pinning`).

A database is called as upstream. Where two subscriptions have one of that name, each is called
`subscription.database`, and the name alone is nobody's.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.errors import PointGone, PointNotReached
from ccpr.mirror.points import Point, TableRef
from ccpr.mysql.login_limits import narrowed
from ccpr.mysql.select_rules import KeptTranslations
from ccpr.mysql.served_mirror import KEPT_BYTES, KeptObjects, ServedMirror
from ccpr.retention.pinning import end_left
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.logins import UNLIMITED, LoginRole, PortLogin, PortLogins, ReadLimits
from ccpr.state.pins import Pin
from ccpr.state.subscription import Subscription

LOOK_SECONDS = 1.0
IDLE_SECONDS = 2.0  # for which a point that no statement reads stays pinned: the next one reads it, too
PREFIX = "ccpr_sql_"
_ATTEMPTS = 3
_STATEMENT_BYTES = 1 << 20  # of the texts of statements that are translated once
_ROLES = LoginRole.READER, LoginRole.OPERATOR


@dataclass(frozen=True, slots=True)
class ServedReplica:
    """A subscription as statements read it."""

    name: str
    task_id: str
    mirror: ServedMirror


@dataclass(frozen=True, slots=True)
class Database:
    """As a login sees it. `shown` is its name here, `name` that upstream."""

    shown: str
    name: str
    replica: ServedReplica
    limits: ReadLimits = UNLIMITED

    def tables(self, point: Point) -> list[TableRef]:
        """Those that there are for the login, by name. With limits, which are by the names of today, a table of the
        past is there if it is the same one today."""
        refs = (ref for ref in point.tables.values() if ref.kind is Kind.TABLE and ref.database == self.name)
        if self.limits:
            now = self._now()
            refs = (ref for ref in refs if self.limits.shows(self.name, ref.name) and self._same(ref, now) is not None)
        return sorted(refs, key=lambda ref: ref.name)

    def stored(self, ref: TableRef) -> Table:
        """Its definition."""
        return self.replica.mirror.manifest(ref).table

    def definition(self, ref: TableRef) -> Table:
        """What the login sees of it."""
        table = self.stored(ref)
        return narrowed(table, self.newest(ref), self.limits) if self.limits else table

    def newest(self, ref: TableRef) -> Table:
        """Its definition at the newest point."""
        return self.stored(self._same(ref, self._now()) or ref)

    def _now(self) -> dict[str, TableRef]:
        return {ref.qualified_name: ref for ref in self.replica.mirror.point().tables.values()}

    def _same(self, ref: TableRef, now: dict[str, TableRef]) -> TableRef | None:
        """The table as it is now; None if there is none of its name, or another one."""
        found = now.get(ref.qualified_name)
        if found is None or found.table_id == ref.table_id:
            return found
        return found if self.stored(found).logical_id == self.stored(ref).logical_id else None


@dataclass(slots=True)
class _Held:
    point: Point
    pin: str
    readers: int
    idle_since: float = 0.0


class Replicas:
    """Thread-safe. `stop` gives all points back."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self._lock = workspace, Lock()
        self._logins = PortLogins(workspace.log.engine, workspace.vault)
        self._looked, self._databases = float("-inf"), list[Database]()
        self._known_logins: dict[str, PortLogin] = {}
        self._known: dict[str, tuple[object, ServedReplica]] = {}
        self._kept, self.translations = KeptObjects(KEPT_BYTES), KeptTranslations(_STATEMENT_BYTES)
        self._held: dict[tuple[str, int], _Held] = {}
        self._unpinning = set[tuple[str, str]]()  # tasks and pins that nothing needs any more

    # ---- what there is

    def databases(self, login: str) -> dict[str, Database]:
        """Those that the login may read, by their names here in lower case. Raises StatementError, StateUnreadable."""
        known = self.login(login)
        permitted = (
            one
            for one in self._databases
            if known.publications is None or one.replica.name.lower() in known.publications
        )
        return {one.shown.lower(): replace(one, limits=known.limits) if known.limits else one for one in permitted}

    def login(self, name: str) -> PortLogin:
        """What a login may do now. One that is gone, or is none of a MySQL client any more, may read nothing."""
        name = name.lower()
        with self._lock:
            if time.monotonic() - self._looked >= LOOK_SECONDS or name not in self._known_logins:  # it may be new
                self._look()
            found = self._known_logins.get(name)
        return found or PortLogin(name, self.workspace.now(), LoginRole.READER, frozenset())

    def look_again(self) -> None:
        """What there is has changed."""
        with self._lock:
            self._looked = float("-inf")

    def digest(self, name: str) -> bytes | None:
        """Of the password of a login. Raises StateUnavailable, StateUnreadable."""
        return self._logins.digest(name, _ROLES)

    def _look(self) -> None:
        self._known_logins = {one.name: one for one in self._logins.all() if one.role in _ROLES}
        found = list[tuple[str, ServedReplica]]()
        for row in self.workspace.log.all_rows()[0]:
            if row.drop_at is not None or not row.iteration_lsn:
                continue
            try:
                replica = self._replica(row)
                names = {ref.database for ref in replica.mirror.point().tables.values()}
            except CcprError:
                continue  # its mirror cannot be read now; `ccpr status` says why
            if row.db_name and row.db_name != "*":
                names.add(row.db_name)
            found += [(name, replica) for name in sorted(names)]
        counts: dict[str, int] = {}
        for name, _ in found:
            counts[name.lower()] = counts.get(name.lower(), 0) + 1
        self._databases = [
            Database(name if counts[name.lower()] == 1 else f"{replica.name}.{name}", name, replica)
            for name, replica in found
        ]
        self._looked = time.monotonic()

    def _replica(self, row: LogRow) -> ServedReplica:
        subscription = Subscription.from_row(row)
        settings = subscription.settings
        made_for = (subscription.name, settings.mirror, settings.encrypt)
        known = self._known.get(row.task_id)
        if known is not None and known[0] == made_for:
            return known[1]
        store = self.workspace.mirror_to_read(subscription.name).store
        made = ServedReplica(subscription.name, row.task_id, ServedMirror(store, self._kept))
        self._known[row.task_id] = made_for, made
        return made

    # ---- points

    @contextmanager
    def reading(self, replica: ServedReplica, at: int | datetime | str | None) -> Iterator[Point]:
        """A point that stays until the end of the block. Raises PointGone, PointNotReached, HoldMissing."""
        held = self._take(replica, at)
        try:
            yield held.point
        finally:
            with self._lock:
                held.readers -= 1
                held.idle_since = time.monotonic()

    def _take(self, replica: ServedReplica, at: int | datetime | str | None) -> _Held:
        for attempt in range(_ATTEMPTS):
            point = replica.mirror.point(at)
            key = replica.task_id, point.lsn
            with self._lock:
                held = self._held.get(key)
                if held is not None and held.point == point:
                    held.readers += 1
                    return held
            pins, name = self.workspace.log.of(replica.task_id).pins, f"{PREFIX}{secrets.token_hex(8)}"
            now = self.workspace.now()
            try:
                pins.add(Pin(name, point.lsn, point.at.physical, None, now, now))
            except PointGone:
                if at is not None or attempt == _ATTEMPTS - 1:
                    raise
                continue  # a newer one came, and this one went
            with self._lock:
                other = self._held.get(key)
                if other is None:
                    self._held[key] = other = _Held(point, name, 0)
                    name = ""
                other.readers += 1
            if name:  # another statement was faster
                pins.drop(name)
            return other
        raise PointNotReached("points come faster than they can be read", subject=f"subscription {replica.name}")

    def let_go(self, *, task_id: str | None = None, at_once: bool = False) -> None:
        """Give back what no statement reads. Called every second: what the state database does not take now is given
        back by a later call. Raises StateUnavailable."""
        with self._lock:
            before = float("inf") if at_once else time.monotonic() - IDLE_SECONDS
            for key, held in list(self._held.items()):
                if not held.readers and held.idle_since <= before and task_id in (None, key[0]):
                    self._unpinning.add((key[0], held.pin))
                    del self._held[key]
            unpinning = [one for one in self._unpinning if task_id in (None, one[0])]
        for task, pin in unpinning:
            self.workspace.log.of(task).pins.drop(pin)
            with self._lock:
                self._unpinning.discard((task, pin))

    def end_left_pins(self) -> None:
        """Of a process that was killed: only one of them serves a state folder."""
        for row in self.workspace.log.all_rows()[0]:
            end_left(self.workspace.log.of(row.task_id).pins, PREFIX)
