"""Changes of definitions in a target, which has no transactions for them: each statement leaves an intent first.

An intent is a row with all statements of a change, how many of them have run, and a digest of the definitions of all
tables concerned as they were before the next one. After a kill the digest tells whether that one ran: these tables are
ours alone, and a single statement runs wholly or not at all (atomic DDL: MariaDB 10.6, MySQL 8). A statement that
changes no definition may run twice, which changes nothing again. A change that was begun is brought to its end. What
is registered, and the points, follow in the transaction that takes the intent away.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql
import sqlalchemy as sa

from matrixone.schema import integer_of, text_of
from matrixone.sql.quoting import quote_name
from replication.checkpoint.store import Location
from replication.errors import StateUnreadable
from replication.targets.base import TableState, TargetTable
from replication.targets.errors import (
    TargetChangeStuck,
    TargetDenied,
    TargetRefused,
    TargetUnavailable,
    TargetValueRefused,
)
from replication.targets.registry import intents, table_from_json, table_json
from replication.targets.session import TargetSession, typed_error

_log = logging.getLogger(__name__)
Name = tuple[str, str]  # database, table


@dataclass(frozen=True, slots=True)
class Intent:
    """Statements, and what holds when they have run.

    Attributes
    ----------
    names : every table that a statement makes, changes, renames or drops, by each name that it has meanwhile.
    tables : registered then, in `state`.
    points : where these stand then; a table that is not named stays where it is.
    gone : ids that are registered no more, and have no point.
    loaded : ids whose load has ended.
    optional : numbers of the statements that the server may refuse: then the next one is run.
    """

    statements: tuple[str, ...]
    names: tuple[Name, ...]
    tables: tuple[TargetTable, ...] = ()
    state: TableState = TableState.LIVE
    points: tuple[tuple[int, Location], ...] = ()
    gone: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    optional: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "statements": list(self.statements),
            "names": [list(name) for name in self.names],
            "tables": [table_json(table) for table in self.tables],
            "state": self.state.value,
            "points": [[table_id, location.lsn, location.snapshot_ts] for table_id, location in self.points],
            "gone": list(self.gone),
            "loaded": list(self.loaded),
            "optional": list(self.optional),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Intent":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        points = (
            (integer_of(table_id), Location(integer_of(lsn), integer_of(ts))) for table_id, lsn, ts in value["points"]
        )
        return cls(
            tuple(map(text_of, value["statements"])),
            tuple((text_of(database), text_of(name)) for database, name in value["names"]),
            tuple(map(table_from_json, value["tables"])),
            TableState(value["state"]),
            tuple(points),
            tuple(map(integer_of, value["gone"])),
            tuple(map(integer_of, value["loaded"])),
            tuple(map(integer_of, value.get("optional", ()))),
        )

    @property
    def table_ids(self) -> tuple[int, ...]:
        return (*(table.id for table in self.tables), *self.gone)

    @property
    def subject(self) -> str:
        return ", ".join(f"table {database}.{name}" for database, name in self.names[:2]) or "target"


class Intents:
    """The changes of one subscription.

    Parameters
    ----------
    finish : registers what a change has led to, in one transaction, in which it also calls what it is given.
    """

    def __init__(
        self, session: TargetSession, task_id: str, finish: Callable[[Intent, Callable[[sa.Connection], None]], None]
    ) -> None:
        self._session, self._task_id, self._finish = session, task_id, finish
        self.stuck: dict[int, str] = {}  # table id -> why its change cannot go on

    def run(self, change: Intent) -> dict[int, str]:
        """Raises an error of the first statement, after which nothing has changed, or TargetChangeStuck for a later
        one.

        Returns what the server had against optional statements, by their numbers.
        """
        key = uuid.uuid4().hex
        with self._session.transaction() as connection:
            row = {
                "id": key,
                "task_id": self._task_id,
                "change": json.dumps(change.to_json(), ensure_ascii=False),
                "next_statement": 0,
            }
            connection.execute(intents.insert().values(**row, before=self._digest(change), problem=""))
        return self._go_on(key, change, 0)

    def settle(self) -> None:
        """Bring what an earlier session has begun to its end. What cannot be is in `stuck`. Raises TargetUnavailable,
        StateUnreadable."""
        self.stuck = {}
        with self._session.transaction() as connection:
            rows = connection.execute(sa.select(intents).where(intents.c.task_id == self._task_id)).all()
        for row in rows:
            try:
                change = Intent.from_json(json.loads(row.change))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                subject = f"row {row.id} of ccpr_intents"
                raise StateUnreadable(
                    f"a row cannot be read: {error}", subject=subject, remedy="Restore the target's table."
                ) from error
            place = row.next_statement
            with self._session.transaction() as connection:
                now = self._digest(change)
                if place < len(change.statements) and now != row.before:
                    place += 1
                    self._note(connection, row.id, place, now)
            try:
                self._go_on(row.id, change, place)
            except (TargetChangeStuck, TargetRefused, TargetDenied, TargetValueRefused) as error:
                _log.warning(
                    "a change that was begun cannot go on: %s", error
                )  # stuck, or undone as if it had never begun

    def _go_on(self, key: str, change: Intent, place: int) -> dict[int, str]:
        refused: dict[int, str] = {}
        for number, statement in enumerate(change.statements[place:], place):
            try:
                with self._session.transaction():
                    self._session.run(statement)
            except pymysql.err.MySQLError as error:
                problem = typed_error(error, change.subject)
                if isinstance(problem, TargetUnavailable):
                    raise problem from error
                if number in change.optional and isinstance(problem, TargetRefused | TargetValueRefused):
                    _log.warning("%s: left out, %s", change.subject, problem.message)
                    refused[number] = problem.message
                    with self._session.transaction() as connection:
                        self._note(connection, key, number + 1, self._digest(change))
                    continue
                with self._session.transaction() as connection:
                    mine = intents.c.id == key
                    if number == 0:
                        connection.execute(intents.delete().where(mine))
                    else:
                        connection.execute(intents.update().where(mine).values(problem=problem.message))
                if number == 0:
                    raise problem from error
                told = f"statement {number + 1} of {len(change.statements)} fails: {problem.message}"
                self.stuck |= dict.fromkeys(change.table_ids, told)
                raise TargetChangeStuck(told, subject=change.subject) from error
            with self._session.transaction() as connection:
                self._note(connection, key, number + 1, self._digest(change))

        def settled(connection: sa.Connection) -> None:
            connection.execute(intents.delete().where(intents.c.id == key))

        self._finish(change, settled)
        return refused

    def _note(self, connection: sa.Connection, key: str, place: int, digest: str) -> None:
        connection.execute(
            intents.update().where(intents.c.id == key).values(next_statement=place, before=digest, problem="")
        )

    def _digest(self, change: Intent) -> str:
        """Of the definitions as the server shows them; a table that is not there counts as such."""
        shown = [self._session.shown(quoted(name)) for name in change.names]
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def quoted(name: Name) -> str:
    return f"{quote_name(name[0])}.{quote_name(name[1])}"


def all_names(*groups: Sequence[Name]) -> tuple[Name, ...]:
    return tuple(dict.fromkeys(name for group in groups for name in group))
