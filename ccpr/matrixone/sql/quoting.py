"""Names and strings as SQL text, and back: the one place that knows the quotes and the escapes.

They are MySQL's (https://dev.mysql.com/doc/refman/8.0/en/string-literals.html), which MatrixOne (`handleEscape` in its
scanner.go), and MariaDB share, for a session in which a backslash is an escape (no NO_BACKSLASH_ESCAPES in
sql_mode) and double quotes hold strings (no ANSI_QUOTES). What is quoted here is read back as it was, by those servers
and by `ccpr.matrixone.sql.lexer`.
"""

import re
from collections.abc import Iterable
from typing import Literal

from ccpr.matrixone.sql.errors import DdlUnreadable

# Possessive, so that a quote which is never closed is found out in one pass.
NAME = r"`(?:[^`]|``)*+`"
STRING = r"""'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+\""""
_NAME = re.compile(NAME, re.DOTALL)
_STRING = re.compile(STRING, re.DOTALL)
_ESCAPES = {quote: re.compile(rf"\\(.)|{quote}{quote}", re.DOTALL) for quote in "'\""}
# \% and \_ keep their backslash: LIKE reads it. Behind a backslash every other character is itself.
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_CLOSING = {"'": {"\\": "\\\\", "'": "''"}, '"': {"\\": "\\\\", '"': '\\"'}}  # what would end a string, or escape
_LINES = {"\0": "\\0", "\n": "\\n", "\r": "\\r"}
STRING_ESCAPES = _CLOSING["'"] | _LINES  # in single quotes


def in_backquotes(name: str) -> str:
    """A name in backquotes, whatever it holds: where the server that gets it decides."""
    return "`" + name.replace("`", "``") + "`"


def quote_name(name: str) -> str:
    """A name in backquotes. Raises DdlUnreadable for one that no server takes: an empty one, or one with a zero
    byte."""
    if not name or "\0" in name:
        raise DdlUnreadable("a name is empty or holds a zero byte", subject=f"name {name!r:.80}")
    return in_backquotes(name)


def quote_names(names: Iterable[str], separator: str = ",") -> str:
    """Each as by `quote_name`."""
    return separator.join(map(quote_name, names))


def quote_qualified(parts: Iterable[str]) -> str:
    """A name with what it is in before it, such as (database, table), each as by `quote_name`."""
    return quote_names(parts, ".")


def quote_string(value: str, quote: Literal["'", '"'] = "'", *, escape_lines: bool = True) -> str:
    """A string literal. `escape_lines`: on one line, without a zero byte; else only what would end it is escaped."""
    written = _CLOSING[quote] | _LINES if escape_lines else _CLOSING[quote]
    return quote + value.translate(str.maketrans(written)) + quote


def unquote_name(quoted: str) -> str:
    """The name that is in backquotes. Raises ValueError, which does not show it, if it is not one quoted name."""
    if not _NAME.fullmatch(quoted):
        raise ValueError("not a name in backquotes")
    return quoted[1:-1].replace("``", "`")


def unquote_string(quoted: str) -> str:
    """What a string literal means. Raises ValueError, which does not show it, if it is not one string literal."""
    if not _STRING.fullmatch(quoted):
        raise ValueError("not a string literal")
    quote = quoted[0]
    return _ESCAPES[quote].sub(lambda found: _ESCAPED.get(found[1], found[1]) if found[1] else quote, quoted[1:-1])


# Control characters, separators of lines, what changes the direction of writing, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str, *, keep: str = "") -> str:
    """Foreign text (a name, a server's message) as it may be shown to people: in one line, and what a terminal would
    obey, or what would change how the rest is shown, as an escape such as ``\\x1b``. `keep`: such characters that stay.
    """

    def escaped(found: re.Match[str]) -> str:
        character = found[0]
        if character in keep:
            return character
        return _LINES_SHOWN.get(character) or (
            f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"
        )

    return _UNPRINTABLE.sub(escaped, text)


_LINES_SHOWN = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
