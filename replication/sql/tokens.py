"""The words of a statement with their places, and errors that point at one. No part of a password is ever shown: see
`_masks`.

Words are as in MySQL: names in backquotes (a doubled one is one), strings in single or double quotes (a doubled quote,
or one behind a backslash, is a quote; \\n and the like are read), comments with #, -- and /* */.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from replication.errors import SqlSyntax

_LONGEST_NUMBER = 18  # digits; more is no setting of ours
_SHOWN_WIDTH = 100  # characters of the line on each side of the place
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_SCAN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>\#[^\n]* | --(?=\s|\Z)[^\n]* | /\*.*?\*/)
    | (?P<string>'(?:[^'\\]|''|\\.)*' | "(?:[^"\\]|""|\\.)*")
    | (?P<name>`(?:[^`\0]|``)+`)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?![\w$]))
    | (?P<word>[^\W\d][\w$]*)
    | (?P<symbol>[(),;=*.])
    """,
    re.VERBOSE | re.DOTALL,
)
_ENDS_A_STRING = re.compile(r"[\s,;)#]|/\*|--|\Z")


class Kind(Enum):
    WORD = auto()  # a keyword, or a name without quotes
    NAME = auto()
    STRING = auto()
    NUMBER = auto()
    SYMBOL = auto()
    COMMENT = auto()
    BROKEN = auto()  # no word begins here; it reaches to the end
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """`value` is what is meant: without quotes and escapes. `start` and `end` are offsets into the text."""

    kind: Kind
    value: str
    start: int
    end: int


def scan(text: str) -> Iterator[Token]:
    """All words and comments; END or BROKEN last."""
    place = 0
    while place < len(text):
        found = _SCAN.match(text, place)
        if found is None:
            yield Token(Kind.BROKEN, text[place], place, len(text))
            return
        kind, raw = str(found.lastgroup), found[0]
        if kind == "number" and len(raw) > _LONGEST_NUMBER:
            yield Token(Kind.BROKEN, raw[0], place, len(text))
            return
        if kind == "string":
            raw = _unescape(raw)
        elif kind == "name":
            raw = raw[1:-1].replace("``", "`")
        if kind != "space":
            yield Token(Kind[kind.upper()], raw, place, found.end())
        place = found.end()
    yield Token(Kind.END, "", len(text), len(text))


def _unescape(quoted: str) -> str:
    quote, inner = quoted[0], quoted[1:-1]

    def meant(found: re.Match[str]) -> str:
        pair = found[0]
        return quote if pair[0] == quote else _ESCAPES.get(pair[1], pair[1])

    return re.sub(rf"{quote}{quote}|\\.", meant, inner, flags=re.DOTALL)


def quote_string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def syntax_error(text: str, at: Token, expected: str) -> SqlSyntax:
    """What was expected, where, and the line with a caret below the place; passwords and all other strings are stars."""
    masks = _masks(text)
    hidden = any(start <= at.start < end for start, end in masks)
    line_start = text.rfind("\n", 0, at.start) + 1
    line_end = text.find("\n", at.start)
    line_end = len(text) if line_end < 0 else line_end
    shown_from, shown_to = max(line_start, at.start - _SHOWN_WIDTH), min(line_end, at.start + _SHOWN_WIDTH)
    before = _masked(text, shown_from, at.start, masks)
    line = before if hidden else before + _masked(text, at.start, shown_to, masks)
    number, column = text.count("\n", 0, at.start) + 1, at.start - line_start + 1
    found = "" if hidden else f", found {_described(at)}"
    caret = " " * len(before.removesuffix("***") if hidden else before) + "^"
    place = f"line {number}, column {column}"
    return SqlSyntax(f"expected {expected}{found} ({place})\n  {line}\n  {caret}", subject=place)


def _described(token: Token) -> str:
    match token.kind:
        case Kind.END:
            return "the end"
        case Kind.STRING:
            return "a string"
        case Kind.BROKEN if token.value in "'\"`":
            return f"a {token.value} that is never closed"
        case Kind.NAME:
            return "a name in backquotes"  # a URI perhaps
        case _:
            return f"{token.value:.60}"


def _masks(text: str) -> list[tuple[int, int]]:
    """What must not be shown, as offsets from and to: what is in strings and comments; a name that looks like a URI;
    and where a URI is broken (no quotes, quotes that do not match, a quote within the password) all from it to the
    end, for a rest of it may be a password.
    """
    masks, uri = [], None  # `uri`: the last string that looks like one
    for token in scan(text):
        raw = text[token.start : token.end]
        like_uri = "@" in raw or "://" in raw
        if token.kind is Kind.STRING:
            masks.append((token.start + 1, token.end - 1))
            if like_uri:
                uri = token.start
                if "@" not in raw or not _ENDS_A_STRING.match(text, token.end):
                    return [*masks[:-1], (token.start, len(text))]
        elif token.kind is Kind.COMMENT or (token.kind is Kind.NAME and like_uri):
            masks.append((token.start + 1, token.end))
        elif token.kind is Kind.BROKEN and (like_uri or token.value in "'\"`"):
            start = token.start if uri is None else uri
            return [*(mask for mask in masks if mask[1] <= start), (start, len(text))]
    return masks


def _masked(text: str, start: int, end: int, masks: list[tuple[int, int]]) -> str:
    parts, place = [], start
    for first, last in masks:
        if last <= place or first >= end:
            continue
        parts += [text[place : max(first, place)], "***"]
        place = min(last, end)
    return "".join((*parts, text[place:end])).replace("\t", " ").replace("\r", " ")
