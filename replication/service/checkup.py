"""Whether replication can work, asked before the first byte: of this machine and of the upstream (requirement B13).

Each question is put to what would be used, and to nothing else; a file that is written to see whether it can be is
deleted again. One that fails does not keep the rest from being asked, unless they stand on it.
"""

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from matrixone.errors import CcprError
from matrixone.upstream import snapshots
from matrixone.upstream.endpoint import SYS_ACCOUNT, Endpoint
from matrixone.upstream.errors import NotPermitted, PartitionedTable
from matrixone.upstream.inspection import current_role, read_clock, read_tables, server_version
from matrixone.upstream.publications import Publication, check_admission, choose_publication
from matrixone.upstream.retry import NO_RETRY
from matrixone.upstream.session import Session
from replication.errors import StateUnreadable
from replication.iteration.lag import SHOWN_SKEW_SECONDS, clock_skew
from replication.mirror.layout import HEAD
from replication.service.workspace import Workspace
from replication.spark.java import find_java
from replication.state.context import Context
from replication.state.database import place
from replication.state.log_rows import LogRow
from replication.state.subscription import Subscription

LOW_BYTES, TOO_FEW_BYTES = 1_000_000_000, 50_000_000
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 15.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SHOWN_NAMES = 5


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"  # it stands on one that failed, or cannot be known


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer.

    Attributes
    ----------
    side : ``here`` or ``upstream``.
    code : of the error, where there is one; `ccpr explain` tells more.
    """

    side: str
    what: str
    result: Verdict
    told: str
    remedy: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Upstream:
    """What to look at upstream; `database` None: the login alone. `publication` None: to be looked up."""

    endpoint: Endpoint
    connect: Callable[[], Session]
    database: str | None = None
    table: str | None = None
    publication: str | None = None
    publisher: str | None = None
    flush_on_demand: bool = True


# ---- here


def check_here(workspace: Workspace) -> Iterator[Check]:
    folder = next(path for path in (workspace.home, *workspace.home.parents) if path.exists())
    yield _asked("here", "state folder", partial(_writable, workspace.home, folder))
    yield _space(folder)
    yield _asked("here", "key file", partial(_key, workspace))
    yield _asked("here", "catalog database", partial(_catalog, workspace))
    yield _java(workspace)


def check_mirror_store(workspace: Workspace, row: LogRow) -> Check:
    def ask() -> str:
        store = workspace.mirror(row.subscription_name, published=False).store
        there = "a mirror is there" if store.size(HEAD) is not None else "no mirror yet"
        if workspace.log.is_held(row):
            return f"{store.url}: {there}; it is in use, so writing was not tried"
        folder = f"work/doctor-{secrets.token_hex(4)}"
        store.put(f"{folder}/probe", [b"written by ccpr doctor\n"])
        store.delete_folder(folder)
        return f"{store.url}: {there}, can be written"

    return _asked("here", "mirror", ask)


def _writable(home: Path, folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"it cannot be written: {error.strerror}"
        raise StateUnreadable(text, subject=str(home), remedy="Make it writable, or set CCPR_HOME.") from error
    return f"{home}" if folder == home else f"{home} will be made"


def _space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    told = f"{free / 1e9:.1f} GB free"
    if free >= LOW_BYTES:
        return Check("here", "space", Verdict.OK, told)
    result = Verdict.FAILED if free < TOO_FEW_BYTES else Verdict.WARNING
    return Check("here", "space", result, told, "Make room, or give the mirror another place: --mirror.")


def _key(workspace: Workspace) -> str:
    path = workspace.vault.path
    if not path.exists():
        return f"{path} will be made"
    workspace.vault.seal("")  # its permissions and content are looked at
    return f"{path}, for its owner only"


def _catalog(workspace: Workspace) -> str:
    if not workspace.has_catalog:
        return "SQLite, will be made in the state folder"
    rows, bad = workspace.log.all_rows()
    if bad:
        raise bad[0].error
    return f"{place(workspace.log.engine)}, {len(rows)} subscriptions"


def _java(workspace: Workspace) -> Check:
    try:
        if workspace.home.is_dir():
            java = find_java(workspace.home / "java")
        else:
            with tempfile.TemporaryDirectory(prefix="ccpr-") as cache:
                java = find_java(Path(cache))
    except CcprError as error:
        return Check(
            "here", "Java for Spark", Verdict.WARNING, f"{error.message}; all but Spark works", error.remedy, error.code
        )
    return Check("here", "Java for Spark", Verdict.OK, f"{java.version} ({java.origin})")


# ---- upstream


def connect_once(endpoint: Endpoint, password: str) -> Session:
    """For a person who waits: one attempt, short time-outs."""
    return Session.connect(
        endpoint, password, connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, retry=NO_RETRY
    )


def upstream_of(workspace: Workspace, subscription: Subscription) -> Upstream:
    def connect() -> Session:
        return connect_once(subscription.endpoint, workspace.vault.open(subscription.sealed_password))

    ticket, on_demand = subscription.publication, subscription.settings.flush == "on_demand"
    scope = (subscription.database, subscription.table)
    return Upstream(subscription.endpoint, connect, *scope, ticket.name, ticket.publisher, on_demand)


def check_upstream(upstream: Upstream, clock: Callable[[], float]) -> Iterator[Check]:
    try:
        session = upstream.connect()
    except CcprError as error:
        yield _failed("upstream", "login", error)
        yield Check("upstream", "all else", Verdict.SKIPPED, "it needs a login")
        return
    with session:
        yield Check("upstream", "login", Verdict.OK, f"{upstream.endpoint.login} at {upstream.endpoint.address}")
        questions: dict[str, Callable[[], Iterator[Check]]] = {
            "encryption": partial(_encryption, session, upstream),
            "version": partial(_version, session),
            "role": partial(_role, session),
            "clock": partial(_clock, session, clock),
            "publication": partial(_scope, session, upstream),
        }
        for what, question in questions.items():
            try:
                yield from question()
            except CcprError as error:
                yield _failed("upstream", what, error)


def check_recorded_clock(row: LogRow) -> Check | None:
    """The clocks as the last snapshot showed them, to the millisecond; None before the first."""
    skew = clock_skew(Context.from_text(row.context).current)
    return None if skew is None else _skew_check(skew, 0.0, "at the last snapshot")


def _encryption(session: Session, upstream: Upstream) -> Iterator[Check]:
    mode, remedy = (
        upstream.endpoint.tls.mode,
        "Write ?ssl-mode=verify_identity&ssl-ca=/path/ca.pem behind the port of the URI.",
    )
    if session.encrypted:
        checked = mode in ("verify_ca", "verify_identity")
        told = f"encrypted, certificate {'checked' if checked else 'not checked'} (ssl-mode {mode})"
        yield Check(
            "upstream", "encryption", Verdict.OK if checked else Verdict.WARNING, told, "" if checked else remedy
        )
    elif upstream.endpoint.host in _LOOPBACK:
        yield Check("upstream", "encryption", Verdict.OK, "none; it is this machine")
    else:
        yield Check(
            "upstream", "encryption", Verdict.WARNING, "none: password hash and data can be read on the way", remedy
        )


def _version(session: Session) -> Iterator[Check]:
    found = server_version(session)
    if found is not None and "matrixone" in found.lower():
        yield Check("upstream", "version", Verdict.OK, found)
    else:
        told = "it does not say" if found is None else f"{found}: no MatrixOne by its name"
        yield Check(
            "upstream", "version", Verdict.WARNING, told, "Check that the URI leads to a MatrixOne: SELECT version()."
        )


def _role(session: Session) -> Iterator[Check]:
    account, role = session.endpoint.account.lower(), current_role(session)
    if account == SYS_ACCOUNT and (role or "").lower() == "moadmin":
        yield Check("upstream", "role", Verdict.OK, "moadmin of account sys")
    elif account == SYS_ACCOUNT and not role:
        yield Check("upstream", "role", Verdict.SKIPPED, "the server does not say")
    else:
        told = f"account {account}, role {role or 'unknown'}: replication needs moadmin of account sys"
        yield Check("upstream", "role", Verdict.FAILED, told, NotPermitted.default_remedy, NotPermitted.code)


def _clock(session: Session, clock: Callable[[], float]) -> Iterator[Check]:
    reading = read_clock(session, clock)
    if reading is None:
        yield Check("upstream", "clock", Verdict.SKIPPED, "the server does not say; the first snapshot will")
    else:
        yield _skew_check(reading.skew_seconds, reading.uncertainty_seconds, "now")


def _skew_check(skew: float, uncertainty: float, when: str) -> Check:
    told = f"{skew:+.1f} s (ours less the upstream's, {when}" + (
        f", give or take {uncertainty:.1f} s)" if uncertainty else ")"
    )
    if abs(skew) <= SHOWN_SKEW_SECONDS + uncertainty:
        return Check("upstream", "clock", Verdict.OK, told)
    remedy = (
        "Set both clocks by NTP. Replication works all the same; times of points are the upstream's, lag is by ours."
    )
    return Check("upstream", "clock", Verdict.WARNING, told, remedy)


def _scope(session: Session, upstream: Upstream) -> Iterator[Check]:
    if upstream.database is None:
        yield Check("upstream", "publication", Verdict.SKIPPED, "no --database was given")
        return
    scope = upstream.database if upstream.table is None else f"{upstream.database}.{upstream.table}"
    try:
        publication = choose_publication(
            session, upstream.database, upstream.table, upstream.publication, upstream.publisher
        )
        check_admission(session, publication, upstream.database, upstream.table)
    except CcprError as error:
        yield _failed("upstream", "publication", error)
        yield Check("upstream", "tables", Verdict.SKIPPED, "they cannot be had without the publication")
        return
    yield Check(
        "upstream",
        "publication",
        Verdict.OK,
        f"{publication.publisher}.{publication.name} covers {scope} and admits the login",
    )
    yield from _tables(session, upstream, publication, upstream.database)


def _tables(session: Session, upstream: Upstream, publication: Publication, database: str) -> Iterator[Check]:
    found = read_tables(session, publication, database)
    if found is None:
        yield Check("upstream", "tables", Verdict.SKIPPED, "the server does not say")
        return
    if found.partitioned:
        told = f"partitioned: {_some(found.partitioned)}; the upstream cannot list the objects of {database}"
        yield Check("upstream", "tables", Verdict.FAILED, told, PartitionedTable.default_remedy, PartitionedTable.code)
    elif found.unreplicated:
        told = f"{len(found.ids)} tables; not replicated: {_some([f'{name} ({kind})' for name, kind in found.unreplicated])}"
        yield Check(
            "upstream",
            "tables",
            Verdict.WARNING,
            told,
            "Nothing, if they are not needed: views, external and cluster tables stay out.",
        )
    else:
        yield Check("upstream", "tables", Verdict.OK, f"{len(found.ids)} tables")
    if not upstream.flush_on_demand:
        yield Check("upstream", "flush on demand", Verdict.SKIPPED, "the subscription waits instead (flush = wait)")
    elif not found.ids:
        yield Check("upstream", "flush on demand", Verdict.SKIPPED, "there is no table to try it on")
    elif snapshots.flush_tables(upstream.connect, found.ids[:1]):
        yield Check("upstream", "flush on demand", Verdict.OK, "mo_ctl is allowed")
    else:
        remedy = "Log in with role moadmin of account sys, or subscribe with --flush wait: an iteration then waits about a minute."
        yield Check("upstream", "flush on demand", Verdict.WARNING, "mo_ctl is not allowed", remedy)


# ----


def _asked(side: str, what: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(side, what, Verdict.OK, ask())
    except CcprError as error:
        return _failed(side, what, error)


def _failed(side: str, what: str, error: CcprError) -> Check:
    return Check(side, what, Verdict.FAILED, f"{error.message} [{error.subject}]", error.remedy, error.code)


def _some(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more
