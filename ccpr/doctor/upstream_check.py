"""What `ccpr doctor` checks upstream (docs/requirements.md B13). Reads only. What a server cannot answer is None: the
answers are for messages, and replication needs none of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from ccpr.base.clock import Clock
from ccpr.base.wording import first_names
from ccpr.doctor.check import Check, Verdict, failed
from ccpr.matrixone.client import upstream_snapshots, upstream_sql
from ccpr.matrixone.client.capabilities import Capabilities, check_interface, probe
from ccpr.matrixone.client.database_definitions import read_row_rules
from ccpr.matrixone.client.endpoint import SYS_ACCOUNT, Endpoint
from ccpr.matrixone.client.errors import NO_ANSWER, NotPermitted
from ccpr.matrixone.client.publication_offers import ADMIN_ROLE, Publication, check_admission, choose_publication
from ccpr.matrixone.client.retry import NO_RETRY
from ccpr.matrixone.client.table_catalog import TEMPORARY, kind_of, temporary_tables
from ccpr.matrixone.client.table_partitions import PARTITION_PREFIX
from ccpr.matrixone.client.upstream_session import Session, integer, text
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Kind
from ccpr.pipeline.lag import SHOWN_SKEW_SECONDS, clock_skew
from ccpr.service.names_meant import similar_names
from ccpr.service.status import LeftOut
from ccpr.service.subscriptions import check_databases, check_logical
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The difference between the clocks.

    Attributes
    ----------
    skew_seconds : our time minus the upstream's.
    uncertainty_seconds : the possible error: the upstream answers in whole seconds, and the answer took some time.
    """

    skew_seconds: float
    uncertainty_seconds: float


@dataclass(frozen=True, slots=True)
class DatabaseTables:
    """The relations of a database at present.

    Attributes
    ----------
    ids, names : of its ordinary and its partitioned tables.
    partitioned : names of partitioned tables.
    unreplicated : name and relkind of relations that are not replicated: v view, S sequence, e external, cluster,
        temporary.
    """

    ids: tuple[int, ...]
    names: tuple[str, ...]
    partitioned: tuple[str, ...]
    unreplicated: tuple[tuple[str, str], ...]


def server_version(session: Session) -> str | None:
    """The server's version text, e.g. ``8.0.30-MatrixOne-v3.0.0``."""
    return _word(session, upstream_sql.SERVER_VERSION)


def current_role(session: Session) -> str | None:
    """The current role of the login."""
    return _word(session, upstream_sql.CURRENT_ROLE)


def read_clock(session: Session, clock: Callable[[], float]) -> ClockReading | None:
    """The upstream's clock compared with ours (`clock`, seconds since 1970)."""
    before = clock()
    found = _word(session, upstream_sql.SERVER_TIME)
    after = clock()
    try:
        theirs = None if found is None else datetime.fromisoformat(found).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    if theirs is None:
        return None
    cut = 0.0 if "." in (found or "") else 0.5  # whole seconds are cut: half a second later is the best estimate
    return ClockReading((before + after) / 2 - theirs - cut, (after - before) / 2 + cut)


def read_tables(session: Session, publication: Publication, database: str) -> DatabaseTables | None:
    """The relations of the publisher's database at present."""
    try:
        answer = session.read(upstream_sql.select_tables(publication.publisher_id, database))
        found = [
            (
                integer(number, "rel_id"),
                text(name, "relname"),
                text(kind, "relkind"),
                text(parts, "partitioned") not in ("", "0"),
            )
            for number, name, kind, parts in answer.select("rel_id", "relname", "relkind", "partitioned")
        ]
        temporary = temporary_tables(session, publication, database, answer)
    except NO_ANSWER:
        return None
    found = [(number, name, TEMPORARY if number in temporary else kind, parts) for number, name, kind, parts in found]
    partitioned = tuple(sorted(name for _, name, _, parts in found if parts))
    tables = ((number, name) for number, name, kind, _ in found if kind_of(name, kind) is Kind.TABLE)
    ordinary = [one for one in tables if not (partitioned and one[1].startswith(PARTITION_PREFIX))]
    others = ((name, kind) for _, name, kind, _ in found if kind_of(name, kind) is Kind.OTHER)
    ids, names = tuple(number for number, _ in ordinary), tuple(name for _, name in ordinary)
    return DatabaseTables(ids, names, partitioned, tuple(sorted(others)))


