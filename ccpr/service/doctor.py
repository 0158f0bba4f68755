"""Checks whether replication can work, on this machine and upstream, before anything is copied (docs/requirements.md
B13).

Each check uses what a run would use, and nothing else. A file that is written as a test is deleted again. A check that
fails does not stop the others, except those that depend on it.
"""

import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from ccpr.base.extras import absent
from ccpr.base.file_modes import closed_folder, is_open_to_others
from ccpr.base.wording import first_names
from ccpr.matrixone.client import snapshots
from ccpr.matrixone.client.capabilities import Capabilities, check_interface, probe
from ccpr.matrixone.client.endpoint import SYS_ACCOUNT, Endpoint
from ccpr.matrixone.client.errors import NotPermitted
from ccpr.matrixone.client.inspection import DatabaseTables, current_role, read_clock, read_tables, server_version
from ccpr.matrixone.client.publication_offers import Publication, check_admission, choose_publication
from ccpr.matrixone.client.retry import NO_RETRY
from ccpr.matrixone.client.session import Session
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.layout import HEAD
from ccpr.pipeline.lag import SHOWN_SKEW_SECONDS, clock_skew
from ccpr.pipeline.spark.java import find_java
from ccpr.service.file_systems import network_file_system
from ccpr.service.mirror_places import try_writing
from ccpr.service.names_meant import similar_names
from ccpr.service.room import LOW_BYTES, TOO_FEW_BYTES, Room, mirror_room
from ccpr.service.sealed import unopened
from ccpr.service.subscriptions import check_databases
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.database import place
from ccpr.state.errors import KeyLost, StateUnreadable
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription

