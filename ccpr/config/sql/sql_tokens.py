"""The tokens of statements about subscriptions, and errors that point at one. No part of a password is ever shown: see
`_masks`.

They are those of `ccpr.matrixone.sql.lexer`; these statements use only the signs ``(),;=*.``, short numbers,
and no variables.
"""

import re
from collections.abc import Iterator

from ccpr.config.errors import SqlSyntax
from ccpr.matrixone.sql import lexer
from ccpr.matrixone.sql.lexer import Token, line_and_column

_SIGNS = frozenset("(),;=*.")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LONGEST_NUMBER = 19  # digits; no setting has more
_PART_OF_A_WORD = re.compile(r"[\w$]")
_OPENINGS = ("'", '"', "`", "/*")
_SHOWN_WIDTH = 100  # characters of the line on each side of the place
_ENDS_A_STRING = re.compile(r"[\s,;)#]|/\*|--|\Z")


def scan(text: str) -> Iterator[Token]:
    """All tokens and comments. The last one is `end`, or `broken`: what no statement has, and all behind it.

    A comment is never executed here: no statement depends on a server's version.
    """
    for token in lexer.scan(text, executable_comments=False):
        if token.kind == "broken" or not _is_known(token, text):
            opening = token.value if token.kind == "broken" else text[token.start]
            yield Token("broken", opening, token.start, len(text))
            return
        if token.kind != "space":
            yield token
    yield Token("end", "", len(text), len(text))


def _is_known(token: Token, text: str) -> bool:
    match token.kind:
        case "sign":
            return token.value in _SIGNS
        case "number":
            is_short = len(token.value) <= _LONGEST_NUMBER and _NUMBER.fullmatch(token.value) is not None
            return is_short and _PART_OF_A_WORD.match(text, token.end) is None
        case "name":
            return token.value != "" and "\0" not in token.value
    return token.kind != "variable"


def syntax_error(text: str, at: Token, expected: str) -> SqlSyntax:
    """What was expected, where, and the line with a caret below the place; all strings, passwords too, are stars."""
    masks = _masks(text)
    hidden = any(start <= at.start < end for start, end in masks)
    line_start = text.rfind("\n", 0, at.start) + 1
    line_end = text.find("\n", at.start)
    line_end = len(text) if line_end < 0 else line_end
    shown_from, shown_to = max(line_start, at.start - _SHOWN_WIDTH), min(line_end, at.start + _SHOWN_WIDTH)
    before = _masked(text, shown_from, at.start, masks)
    line = before if hidden else before + _masked(text, at.start, shown_to, masks)
    number, column = line_and_column(text, at.start)
    found = "" if hidden else f", found {_described(at)}"
    caret = " " * len(before.removesuffix("***") if hidden else before) + "^"
    place = f"line {number}, column {column}"
    return SqlSyntax(f"expected {expected}{found} ({place})\n  {line}\n  {caret}", subject=place)


def masked(text: str) -> str:
    """On one line, without what may be a password."""
    return " ".join(_masked(text, 0, len(text), _masks(text)).split())


def _described(token: Token) -> str:
    match token.kind:
        case "end":
            return "the end"
        case "text":
            return "a string"
        case "name":
            return "a name in backquotes"  # a URI perhaps
        case _:
            return f"{token.value:.60}"


def _masks(text: str) -> list[tuple[int, int]]:
    """What must not be shown, as offsets from and to: what is in strings and comments, and a name that looks like a
    URI. Where a URI is broken (no quotes, quotes that do not match, a quote within the password), all from it to the
    end, since the rest of it may be a password (decision sealed-secrets).
    """
    masks, uri = [], None  # `uri`: the last string that looks like one
    for token in scan(text):
        raw = text[token.start : token.end]
        like_uri = "@" in raw or "://" in raw
        if token.kind == "text":
            masks.append((token.start + 1, token.end - 1))
            if like_uri:
                uri = token.start
                if "@" not in raw or not _ENDS_A_STRING.match(text, token.end):
                    return [*masks[:-1], (token.start, len(text))]
        elif token.kind == "comment" or (token.kind == "name" and like_uri):
            masks.append((token.start + 1, token.end))
        elif token.kind == "broken" and (like_uri or token.value in _OPENINGS):
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