def _word(session: Session, statement: str) -> str | None:
    """The only cell of the answer; None if there is none or another number of cells."""
    try:
        answer = session.read(statement)
        return text(answer.rows[0][0], statement) if len(answer.rows) == 1 and len(answer.rows[0]) == 1 else None
    except NO_ANSWER:
        return None


_CONNECT_SECONDS, _READ_SECONDS = 5.0, 15.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class CheckedUpstream:
    """What to check upstream. Without `database` only the login; without `publication` it is looked up. `database` and
    `settings` are as in `Subscription`."""

    endpoint: Endpoint
    connect: Callable[[], Session]
    database: str | None = None
    table: str | None = None
    publication: str | None = None
    publisher: str | None = None
    known: Capabilities | None = None  # by earlier iterations
    settings: Settings = field(default_factory=Settings)


def connect_once(endpoint: Endpoint, password: str) -> Session:
    """One attempt with short timeouts, as its caller waits."""
    return Session(endpoint, password, connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, retry=NO_RETRY)


def upstream_of(workspace: Workspace, row: LogRow) -> CheckedUpstream:
    subscription, known = Subscription.from_row(row), Context.from_text(row.context).capabilities

    def connect() -> Session:
        return connect_once(
            subscription.endpoint, workspace.vault.open(subscription.sealed_password, subscription.endpoint)
        )

    publication, scope = subscription.publication, (subscription.database, subscription.table)
    names = (publication.name, publication.publisher)
    return CheckedUpstream(subscription.endpoint, connect, *scope, *names, known, subscription.settings)


def check_upstream(upstream: CheckedUpstream, clock: Clock) -> Iterator[Check]:
    try:
        session = upstream.connect()
    except CcprError as error:
        yield failed("upstream", "login", error)
        yield Check("upstream", "all else", Verdict.SKIPPED, "it needs a login")
        return
    with session:
        yield Check("upstream", "login", Verdict.OK, f"{upstream.endpoint.login} at {upstream.endpoint.address}")
        try:
            check_interface(session)
        except CcprError as error:
            yield failed("upstream", "interface", error)
            yield Check("upstream", "all else", Verdict.SKIPPED, "it needs the interface")
            return
        yield Check("upstream", "interface", Verdict.OK, "it has the commands and columns that replication needs")
        checks: dict[str, Callable[[], Iterator[Check]]] = {
            "encryption": partial(_encryption, session, upstream),
            "version": partial(_version, session),
            "capabilities": partial(_capabilities, session, upstream),
            "role": partial(_role, session, upstream),
            "clock": partial(_clock, session, clock),
            "publication": partial(_scope, session, upstream),
        }
        for what, check in checks.items():
            try:
                yield from check()
            except CcprError as error:
                yield failed("upstream", what, error)


def check_recorded_clock(row: LogRow) -> Check | None:
    """The clocks as the last snapshot showed them, to the millisecond; None before the first."""
    skew = clock_skew(Context.from_text(row.context).current)
    return None if skew is None else _skew_check(skew, 0.0, "at the last snapshot")


def _encryption(session: Session, upstream: CheckedUpstream) -> Iterator[Check]:
    mode = upstream.endpoint.tls.mode
    remedy = "Add ?ssl-mode=verify_identity&ssl-ca=/path/ca.pem after the port of the URI."
    if session.encrypted and mode in ("verify_ca", "verify_identity"):
        yield Check("upstream", "encryption", Verdict.OK, f"encrypted, certificate checked (ssl-mode {mode})")
    elif session.encrypted:
        found = f"encrypted, certificate not checked (ssl-mode {mode})"
        yield Check("upstream", "encryption", Verdict.WARNING, found, remedy)
    elif upstream.endpoint.host in _LOOPBACK:
        yield Check("upstream", "encryption", Verdict.OK, "none; it is this machine")
    else:
        found = "none: others can read the password hash and the data on the network"
        yield Check("upstream", "encryption", Verdict.WARNING, found, remedy)


def _version(session: Session) -> Iterator[Check]:
    found = server_version(session)
    if found is not None and "matrixone" in found.lower():
        yield Check("upstream", "version", Verdict.OK, found)
    else:
        text = "the server does not say" if found is None else f"{found}: this does not name MatrixOne"
        remedy = "Check that the URI leads to a MatrixOne: SELECT version()."
        yield Check("upstream", "version", Verdict.WARNING, text, remedy)


