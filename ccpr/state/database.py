"""The connection to the catalog database, which stores subscriptions, leases and checkpoints. SQLite in WAL mode when
nothing is configured; MySQL or MariaDB by URL (decision state-folder).

Errors of the database become typed errors here. What is safe to repeat is repeated while the database does not answer
(decision guarded-commit).

Isolation. SQLite: a transaction that may write is BEGIN IMMEDIATE, so they run one after another; readers see what was
committed when they began, and wait for nobody. MySQL and MariaDB: READ COMMITTED (decision guarded-commit): InnoDB
evaluates an UPDATE's WHERE against the newest committed row and holds the row's lock until the end, at any isolation
level. What must be read at one moment is read by one statement.
"""

import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy import event, exc

from ccpr.base.errors import let_interrupt_pass
from ccpr.base.file_modes import create_file, make_folder
from ccpr.matrixone.errors import CcprError
from ccpr.state.errors import StateDiskFull, StateUnavailable, StateUnreadable

if TYPE_CHECKING:
    from ccpr.matrixone.client.login_guard import GuardedConnection

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0  # how long to wait for a database that does not answer; a restart takes a few seconds
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 60  # longer than InnoDB waits for a row lock (50 s), which has an error of its own
_LOCK_SECONDS = 60

_TURNS: "WeakKeyDictionary[sa.Engine, threading.RLock]" = WeakKeyDictionary()
_TURNS_LOCK = threading.Lock()
_BEGIN = "begin"  # under this name `reading` says in SQLite how the next transaction of a connection begins
_TOGETHER = threading.local()  # `connection`: that of this thread's block of `together`

# Errors of MySQL and MariaDB that say themselves that trying again is in vain: of a login, a right, a name, a value.
# Any other one may pass (decision unknown-errors-pass).
_REMEDIES = {
    1044: "Grant the user of CCPR_CATALOG all privileges on that database.",
    1045: "Check user and password in CCPR_CATALOG.",
    1698: "Check user and password in CCPR_CATALOG.",
    1049: "CREATE DATABASE <name> CHARACTER SET utf8mb4; as an administrator of the catalog's server.",
    1142: "Grant the user of CCPR_CATALOG all privileges on that database.",
    1143: "Grant the user of CCPR_CATALOG all privileges on that database.",
    1130: "Allow this machine to connect to the catalog's server.",
    1129: "FLUSH HOSTS; as an administrator of the catalog's server.",
}
_FINAL = {*_REMEDIES, 1046, 1054, 1146, 1264, 1366, 1406}
_CHECK_CERTIFICATE = (
    "Have the certificate of the catalog's server checked: add ?ssl_ca=FILE to CCPR_CATALOG. "
    "Or let the user log in with mysql_native_password."
)
_SQLITE_REMEDIES = {
    sqlite3.SQLITE_READONLY: "Give this user the right to write the file and its folder.",
    sqlite3.SQLITE_CANTOPEN: "Check CCPR_HOME and the permissions of the files in it.",
    sqlite3.SQLITE_NOTADB: "The file is not a database: restore it from a copy, or set another CCPR_HOME.",
    sqlite3.SQLITE_CORRUPT: "The file is damaged: restore it from a copy. The mirrors stay readable without it.",
}
_SQLITE_FINAL = {
    *_SQLITE_REMEDIES,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_RANGE,
}


# What SQLite says where its log, or the index of that, cannot grow: an error of input and output, or of opening.
_SQLITE_OF_A_FULL_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_LEAST_FREE_BYTES = 1 << 20

# What is raised where a stored value is not what this program would have written.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def create_engine(url: str) -> sa.Engine:
    """An engine for the URL; does not connect yet. Raises StateUnreadable, which does not repeat the URL."""
    try:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite":
            engine = sa.create_engine(parsed)
        else:
            waits = {
                "connect_timeout": _CONNECT_SECONDS,
                "read_timeout": _ANSWER_SECONDS,
                "write_timeout": _ANSWER_SECONDS,
            }
            defaults = {name: value for name, value in waits.items() if name not in parsed.query}
            options = {"connect_args": defaults} if parsed.get_driver_name() == "pymysql" else {}
            engine = sa.create_engine(parsed, pool_pre_ping=True, isolation_level="READ COMMITTED", **options)
    except (exc.ArgumentError, ImportError, ValueError) as error:
        raise StateUnreadable(
            f"not the URL of a catalog database that can be opened ({type(error).__name__})",
            subject="CCPR_CATALOG",
            remedy="Set it to mysql+pymysql://user:password@host:3306/database, or unset it to use SQLite.",
        ) from None  # the cause's text may repeat the URL with its password
    if engine.dialect.name == "sqlite":
        if engine.url.database:
            _make_file(engine.url.database)
        event.listen(engine, "connect", _sqlite_settings)
        # Not by a listener: where an engine has one, each statement is dearer.
        engine.dialect.do_begin = _sqlite_begin
    elif engine.dialect.driver == "pymysql":
        event.listen(engine, "do_connect", _guarded)
    return engine


