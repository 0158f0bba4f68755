"""What the publisher's databases have besides tables, at a snapshot; a view from the text that created it.

Source: docs/upstream.md, "Views, sequences, functions, grants". What cannot be read is a value, too: nothing here ends
an iteration but a lost connection.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.catalog_cells import decode_type
from ccpr.matrixone.client.errors import BadAnswer, StatementFailed, StatementUnknown, TableMissing
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Row, Session, integer, text
from ccpr.matrixone.definitions import (
    Definitions,
    Function,
    Grant,
    RowRule,
    SequenceState,
    Unreadable,
    View,
    Written,
    runnable,
)
from ccpr.matrixone.errors import CcprError, Transient
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Table, text_of
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.lexer import Token, tokens

VIEW, SEQUENCE = "v", "S"  # relkind
OF_ANOTHER_ACCOUNT = "it is of another account, whose rows the login cannot read"
_OBJECT = upstream_sql.GRANT_COLUMNS.index("obj_id")
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


@dataclass(frozen=True, slots=True)
class RowRules:
    """Which rows of which tables the roles of an account see.

    Attributes
    ----------
    by_table : role and text of each rule, by the table as the server has it: `db.t` in lower case.
    problems : why they are not known; empty if they are.
    """

    by_table: Mapping[str, Iterable[tuple[bytes | None, bytes | None]]]
    problems: tuple[Unreadable, ...] = ()

    def of(self, table: str) -> Iterable[tuple[bytes | None, bytes | None]]:
        """`table`: with its database."""
        return self.by_table.get(table.lower(), ())

    def among(self, tables: Iterable[str]) -> tuple[str, ...]:
        """Those of the tables that have rules, by name."""
        return tuple(sorted(table for table in tables if self.of(table)))


def read_row_rules(session: Session, publication: Publication, at: Timestamp | None = None) -> RowRules:
    """At a time, or now. Whatever the server answers is no error: a release that knows no rules has none."""
    if not publication.is_readable:
        return RowRules({}, (Unreadable(RowRule.kind, "", OF_ANOTHER_ACCOUNT),))
    problems: list[Unreadable] = []
    found = _or_note(problems, RowRule.kind, "", partial(_row_rules, session, None if at is None else at.physical))
    return RowRules(found or {}, tuple(problems))


def read_definitions(
    session: Session,
    publication: Publication,
    databases: Mapping[str, int],
    tables: Iterable[Table],
    relations: Iterable[tuple[Table, str]],
    at: Timestamp,
    rules: RowRules,
) -> tuple[Definitions, ...]:
    """What each of the databases has at that time, in order of name, without those that have nothing. Raises what is
    not the fault of a definition: a lost connection.

    What the account's roles may do is asked once, and views only of databases that have some.

    Parameters
    ----------
    databases : their ids by name.
    tables : all that the catalog has of them.
    relations : the views and sequences among them, each with its relkind.
    rules : those of that time.
    """
    named = {name: {number: ""} for name, number in databases.items()}
    for table in tables:
        named[table.database][table.id] = table.name
    related: dict[str, list[tuple[Table, str]]] = {name: [] for name in databases}
    for table, kind in relations:
        related[table.database].append((table, kind))
    granted, problems = _granted(session, publication, at)
    found = []
    for database, objects in sorted(named.items()):
        besides = _of_database(session, publication, database, related[database], at)
        unreadable, grants = [*besides.unreadable, *problems, *rules.problems], list[Grant]()
        row_rules: list[RowRule] = []
        for number, name in objects.items():
            for row in granted.get(number, ()):
                grants += _list(_or_note(unreadable, "grant", "", partial(_grant, name, *row)))
        grants.sort(key=lambda one: (one.role, one.on, one.object, one.privilege))
        for name in sorted(filter(None, objects.values())):
            for rule in rules.of(f"{database}.{name}"):
                row_rules += _list(_or_note(unreadable, RowRule.kind, f"on {name}", partial(_row_rule, name, *rule)))
        row_rules.sort(key=lambda one: (one.object, one.role, one.rule))
        found.append(replace(besides, grants=tuple(grants), row_rules=tuple(row_rules), unreadable=tuple(unreadable)))
    return tuple(filter(None, found))


def _of_database(
    session: Session, publication: Publication, database: str, relations: Iterable[tuple[Table, str]], at: Timestamp
) -> Definitions:
    """All but the grants."""
    views: list[View] = []
    sequences: list[SequenceState] = []
    functions: list[Function] = []
    unreadable: list[Unreadable] = []
    named: dict[str, dict[str, Table]] = {VIEW: {}, SEQUENCE: {}}
    for table, kind in relations:
        named[kind][table.name] = table
    if named[VIEW]:
        texts = partial(_views, session, publication, database, at)
        for name, row in (_or_note(unreadable, "view", "", texts) or {}).items():
            views += _list(_or_note(unreadable, "view", name, partial(_view, name, *row)))
    if not publication.is_readable:
        unreadable += [Unreadable("sequence", name, OF_ANOTHER_ACCOUNT) for name in sorted(named[SEQUENCE])]
        unreadable.append(Unreadable("function", "", OF_ANOTHER_ACCOUNT))
        return Definitions(database, tuple(views), unreadable=tuple(unreadable))
    types = partial(_sequence_types, session, publication, database, at)
    known = (_or_note(unreadable, "sequence", "", types) or {}) if named[SEQUENCE] else {}
    for name, table in sorted(named[SEQUENCE].items()):
        state = partial(_sequence, session, database, name, known.get(table.id), at)
        sequences += _list(_or_note(unreadable, "sequence", name, state))
    rows = partial(_rows, session, upstream_sql.select_functions(database, at.physical), upstream_sql.FUNCTION_COLUMNS)
    for row in _or_note(unreadable, "function", "", rows) or ():
        name = (row[0] or b"").decode("utf-8", "replace")
        functions += _list(_or_note(unreadable, "function", name, partial(_function, *row)))
    functions.sort(key=lambda one: (one.name, one.arguments))  # later releases have several of a name
    return Definitions(database, tuple(views), tuple(sequences), tuple(functions), unreadable=tuple(unreadable))


def _granted(
    session: Session, publication: Publication, at: Timestamp
) -> tuple[dict[int, list[Row]], list[Unreadable]]:
    """What the roles of the account may do, by the object on which they may, or why that is not known."""
    problems: list[Unreadable] = []
    if not publication.is_readable:
        return {}, [Unreadable("grant", "", OF_ANOTHER_ACCOUNT)]
    rows = partial(_rows, session, upstream_sql.select_grants(at.physical), upstream_sql.GRANT_COLUMNS)
    found: dict[int, list[Row]] = {}
    for row in _or_note(problems, "grant", "", rows) or ():
        number = _or_note(problems, "grant", "", partial(integer, row[_OBJECT], "obj_id"))
        if number is not None:
            found.setdefault(number, []).append(row)
    return found, problems


def _row_rules(session: Session, physical: int | None) -> dict[str, list[tuple[bytes | None, bytes | None]]]:
    """As in `RowRules`. DROP ROLE leaves the rules of a role, which then count for nobody."""
    try:
        rows = _rows(session, upstream_sql.select_row_rules(physical), upstream_sql.ROW_RULE_COLUMNS)
        if not rows:
            return {}
        roles = {
            row[0]: row[1] for row in _rows(session, upstream_sql.select_roles(physical), upstream_sql.ROLE_COLUMNS)
        }
    except (TableMissing, StatementUnknown):
        return {}
    except StatementFailed as error:  # such as of a column that a later release has not: no reason to stop for
        raise BadAnswer(error.message, subject=error.subject) from error
    found: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    for role, table, rule in rows:
        if role in roles:
            found.setdefault((table or b"").decode("utf-8", "replace").lower(), []).append((roles[role], rule))
    return found


def _row_rule(name: str, role: bytes | None, rule: bytes | None) -> RowRule:
    return RowRule(text(role, "role_name"), name, text(rule, "rule"))


def _list(found: T | None) -> list[T]:
    return [] if found is None else [found]


def _or_note(unreadable: list[Unreadable], kind: str, name: str, read: Callable[[], T]) -> T | None:
    """What `read` gives; None if it cannot be had, or not be written as a statement, and that is noted."""
    try:
        found = read()
        if isinstance(found, Written):
            found.statements()
        return found
    except CcprError as error:
        if isinstance(error, Transient):
            raise
        unreadable.append(Unreadable(kind, name, error.message))
        return None


def _views(session: Session, publication: Publication, database: str, at: Timestamp) -> dict[str, tuple[bytes, bytes]]:
    """By name, in its order: `rel_createsql` and `viewdef`."""
    rows = _rows(
        session, upstream_sql.select_views(publication.publisher_id, database, at.physical), upstream_sql.VIEW_COLUMNS
    )
    found = {text(name, "relname"): (created or b"", definition or b"") for name, created, definition in rows}
    return dict(sorted(found.items()))


def _rows(session: Session, statement: str, columns: tuple[str, ...]) -> list[Row]:
    return list(session.read(statement).select(*columns))


def _view(name: str, created: bytes, definition: bytes) -> View:
    """`viewdef` is JSON with the statement and the database that was current; `rel_createsql` has the statement
    alone."""
    try:
        known = json.loads(definition) if definition else {"Stmt": created.decode()}
        statement, database = text_of(known["Stmt"]), text_of(known.get("DefaultDatabase", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DdlUnreadable("its text cannot be read", subject=f"view {name}") from error
    return view_of(name, statement, database)


def _sequence_types(session: Session, publication: Publication, database: str, at: Timestamp) -> dict[int, str]:
    """By the id of the sequence: a catalog that is known to be the last point's has no columns."""
    column = upstream_sql.SEQUENCE_COLUMNS[0]
    query = upstream_sql.select_columns(publication.publisher_id, database, at.physical, column)
    found = session.read(query).select("att_relname_id", "atttyp")
    types = {integer(number, "att_relname_id"): decode_type(cell, f"column {column}") for number, cell in found}
    return {number: _TYPES[one.oid] for number, one in types.items() if one.oid in _TYPES}