def _capabilities(session: Session, upstream: CheckedUpstream) -> Iterator[Check]:
    found = replace(upstream.known or Capabilities(), flush=None)  # the role may have changed: ask again
    yield Check("upstream", "capabilities", Verdict.OK, ", ".join(probe(session, found).describe()))


def _role(session: Session, upstream: CheckedUpstream) -> Iterator[Check]:
    account, role = session.endpoint.account.lower(), current_role(session)
    if account == SYS_ACCOUNT and (role or "").lower() == "moadmin":
        yield Check("upstream", "role", Verdict.OK, "moadmin of account sys")
    elif not upstream.publication and (role or "").lower() == ADMIN_ROLE:
        found = f"{role} of account {account}, which may read its own databases and take snapshots of them"
        yield Check("upstream", "role", Verdict.OK, found)
    elif account == SYS_ACCOUNT and not role:
        yield Check("upstream", "role", Verdict.SKIPPED, "the server does not say")
    elif not upstream.publication and account != SYS_ACCOUNT:
        found = f"account {account}, role {role or 'unknown'}: logical mode needs {ADMIN_ROLE}, to take snapshots"
        yield Check("upstream", "role", Verdict.FAILED, found, _administrator(session), NotPermitted.code)
    else:
        found = f"account {account}, role {role or 'unknown'}: replication needs moadmin of account sys"
        yield Check("upstream", "role", Verdict.FAILED, found, NotPermitted.default_remedy, NotPermitted.code)


def _administrator(session: Session) -> str:
    """No statement gives another user what is needed (docs/upstream.md 4.2)."""
    account, address = session.endpoint.account, session.endpoint.address
    return (
        f"No GRANT gives it: neither the role nor the right to take snapshots. Log in as the user that CREATE ACCOUNT "
        f"{account} ADMIN_NAME named: mysql://{account}#ADMIN:PASSWORD@{address}."
    )


def _clock(session: Session, clock: Clock) -> Iterator[Check]:
    reading = read_clock(session, clock)
    if reading is None:
        yield Check("upstream", "clock", Verdict.SKIPPED, "the server does not say; the first snapshot will")
    else:
        yield _skew_check(reading.skew_seconds, reading.uncertainty_seconds, "now")


def _skew_check(skew: float, uncertainty: float, when: str) -> Check:
    exactness = f", ± {uncertainty:.1f} s" if uncertainty else ""
    found = f"{skew:+.1f} s (ours less the upstream's, {when}{exactness})"
    if abs(skew) <= SHOWN_SKEW_SECONDS + uncertainty:
        return Check("upstream", "clock", Verdict.OK, found)
    remedy = "Set both clocks by NTP. Replication works all the same: points have the upstream's time, lag has ours."
    return Check("upstream", "clock", Verdict.WARNING, found, remedy)


def _scope(session: Session, upstream: CheckedUpstream) -> Iterator[Check]:
    if upstream.database is None:
        yield Check("upstream", "publication", Verdict.SKIPPED, "no --database was given")
        return
    try:
        database, table, publisher = upstream.database, upstream.table, upstream.publisher
        with similar_names(session, database, table, publisher):
            name, mode = upstream.publication or None, upstream.settings.mode
            publication = choose_publication(session, database, table, name, publisher, mode=mode)
            check_admission(session, publication, database, table, listed=upstream.publication is not None)
    except CcprError as error:
        yield failed("upstream", "publication", error)
        yield Check("upstream", "tables", Verdict.SKIPPED, "they cannot be read without the publication")
        return
    wanted = Subscription(
        "", "", upstream.endpoint, "", publication, upstream.database, upstream.table, upstream.settings
    )
    found = f"{publication.publisher}.{publication.name} covers {wanted.scope} and admits the login; {wanted.way}"
    if wanted.is_logical:
        found = f"none is needed; {wanted.way}"
        check_logical(session, wanted)
    yield Check("upstream", "publication", Verdict.OK, found)
    databases: Sequence[str] = [upstream.database]
    if wanted.of_account:
        databases = check_databases(session, wanted)
        yield Check("upstream", "databases", Verdict.OK, f"{len(databases)}: {first_names(databases)}")
    yield from _alters(session, upstream, wanted)
    read = {name: read_tables(session, publication, name) for name in databases}
    yield from _tables(upstream, wanted, _together(read) if wanted.of_account else read[upstream.database])
    yield _row_rules(session, wanted, read)


