"""Snapshots taken through a publication: create, read, flush, wait, drop. They are of a whole DATABASE (decision
database-snapshots); of one TABLE only to list its objects (decision partitioned-tables); of an ACCOUNT where several of
its databases are replicated, which is not taken through the publication (decision account-snapshots).

Source: docs/upstream.md 4, 5.2 and 5.6, "Checked on live clusters".
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.endpoint import SYS_ACCOUNT
from ccpr.matrixone.client.errors import (
    BadAnswer,
    DatabaseMissing,
    NotFlushedYet,
    NotPermitted,
    ObjectGone,
    PublicationMissing,
    SnapshotExists,
    SnapshotGone,
    SnapshotOutcomeUnknown,
    StatementFailed,
    StatementUnknown,
    TableMissing,
)
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.snapshot_ref import is_of_account, marker_of
from ccpr.matrixone.client.upstream_session import Session, integer, text
from ccpr.matrixone.errors import CcprError, Transient
from ccpr.matrixone.objects.timestamp import Timestamp

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 5.0  # seconds between two checks whether a snapshot is flushed
_GROWTH = 1.5  # of the pause: it is looked at no later than half as long again after it was flushed
CHECKPOINT_FROM_TABLES = 1_000  # tables to be flushed; from here on one statement instead of one for each table
Flush = Callable[[threading.Event], bool]  # its argument is set when no more of it is needed
# Called by the thread that waits, as it may read with that thread's session. Gives what another thread does.
FlushRequest = Callable[[], Flush]
_log = logging.getLogger(__name__)


def create_snapshot(
    session: Session, name: str, publication: Publication, database: str, table: str | None = None
) -> None:
    """Create the snapshot, of the database or of one table of it, if there is none of this name.

    An existing one keeps its old timestamp without an error: so the name must be new, and recorded before this call.
    For the same reason it is safe to repeat the statement after a lost connection, which is done here, and while the
    server waits for a lock: it creates what was given up when the lock is free, with the time of then, and the last
    attempt finds that. SnapshotOutcomeUnknown and SnapshotWaits are raised only if no attempt was answered.
    """
    through = publication.publisher, publication.name or None
    _create(session, name, upstream_sql.create_snapshot(name, database, *through, table))


def create_account_snapshot(session: Session, name: str, publication: Publication, database: str) -> None:
    """Create the snapshot of the publisher's account, and before it the one with whose time lists are compared, of a
    database. As `create_snapshot`."""
    create_snapshot(session, marker_of(name), publication, database)
    _create(session, name, upstream_sql.create_account_snapshot(name, publication.publisher))


def _create(session: Session, name: str, statement: str) -> None:
    try:
        session.read(statement, also=(SnapshotOutcomeUnknown,))
    except SnapshotExists as error:  # another process, or our own attempt whose answer was lost, was first
        _log.info("snapshot %s exists already: %s", name, error.text)


def drop_snapshot(session: Session, name: str, publication: Publication) -> None:
    """Drop the snapshot, if it exists, and with an account's its marker; if the publication is gone and the login is of
    the account that has the snapshot, without it. Repeated after a lost connection. Raises SnapshotOutcomeUnknown as
    `create_snapshot` does; PublicationMissing."""
    if is_of_account(name):
        session.read(upstream_sql.drop_snapshot(name), also=(SnapshotOutcomeUnknown,))
    statement = upstream_sql.drop_snapshot(marker_of(name), publication.publisher, publication.name or None)
    try:
        session.read(statement, also=(SnapshotOutcomeUnknown,))
    except PublicationMissing:
        # In another account's session IF EXISTS would hide that it is not among that account's snapshots.
        if session.endpoint.account.lower() != publication.publisher.lower():
            raise
        session.read(upstream_sql.drop_snapshot(marker_of(name)), also=(SnapshotOutcomeUnknown,))


def drop_statements(name: str, publication: Publication, *, published: bool = True) -> tuple[str, ...]:
    """What drops the snapshot by hand; without the publication its account has to do it."""
    own = (f"{upstream_sql.drop_snapshot(name)}; -- as account {SYS_ACCOUNT}",) if is_of_account(name) else ()
    if not published or publication.is_own:
        return (*own, f"{upstream_sql.drop_snapshot(marker_of(name))}; -- as account {publication.publisher}")
    return (*own, upstream_sql.drop_snapshot(marker_of(name), publication.publisher, publication.name) + ";")


def snapshot_timestamp(session: Session, name: str, publication: Publication) -> Timestamp:
    """The time of the snapshot by the upstream's clock. An account's is there as long as its marker is. Raises
    SnapshotGone; BadAnswer if the marker is later."""
    marker = _published_timestamp(session, marker_of(name), publication)
    if not is_of_account(name):
        return marker
    at = account_snapshot_timestamp(session, name)
    if marker > at:
        message = f"it is of {at}, and {marker_of(name)} was made before it, at {marker}"
        raise BadAnswer(message, subject=f"snapshot {name}")
    return at


def snapshot_age(session: Session, name: str, publication: Publication) -> float:
    """How old the data of a relay's snapshot is, in seconds: since it was last known to be the source's. Raises
    SnapshotGone, BadAnswer; StatementUnknown if it is no relay."""
    what = f"age of snapshot {name}"
    answer = session.read(upstream_sql.snapshot_age(name, publication.publisher, publication.name))
    return max(0, integer(_single(answer.rows, what), what)) / 1e9


def account_snapshot_timestamp(session: Session, name: str) -> Timestamp:
    """The time of an account's snapshot. Raises SnapshotGone."""
    return _own_timestamp(session, name, SYS_ACCOUNT)