def sequence_moved(session: Session, database: str, before: SequenceState | None, name: str, at: Timestamp) -> bool:
    """Whether a sequence has at a time another value than before; what cannot be read has none."""
    found = _or_note([], "sequence", name, partial(_sequence, session, database, name, "bigint", at))
    if before is None or found is None:
        return found is not None
    return (found.last, found.called) != (before.last, before.called)


def _sequence(session: Session, database: str, name: str, kind: str | None, at: Timestamp) -> SequenceState:
    subject = f"sequence {name}"
    rows = _rows(session, upstream_sql.select_sequence(database, name, at.physical), upstream_sql.SEQUENCE_COLUMNS)
    if len(rows) != 1 or kind is None:
        raise BadAnswer(f"it has {len(rows)} rows, or its type is not a whole number", subject=subject)
    *numbers, cycle, called = (integer(cell, f"{subject}, a cell", greatest=2**64 - 1) for cell in rows[0])
    return SequenceState(name, kind, *numbers, cycle=bool(cycle), called=bool(called))


def _function(
    name: bytes | None, arguments: bytes | None, returns: bytes | None, body: bytes | None, language: bytes | None
) -> Function:
    """`args` is JSON; so is the body of a Python function."""
    try:
        value: dict[str, object] = {"body": text(body, "body"), "handler": ""}
        if text(language, "language") == "python":
            value |= json.loads(value["body"] or "{}")  # pyright: ignore[reportArgumentType]  # a text, as above
            if value.get("import") is not False:
                raise BadAnswer("its body is a file of the server's", subject="function")
        value["arguments"] = [(one["name"], one["type"]) for one in json.loads(arguments or b"[]")]
        described = {"name": text(name, "name"), "returns": text(returns, "rettype"), "language": text(language, "")}
        return Function.from_json(value | described)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadAnswer("it is not described as a function", subject="function") from error


