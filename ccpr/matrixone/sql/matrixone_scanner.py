r"""Where MatrixOne's own scanner sees strings, names and comments in one statement: it is not MySQL's.

The rules are those of `pkg/sql/parsers/dialect/mysql/scanner.go` of 4.2.0, which goes by bytes (docs/upstream.md, "What
its scanner reads otherwise"). Where it eats a quote as part of something else (``@a'``, ``0x'``, ``_utf8mb4"``), reads
a string of a kind of its own (``$$``), or has an error, nothing is modelled: such a text is not understood here.

What a backslash and a double quote mean depends on the session's sql_mode, so each is asked in all `MODES`.
"""

import re
from typing import TypeAlias

Mode: TypeAlias = tuple[bool, bool]  # whether a backslash escapes in single quotes, and in double quotes
MODES: tuple[Mode, ...] = ((True, True), (False, False), (True, False))  # default, NO_BACKSLASH_ESCAPES, ANSI_QUOTES
_SINGLE = {True: r"'(?:[^'\\]|\\.|'')*+'", False: r"'(?:[^']|'')*+'"}
_DOUBLE = {True: r'"(?:[^"\\]|\\.|"")*+"', False: r'"(?:[^"]|"")*+"'}
_PATTERN = r"""(?P<blank>[ \n\r\t]+)
    |(?P<inside>/\*(?!!).*?\*/|//[^\n]*|\#[^\n]*|--(?=[ \n\r\t]|\Z)[^\n]*
        |{single}|{double}|`(?:[^`]|``)++`)
    |(?P<word>[xX](?='(?:[0-9A-Fa-f]{{2}})*+')|[bB](?='[01]*+')|_utf8mb4(?=[ \n\r\t]*+')
        |(?![xXbB]'|_utf8mb4)[A-Za-z_][A-Za-z0-9_$]*+)
    |(?P<number>(?!0[xX](?![0-9A-Fa-f])|0[bB](?![01]))[0-9]++(?!\$))
    |(?P<variable>@@?[A-Za-z_][A-Za-z0-9_.]*+(?![$@"'`]))
    |(?P<sign>:[:=]|/(?![*/])|[-=,()+*%^~{{}}&|?.<>!])
    |(?P<not_understood>.)"""
_PATTERNS: dict[Mode, re.Pattern[str]] = {
    mode: re.compile(_PATTERN.format(single=_SINGLE[mode[0]], double=_DOUBLE[mode[1]]), re.VERBOSE | re.DOTALL)
    for mode in MODES
}


def insides(statement: str, mode: Mode) -> list[tuple[int, int]] | None:
    """Start and end of each string, quoted name and comment, in characters; None for what is not understood, among it
    a semicolon, a byte outside of these that is not ASCII, and whatever has no end."""
    found: list[tuple[int, int]] = []
    for piece in _PATTERNS[mode].finditer(statement):
        if piece.lastgroup == "not_understood":
            return None
        if piece.lastgroup == "inside":
            found.append(piece.span())
    return found
