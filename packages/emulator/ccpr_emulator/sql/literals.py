"""INSERT … VALUES with nothing but literals, read without a parser: most INSERTs, and all large ones."""

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ccpr.matrixone.sql.quoting import unquote_name, unquote_string

_NAME = r"(?:`(?:[^`]|``)++`|[^\W\d][\w$]*+)"
_HEAD = re.compile(
    rf"""\s*(insert|replace)\s+(ignore\s+)?(?:into\s+)?({_NAME})(?:\s*\.\s*({_NAME}))?\s*
    (?:\(((?:\s*{_NAME}\s*,)*\s*{_NAME}\s*)\))?\s*values?\s*(?=\()""",
    re.IGNORECASE | re.VERBOSE,
)
_CELL = re.compile(
    r"""\s*(?:(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)|'((?:[^'\\]|\\.|'')*+)'
    |(null|true|false|default)|[xX]'([0-9a-fA-F]*)'|("(?:[^"\\]|\\.|"")*+"))\s*([,)])""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_NEXT = re.compile(r"\s*,\s*\(")
_END = re.compile(r"\s*;?\s*\Z")
_WORDS = {"true": "1", "false": "0", "null": None}
_NAMES = re.compile(_NAME)


class _Default:
    """DEFAULT in the place of a value."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = _Default()
Cell: TypeAlias = Any  # a text (a number is one), bytes, None or DEFAULT


@dataclass(frozen=True, slots=True)
class Head:
    """Up to VALUES: `columns` is None if none are named; `end` is the place of the first bracket."""

    verb: str
    ignore: bool
    database: str
    table: str
    columns: tuple[str, ...] | None
    end: int


def head_of(text: str) -> Head | None:
    """None for any other statement."""
    found = _HEAD.match(text)
    if found is None:
        return None
    first, second = found[3], found[4]
    database, table = (first, second) if second else ("", first)
    columns = None if found[5] is None else tuple(name_of(name) for name in _NAMES.findall(found[5]))
    return Head(found[1].lower(), bool(found[2]), name_of(database), name_of(table), columns, found.end())


def name_of(written: str) -> str:
    return unquote_name(written) if written.startswith("`") else written


def rows_from(text: str, place: int) -> tuple[list[list[Cell]], int] | None:
    """The rows from a bracket on, and the place behind them; None if something in them is not a literal."""
    rows: list[list[Cell]] = []
    match, place = _CELL.match, place + 1
    while True:
        row: list[Cell] = []
        while True:
            found = match(text, place)
            if found is None:
                return None
            place = found.end()
            number, string, word, hexadecimal, double, sign = found.groups()
            if number is not None:
                row.append(number)
            elif string is not None:
                row.append(unquote_string(f"'{string}'") if "\\" in string or "'" in string else string)
            elif word is not None:
                row.append(_WORDS.get(word.lower(), DEFAULT))
            elif hexadecimal is not None:
                row.append(
                    bytes.fromhex(hexadecimal) if len(hexadecimal) % 2 == 0 else bytes.fromhex("0" + hexadecimal)
                )
            else:
                row.append(unquote_string(double))
            if sign == ")":
                break
        rows.append(row)
        following = _NEXT.match(text, place)
        if following is None:
            return rows, place
        place = following.end()


def is_end(text: str, place: int) -> bool:
    return _END.match(text, place) is not None