def _grant(
    name: str,
    role: bytes | None,
    on: bytes | None,
    _: bytes | None,
    privilege: bytes | None,
    option: bytes | None,
) -> Grant | None:
    """On what has the name, which is empty for the database. None where the id is of something else. `table all` is
    written ALL."""
    place = text(on, "obj_type")
    if place == "database" and name:
        return None
    value = {
        "role": text(role, "role_name"),
        "privilege": text(privilege, "privilege_name").removeprefix(f"{place} "),
        "on": place,
        "object": name,
        "with_option": option in (b"1", b"true"),
    }
    try:
        return Grant.from_json(value)
    except (ValueError, TypeError) as error:
        raise BadAnswer("it is not described as a grant", subject="grant") from error


_LONGEST_VIEW = 1 << 20  # characters


def view_of(name: str, statement: str, default_database: str) -> View:
    """The view of this name, from the text that created it.

    The text is what a client sent: it may hold several statements, among them others' passwords, or PREPARE with the
    statement as a string. Only the query of this view is taken. ALGORITHM, DEFINER and SQL SECURITY are dropped.
    Raises DdlUnreadable.
    """
    if len(statement) > _LONGEST_VIEW:
        raise DdlUnreadable("its text is too long", subject=f"view {name}")
    found = _found_in(name, statement, default_database)
    if found is None:
        raise DdlUnreadable("its text is not that of a CREATE VIEW", subject=f"view {name}")
    if not runnable(found.query):
        raise DdlUnreadable("its text is not one statement to every client", subject=f"view {name}")
    return found