def _make_file(database: str) -> None:
    """Make the file for SQLite, which would make it for all users to read. Its -wal and -shm get the same mode."""
    path = Path(database)
    try:
        make_folder(path.parent)
        if database != ":memory:" and not database.startswith("file:"):
            create_file(path)
    except OSError as error:
        raise StateUnreadable(
            f"the catalog database cannot be created: {error.strerror}", subject=str(path.parent)
        ) from error


def place(engine: sa.Engine) -> str:
    """The URL to show: without the password, and without options, which may contain one."""
    return engine.url.set(query={}).render_as_string(hide_password=True)


@contextmanager
def transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction; within `together` that of the block. Raises StateUnavailable, StateUnreadable; IntegrityError for
    a violated unique key."""
    if (joined := _joined_to(engine)) is not None:
        yield joined
        return
    with _turn(engine), typed(engine), engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that only reads; within `together` that of the block. In SQLite it waits for no writer. Raises
    StateUnavailable, StateUnreadable."""
    if (joined := _joined_to(engine)) is not None:
        yield joined
        return
    with typed(engine), engine.connect() as connection:
        connection.info[_BEGIN] = "BEGIN"
        with connection.begin():
            yield connection


@contextmanager
def together(engine: sa.Engine) -> Iterator[None]:
    """One transaction in the place of those that this thread begins in the block: of many small ones the beginnings and
    ends are half the cost. In SQLite all others wait for its end, so nothing in it may wait for anything else.

    Nothing is repeated in the block; who opens it may be `repeatable` as a whole.
    """
    if _joined() is not None:
        raise RuntimeError("a block of `together` is open already")
    with transaction(engine) as connection:
        _TOGETHER.connection = connection
        try:
            yield
        finally:
            _TOGETHER.connection = None


def _joined() -> sa.Connection | None:
    return getattr(_TOGETHER, "connection", None)


def _joined_to(engine: sa.Engine) -> sa.Connection | None:
    joined = _joined()
    return joined if joined is not None and joined.engine is engine else None


@contextmanager
def _turn(engine: sa.Engine) -> Iterator[None]:
    """In SQLite transactions that may write run one after another. Those of this process's threads queue here: SQLite
    itself would let each look again after a pause, and with many threads one may find it locked for longer than it
    waits."""
    if engine.dialect.name != "sqlite":
        yield
        return
    with _TURNS_LOCK:
        turn = _TURNS.setdefault(engine, threading.RLock())
    if not turn.acquire(timeout=_LOCK_SECONDS):
        raise StateUnavailable("the catalog database is busy with other transactions", subject=place(engine))
    try:
        yield
    finally:
        turn.release()


@contextmanager
def typed(engine: sa.Engine) -> Iterator[None]:
    """Errors of the database in the block become StateUnavailable or StateUnreadable, but for IntegrityError."""
    try:
        yield
    except exc.IntegrityError:
        raise
    except exc.DBAPIError as error:
        let_interrupt_pass(error)
        raise _typed(engine, error) from error
    except exc.TimeoutError as error:  # of the pool
        raise StateUnavailable("the catalog database has no free connection", subject=place(engine)) from error


def repeatable(function: Callable[P, T]) -> Callable[P, T]:
    """Repeat a function while the database does not answer, for RETRY_SECONDS at most; then StateUnavailable.

    Only for functions that are safe to repeat: reads, and whole transactions that write the same again.
    """

    @wraps(function)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)  # tenacity takes longer than a short query, and to import it longer still
        except StateUnavailable as error:
            if _joined() is not None or isinstance(error, StateDiskFull):
                raise
            _log.warning("the state database does not answer, it is asked for %.0f s: %s", RETRY_SECONDS, error.message)
        import tenacity

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(StateUnavailable)
            & tenacity.retry_if_not_exception_type(StateDiskFull),
            stop=lambda state: (state.seconds_since_start or 0.0) >= RETRY_SECONDS,
            wait=tenacity.wait_exponential_jitter(multiplier=0.05, max=1.0, jitter=0.05),
            before_sleep=tenacity.before_sleep_log(_log, logging.DEBUG),
            reraise=True,
        )
        return attempts(function, *args, **kwargs)

    return repeated


