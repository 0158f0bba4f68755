r"""SQL text as tokens with their places.

The text is data from a server or a user: whatever it holds, reading it is one pass without recursion, and no error
shows what a string holds (a password perhaps). The words are MySQL's, which MatrixOne and MariaDB share:

* names in backquotes, strings in single or double quotes: `ccpr.matrixone.sql.quoting` says what is in them;
* comments: ``/* … */``; ``#``, and ``--`` before white space, to the end of the line;
* executable comments, ``/*!80023 INVISIBLE */`` and MariaDB's ``/*M! … */``: what is in one is read as if it were not
  in a comment, as those servers do; only its two marks count as space. One for a version that no server has,
  ``/*!999999 … */``, is a comment like all others;
* numbers without their sign, variables (``@a``, ``@@session.b``), and signs: ``<= >= <> !=``, else one character.

One option: `executable_comments=False` for a grammar that does not depend on a server's version; there they are
comments like all others.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ccpr.matrixone.sql.errors import SqlUnclosed
from ccpr.matrixone.sql.quoting import NAME, STRING, unquote_name, unquote_string

Kind: TypeAlias = Literal[
    "space", "comment", "name", "text", "word", "number", "variable", "sign", "broken", "end"
]  # the groups of the pattern, and `end`

_PATTERN = rf"""(?P<space>\s+)
    |(?P<comment>{{marks}}/\*.*?\*/|--(?=\s|\Z)[^\n]*|\#[^\n]*)
    |(?P<name>{NAME})
    |(?P<text>{STRING})
    |(?P<word>[^\W\d][\w$]*)
    |(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)
    |(?P<variable>@@?[\w.$]+)
    |(?P<broken>(?:[`'"]|/\*).*)
    |(?P<sign><=|>=|<>|!=|.)"""
# Which marks belong together is not counted, so that reading may start in such a comment: one that closes nothing is
# space, too. Only ``*/*`` is read as a sign before a comment, ``count(*/* all */)``.
_MARKS = r"/\*M?!(?![2-9][0-9]{5}(?![0-9]))[0-9]*|\*/(?!\*)|/\*M?!.*?\*/|"  # MySQL is at 9, MariaDB at 12
_PATTERNS = {
    executable: re.compile(_PATTERN.format(marks=_MARKS if executable else ""), re.VERBOSE | re.DOTALL)
    for executable in (True, False)
}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of SQL text.

    Attributes
    ----------
    kind : `text` is a string literal. `broken` is a name, a string or a comment without an end, and reaches to the end
        of the text. `end` is in no text: a parser may put it behind the last token.
    value : of a name or a string what it means; of what is broken only what it begins with; else the text itself.
    start, end : its place in the text, in characters.
    """

    kind: Kind
    value: str
    start: int
    end: int

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.value in signs

    def is_word(self, *words: str) -> bool:
        """Whether it is one of the keywords, given in capitals; a quoted name never is one."""
        return self.kind == "word" and self.value.upper() in words


def scan(text: str, start: int = 0, *, executable_comments: bool = True) -> Iterator[Token]:
    """All tokens from `start` on, space and comments too: they follow one another without a gap."""
    for found in _PATTERNS[executable_comments].finditer(text, start):
        kind, value = found.lastgroup, found.group()
        match kind:
            case "name":
                value = unquote_name(value)
            case "text":
                value = unquote_string(value)
            case "broken":
                value = value[:2] if value.startswith("/*") else value[:1]
        yield Token(kind, value, *found.span())  # pyright: ignore[reportArgumentType]  # the groups are the kinds


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """Everything but space and comments, from `start` on; the last one may be broken."""
    return (token for token in scan(text, start) if token.kind not in ("space", "comment"))


def complete_tokens(text: str) -> list[Token]:
    """Everything but space and comments. Raises SqlUnclosed."""
    found = list(tokens(text))
    if found and found[-1].kind == "broken":
        last = found[-1]
        raise SqlUnclosed(last.value, last.start, line_and_column(text, last.start)[0])
    return found


def line_and_column(text: str, place: int) -> tuple[int, int]:
    """Both from 1."""
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def excerpt(text: str, start: int, width: int) -> str:
    """What an error shows of a text: at most so many characters from a token's start on, without what is in strings
    and comments. If something has no end, a quote may be missing anywhere before it, and nothing is shown from the
    text's first quote on."""
    found = list(scan(text, start))
    quotes = [token for token in (*scan(text), *found) if token.kind in ("name", "text", "broken")]
    unclosed = any(token.kind == "broken" for token in quotes)
    if unclosed and quotes[0].start < start:
        return "***"[:width]
    shown, length = [], 0
    for token in found:
        if unclosed and token.kind in ("name", "text", "broken"):
            shown.append(f"{text[token.start]}***")
            break
        if token.kind == "text":
            piece = f"{text[token.start]}***{text[token.start]}"
        elif token.kind == "comment":
            piece = " "
        else:
            piece = text[token.start : token.end]
        shown.append(piece)
        length += len(piece)
        if length >= width:
            break
    return "".join(shown)[:width]