def _found_in(name: str, text: str, default_database: str, *, prepared: bool = False) -> View | None:
    for statement in _statements_of(list(tokens(text))):
        if not prepared and statement[0].is_word("PREPARE"):
            inner = next((token.value for token in statement if token.kind == "text"), "")
            found = _found_in(name, inner, default_database, prepared=True)
        else:
            found = _view_in(name, text, statement, default_database)
        if found is not None:
            return found
    return None


def _statements_of(words: list[Token]) -> list[list[Token]]:
    """The statements of a text, without empty ones."""
    statements: list[list[Token]] = [[]]
    for token in words:
        if token.kind == "end":
            continue
        if token.is_sign(";"):
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _view_in(name: str, text: str, statement: list[Token], default_database: str) -> View | None:
    if not statement[0].is_word("CREATE", "ALTER"):
        return None
    place = next((number for number, token in enumerate(statement) if token.is_word("VIEW")), None)
    if place is None:
        return None
    rest = statement[place + 1 :]
    if len(rest) > 2 and [token.value.upper() for token in rest[:2]] == ["IF", "EXISTS"]:
        rest = rest[2:]
    if len(rest) > 3 and [token.value.upper() for token in rest[:3]] == ["IF", "NOT", "EXISTS"]:
        rest = rest[3:]
    if len(rest) > 2 and rest[1].is_sign("."):
        rest = rest[2:]
    if not rest or rest[0].kind not in ("name", "word") or rest[0].value.lower() != name.lower():
        return None
    rest, columns = rest[1:], []
    if rest and rest[0].is_sign("("):
        end = next((number for number, token in enumerate(rest) if token.is_sign(")")), 0)
        columns = [token.value for token in rest[1:end] if token.kind in ("name", "word")]
        rest = rest[end + 1 :]
    if len(rest) < 2 or not rest[0].is_word("AS"):
        return None
    return View(name, text[rest[1].start : rest[-1].end], tuple(columns), default_database)
