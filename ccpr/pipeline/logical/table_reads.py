"""Step 2 of logical mode: which tables have changed since the last point, and how their rows are read. Of small tables
it is asked where rows lie at the two snapshots. Of others, and where they lie elsewhere, the length of a DIFF is asked;
where it must not be believed the whole table is read (decision logical-mode; docs/upstream.md, "Differences of
rows")."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ccpr.matrixone.client import upstream_snapshots, upstream_sql
from ccpr.matrixone.client.errors import (
    BadAnswer,
    ConnectionLost,
    SnapshotGone,
    StatementFailed,
    StatementUnknown,
    TableMissing,
)
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.upstream_session import Session, integer
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import NotWritable, ObjectMismatch, ObjectUnsupported, ValueRefused
from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.errors import TableMissingInMirror, TableWithoutKey
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.mirror.table_read import count_rows
from ccpr.pipeline.building import fail_alone
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.copying import TIMEOUT_SECONDS, CopyJob
from ccpr.pipeline.errors import ColumnNotCarried, DifferenceHangs, RowsDisagree
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.logical.own_objects import StoredTable
from ccpr.pipeline.logical.proof import is_due, unproven
from ccpr.pipeline.results import Listed, RowRead
from ccpr.pipeline.table_lists import TableFailures
from ccpr.schema.ddl_diff import same_definition
from ccpr.state.point_rows import TablePoint

# Errors of one table's rows alone.
OF_ROWS = (
    BadAnswer,
    ColumnNotCarried,
    DdlUnreadable,
    NotWritable,
    ObjectMismatch,
    ObjectUnsupported,
    RowsDisagree,
    StatementFailed,
    TableWithoutKey,
    ValueRefused,
)
_TIMES = (types.TIME, types.DATETIME, types.TIMESTAMP)
_TOLD_BEFORE_4_2 = frozenset(
    (
        *(types.BOOL, types.FLOAT32, types.FLOAT64, types.DECIMAL64, types.DECIMAL128, types.UUID, types.JSON),
        *(*_TIMES, types.DATE, types.VECF32, types.VECF64, types.CHAR, types.VARCHAR, types.TEXT),
        *(*types.WHOLE_NUMBERS, *types.BINARY_TYPES),
    )
)
_TELLING = types.TEXT_TYPES | types.WHOLE_NUMBERS
# A difference that the upstream does not give: it writes statements of its own for it, not all of them right.
NOT_GIVEN = (DifferenceHangs, StatementFailed, StatementUnknown, TableMissing)
_SILENCE = 0.9  # of the longest wait for the next bytes
_FEW_ROWS = 50_000  # where they lie at two snapshots is said in less time than what differs
MOST_ROWS = 2_000_000  # of a difference, which is in memory as a whole
T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger(__name__)


def list_reads(iteration: Iteration, record: IterationRecord, catalog: CatalogDiff) -> Listed:
    """Raises TableMissingInMirror for a table to resync that is not there, and what the upstream raises."""
    subscription, resync = iteration.subscription, iteration.options.resync
    asked = None if resync is None else resync.table
    names = {table.qualified_name: number for number, table in catalog.named.items() if table.kind is Kind.TABLE}
    if asked not in {None, *names}:
        raise TableMissingInMirror(
            "there is no such table at the snapshot", subject=f"table {asked}", remedy="Check the spelling."
        )
    every = "" if resync is None or asked is not None else "all tables are asked for again"
    base, lost = _base(iteration)
    failures: TableFailures = dict(catalog.failures)
    reads = dict[int, RowRead]()

    def look(session: Session, item: tuple[Table, TablePoint | None]) -> None:
        iteration.lease.check()
        table, before = item
        number = table.id
        try:
            stored = StoredTable.of(table)
            whole = every or lost or ("it is asked for again" if table.qualified_name == asked else "")
            if before is not None and number in iteration.last.behind:
                whole = whole or "it was left behind"
            read = _read_of(iteration, session, stored, before, record.snapshot, base, whole)
        except OF_ROWS as error:
            fail_alone(number, failures, error, isolated=subscription.settings.isolated)
        else:
            if read is not None:
                reads[number] = read

    job = CopyJob.of(subscription, iteration.mirror.store.url, iteration.key_file)
    tables = [catalog.tables[number] for number in names.values() if number not in failures]
    in_sessions(job, [(table, iteration.last.tables.get(table.id)) for table in tables], look)
    nothing = ObjectDiff(LISTED_SCHEMA.empty_table(), LISTED_SCHEMA.empty_table())
    return Listed(nothing, failures=failures, sequences=catalog.sequences(), reads=dict(sorted(reads.items())))


def in_sessions(job: CopyJob, items: Iterable[T], action: Callable[[Session, T], R]) -> list[R]:
    """What an action gives for each item, by as many threads as the subscription may have sessions, each with one. An
    error of one ends the others with the item that they are at."""
    left, lock, ended = list(items)[::-1], threading.Lock(), threading.Event()

    def work(_: int) -> list[R]:
        done = list[R]()
        try:
            with job.connect() as session:
                while not ended.is_set():
                    with lock:
                        if not left:
                            break
                        item = left.pop()
                    done.append(action(session, item))
        except BaseException:
            ended.set()
            raise
        return done

    threads = min(job.budget.sessions, len(left))
    if not threads:
        return []
    with ThreadPoolExecutor(threads, "rows") as pool:
        return [one for share in list(pool.map(work, range(threads))) for one in share]


@contextmanager
def given_up_if_it_hangs() -> Iterator[None]:
    """A connection that is lost after a long silence is a difference that is never given, which some are
    (docs/upstream.md, "Differences of rows"): DifferenceHangs. One that is lost sooner is an upstream that is away."""
    started = time.monotonic()
    try:
        yield
    except ConnectionLost as error:
        if time.monotonic() - started < _SILENCE * TIMEOUT_SECONDS:
            raise
        raise DifferenceHangs(error.message, subject=error.subject) from error


def changed_rows(table: Table, before: TablePoint, now: str, then: str, *, count: bool = False) -> str:
    """The statement for what differs between two snapshots."""
    return upstream_sql.branch_diff(table.database, table.name, now, then, before=before.table.name, count=count)


def count_at(session: Session, table: Table, snapshot: str) -> int:
    return _number(session, upstream_sql.count_rows(table.database, table.name, snapshot), table)


def _base(iteration: Iteration) -> tuple[SnapshotRef | None, str]:
    """The last point's snapshot, if the upstream still has it; else why not."""
    base, publication = iteration.memory.context.current, iteration.subscription.publication
    if base is None or iteration.last.point is None:
        return None, "there is no point before"
    try:
        at = upstream_snapshots.snapshot_timestamp(iteration.sessions.session, base.name, publication)
    except SnapshotGone:
        at = None
    if at == base.at:
        return base, ""
    _log.warning("%s: snapshot %s of the last point is gone, all tables are read", iteration.subject, base.name)
    return None, f"snapshot {base.name} of the last point is gone"


