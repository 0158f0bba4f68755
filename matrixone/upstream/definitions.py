"""What the publisher's database has besides tables, at a snapshot.

Source: docs/upstream.md, "Views, sequences, functions, grants". What cannot be read is a value, too: nothing here ends
an iteration but a lost connection.
"""

import json
from collections.abc import Callable, Iterator
from typing import TypeVar

from matrixone.ddl.view import view_of
from matrixone.definitions import Definitions, SequenceState, Unreadable, View
from matrixone.errors import CcprError, Transient
from matrixone.objects import types
from matrixone.objects.timestamp import Timestamp
from matrixone.schema import Table, text_of
from matrixone.sql.errors import DdlUnreadable
from matrixone.upstream import statements
from matrixone.upstream.errors import BadAnswer
from matrixone.upstream.publications import Publication
from matrixone.upstream.session import Session, integer, text

VIEW, SEQUENCE = "v", "S"  # relkind
OF_ANOTHER_ACCOUNT = "it is of another account, whose rows the login cannot read"
_SYS = 0
_TYPES = {
    types.INT8: "tinyint",
    types.INT16: "smallint",
    types.INT32: "int",
    types.INT64: "bigint",
    types.UINT8: "tinyint unsigned",
    types.UINT16: "smallint unsigned",
    types.UINT32: "int unsigned",
    types.UINT64: "bigint unsigned",
}
T = TypeVar("T")


def read_definitions(
    session: Session,
    publication: Publication,
    database: str,
    relations: tuple[tuple[Table, str], ...],
    at: Timestamp,
) -> Definitions:
    """`relations`: the views and sequences that the catalog has at that time, each with its relkind. Raises what is not
    the fault of a definition: a lost connection."""
    unreadable: list[Unreadable] = []
    views: list[View] = []
    sequences: list[SequenceState] = []
    named = {kind: {table.name: table for table, found in relations if found == kind} for kind in (VIEW, SEQUENCE)}
    if named[VIEW]:
        found = _or_note(unreadable, "view", "", lambda: list(_views(session, publication, database, at)))
        for name, create in found or ():
            view = _or_note(unreadable, "view", name, create)
            if view is not None:
                views.append(view)
    for name, table in sorted(named[SEQUENCE].items()):
        if publication.publisher_id != _SYS:  # only who owns a table can read its rows
            unreadable.append(Unreadable("sequence", name, OF_ANOTHER_ACCOUNT))
            continue
        sequence = _or_note(unreadable, "sequence", name, lambda t=table: _sequence(session, database, t, at))
        if sequence is not None:
            sequences.append(sequence)
    views.sort(key=lambda view: view.name)
    return Definitions(database, tuple(views), tuple(sequences), tuple(unreadable))


def _or_note(unreadable: list[Unreadable], kind: str, name: str, read: Callable[[], T]) -> T | None:
    """What `read` gives; None if it cannot be had, and that is noted."""
    try:
        return read()
    except CcprError as error:
        if isinstance(error, Transient):
            raise
        unreadable.append(Unreadable(kind, name, error.message))
        return None


def _views(
    session: Session, publication: Publication, database: str, at: Timestamp
) -> Iterator[tuple[str, Callable[[], View]]]:
    """Each view's name, and what reads it."""
    answer = session.read(statements.select_views(publication.publisher_id, database, at.physical))
    for name, created, definition in answer.select(*statements.VIEW_COLUMNS):
        shown = text(name, "relname")
        yield shown, lambda n=shown, c=created, d=definition: _view(n, c or b"", d or b"")


def _view(name: str, created: bytes, definition: bytes) -> View:
    """`viewdef` is JSON with the statement and the database that was current; `rel_createsql` has the statement
    alone."""
    try:
        known = json.loads(definition) if definition else {"Stmt": created.decode()}
        statement, database = text_of(known["Stmt"]), text_of(known.get("DefaultDatabase", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DdlUnreadable("its text cannot be read", subject=f"view {name}") from error
    return view_of(name, statement, database)


def _sequence(session: Session, database: str, table: Table, at: Timestamp) -> SequenceState:
    subject = f"sequence {table.name}"
    rows = list(
        session.read(statements.select_sequence(database, table.name, at.physical)).select(*statements.SEQUENCE_COLUMNS)
    )
    kind = next((_TYPES.get(one.type.oid) for one in table.columns if one.name == statements.SEQUENCE_COLUMNS[0]), None)
    if len(rows) != 1 or kind is None:
        raise BadAnswer(f"it has {len(rows)} rows, or its type is not a whole number", subject=subject)
    *numbers, cycle, called = (integer(cell, f"{subject}, a cell") for cell in rows[0])
    return SequenceState(table.name, kind, *numbers, cycle=bool(cycle), called=bool(called))
