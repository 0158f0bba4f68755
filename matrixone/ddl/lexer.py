"""The letters of SQL text: tokens with their places, names and literals read and written.

The text is data from a server or a person: whatever it holds, reading it ends after one pass. Comments of SQL count as
space; what stands in a versioned comment (``/*!80023 INVISIBLE */``) counts as written out, since that is how MySQL
and MariaDB read it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from matrixone.errors import Terminal

_TOKEN = re.compile(
    r"""(?P<space>\s+|/\*M?!\d*|\*/|/\*.*?(?:\*/|\Z)|--[ \t][^\n]*|\#[^\n]*)
    |(?P<name>`(?:[^`]|``)*+`)
    |(?P<text>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    |(?P<word>[^\W\d][\w$]*)
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    |(?P<broken>[`'"].*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {quote: re.compile(rf"\\(.)|{quote}{quote}", re.DOTALL) for quote in "'\""}
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "Z": "\x1a"}
_WRITTEN = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"})


class DdlUnreadable(Terminal):
    """A table's definition is not a CREATE TABLE that we can read, or says something else than the catalog does.
    Nothing was changed."""

    code = "DDL_UNREADABLE"
    about = "table"
    default_remedy = (
        "Run SHOW CREATE TABLE upstream, look at the named place, and report the text. The mirror has the table in any case; targets wait "
        "with this one, and the other tables go on."
    )


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of SQL text.

    Attributes
    ----------
    kind : `broken` is a name or a literal that has no end.
    value : names and literals without their quotes, all else as it stands.
    start, end : its place in the text, in characters.
    """

    kind: Literal["name", "text", "word", "number", "broken", "sign"]
    value: str
    start: int
    end: int

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.value == sign

    def is_word(self, *words: str) -> bool:
        """Whether it is one of the keywords, given in capitals; a quoted name never is one."""
        return self.kind == "word" and self.value.upper() in words


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """Everything but space, from `start` on."""
    for match in _TOKEN.finditer(text, start):
        value = match.group()
        kind = match.lastgroup
        match kind:
            case "name":
                value = value[1:-1].replace("``", "`")
            case "text":
                value = _unquote(value)
            case "space":
                continue
        yield Token(kind, value, *match.span())  # pyright: ignore[reportArgumentType]  # the groups of the pattern are the kinds


def quote_name(name: str) -> str:
    """A name in backquotes. Raises DdlUnreadable for a name that no server takes: an empty one, or one with a zero
    byte."""
    if not name or "\0" in name:
        raise DdlUnreadable("a name is empty or holds a zero byte", subject=f"name {name!r:.80}")
    return "`" + name.replace("`", "``") + "`"


def quote_names(names: Iterable[str], separator: str = ",") -> str:
    return separator.join(map(quote_name, names))


def quote_text(value: str) -> str:
    """A string literal, for a session in which a backslash is an escape (no NO_BACKSLASH_ESCAPES in sql_mode)."""
    return "'" + value.translate(_WRITTEN) + "'"


def _unquote(literal: str) -> str:
    quote = literal[0]
    return _ESCAPES[quote].sub(lambda match: _ESCAPED.get(match[1], match[1]) if match[1] else quote, literal[1:-1])
