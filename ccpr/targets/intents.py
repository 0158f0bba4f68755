"""Changes of definitions in a target, where they cannot be in a transaction: an intent is stored before they run.

An intent is a row that says what is changed (its kind, the tables, their ids), how many of its statements have run, and
a digest of the definitions of all tables concerned as they were before the next one. The statements are in the row for
people and for comparison: what another session continues is made again from our own data
(`ccpr.targets.intent_statements`), and has to be equal.

After a kill the digest says whether that statement ran: the tables are ours alone, and a single statement runs
completely or not at all (atomic DDL: MariaDB 10.6, MySQL 8). A statement that changes no definition may run twice; then
it changes nothing the second time. A change that was begun is always completed. The registry and the points follow in
the transaction that deletes the intent.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pymysql
import sqlalchemy as sa

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.schema.alterations import Name, quoted
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.base import TableState, TargetTable
from ccpr.targets.errors import (
    TargetChangeStuck,
    TargetDenied,
    TargetRefused,
    TargetRegistryEdited,
    TargetUnavailable,
    TargetValueRefused,
)
from ccpr.targets.registry import MAX_TEXT, intents, json_of, stored_text, table_from_json, table_json, unreadable
from ccpr.targets.target_session import TargetSession, typed_error

_log = logging.getLogger(__name__)


class ChangeOf(StrEnum):
    """What an intent does."""

    ALTER = "alter"  # definitions or names of live tables
    SHOW = "show"  # a loaded table takes its name, and the place of those that it replaces
    DROP = "drop"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Intent:
    """Statements, and what holds once they have run.

    Attributes
    ----------
    kind : see `ChangeOf`.
    names : every table that a statement makes, changes, renames or drops, by each name that it has meanwhile.
    tables : registered then, in `state`.
    points : their locations then; a table that is not named keeps its location.
    gone : ids that are not registered any more, and have no point.
    loaded : ids whose load has ended.
    optional : numbers of the statements that the server may refuse: then the next one is run.
    """

    kind: ChangeOf
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
            "kind": self.kind.value,
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
        tables, state = tuple(map(table_from_json, value["tables"])), TableState(value["state"])
        loaded = tuple(map(integer_of, value["loaded"]))
        return cls(
            ChangeOf(value["kind"]),
            tuple(map(text_of, value["statements"])),
            tuple((text_of(database), text_of(name)) for database, name in value["names"]),
            tables,
            state,
            tuple(points),
            tuple(map(integer_of, value["gone"])),
            loaded,
            tuple(map(integer_of, value.get("optional", ()))),
        )

    @property
    def table_ids(self) -> tuple[int, ...]:
        return (*(table.id for table in self.tables), *self.gone)

    @property
    def subject(self) -> str:
        return ", ".join(f"table {database}.{name}" for database, name in self.names[:2]) or "target"


@dataclass(frozen=True, slots=True)
class StoredIntent:
    """A row of `ccpr_intents`.

    Attributes
    ----------
    place : how many statements have run.
    before : digest of the definitions before the next one.
    """

    key: str
    intent: Intent
    place: int
    before: str


def intent_row(row: Mapping[Any, Any]) -> StoredIntent:
    """A row as the target has it, which is foreign input. Raises StateUnreadable."""
    try:
        intent = Intent.from_json(json_of(row["change"]))
        place = integer_of(row["next_statement"])
        if not 0 <= place <= len(intent.statements):
            raise ValueError(f"it has no statement {place}")
        return StoredIntent(stored_text(row["id"]), intent, place, stored_text(row["before"], MAX_TEXT))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise unreadable(f"row {row['id']!s:.80} of ccpr_intents", error) from error


class Intents:
    """The intents of one subscription.

    Parameters
    ----------
    finish : registers what an intent has led to, in one transaction. It calls its second argument in there, which
        deletes the intent.
    statements : those of an intent, made from our own data; raises TargetRegistryEdited if it is not ours.
    """

    def __init__(
        self,
        session: TargetSession,
        task_id: str,
        finish: Callable[[Intent, Callable[[sa.Connection], None]], None],
        statements: Callable[[Intent], tuple[str, ...]],
    ) -> None:
        self._session, self._task_id, self._finish, self._statements = session, task_id, finish, statements
        self.stuck: dict[int, str] = {}  # table id -> why its intent cannot be continued

    def run(self, intent: Intent) -> dict[int, str]:
        """Store an intent and run its statements. Raises the error of the first one, after which nothing has changed,
        or TargetChangeStuck for a later one, and for a first one that has changed something all the same.

        Returns the server's errors for optional statements, by their numbers.
        """
        key = uuid.uuid4().hex
        with self._session.transaction() as connection:
            row = {
                "id": key,
                "task_id": self._task_id,
                "change": json.dumps(intent.to_json(), ensure_ascii=False),
                "next_statement": 0,
            }
            before = self._digest(intent)
            connection.execute(intents.insert().values(**row, before=before, problem=""))
        return self._continue(key, intent, 0, before)

    def recover(self) -> None:
        """Complete what an earlier session has begun; what cannot be is in `stuck`. No statement of any row runs unless
        all rows are ours. Raises TargetUnavailable, StateUnreadable, TargetRegistryEdited."""
        self.stuck = {}
        with self._session.transaction() as connection:
            rows = connection.execute(sa.select(intents).where(intents.c.task_id == self._task_id)).all()
        found = [intent_row(row._mapping) for row in rows]
        for stored in found:
            self._check_ours(stored)
        for stored in found:
            intent, place = stored.intent, stored.place
            with self._session.transaction() as connection:
                now = self._digest(intent)
                if place < len(intent.statements) and now != stored.before:
                    place += 1
                    self._note(connection, stored.key, place, now)
            try:
                self._continue(stored.key, intent, place, now)
            except (TargetChangeStuck, TargetRefused, TargetDenied, TargetValueRefused) as error:
                # Stuck, or undone as if it had never begun.
                _log.warning("a change that was begun cannot be continued: %s", error)

    def _check_ours(self, stored: StoredIntent) -> None:
        """Raises TargetRegistryEdited."""
        subject = f"row {stored.key:.80} of ccpr_intents"
        try:
            made = self._statements(stored.intent)
        except TargetRegistryEdited as error:
            raise TargetRegistryEdited(f"{error.subject}: {error.message}", subject=subject) from error
        if made != stored.intent.statements:
            raise TargetRegistryEdited(
                "its statements are not those that are made here for this change", subject=subject
            )

    def _continue(self, key: str, intent: Intent, first: int, before: str) -> dict[int, str]:
        """Run the statements from one on, and register what they lead to. `before`: digest of the definitions now."""
        refused: dict[int, str] = {}
        for number, statement in enumerate(intent.statements[first:], first):
            try:
                self._session.define(statement)
            except pymysql.err.MySQLError as error:
                problem = typed_error(error, intent.subject)
                if isinstance(problem, TargetUnavailable):
                    raise problem from error
                if not (number in intent.optional and isinstance(problem, TargetRefused | TargetValueRefused)):
                    raise self._failed(key, intent, number, problem, before) from error
                _log.warning("%s: skipped, %s", intent.subject, problem.message)
                refused[number] = problem.message
            with self._session.transaction() as connection:
                before = self._digest(intent)
                self._note(connection, key, number + 1, before)

        def forget(connection: sa.Connection) -> None:
            connection.execute(intents.delete().where(intents.c.id == key))

        self._finish(intent, forget)
        return refused

    def _failed(self, key: str, intent: Intent, number: int, problem: CcprError, before: str) -> CcprError:
        """The error to raise for a statement that failed. If it was the first one, the intent is deleted; else it is
        stuck. An error does not prove that a statement did nothing: the definitions do."""
        row = intents.c.id == key
        if number == 0 and self._unchanged(intent, before):
            with self._session.transaction() as connection:
                connection.execute(intents.delete().where(row))
            return problem
        with self._session.transaction() as connection:
            connection.execute(intents.update().where(row).values(problem=problem.message))
        reason = f"statement {number + 1} of {len(intent.statements)} fails: {problem.message}"
        self.stuck |= dict.fromkeys(intent.table_ids, reason)
        return TargetChangeStuck(reason, subject=intent.subject)

    def _unchanged(self, intent: Intent, before: str) -> bool:
        with self._session.transaction():
            return self._digest(intent) == before

    def _note(self, connection: sa.Connection, key: str, place: int, digest: str) -> None:
        connection.execute(
            intents.update().where(intents.c.id == key).values(next_statement=place, before=digest, problem="")
        )

    def _digest(self, intent: Intent) -> str:
        """Of the definitions as the server shows them; a table that does not exist counts as such."""
        shown = [self._session.shown(quoted(name)) for name in intent.names]
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def all_names(*groups: Sequence[Name]) -> tuple[Name, ...]:
    """Each name once."""
    return tuple(dict.fromkeys(name for group in groups for name in group))
