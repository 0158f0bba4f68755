"""A MatrixOne that takes a copy from the relay, seen from the outside: its statements, and the row of its task.

Source: docs/upstream.md 9 and "A MatrixOne behind the relay".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ccpr.matrixone.client.errors import (
    BadAnswer,
    NotPermitted,
    StatementFailed,
    StatementUnknown,
    TableMissing,
    UpstreamError,
)
from ccpr.matrixone.client.upstream_session import Answer, Session, integer, text
from ccpr.matrixone.errors import Transient
from ccpr.matrixone.sql.quoting import in_backquotes, quote_string
from ccpr.relay.errors import DownstreamUnfit

_TASK_ID = re.compile(r"[0-9a-f-]{36}")
_LONGEST_ANSWER = 16 << 20  # bytes of the list of subscriptions
_LONGEST_ERROR = 5000  # characters that are kept of its error, as of our own
_GREATEST_STATE = 127  # for which there is room in our table; there are four


def is_refusal(error: UpstreamError) -> bool:
    """Whether the cluster itself answered with the error, in words that we know or not: what is asked for once, by a
    command, is not tried again by itself."""
    return isinstance(error, StatementFailed) or not isinstance(error, Transient)


class TaskState(IntEnum):
    """`mo_ccpr_log.state`."""

    RUNNING = 0
    ERROR = 1
    PAUSED = 2
    DROPPED = 3


@dataclass(frozen=True, slots=True)
class Task:
    """A subscription of a MatrixOne, as its row of `mo_ccpr_log` has it.

    Attributes
    ----------
    publication : that it subscribes to.
    iterations : that have ended well.
    watermark : time of the last of them in nanoseconds; 0 before the first.
    error : empty if the last attempt succeeded; `R:…` is tried again, `N:…` is not.
    """

    id: str
    database: str
    publication: str
    state: int
    iterations: int
    watermark: int
    error: str


class Downstream:
    """The statements. Used by one thread; `session` is a login of account sys."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def check(self) -> None:
        """Raises DownstreamUnfit."""
        try:
            self.tasks()
        except (StatementUnknown, TableMissing, NotPermitted) as error:
            message = f"it has no subscriptions: {error.message}"
            raise DownstreamUnfit(message, subject=self.session.endpoint.masked()) from error

    def check_reads_abort_column(self) -> None:
        """Raises DownstreamUnfit for a release that cannot read objects with this column, which ends at the first one.
        What is asked for came five days after it could."""
        try:
            self.session.read("SELECT uuid_v7()")
        except (StatementUnknown, StatementFailed) as error:
            raise DownstreamUnfit(
                "it is of an earlier release than the source, whose objects would end its server",
                subject=self.session.endpoint.masked(),
                remedy="Upgrade it to the release of the source, or to a later one.",
            ) from error

    def tasks(self) -> list[Task]:
        """Those that were not dropped. Raises BadAnswer for numbers and ids that cannot be."""
        answer = self.session.read(
            "SELECT task_id, db_name, subscription_name, state, iteration_lsn, watermark, error_message "
            "FROM mo_catalog.mo_ccpr_log WHERE drop_at IS NULL",
            longest=_LONGEST_ANSWER,
        )
        return [task for task in map(_task, answer.rows) if task.state != TaskState.DROPPED]

    def has_database(self, name: str) -> bool:
        return self.database_id(name) is not None

    def database_id(self, name: str) -> int | None:
        """The number that no other database ever has, also none of this name; None if there is no such database."""
        wanted = quote_string(name.lower(), escape_lines=False)
        rows = self.session.read(f"SELECT dat_id FROM mo_catalog.mo_database WHERE datname = {wanted}").rows
        return integer(rows[0][0] or b"", "dat_id") if rows else None

    def subscribe(self, database: str, login: str, password: str, address: str, publication: str) -> None:
        """Create the database from a relay. One transaction: it is there with its task, or nothing is. `password` has
        no character that a URI gives a meaning."""
        uri = quote_string(f"mysql://sys#{login}:{password}@{address}", escape_lines=False)
        self.session.query(
            f"CREATE DATABASE {in_backquotes(database)} FROM {uri} sys "
            f"PUBLICATION {in_backquotes(publication)} SYNC INTERVAL 2"
        )

    def resume(self, task_id: str) -> None:
        self.session.read(f"RESUME CCPR SUBSCRIPTION '{_checked(task_id)}'")

    def unsubscribe(self, task_id: str) -> None:
        self.session.read(f"DROP CCPR SUBSCRIPTION IF EXISTS '{_checked(task_id)}'")

    def drop_database(self, name: str) -> None:
        self.session.read(f"DROP DATABASE IF EXISTS {in_backquotes(name)}")

    def drop_own_database(self, name: str, number: int | None) -> None:
        """Drop the database of this name if it is the one with this number. Another one was made by others after ours
        was dropped, and is left."""
        if number is not None and self.database_id(name) == number:
            self.drop_database(name)

    def drop_unfinished(self, task: Task) -> None:
        """Drop a database that its task has not finished. The database first needs to be free of its task; killed in
        between, a database without a task is left, which only an operator may drop."""
        self.unsubscribe(task.id)
        self.drop_database(task.database)

    def clone_database(self, name: str, of: str) -> None:
        """A copy under another name, in one transaction and without copying objects."""
        self.session.query(f"CREATE DATABASE {in_backquotes(name)} CLONE {in_backquotes(of)}")

    def figures(self, database: str, table: str, expressions: Sequence[str]) -> tuple[bytes | None, ...]:
        """The values of expressions over a table."""
        chosen = ", ".join(expressions)
        answer: Answer = self.session.read(f"SELECT {chosen} FROM {in_backquotes(database)}.{in_backquotes(table)}")
        return answer.rows[0]


def _task(row: tuple[bytes | None, ...]) -> Task:
    names = ("task_id", "db_name", "subscription_name", "state", "iteration_lsn", "watermark", "error_message")
    task_id, database, publication = (text(cell or b"", name) for cell, name in zip(row[:3], names, strict=False))
    if not _TASK_ID.fullmatch(task_id):
        raise BadAnswer(f"not the id of a task: {task_id[:60]!r}", subject="task_id")
    state = integer(row[3] or b"0", "state", least=0, greatest=_GREATEST_STATE)
    lsn, watermark = (integer(cell or b"0", name, least=0) for cell, name in zip(row[4:6], names[4:], strict=False))
    error = text(row[6] or b"", "error_message")[:_LONGEST_ERROR]
    return Task(task_id, database, publication, state, lsn, watermark, error)


def _checked(task_id: str) -> str:
    if not _TASK_ID.fullmatch(task_id):
        raise ValueError("not the id of a task")
    return task_id