@contextmanager
def unless_taken(taken: CcprError) -> Iterator[None]:
    """A violated unique key in the block becomes this error."""
    try:
        yield
    except exc.IntegrityError as error:
        raise taken from error


def fetch(connection: sa.Connection, query: sa.Select, **parameters: object) -> list[sa.Row]:
    """All rows of a query. One that is built once, with parameters, costs half of one that is built for each call.

    Raises StateUnreadable for a value that is not of its column's type, which SQLite does not prevent.
    """
    try:
        return list(connection.execute(query, parameters).all())
    except (ValueError, TypeError) as error:
        raise StateUnreadable(
            f"a row of the catalog database cannot be read: {error}", subject=place(connection.engine)
        ) from error


@contextmanager
def understood(message: str, subject: str) -> Iterator[None]:
    """For parsing a stored row: errors about values that this program would not have written become StateUnreadable."""
    try:
        yield
    except UNREADABLE as error:
        raise unreadable(message, subject, error) from error


def unreadable(message: str, subject: str, cause: Exception) -> StateUnreadable:
    return StateUnreadable(f"{message}: {cause}", subject=subject, remedy="Restore the catalog database.")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in slices of at most `size`: for statements, whose parameters are limited in number."""
    return (items[start : start + size] for start in range(0, len(items), size))


@contextmanager
def exclusive(engine: sa.Engine, what: str) -> Iterator[sa.Connection]:
    """A connection that only one process at a time has for `what`; the others wait up to a minute.

    SQLite: one transaction, which ends with the block. MySQL: a named lock, on a connection with autocommit, since
    statements that change tables commit anyway. The server frees the lock when the connection ends. Raises
    StateUnavailable.
    """
    if engine.dialect.name == "sqlite":
        with transaction(engine) as connection:
            yield connection
        return
    name = f"ccpr {what} {engine.url.database}"[:64]
    with typed(engine), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if connection.scalar(sa.select(sa.func.get_lock(name, _LOCK_SECONDS))) != 1:
            raise StateUnavailable(
                f"another process has held the lock '{name}' for {_LOCK_SECONDS} s", subject=place(engine)
            )
        try:
            yield connection
        finally:
            if not connection.invalidated:
                connection.execute(sa.select(sa.func.release_lock(name)))


def _typed(engine: sa.Engine, error: exc.DBAPIError) -> StateUnavailable | StateUnreadable:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        number = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind, the rest a detail
        passing, remedy, text = number not in _SQLITE_FINAL, _SQLITE_REMEDIES.get(number), str(cause)
        file = Path(str(engine.url.database))
        if number in _SQLITE_OF_A_FULL_DISK and (number == sqlite3.SQLITE_FULL or _is_full(file)):
            return StateDiskFull("there is no space left for the catalog database", subject=str(file))
        if number == sqlite3.SQLITE_CANTOPEN and file.is_file() and os.access(file, os.R_OK | os.W_OK):
            passing = True  # the process has no descriptor left, or the disk has an error
    else:
        parts = cause.args if cause is not None else ()
        number = parts[0] if parts and isinstance(parts[0], int) else 0
        passing, remedy = number not in _FINAL or error.connection_invalidated, _REMEDIES.get(number)
        from ccpr.matrixone.client.login_guard import PasswordWanted

        remedy = _CHECK_CERTIFICATE if isinstance(cause, PasswordWanted) else remedy
        text = f"{number}: {parts[1] if len(parts) > 1 else cause}"
    if passing:
        return StateUnavailable(f"the catalog database does not answer now ({text:.500})", subject=place(engine))
    return StateUnreadable(f"the catalog database cannot be used ({text:.500})", subject=place(engine), remedy=remedy)


def _is_full(file: Path) -> bool:
    try:
        return shutil.disk_usage(file.parent).free < _LEAST_FREE_BYTES
    except OSError:
        return False


def _guarded(_dialect, _record, _arguments, options) -> "GuardedConnection":
    from ccpr.matrixone.client.login_guard import GuardedConnection  # PyMySQL, which SQLite does not need

    return GuardedConnection(sha2=True, **options)


def _sqlite_settings(connection, _record) -> None:
    # We begin transactions ourselves: the driver would begin only at the first write, too late to lock earlier reads.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=10000")  # first, since changing the journal mode takes a lock, too
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # a committed point survives a power cut
    cursor.close()


def _sqlite_begin(dbapi_connection: sa.PoolProxiedConnection) -> None:
    dbapi_connection.cursor().execute(dbapi_connection.info.pop(_BEGIN, "BEGIN IMMEDIATE"))