def _own_timestamp(session: Session, name: str, account: str) -> Timestamp:
    rows = session.read(upstream_sql.own_snapshot_timestamp(name)).rows
    if not rows:
        raise SnapshotGone(f"account {account} has no such snapshot", subject=f"snapshot {name}")
    return _timestamp(rows, name)


def _published_timestamp(session: Session, name: str, publication: Publication) -> Timestamp:
    if publication.is_own:
        return _own_timestamp(session, name, publication.publisher)
    answer = session.read(upstream_sql.snapshot_timestamp(name, publication.publisher, publication.name))
    return _timestamp(answer.rows, name)


def _timestamp(rows: list[tuple[bytes | None, ...]], name: str) -> Timestamp:
    physical = integer(_single(rows, f"timestamp of snapshot {name}"), f"timestamp of snapshot {name}")
    if physical <= 0:
        raise BadAnswer(f"the snapshot's timestamp is {physical}", subject=f"snapshot {name}")
    return Timestamp(physical)


def own_snapshots(session: Session, prefix: str) -> set[str]:
    """The names of the login's own account that begin with `prefix`. Another account's are not visible."""
    answer = session.read(upstream_sql.select_snapshots(prefix))
    names = {text(cell, "sname") for (cell,) in answer.select("sname")}
    return {name for name in names if name.startswith(prefix)}


def is_flushed(session: Session, name: str, publication: Publication) -> bool:
    """Whether all rows up to the snapshot are in objects; before that its object list is incomplete. Raises
    SnapshotGone."""
    answer = session.read(upstream_sql.snapshot_flushed(name, publication.publisher, publication.name))
    cell = _single(answer.rows, f"flushed state of snapshot {name}")
    flushed = {b"1": True, b"true": True, b"0": False, b"false": False}.get(cell or b"")
    if flushed is None:
        raise BadAnswer(f"the snapshot's flushed state is {cell!r:.40}", subject=f"snapshot {name}")
    return flushed


def _single(rows: list[tuple[bytes | None, ...]], what: str) -> bytes | None:
    if len(rows) != 1 or len(rows[0]) != 1:
        raise BadAnswer(f"the {what} is not one cell but {len(rows)} rows", subject=what)
    return rows[0][0]


def flush_requests(
    connect: Callable[[], Session], table_ids: Callable[[], Collection[int]], *, tables: int
) -> tuple[FlushRequest, ...]:
    """The requests that flush these tables, to be made one after the other until they are flushed: see
    `wait_until_flushed`. They are some of `tables`, which all are to be flushed; their ids are asked for when they are
    flushed one by one.

    A statement for each table costs 1 ms and a round trip even if there is nothing to write: with 10,000 tables of
    which one has changed that would be most of an iteration. A checkpoint is one statement and does the same for the
    whole cluster; if it is refused, or was not enough, the tables are flushed one by one.
    """

    def checkpoint() -> Flush:
        return partial(flush_everything, connect)

    def by_table() -> Flush:
        return partial(flush_tables, connect, table_ids())

    return (checkpoint, by_table) if tables >= CHECKPOINT_FROM_TABLES else (by_table,)


