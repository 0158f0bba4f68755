"""A point of a mirror as a database of another cluster, physically and by that cluster's own statement: for `ccpr
restore` and `ccpr follower promote`.

For the time of the copy a relay serves the one point under a name of its own, with texts without the mark of a replica,
so that the tables are ordinary ones afterwards. What was loaded is compared with the point before the subscription
there is dropped: until then the copy is known by its task, and the same command, typed again, drops it and begins
again. A kill at any statement leaves either nothing, or a database with a task of this name (decision
followers-are-rows).
"""

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ccpr.base.clock import Clock, wall_clock
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.schema import Kind
from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.mirror.errors import PointNotReached, TableMissingInMirror
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.relay.client_port import Listen
from ccpr.relay.comparison import CompareBy, compare
from ccpr.relay.downstream import Downstream, Task, TaskState
from ccpr.relay.errors import DownstreamFailed, DownstreamHasDatabase, DownstreamSilent, RelayAddress
from ccpr.relay.mirror_publication import MirrorPublication
from ccpr.relay.relay_server import Relay
from ccpr.relay.served_catalog import check_index_tables
from ccpr.retention.pinning import PinsInMemory, PinStore, pinned
from ccpr.state.ledger import LedgerEntry
from ccpr.state.pins import OURS

LOGIN = "restore"
POLL_SECONDS = 1.0
SILENT_SECONDS = 600.0  # a MatrixOne asks every ten seconds, and longer only while it writes
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """What is loaded.

    Attributes
    ----------
    name : of the subscription, or of the mirror.
    database : as it is called in the mirror.
    several : whether the mirror has other databases, too.
    pins : where the point is pinned; of a mirror alone in memory.
    """

    name: str
    mirror: Mirror
    database: str
    at: int | None = None
    tables: tuple[str, ...] = ()
    pins: PinStore = field(default_factory=PinsInMemory)
    several: bool = False

    def has(self, database: str, table: str) -> bool:
        """Whether the table is part of it."""
        return (not self.several or database == self.database) and (not self.tables or table in self.tables)


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far it has come: objects and bytes that the other cluster has fetched, of all."""

    objects: int
    objects_total: int
    bytes: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class LoadedDatabase:
    """What was done.

    Attributes
    ----------
    lsn, at : the point; its time in nanoseconds.
    rows : that were counted on both sides; 0 without a check.
    seconds : until everything was visible there; the check comes on top.
    """

    database: str
    lsn: int
    at: int
    tables: int
    objects: int
    bytes: int
    rows: int
    seconds: float


def load(
    source: Source,
    session: Session,
    database: str,
    listen: Listen,
    *,
    address: str | None = None,
    check: CompareBy = CompareBy.COUNT,
    progress: Callable[[LoadProgress], None] = lambda _: None,
    release: bool = True,
    clock: Clock = wall_clock,
) -> LoadedDatabase:
    """Load a point into a database that does not exist, and leave an ordinary one. `address` is where the other cluster
    reaches the relay; without it, where the relay listens. Without `release` the copy, whole and compared, keeps its
    task, which makes it read-only: the caller drops it.

    Raises DownstreamUnfit, DownstreamHasDatabase, DownstreamFailed, DownstreamSilent, CopyDiffers, RelayAddress,
    RelayListen, PointNotReached, PointGone, TableMissingInMirror, IndexTablesMissing, RelayText, MirrorDamaged, and
    errors of the session.
    """
    downstream = Downstream(session)
    downstream.check()
    if address is None and listen.is_loopback and not Listen(session.endpoint.host).is_loopback:
        raise RelayAddress(
            "it is another machine, and the relay listens on loopback", subject=session.endpoint.masked()
        )
    point = source.mirror.point(source.at)
    late = [one.qualified_name for one in point.behind.values() if source.has(one.database, one.name)]
    if late:
        raise PointNotReached(
            f"it does not show {', '.join(sorted(late))}, which lag",
            subject=f"point {point.lsn}",
            remedy="Choose a point that is consistent: `ccpr points NAME`; or other tables with --table.",
        )
    name = publication_name(source, point.lsn, database)
    clear(downstream, database, name, source.pins)
    source.pins.drop(name)  # an interrupted attempt left it
    with pinned(source.pins, point, clock, name=name):
        published = MirrorPublication(
            name,
            source.mirror,
            source.database,
            None,
            source.pins.seen_by(OURS),
            _ledger(source.mirror, point).get,
            clock,
            consistent=False,
            at=point.lsn,
            served_as=database,
            writable=True,
            only=source.has,
        )
        state = published.shown()
        missing = set(source.tables) - {table.name for table in state.tables.values()}
        if missing:
            message = f"point {point.lsn} has no table {', '.join(sorted(missing))}"
            raise TableMissingInMirror(message, subject=f"database {source.database}")
        for table in state.tables.values():
            if table.kind is not Kind.INDEX:
                check_index_tables(table, source.name)
        if published.has_abort_column(state):
            downstream.check_reads_abort_column()
        published.next_numbers(state)  # raises where they cannot be said
        started, password = time.monotonic(), secrets.token_urlsafe(24)
        refs = [point.tables[table_id] for table_id in state.tables]
        whole = LoadProgress(0, sum(ref.objects for ref in refs), 0, sum(ref.bytes for ref in refs))
        try:
            with Relay(published, {LOGIN: password_digest(password)}.get, listen, seen_by=lambda _: published) as relay:
                reached = address or f"{listen.host if ':' not in listen.host else f'[{listen.host}]'}:{relay.port}"
                downstream.subscribe(database, LOGIN, password, reached, name)
                task = _wait(downstream, relay, name, database, point.at.physical, whole, progress)
        finally:  # when no snapshot can be taken any more
            _release(source.pins, downstream, name)
        seconds = time.monotonic() - started
        rows = compare(source.mirror, state, downstream, database, check)
        if release:
            downstream.unsubscribe(task.id)
    tables = sum(table.kind is Kind.TABLE for table in state.tables.values())
    size = whole.objects_total, whole.bytes_total
    return LoadedDatabase(database, point.lsn, point.at.physical, tables, *size, rows, seconds)


def _wait(
    downstream: Downstream,
    relay: Relay,
    publication: str,
    database: str,
    at: int,
    whole: LoadProgress,
    progress: Callable[[LoadProgress], None],
) -> Task:
    """Until the other cluster has the point of that time. Raises DownstreamFailed, DownstreamSilent."""
    asked, since = 0, time.monotonic()
    while True:
        task = _task_of(downstream, database, publication)
        subject = f"database {database} at {downstream.session.endpoint.masked()}"
        if task is None:
            raise DownstreamFailed("its subscription was dropped meanwhile", subject=subject)
        if task.state == TaskState.ERROR:
            raise DownstreamFailed(task.error or "it does not say why", subject=subject)
        status = relay.status()
        objects, size = min(status.objects_fetched, whole.objects_total), min(status.object_bytes, whole.bytes_total)
        progress(replace(whole, objects=objects, bytes=size))
        if task.iterations and task.watermark >= at:
            return task
        count = sum(status.statements.values())
        if count != asked:
            asked, since = count, time.monotonic()
        elif time.monotonic() - since > SILENT_SECONDS:
            raise DownstreamSilent(f"it has not asked for anything for {SILENT_SECONDS:.0f} s", subject=subject)
        time.sleep(POLL_SECONDS)


def clear(downstream: Downstream, database: str, publication: str, pins: PinStore) -> None:
    """Drop what an interrupted attempt of the same left. Raises DownstreamHasDatabase for anything else."""
    task = _task_of(downstream, database, publication)
    if task is not None:
        _log.info("the copy loaded before is dropped: database %s", database)
        _release(pins, downstream, publication)
        downstream.drop_unfinished(task)
    if downstream.has_database(database):
        pins.drop(publication)  # a command that was killed after its last statement there has left it
        raise DownstreamHasDatabase(f"there is a database {database}", subject=downstream.session.endpoint.masked())


def _task_of(downstream: Downstream, database: str, publication: str) -> Task | None:
    return next(
        (task for task in downstream.tasks() if (task.database, task.publication) == (database, publication)), None
    )


def publication_name(source: Source, lsn: int, database: str) -> str:
    """The same for the same copy, so that an interrupted one is known by it."""
    identity = source.mirror.identity()
    whose = source.mirror.store.url if identity is None else identity.task_id
    of = (source.database,) if source.several else ()
    text = "\0".join((whose, str(lsn), database, *of, *sorted(source.tables)))
    return f"ccpr_restore_{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _release(pins: PinStore, downstream: Downstream, publication: str) -> None:
    """Drop the snapshots that the task has taken."""
    try:
        tasks = [task for task in downstream.tasks() if task.publication == publication]
        for pin in pins.all():
            if any(pin.name.startswith(f"ccpr_{task.id}_") for task in tasks):
                pins.drop(pin.name)
    except CcprError as error:  # it must not hide why the copy failed
        _log.warning("snapshots of the copy may be left, see `ccpr relay pins`: %s", error)


def _ledger(mirror: Mirror, point: Point) -> Mapping[str, LedgerEntry]:
    """What a point says of its objects, without a state database."""
    known: dict[str, LedgerEntry] = {}
    for ref in point.tables.values():
        objects = mirror.manifest(ref).objects
        sums: Sequence[bytes | None] = objects.column("sha256").to_pylist()
        for raw, digest in zip(objects.column("stats").to_pylist(), sums, strict=True):
            stats = ObjectStats.parse(raw)
            if digest is not None:
                known[stats.name] = LedgerEntry(stats.name, stats.size, digest)
    return known
