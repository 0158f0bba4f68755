"""What a relay offers: all subscriptions of a state folder as publications, except those to several databases, and for
each follower one of its own; who may log in, and which of them a login may use.

Who asks often costs little: the state database is read once a second at most, or when something is asked for that was
not there a moment ago.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock

import sqlalchemy as sa

from ccpr.matrixone.client.endpoint import EVERYTHING
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.relay.mirror_publication import ACCOUNT, MirrorPublication, error_text
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.database import fetch, reading, repeatable
from ccpr.state.errors import SubscriptionMissing
from ccpr.state.followers import SERVED, Follower, FollowerRecords, all_followers, open_login
from ccpr.state.ledger import LedgerEntry
from ccpr.state.log_rows import LogRow
from ccpr.state.logins import LoginRole, PortLogins
from ccpr.state.pins import Pins
from ccpr.state.publishing import check_agreement
from ccpr.state.states import State
from ccpr.state.subscription import Subscription
from ccpr.state.tables import objects

LOOK_SECONDS = 1.0  # how long what was read is used
_NOTHING: frozenset[str] = frozenset()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Quiet:
    """For how many seconds no statement has named a publication; `since_start`: none has since the relay began."""

    seconds: float = 0.0
    since_start: bool = False


@dataclass(frozen=True, slots=True)
class _Known:
    """A subscription that is served; `settings` is what `publication` was made for."""

    publication: MirrorPublication
    settings: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    """What the state database said.

    Attributes
    ----------
    served, followed : the publications of subscriptions and of followers, by name.
    permitted : the publications of each login; None = those of all subscriptions.
    known : by task id, or by a follower's publication.
    unserved : why a subscription is not served, by its name.
    """

    served: Mapping[str, MirrorPublication]
    followed: Mapping[str, MirrorPublication]
    permitted: Mapping[str, frozenset[str] | None]
    known: Mapping[str, _Known]
    unserved: Mapping[str, str]


class Offers:
    """The publications of a state folder, by name in lower case. Thread-safe."""

    def __init__(self, workspace: Workspace, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._workspace, self._monotonic, self._lock = workspace, monotonic, Lock()
        self._logins = PortLogins(workspace.log.engine, workspace.vault)
        self._seen = _Look({}, {}, {}, {}, {})
        self._looked = float("-inf")
        self._asked: dict[str, float] = {}  # by publication: when a statement last named it
        self._noting = Lock()  # never held for long: health asks
        self._failing: dict[str, tuple[MirrorPublication, str]] = {}  # by subscription: what cannot be read, and why
        self._started = monotonic()

    def served(self) -> Mapping[str, MirrorPublication]:
        """Those of subscriptions. Two whose names differ in letter case only are not served: names of publications have
        none."""
        return self._now().served

    def find(self, name: str) -> MirrorPublication | None:
        """Of a subscription or a follower."""
        return _found(self._now(), name) or _found(self._again(), name)

    def find_known(self, name: str) -> MirrorPublication | None:
        """As `find`, but not one that was made in the last second."""
        return _found(self._now(), name)

    def permitted(self, login: str) -> frozenset[str] | None:
        """The publications that a login may use; None = those of all subscriptions, and a follower's by its name. A
        login that is gone may use none."""
        found = self._now()
        if login not in found.permitted:
            found = self._again()  # it was added a moment ago
        return found.permitted.get(login, _NOTHING)

    def note_asked(self, name: str) -> None:
        """A statement names this publication, which exists."""
        self._asked[name] = self._monotonic()

    def quiet(self, name: str) -> Quiet:
        asked = self._asked.get(name)
        return Quiet(self._monotonic() - (self._started if asked is None else asked), since_start=asked is None)

    # ---- what is skipped

    def note(self, publication: MirrorPublication, why: str | None) -> None:
        """The catalog of this one could not be read; None: it could."""
        with self._noting:
            before = self._failing.pop(publication.name, (None, None))[1]
            if why is not None:
                self._failing[publication.name] = publication, why
        if why is not None and why != before:
            _log.warning("subscription %s is not in the catalog: %s", publication.name, why)
        elif why is None and before is not None:
            _log.warning("subscription %s is in the catalog again", publication.name)

    def left_out(self) -> dict[str, str]:
        """The subscriptions that are not served, or whose tables are not, by name, and why; as it was when they were
        last asked for."""
        with self._noting:
            return {**self._seen.unserved, **{name: why for name, (_, why) in self._failing.items()}}

    def try_again(self) -> None:
        """Whether what was skipped can be read now. Raises StateUnavailable, StateUnreadable."""
        with self._noting:
            failing = dict(self._failing)
        there = {one.name for one in self.served().values()}
        for name, (publication, _) in failing.items():
            try:
                if name in there:
                    publication.catalog(ACCOUNT)
            except (CcprError, StatementError) as error:
                self.note(publication, reason(error))
            else:
                self.note(publication, None)

    def _now(self) -> _Look:
        with self._lock:
            if self._monotonic() - self._looked >= LOOK_SECONDS:
                self._seen = self._look()
                self._looked = self._monotonic()
            return self._seen

    def _again(self) -> _Look:
        with self._lock:
            self._looked = float("-inf")
        return self._now()

    def _look(self) -> _Look:
        rows, _ = self._workspace.log.all_rows()
        followers, bad = all_followers(self._workspace.log.engine)
        for error in bad:
            _log.warning("a follower is not served: %s", error)
        live = [row for row in rows if State(row.state) is not State.DROPPED and row.db_name != EVERYTHING]
        found: dict[str, list[MirrorPublication]] = {}
        known: dict[str, _Known] = {}
        followed: dict[str, MirrorPublication] = {}
        unserved: dict[str, str] = {}
        for row in live:
            mine = [one for one in followers if one.task_id == row.task_id and one.stage in SERVED]
            try:
                one = self._publication(row)
                for follower in mine:
                    made = self._publication(row, follower)
                    known[follower.publication] = made
                    followed[follower.publication] = made.publication
            except CcprError as error:
                unserved[row.subscription_name] = reason(error)
                continue
            known[row.task_id] = one
            found.setdefault(row.subscription_name.lower(), []).append(one.publication)
        for several in found.values():
            if len(several) > 1:
                why = "another one has this name, but for letter case"
                unserved |= {one.name: why for one in several}
        for name, why in unserved.items():
            if self._seen.unserved.get(name) != why:
                _log.warning("subscription %s is not served: %s", name, why)
        served = {name: several[0] for name, several in found.items() if len(several) == 1}
        logins = (login for login in self._logins.all() if login.role is LoginRole.RELAY)
        permitted = {login.name: login.publications for login in logins}
        return _Look(served, followed, {**permitted, **{name: frozenset({name}) for name in followed}}, known, unserved)

    def _publication(self, row: LogRow, follower: Follower | None = None) -> _Known:
        """Of a subscription, or of one of its followers: then it is a whole database, under the name there."""
        subscription = Subscription.from_row(row)
        database = None if follower is None else follower.database
        kept = subscription.settings
        settings = (subscription.name, kept.mirror, kept.consistency, row.epoch, database)
        known = self._seen.known.get(row.task_id if follower is None else follower.publication)
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
            approved=None if follower is None else partial(_approved, self._workspace.of(row).followers, follower.name),
            verified=lambda: Context.from_text(self._workspace.log.row(subscription.name).context).current,
        )
        return _Known(made, settings)


def _found(look: _Look, name: str) -> MirrorPublication | None:
    return look.served.get(name) or look.followed.get(name)


def reason(error: CcprError | StatementError) -> str:
    """As it is said to clients."""
    return error_text(error) if isinstance(error, CcprError) else error.text.removeprefix("internal error: ")


def _approved(followers: FollowerRecords, follower: str) -> int:
    found = followers.find(follower)
    return -1 if found is None else found.approved_lsn


@repeatable
def ledger_entry(engine: sa.Engine, task_id: str, name: str) -> LedgerEntry | None:
    """An object that the mirror has."""
    query = sa.select(objects).where(objects.c.task_id == task_id, objects.c.object_name == name)
    with reading(engine) as connection:
        found = fetch(connection, query)
    return LedgerEntry(name, int(found[0].size), bytes(found[0].sha256)) if found else None


class Logins:
    """The logins of the relay: those of the list, and each follower's own, which is there as long as the follower is.
    Thread-safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._listed = PortLogins(workspace.log.engine, workspace.vault)

    def any(self) -> bool:
        """Whether any can be used. Raises StateUnavailable, StateUnreadable."""
        listed = any(login.role is LoginRole.RELAY for login in self._listed.all())
        return listed or bool(all_followers(self._workspace.log.engine)[0])

    def digest(self, name: str) -> bytes | None:
        """As `ccpr.relay.relay_server.Relay` asks for it. Raises StateUnreadable."""
        listed, followers = self._listed.digest(name, (LoginRole.RELAY,)), all_followers(self._workspace.log.engine)[0]
        if listed is not None:
            return listed
        for follower in followers:
            if follower.publication == name and follower.stage in SERVED:
                password = open_login(self._workspace.vault, follower)
                return password_digest(password) if password else None
        return None


def publications_named(workspace: Workspace, names: Iterable[str], *, of_relay: bool = True) -> list[str]:
    """The publications of these subscriptions, as the relay calls them. Raises SubscriptionMissing for one that there
    is not, or that the relay does not serve."""
    rows = workspace.log.rows()
    served = {row.subscription_name.lower() for row in rows if row.db_name != EVERYTHING or not of_relay}
    wanted = sorted({name.lower() for name in names})
    for name in wanted:
        if name not in served:
            raise SubscriptionMissing("the relay has no publication of this name", subject=f"publication {name}")
    return wanted
