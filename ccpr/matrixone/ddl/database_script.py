"""What a database has besides tables, as a script that an operator reads and runs.

The texts are an upstream's, perhaps by way of a damaged mirror: each stands in the script as one statement or not at
all (`runnable`), and in comments without anything that would end them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ccpr.matrixone.definitions import Definitions, RowRule, SequenceState, Unreadable, View, Written, runnable
from ccpr.matrixone.schema import Table
from ccpr.matrixone.sql.lexer import tokens
from ccpr.matrixone.sql.quoting import printable, quote_name

_NEVER = "Never in it: users, their passwords and roles, stored procedures, external tables, stages."


@dataclass(frozen=True, slots=True)
class DatabaseScript:
    """
    Attributes
    ----------
    statements : how many definitions it has.
    left_out : what it does not have, and why. The text says that, too.
    """

    text: str
    statements: int
    left_out: tuple[Unreadable, ...]


def whole_script_of(tables: Iterable[Table], found: Definitions | None, database: str, title: str) -> DatabaseScript:
    """`script_of`, with the statements of tables before. A table whose statement is not known is left out."""
    lines, written = [f"USE {quote_name(database)};", "SET foreign_key_checks = 0;", ""], 0
    left_out: list[Unreadable] = []
    for table in tables:
        if table.ddl and runnable(table.ddl):
            lines += [table.ddl, ";", ""]
            written += 1
        else:
            reason = "its text is not one statement to every client" if table.ddl else "its statement is not known"
            left_out.append(Unreadable("table", table.name, reason))
    lines += ["SET foreign_key_checks = 1;", ""]
    lines += [_comment(f"not in it: {left.shown()}: {left.reason}") for left in left_out]
    besides = script_of(found, database, title)
    text = "\n".join([_comment(title), *lines, besides.text])
    return DatabaseScript(text, written + besides.statements, (*left_out, *besides.left_out))


def script_of(found: Definitions | None, database: str, title: str) -> DatabaseScript:
    """In an order that can be run: functions, sequences with their value, views, each after those that it needs,
    grants and row rules.

    Parameters
    ----------
    found : None = the point says nothing.
    database : how the database is called where the script runs.
    title : the point that it is of.
    """
    lines, written = [_comment(title), _comment(_NEVER), ""], 0
    if not found:
        lines.append(_comment("The point has nothing besides tables."))
        return DatabaseScript("\n".join([*lines, ""]), 0, ())
    left_out = list(found.unreadable)
    used = ""
    for one in found.all():
        current = database
        if isinstance(one, View) and one.default_database not in ("", found.database):
            current = one.default_database
        statements = one.statements(database)
        if not all(map(runnable, statements)):
            left_out.append(Unreadable(one.kind, one.name, "its text is not one statement to every client"))
            continue
        if current != used:
            lines += [f"USE {quote_name(current)};", ""]
            used = current
        lines += map(_comment, _remarks(one, found.database, database))
        lines += [line for statement in statements for line in (statement, ";")]  # a text may end with a comment
        lines.append("")
        written += 1
        if isinstance(one, SequenceState) and not one.value_can_be_set:
            left_out.append(Unreadable("value of sequence", one.name, f"{one.last}: SETVAL takes no quoted names"))
    lines += [_comment(f"not in it: {left.shown()}: {left.reason}") for left in left_out]
    return DatabaseScript("\n".join([*lines, ""]), written, tuple(left_out))


def _remarks(one: Written, before: str, database: str) -> Iterator[str]:
    if isinstance(one, View | RowRule) and before != database:
        words = list(tokens(one.query if isinstance(one, View) else one.rule))
        if any(
            word.kind in ("name", "word") and word.value.lower() == before.lower() and follows.is_sign(".")
            for word, follows in pairwise(words)
        ):
            yield f"The next {one.kind} names database {before}, which is {database} here: change it where it is meant."


def _comment(text: str) -> str:
    return f"-- {printable(text)}"