def flush_everything(connect: Callable[[], Session], _enough: threading.Event) -> bool:
    """Request a checkpoint, which writes the rows of all tables into objects. False if it was refused or failed: use
    `flush_tables` then."""
    try:
        with connect() as session:
            session.read(upstream_sql.CHECKPOINT)
    except (NotPermitted, StatementFailed, StatementUnknown, Transient) as error:
        _log.info("no checkpoint: %s", error)
        return False
    return True


def flush_tables(
    connect: Callable[[], Session],
    table_ids: Iterable[int],
    enough: threading.Event | None = None,
    *,
    connections: int = 4,
) -> bool:
    """Request that these tables' rows are written into objects now: 0.5 s a table that has something to write, 1 ms
    for the others.

    Pass every table of the database that has rows, including hidden index tables: the snapshot is flushed when all of
    them are. None is begun after `enough` is set. Returns False if the role has no privilege for it (it must be a user
    of account sys with role moadmin), or if not all requests could be made. Nothing is an error, since the caller waits
    anyway: neither a table that was dropped meanwhile nor a lost connection.
    """
    ids = list(dict.fromkeys(table_ids))
    if not ids:
        return True
    enough = enough or threading.Event()
    parts = [ids[first::connections] for first in range(min(connections, len(ids)))]
    asking = [_Asking(partial(_flush, connect, part), enough) for part in parts]
    answers = [part.answer() for part in asking]  # of all, before it is said that one could not be made
    return all(answers)


def _flush(connect: Callable[[], Session], table_ids: Sequence[int], enough: threading.Event) -> bool:
    try:
        with connect() as session:
            for table_id in table_ids:
                if enough.is_set():
                    return False
                _flush_table(session, table_id)
    except NotPermitted as error:
        _log.info("the role has no privilege to flush tables: %s", error.text)
        return False
    except Transient as error:
        _log.warning("not all tables could be flushed: %s", error)
        return False
    return True


def _flush_table(session: Session, table_id: int) -> None:
    try:
        session.read(upstream_sql.flush(table_id))
    except (StatementFailed, TableMissing, DatabaseMissing, ObjectGone) as error:
        _log.info("table %d was not flushed: %s", table_id, error)


class _Asking(threading.Thread):
    """A request under way. A daemon: nothing, not even the end of the process, waits for it once the snapshot is
    flushed."""

    def __init__(self, request: Flush, enough: threading.Event) -> None:
        super().__init__(name="flush request", daemon=True)
        self._request, self._enough = request, enough
        self._done = False
        self._error: CcprError | None = None
        self.start()

    def run(self) -> None:
        try:
            self._done = self._request(self._enough)
        except CcprError as error:
            self._error = error
        except OSError as error:  # its socket was closed by who does not wait for it any more
            _log.info("a flush request has ended: %s", error)

    def goes_on(self, seconds: float) -> bool:
        """Whether it does after so long; it may end earlier. Raises its error."""
        self.join(seconds)
        if self._error is not None:
            raise self._error
        return self.is_alive()

    def answer(self) -> bool:
        """Wait for its end. Raises its error."""
        self.goes_on(threading.TIMEOUT_MAX)
        return self._done


def wait_until_flushed(
    session: Session,
    name: str,
    publication: Publication,
    *,
    requests: Sequence[FlushRequest],
    timeout_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the snapshot is flushed (decision flush-on-demand).

    Each of `requests` (see `flush_requests`) is made only while the snapshot is not flushed; once, and again after the
    connection was lost, as a server that was restarted has forgotten them. A server answers one half a second after it
    began, whatever it has to write, so the snapshot is looked at meanwhile. The pauses between checks grow from 0.02 s
    to 5 s, anew with each request. Raises NotFlushedYet after `timeout_seconds` and the last request, SnapshotGone, and
    what a request raises.
    """
    end, enough = clock() + timeout_seconds, threading.Event()
    pause, opened, left = _FIRST_PAUSE, session.opened, deque(requests)
    asking: _Asking | None = None
    try:
        while not is_flushed(session, name, publication):
            if opened != session.opened:
                opened, left = session.opened, deque(requests)
            if asking is None and left:
                asking, pause = _Asking(left.popleft()(), enough), _FIRST_PAUSE
            if asking is not None:
                if not asking.goes_on(pause):
                    asking, pause = None, _FIRST_PAUSE
                    continue
            elif (remaining := end - clock()) > 0:
                sleep(min(pause, remaining))
            else:
                message = f"snapshot {name} is not flushed after {timeout_seconds:g} s"
                raise NotFlushedYet(message, subject=f"snapshot {name}")
            pause = min(_GROWTH * pause, _LONGEST_PAUSE)
    finally:
        enough.set()
