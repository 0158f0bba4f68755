"""The DEFAULT and ON UPDATE of a column, as another server has them."""

from collections.abc import Sequence

from ccpr.matrixone.ddl.definition import ColumnDefinition
from ccpr.matrixone.sql.lexer import Token, tokens
from ccpr.matrixone.sql.quoting import quote_string
from ccpr.schema.choices import Dialect
from ccpr.schema.target_types import LONG_TYPES, TargetType

_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")


def default_of(column: ColumnDefinition, kind: TargetType, dialect: Dialect) -> str | None:
    """A literal, the current time or a new UUID; None for what is skipped. Other expressions of MatrixOne may mean
    something else in another server."""
    if column.default is None:
        return None
    read, default = _unbracketed(column.default)
    is_text = len(read) == 1 and read[0].kind == "text"
    if dialect is Dialect.MATRIXONE and kind.type == column.type and not is_text:
        return column.default
    if dialect.speaks_mysql and _holds_uuid(kind) and _is_call(read, "uuid"):
        return "(uuid())"
    now = now_of(column.default, kind)
    if now:  # MySQL 8 and MariaDB give the time in UTC by a function, and that is an expression
        return "(utc_timestamp(6))" if column.type.name == "timestamp" else now
    if not _is_literal(read) or column.type.name == "timestamp":
        return None
    literal = default
    if column.default_text is not None:
        literal = quote_string(column.default_text)
    elif read[-1].kind == "text":
        meant = _meant_text(read[-1].value, column)
        if meant is None:
            return None
        literal = quote_string(meant) if meant != read[-1].value else literal
    elif kind.type.name in ("enum", "set"):
        return None
    if kind.type.name == "datetime" and read[-1].kind != "text":
        return None
    if kind.type.name in ("varchar", "char", "longtext") and read[-1].kind != "text" and column.default_text is None:
        literal = quote_string(literal)
    return f"({literal})" if kind.type.name in LONG_TYPES and dialect is Dialect.MYSQL8 else literal


def _unbracketed(expression: str) -> tuple[list[Token], str]:
    """Tokens and text of an expression, of a literal without the brackets around it."""
    read = list(tokens(expression))
    first, last = 0, len(read)
    while last - first > 2 and read[first].is_sign("(") and read[last - 1].is_sign(")"):
        first, last = first + 1, last - 1
    if not _is_literal(read[first:last]):
        return read, expression
    return read[first:last], expression[read[first].start : read[last - 1].end]


def _meant_text(written: str, column: ColumnDefinition) -> str | None:
    """The text that a default means; None if that is not certain. get_ddl writes each quote of a default twice as often
    as it should: `it''s` may be this text or `it's`. The members of an enum or set say which, and
    `ColumnDefinition.default_text` for texts."""
    once = written.replace("''", "'")
    if column.type.name == "enum":
        return next((text for text in (written, once) if text in column.type.members), None)
    if column.type.name == "set":
        wanted = (text for text in (written, once) if {*text.split(",")} - {""} <= {*column.type.members})
        return next(wanted, None)
    return None if once != written else written


def _holds_uuid(kind: TargetType) -> bool:
    return kind.type.name == "longtext" or (kind.type.name in ("varchar", "char") and kind.type.parameters[0] >= 36)


def _is_call(read: Sequence[Token], function: str) -> bool:
    """Whether it is this function without arguments, within any number of brackets."""
    while len(read) > 2 and read[0].is_sign("(") and read[-1].is_sign(")"):
        read = read[1:-1]
    match read:
        case [Token("word" | "name", word), Token("sign", "("), Token("sign", ")")]:
            return word.lower() == function
    return False


def _is_literal(read: Sequence[Token]) -> bool:
    match read:
        case [Token("text" | "number")] | [Token("sign", "-" | "+"), Token("number")]:
            return True
        case [Token("word", word)]:
            return word.upper() in ("TRUE", "FALSE")
    return False


def now_of(expression: str, kind: TargetType) -> str:
    """CURRENT_TIMESTAMP with the column's own precision, which both servers require; empty for another expression or
    type."""
    match list(tokens(expression)):
        case [Token("word", word)] | [Token("word", word), Token("sign", "("), Token("sign", ")")] if (
            word.upper() in _NOW
        ):
            pass
        case [Token("word", word), Token("sign", "("), Token("number"), Token("sign", ")")] if word.upper() in _NOW:
            pass
        case _:
            return ""
    if kind.type.name != "datetime":
        return ""
    return f"CURRENT_TIMESTAMP({kind.type.parameters[0]})" if kind.type.parameters else "CURRENT_TIMESTAMP"