def _row_rules(session: Session, wanted: Subscription, read: Mapping[str, DatabaseTables | None]) -> Check:
    """Which rows a role sees says a rule that no reader of a copy is asked for (docs/index.md, limits)."""
    rules = read_row_rules(session, wanted.publication)
    for problem in rules.problems:
        return Check("upstream", "row rules", Verdict.SKIPPED, f"not known: {problem.reason}")
    names = [(database, table) for database, one in read.items() if one is not None for table in one.names]
    chosen = [(database, table) for database, table in names if wanted.table in (None, table)]
    ruled = rules.among(f"{database}.{table}" for database, table in chosen if wanted.patterns.match(table))
    if not ruled:
        return Check("upstream", "row rules", Verdict.OK, "none of a role on these tables")
    found = f"roles have some on {first_names(ruled)}: whoever reads the replica sees every row"
    remedy = "Leave these tables out (--exclude-tables), or let only those read the replica who may see all rows."
    return Check("upstream", "row rules", Verdict.WARNING, found, remedy)


def _alters(session: Session, upstream: CheckedUpstream, wanted: Subscription) -> Iterator[Check]:
    """What our snapshots change for users there (decision snapshots-that-alters-see)."""
    in_sys = wanted.of_account or wanted.publication.publisher.lower() == SYS_ACCOUNT
    if in_sys and probe(session, upstream.known).alters_see_snapshots:
        found = (
            "while our snapshots stand, ALTER TABLE t DROP COLUMN c, ADD COLUMN c … is refused there (20105), and an "
            "ALTER that copies a table keeps the old one until they are dropped"
        )
        remedy = (
            "Nothing, unless users need it: as two statements it works. A database of another account than sys, "
            "subscribed to by itself, is not concerned."
        )
        yield Check("upstream", "ALTER TABLE", Verdict.WARNING, found, remedy)


def _together(found: Mapping[str, DatabaseTables | None]) -> DatabaseTables | None:
    """The relations of several databases; what is not a table with its full name."""
    known = {name: one for name, one in found.items() if one is not None}
    if len(known) < len(found):
        return None
    return DatabaseTables(
        ids=tuple(number for one in known.values() for number in one.ids),
        names=tuple(table for one in known.values() for table in one.names),
        partitioned=tuple(f"{name}.{table}" for name, one in known.items() for table in one.partitioned),
        unreplicated=tuple(
            (f"{name}.{table}", kind) for name, one in known.items() for table, kind in one.unreplicated
        ),
    )


def _tables(upstream: CheckedUpstream, wanted: Subscription, found: DatabaseTables | None) -> Iterator[Check]:
    if found is None:
        yield Check("upstream", "tables", Verdict.SKIPPED, "the server does not say")
        return
    text = f"{len(found.ids)} tables"
    if wanted.patterns:
        text += f", {sum(map(wanted.patterns.match, found.names))} of them match: {wanted.patterns}"
    if found.partitioned:
        text += f", partitioned: {first_names(found.partitioned)} (so all are listed one by one)"
    if found.unreplicated:
        # A letter is a kind of relation, and a word says more than the kind of what is left out by it.
        kinds = ((name, LeftOut.of(name, kind).kind if len(kind) == 1 else kind) for name, kind in found.unreplicated)
        names = first_names(f"{name} ({kind})" for name, kind in kinds)
        remedy = "Views, external and cluster tables are not replicated. If they are not needed, no action is required."
        yield Check("upstream", "tables", Verdict.WARNING, f"{text}; not replicated: {names}", remedy)
    else:
        yield Check("upstream", "tables", Verdict.OK, text)
    if not wanted.is_logical:
        yield _flush(upstream, found.ids)


def _flush(upstream: CheckedUpstream, table_ids: Sequence[int]) -> Check:
    if upstream.settings.flush != "on_demand":
        return Check("upstream", "flush on demand", Verdict.SKIPPED, "the subscription waits instead (flush = wait)")
    if not table_ids:
        return Check("upstream", "flush on demand", Verdict.SKIPPED, "there is no table to try it on")
    if upstream_snapshots.flush_tables(upstream.connect, table_ids[:1]):
        return Check("upstream", "flush on demand", Verdict.OK, "mo_ctl is allowed")
    remedy = (
        "Log in with role moadmin of account sys, or subscribe with --flush wait: then an iteration waits about a "
        "minute."
    )
    return Check("upstream", "flush on demand", Verdict.WARNING, "mo_ctl is not allowed", remedy)