_MOST_LOGINS = 20  # that are named
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 15.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"  # it depends on one that failed, or cannot be known


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its result.

    Attributes
    ----------
    side : ``here`` or ``upstream``.
    told : what was found.
    code : of the error, if there is one; `ccpr explain` has more.
    """

    side: str
    what: str
    result: Verdict
    told: str
    remedy: str = ""
    code: str = ""


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


# ---- here


def check_here(workspace: Workspace) -> Iterator[Check]:
    folder = next(path for path in (workspace.home, *workspace.home.parents) if path.exists())
    yield _checked("here", "state folder", partial(_writable, workspace.home, folder))
    yield _space(folder)
    file_system = check_file_system(folder)
    if file_system is not None:
        yield file_system
    key = _checked("here", "key file", partial(_key, workspace))
    catalog = _checked("here", "catalog database", partial(_catalog, workspace))
    yield from (key, catalog)
    if workspace.has_catalog and key.result is catalog.result is Verdict.OK:
        yield _checked("here", "stored logins", partial(_logins, workspace))
    yield _state_modes(workspace)
    yield _java(workspace)


def check_file_system(folder: Path, kind_of: Callable[[Path], str | None] = network_file_system) -> Check | None:
    """A warning if the state folder is on a file system where SQLite and file locks may not work."""
    kind = kind_of(folder)
    if kind is None:
        return None
    found = f"{folder} is on {kind}: SQLite's log and file locks do not work between machines there"
    remedy = (
        "Use it from one machine only, or set CCPR_HOME to a local folder; for several machines CCPR_CATALOG to a "
        "MySQL or MariaDB. Mirrors may stay there."
    )
    return Check("here", "file system", Verdict.WARNING, found, remedy)


def check_mirror_store(workspace: Workspace, row: LogRow) -> Check:
    def check() -> str:
        store = workspace.mirror(row.subscription_name, published=False).store
        found = "a mirror is there" if store.size(HEAD) is not None else "no mirror yet"
        if workspace.log.is_held(row):
            return f"{store.url}: {found}; it is in use, so writing was not tried"
        try_writing(store)
        return f"{store.url}: {found}, can be written"

    return _checked("here", "mirror", check)


def check_mirror_modes(workspace: Workspace, row: LogRow) -> Check | None:
    """Whether those may read the mirror who should; None where no modes say it, or nothing is there yet."""
    subscription = Subscription.from_row(row)
    store = workspace.mirror_of(subscription).store
    folder = store.folder
    if folder is None or not folder.is_dir():
        return None
    name, place = subscription.name, shlex.quote(str(folder))
    what = "mirror's modes"
    try:
        closed, found = closed_folder(folder / HEAD), list(folder.iterdir())
        readable = [path for path in found if is_open_to_others(path)]
        if not store.shared and readable:
            told = f"other users of this machine can read {folder}"
            remedy = f"chmod -R go= {place}; or, if they are meant to, `ccpr alter {name} --shared`."
            return Check("here", what, Verdict.WARNING, told, remedy)
        if store.shared and closed is not None:
            told = f"the mirror is shared, but other users may not enter {closed}"
            remedy = f"chmod a+x {shlex.quote(str(closed))}; or `ccpr alter {name} --not-shared`."
            return Check("here", what, Verdict.WARNING, told, remedy)
        if store.shared and len(readable) < len(found):
            told = f"the mirror is shared, but other users cannot read all of {folder}"
            return Check("here", what, Verdict.WARNING, told, f"chmod -R a+rX {place}")
    except OSError as error:
        return Check("here", what, Verdict.SKIPPED, f"they cannot be read: {error.strerror}")
    told = "other users of this machine can read it" if store.shared else "other users of this machine cannot read it"
    return Check("here", what, Verdict.OK, told)


def _state_modes(workspace: Workspace) -> Check:
    """A state folder that was made by another program, or by version 0.1.0, may let others read the catalog."""
    files = [path for path in workspace.home.glob("catalog.db*") if path.is_file()]
    try:
        readable = [path.name for path in files if is_open_to_others(path)]
    except OSError as error:
        return Check("here", "file modes", Verdict.SKIPPED, f"they cannot be read: {error.strerror}")
    if readable:
        told = f"other users of this machine can read {', '.join(sorted(readable))} in {workspace.home}"
        remedy = f"chmod go= {shlex.quote(str(workspace.home))}/catalog.db*"
        return Check("here", "file modes", Verdict.WARNING, told, remedy)
    return Check("here", "file modes", Verdict.OK, "other users of this machine cannot read the state")


def _writable(home: Path, folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"it cannot be written: {error.strerror}"
        raise StateUnreadable(text, subject=str(home), remedy="Make it writable, or set CCPR_HOME.") from error
    return f"{home}" if folder == home else f"{home} will be created"


def check_mirror_room(workspace: Workspace, row: LogRow) -> Check | None:
    """How much is free where the mirror is; None for an object store."""
    subscription = Subscription.from_row(row)
    room = mirror_room(workspace, subscription)
    if room is None:
        return None
    return _room_check(
        "mirror's space", room, f"Free space there, or move it: `ccpr alter {subscription.name} --mirror`."
    )


def _space(folder: Path) -> Check:
    room = Room.of(folder)
    if room is None:
        return Check("here", "space", Verdict.SKIPPED, f"the file system of {folder} does not say")
    return _room_check("space", room, "Free space, or use another place for the mirror: --mirror.")


def _room_check(what: str, room: Room, remedy: str) -> Check:
    found = f"{room.free / 1e9:.1f} GB free"
    if room.free >= LOW_BYTES:
        return Check("here", what, Verdict.OK, found)
    return Check("here", what, Verdict.FAILED if room.free < TOO_FEW_BYTES else Verdict.WARNING, found, remedy)


def _key(workspace: Workspace) -> str:
    path = workspace.vault.path
    if not path.exists():
        return f"{path} will be created"
    workspace.vault.seal("", None)  # this checks its permissions and content
    return f"{path}, readable by its owner only"


def _catalog(workspace: Workspace) -> str:
    if not workspace.has_catalog:
        return "SQLite, will be created in the state folder"
    rows, bad = workspace.log.all_rows()
    if bad:
        raise bad[0].error
    return f"{place(workspace.log.engine)}, {len(rows)} subscriptions"


def _logins(workspace: Workspace) -> str:
    if lost := unopened(workspace):
        again = dict.fromkeys(one.repair for one in lost)
        raise KeyLost(
            f"the key file does not open that of {first_names((one.what for one in lost), _MOST_LOGINS)}",
            subject=str(workspace.vault.path),
            remedy=f"Restore the key file that sealed them. Else: {first_names(again, _MOST_LOGINS)}.",
        )
    return "the key file opens all"


def _java(workspace: Workspace) -> Check:
    if absent("pyspark"):
        found = "Spark is not installed; all is copied by this program itself"
        return Check("here", "Java for Spark", Verdict.SKIPPED, found)
    try:
        if workspace.home.is_dir():
            java = find_java(workspace.home / "java")
        else:
            with tempfile.TemporaryDirectory(prefix="ccpr-") as cache:
                java = find_java(Path(cache))
    except CcprError as error:
        found = f"{error.message}; everything but Spark works"
        return Check("here", "Java for Spark", Verdict.WARNING, found, error.remedy, error.code)
    return Check("here", "Java for Spark", Verdict.OK, f"{java.version} ({java.origin})")


# ---- upstream


def connect_once(endpoint: Endpoint, password: str) -> Session:
    """One attempt with short timeouts, as its caller waits."""
    return Session.connect(
        endpoint, password, connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, retry=NO_RETRY
    )


def upstream_of(workspace: Workspace, row: LogRow) -> CheckedUpstream:
    subscription, known = Subscription.from_row(row), Context.from_text(row.context).capabilities

    def connect() -> Session:
        return connect_once(
            subscription.endpoint, workspace.vault.open(subscription.sealed_password, subscription.endpoint)
        )

    publication, scope = subscription.publication, (subscription.database, subscription.table)
    names = (publication.name, publication.publisher)
    return CheckedUpstream(subscription.endpoint, connect, *scope, *names, known, subscription.settings)


def check_upstream(upstream: CheckedUpstream, clock: Callable[[], float]) -> Iterator[Check]:
    try:
        session = upstream.connect()
    except CcprError as error:
        yield _failed("upstream", "login", error)
        yield Check("upstream", "all else", Verdict.SKIPPED, "it needs a login")
        return
    with session:
        yield Check("upstream", "login", Verdict.OK, f"{upstream.endpoint.login} at {upstream.endpoint.address}")
        try:
            check_interface(session)
        except CcprError as error:
            yield _failed("upstream", "interface", error)
            yield Check("upstream", "all else", Verdict.SKIPPED, "it needs the interface")
            return
        yield Check("upstream", "interface", Verdict.OK, "it has the commands and columns that replication needs")
        checks: dict[str, Callable[[], Iterator[Check]]] = {
            "encryption": partial(_encryption, session, upstream),
            "version": partial(_version, session),
            "capabilities": partial(_capabilities, session, upstream),
            "role": partial(_role, session),
            "clock": partial(_clock, session, clock),
            "publication": partial(_scope, session, upstream),
        }
        for what, check in checks.items():
            try:
                yield from check()
            except CcprError as error:
                yield _failed("upstream", what, error)


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


def _role(session: Session) -> Iterator[Check]:
    account, role = session.endpoint.account.lower(), current_role(session)
    if account == SYS_ACCOUNT and (role or "").lower() == "moadmin":
        yield Check("upstream", "role", Verdict.OK, "moadmin of account sys")
    elif account == SYS_ACCOUNT and not role:
        yield Check("upstream", "role", Verdict.SKIPPED, "the server does not say")
    else:
        found = f"account {account}, role {role or 'unknown'}: replication needs moadmin of account sys"
        yield Check("upstream", "role", Verdict.FAILED, found, NotPermitted.default_remedy, NotPermitted.code)


def _clock(session: Session, clock: Callable[[], float]) -> Iterator[Check]:
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
            publication = choose_publication(session, database, table, upstream.publication, publisher)
            check_admission(session, publication, database, table, listed=upstream.publication is not None)
    except CcprError as error:
        yield _failed("upstream", "publication", error)
        yield Check("upstream", "tables", Verdict.SKIPPED, "they cannot be read without the publication")
        return
    wanted = Subscription(
        "", "", upstream.endpoint, "", publication, upstream.database, upstream.table, upstream.settings
    )
    found = f"{publication.publisher}.{publication.name} covers {wanted.scope} and admits the login"
    yield Check("upstream", "publication", Verdict.OK, found)
    if wanted.of_account:
        databases = check_databases(session, wanted)
        yield Check("upstream", "databases", Verdict.OK, f"{len(databases)}: {first_names(databases)}")
        yield from _alters(session, upstream, wanted)
        yield from _tables(upstream, wanted, _read_databases(session, publication, databases))
    else:
        yield from _alters(session, upstream, wanted)
        yield from _tables(upstream, wanted, read_tables(session, publication, upstream.database))


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


def _read_databases(session: Session, publication: Publication, databases: Sequence[str]) -> DatabaseTables | None:
    """The relations of several databases; what is not a table with its full name."""
    found = {name: read_tables(session, publication, name) for name in databases}
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
        names = first_names(f"{name} ({kind})" for name, kind in found.unreplicated)
        remedy = "Views, external and cluster tables are not replicated. If they are not needed, no action is required."
        yield Check("upstream", "tables", Verdict.WARNING, f"{text}; not replicated: {names}", remedy)
    else:
        yield Check("upstream", "tables", Verdict.OK, text)
    yield _flush(upstream, found.ids)


def _flush(upstream: CheckedUpstream, table_ids: Sequence[int]) -> Check:
    if upstream.settings.flush != "on_demand":
        return Check("upstream", "flush on demand", Verdict.SKIPPED, "the subscription waits instead (flush = wait)")
    if not table_ids:
        return Check("upstream", "flush on demand", Verdict.SKIPPED, "there is no table to try it on")
    if snapshots.flush_tables(upstream.connect, table_ids[:1]):
        return Check("upstream", "flush on demand", Verdict.OK, "mo_ctl is allowed")
    remedy = (
        "Log in with role moadmin of account sys, or subscribe with --flush wait: then an iteration waits about a "
        "minute."
    )
    return Check("upstream", "flush on demand", Verdict.WARNING, "mo_ctl is not allowed", remedy)


# ----


def _checked(side: str, what: str, check: Callable[[], str]) -> Check:
    try:
        return Check(side, what, Verdict.OK, check())
    except CcprError as error:
        return _failed(side, what, error)


def _failed(side: str, what: str, error: CcprError) -> Check:
    return Check(side, what, Verdict.FAILED, f"{error.message} [{error.subject}]", error.remedy, error.code)
