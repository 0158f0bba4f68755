"""A statement's tokens, as parsers of statements read them."""

from collections.abc import Sequence
from typing import TypeAlias

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.sql.errors import SqlUnclosed
from ccpr.matrixone.sql.lexer import Token, complete_tokens, excerpt

Literal_: TypeAlias = str | int | None

MOST_PARTS = 256  # columns, values and conditions of a statement, each: its work is their number times that of rows
_SIGNS = frozenset(("<=", ">=", "<>", "!=", *"-+=<>(),.*/%{};"))  # no statement has another one


def is_utf8(text: str) -> bool:
    """Whether the bytes that it was decoded from, by `surrogateescape`, were UTF-8. Names are; a string may be
    anything."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Tokens:
    """A statement's tokens, read from left to right. Words compare without letter case. Raises StatementError 1064
    where the text is not what is asked for, and for a text that is not SQL."""

    def __init__(self, text: str, server: str = "emulator") -> None:
        self.sql, self.server = text, server
        self.tokens: list[Token] = []
        self.position = 0
        try:
            self.tokens = complete_tokens(text)
        except SqlUnclosed as error:
            raise self.unknown() from error
        if any(token.kind == "sign" and token.value not in _SIGNS for token in self.tokens):
            raise self.unknown()

    def at_end(self) -> bool:
        return self.position == len(self.tokens)

    @property
    def kind(self) -> str:
        """Of the next token; empty at the end."""
        return "" if self.at_end() else self.tokens[self.position].kind

    def at(self, *words: str) -> bool:
        """Whether the next token is one of these keywords, signs or numbers, given in lower case."""
        return self.kind in ("word", "sign", "number") and self.tokens[self.position].value.lower() in words

    def at_name(self) -> bool:
        return self.kind in ("word", "name")

    def next(self) -> str:
        if self.at_end():
            raise self.unknown()
        self.position += 1
        return self.tokens[self.position - 1].value

    def accept(self, *words: str) -> bool:
        """Go on behind these keywords, signs or numbers if all of them come next."""
        begin = self.position
        for word in words:
            if not self.at(word):
                self.position = begin
                return False
            self.position += 1
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                raise self.unknown()

    def name(self) -> str:
        if not self.at_name():
            raise self.unknown()
        name = self.tokens[self.position].value
        if not name or "\0" in name or not is_utf8(name):
            raise self.unknown()
        return self.next()

    def text(self) -> str:
        if self.kind != "text":
            raise self.unknown()
        return self.next()

    def number(self) -> int:
        """A whole number, of at most 40 digits."""
        begin, number = self.position, self.fraction()
        if not number.removeprefix("-").isdecimal():
            self.position = begin
            raise self.unknown()
        return int(number[:40])

    def literal(self) -> Literal_:
        """A text, a whole number, NULL; a number with a fraction as its text."""
        if self.accept("null"):
            return None
        if self.kind == "text":
            return self.text()
        number = self.fraction()
        return int(number[:40]) if number.removeprefix("-").isdecimal() else number

    def fraction(self) -> str:
        """A number as its text, with its sign; at most 80 characters."""
        sign = "-" if self.accept("-") else ""
        if self.kind != "number":
            raise self.unknown()
        return (sign + self.next())[:80]

    def value(self) -> Literal_ | bytes:
        """A literal, or TRUE, FALSE and x'hex'."""
        if self.accept("true"):
            return 1
        if self.accept("false"):
            return 0
        if self.accept("x"):
            try:
                return bytes.fromhex(self.text())
            except ValueError as error:
                raise self.unknown() from error
        return self.literal()

    def skip_rest(self) -> None:
        self.position = len(self.tokens)

    def source(self, begin: int) -> str:
        """The text of the tokens from number `begin` up to here, as written."""
        return self.sql[self.tokens[begin].start : self.tokens[self.position - 1].end]

    def limit(self, parts: Sequence[object]) -> None:
        if len(parts) > MOST_PARTS:
            raise self.unknown()

    def unknown(self) -> StatementError:
        near = excerpt(self.sql, 0 if self.at_end() else self.tokens[self.position].start, 80)
        text = f"SQL syntax: the {self.server} does not know this statement, near {near!r}"
        return StatementError(1064, text, "42000")