def _read_of(
    iteration: Iteration,
    session: Session,
    stored: StoredTable,
    before: TablePoint | None,
    ref: SnapshotRef,
    base: SnapshotRef | None,
    whole: str,
) -> RowRead | None:
    """None if the table has the rows that it had."""
    table, last = stored.table, iteration.last.point
    if base is None or before is None or before.ref is None or whole:
        return RowRead(whole or "it is new", count_at(session, table, ref.name))
    if not same_definition(before.table, table):
        return RowRead("it is defined differently", count_at(session, table, ref.name))
    if before.table.partitions != table.partitions:  # a difference does not tell their rows
        return RowRead("it has other partitions", count_at(session, table, ref.name))
    if last is not None and is_due(table.id, iteration.lsn):
        manifest = iteration.mirror.manifest(before.ref)
        if wrong := unproven(session, iteration.mirror, manifest, last.at, before.table, base.name):
            _log.warning("table %s: %s, all of it is read", table.qualified_name, wrong)
            return RowRead(wrong, count_at(session, table, ref.name))
    if _lie_where_they_lay(iteration, session, table, before, ref.name, base.name):
        return None
    known = iteration.memory.context.capabilities
    is_old = not (known and known.branch_diffs)
    if is_old and not _told_before_4_2(before.table, table):
        return RowRead("differences before 4.2 do not tell its changes", count_at(session, table, ref.name))
    try:
        with given_up_if_it_hangs():
            rows = _number(session, changed_rows(table, before, ref.name, base.name, count=True), table)
    except NOT_GIVEN as error:
        _log.warning("table %s: its difference is not given, all of it is read: %s", table.qualified_name, error)
        return RowRead(f"its difference is not given ({error.code})", count_at(session, table, ref.name))
    if not _tells_deleted_rows(stored) or (is_old and not rows):
        count, manifest = count_at(session, table, ref.name), iteration.mirror.manifest(before.ref)
        if rows or last is None or count != count_rows(iteration.mirror, manifest, last.at):
            return RowRead("its difference may lack deleted rows", count)
    if rows > MOST_ROWS:
        return RowRead(f"{rows} rows of it differ", count_at(session, table, ref.name))
    return RowRead("", rows) if rows or before.appendable else None


def _lie_where_they_lay(
    iteration: Iteration, session: Session, table: Table, before: TablePoint, now: str, then: str
) -> bool:
    """Whether a small table has the rows that it had; False also where that cannot be told. What was said at the former
    snapshot is remembered from one iteration of a process to the next: what it has stays."""
    if before.ref is None or before.ref.rows > _FEW_ROWS or before.appendable:
        return False

    def places(name: str, snapshot: str) -> Sequence[tuple[bytes | None, ...]]:
        # One statement each: one that names two snapshots of a table reads both times the same.
        return session.read(upstream_sql.select_places(table.database, name, snapshot), answers=(StatementFailed,)).rows

    try:
        found = iteration.last.places[now, table.id] = places(table.name, now)
        known = iteration.known_places.get((then, table.id)) or places(before.table.name, then)
    except NOT_GIVEN:
        return False
    return found == known and len(found) == 1


def _told_before_4_2(before: Table, table: Table) -> bool:
    """Whether the differences of mid-2026 were tried with all types of the table, and it has the name that it had and
    no partitions: of others they are wrong, or never come (docs/upstream.md, "Differences of rows")."""
    return (before.qualified_name, table.partitions) == (table.qualified_name, ()) and all(
        column.type.oid in _TOLD_BEFORE_4_2 and not column.labels for column in table.user_columns
    )


def _tells_deleted_rows(stored: StoredTable) -> bool:
    """Whether a difference has all rows that went; those that came it has (docs/upstream.md, "Differences of rows").
    They are looked up by their keys, whose fractions of seconds are cut; and in a table without a key by a number, as a
    value of the first column's type: whole numbers and texts hold it, or make the statement fail."""
    if stored.key.hidden:
        return stored.columns[0].type.oid in _TELLING
    return not any(column.type.oid in _TIMES and column.type.scale > 0 for column in stored.key.columns)


def _number(session: Session, statement: str, table: Table) -> int:
    answer = session.query(statement, answers=(StatementFailed,))
    what = f"rows of table {table.qualified_name}"
    if len(answer.rows) != 1 or len(answer.rows[0]) != 1:
        raise BadAnswer("it is not one number", subject=what)
    return integer(answer.rows[0][0], what, least=0)
