"""CREATE VIEW, as it was typed, as a value."""

from ccpr.matrixone.definitions import View, runnable
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.lexer import Token, tokens

_LONGEST = 1 << 20  # characters


def view_of(name: str, statement: str, default_database: str) -> View:
    """The view of this name, from the text that created it.

    The text is what a client sent: it may hold several statements, among them others' passwords, or PREPARE with the
    statement as a string. Only the query of this view is taken. ALGORITHM, DEFINER and SQL SECURITY are dropped.
    Raises DdlUnreadable.
    """
    if len(statement) > _LONGEST:
        raise DdlUnreadable("its text is too long", subject=f"view {name}")
    found = _find(name, statement, default_database)
    if found is None:
        raise DdlUnreadable("its text is not that of a CREATE VIEW", subject=f"view {name}")
    if not runnable(found.query):
        raise DdlUnreadable("its text is not one statement to every client", subject=f"view {name}")
    return found


def _find(name: str, text: str, default_database: str, *, prepared: bool = False) -> View | None:
    for statement in _split(list(tokens(text))):
        if not prepared and statement[0].is_word("PREPARE"):
            inner = next((token.value for token in statement if token.kind == "text"), "")
            found = _find(name, inner, default_database, prepared=True)
        else:
            found = _view(name, text, statement, default_database)
        if found is not None:
            return found
    return None


def _split(words: list[Token]) -> list[list[Token]]:
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


def _view(name: str, text: str, statement: list[Token], default_database: str) -> View | None:
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
