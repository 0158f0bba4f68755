"""Reading CREATE TABLE text, as far as it is needed: the members of enum and set columns.

Source: upstream-interface.md 5.4; object-format.md 4 (set, enum). The text is data from a server: whatever it holds, reading it ends, and
what cannot be read is left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_TOKEN = re.compile(
    r"""(?P<space>\s+|/\*.*?(?:\*/|\Z)|--[ \t][^\n]*|\#[^\n]*)
    |(?P<name>`(?:[^`]|``)*+(?:`|\Z))
    |(?P<text>'(?:[^'\\]|\\.|'')*+(?:'|\\?\Z)|"(?:[^"\\]|\\.|"")*+(?:"|\\?\Z))
    |(?P<word>[^\W\d][\w$]*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "Z": "\x1a"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: Literal["name", "text", "word", "sign"]
    value: str


def enum_members(ddl: str) -> dict[str, tuple[str, ...]]:
    """Column name -> members in order, for every enum and set column of a CREATE TABLE statement.

    Members may hold commas, brackets and quotes.
    """
    found: dict[str, tuple[str, ...]] = {}
    for definition in _definitions(list(_tokens(ddl))):
        match definition:
            case [_Token("name" | "word", name), _Token("word", kind), _Token("sign", "("), *rest] if kind.lower() in ("enum", "set"):
                found[name] = tuple(_leading_texts(rest))
    return found


def _tokens(ddl: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(ddl):
        value = match.group()
        match match.lastgroup:
            case "name":
                yield _Token("name", value[1:-1].replace("``", "`"))
            case "text":
                yield _Token("text", _unquote(value))
            case "word":
                yield _Token("word", value)
            case "sign":
                yield _Token("sign", value)


def _unquote(literal: str) -> str:
    quote = literal[0]
    body = literal[1:-1].replace(quote * 2, quote)
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), body)


def _definitions(tokens: list[_Token]) -> Iterator[list[_Token]]:
    """What stands between the commas of the outermost brackets: columns, keys and checks."""
    depth, current = 0, []
    for token in tokens:
        if token == _Token("sign", "("):
            depth += 1
            if depth == 1:
                continue
        elif token == _Token("sign", ")"):
            depth -= 1
            if depth == 0:  # what follows are options of the table
                yield current
                return
        elif token == _Token("sign", ",") and depth == 1:
            yield current
            current = []
            continue
        if depth:
            current.append(token)


def _leading_texts(tokens: list[_Token]) -> Iterator[str]:
    for token in tokens:
        if token.kind == "text":
            yield token.value
        elif token != _Token("sign", ","):
            return
