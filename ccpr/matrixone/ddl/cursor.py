"""A place in a list of SQL tokens, and the steps that a parser makes from it. Every error names the place."""

from collections.abc import Callable
from typing import Never, TypeVar

from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.lexer import Token, excerpt, line_and_column, tokens

MAX_DIGITS = 9
_Item = TypeVar("_Item")


class Cursor:
    """Raises DdlUnreadable where the text is not what is asked for.

    Attributes
    ----------
    tokens, place : the tokens read so far, and the number of the next one. They are read as they are asked for, so
        that going on elsewhere (`go_on_at`) does not read what is in between.
    """

    def __init__(self, text: str, subject: str) -> None:
        self.text = text
        self.subject = subject
        self.tokens: list[Token] = []
        self.place = 0
        self._unread = tokens(text)

    def slice(self, ends: Callable[[Token], bool]) -> str:
        """The text up to where it ends, outside brackets; not empty."""
        first, depth = self.token(), 0
        while not self.at_end():
            token = self.tokens[self.place]
            if depth == 0 and (token.is_sign(")") or (token is not first and ends(token))):
                break
            if token.kind == "broken":
                self.fail("a text or name has no end", token)
            depth += token.is_sign("(") - token.is_sign(")")
            self.place += 1
        last = self.tokens[self.place - 1]
        if depth or last.end <= first.start or first.is_sign(","):
            self.fail("an expression has no end", first)
        return self.text[first.start : last.end]

    def bracketed_text(self) -> str:
        self.sign("(")
        text = self.slice(lambda _: False)
        self.sign(")")
        return text

    def token(self) -> Token:
        if self.at_end():
            raise DdlUnreadable("the CREATE TABLE text breaks off", subject=self.subject)
        return self.tokens[self.place]

    def take_token(self) -> Token:
        token = self.token()
        if token.kind == "broken":
            self.fail("a text or name has no end", token)
        self.place += 1
        return token

    def at_end(self) -> bool:
        return self.following(0) is None

    def following(self, number: int = 1) -> Token | None:
        """The token that many behind the next one; None behind the end."""
        while len(self.tokens) <= self.place + number:
            token = next(self._unread, None)
            if token is None:
                return None
            self.tokens.append(token)
        return self.tokens[self.place + number]

    def at(self, *words: str) -> bool:
        return not self.at_end() and self.tokens[self.place].is_word(*words)

    def take(self, *words: str) -> bool:
        found = self.at(*words)
        self.place += found
        return found

    def at_sign(self, sign: str) -> bool:
        return self.token().is_sign(sign)

    def take_sign(self, sign: str) -> bool:
        found = not self.at_end() and self.tokens[self.place].is_sign(sign)
        self.place += found
        return found

    def expect(self, word: str) -> None:
        if not self.take(word):
            self.fail(f"{word} is expected")

    def sign(self, sign: str) -> None:
        if not self.take_sign(sign):
            self.fail(f"'{sign}' is expected")

    def name(self) -> str:
        token = self.take_token()
        if token.kind not in ("name", "word") or not token.value or "\0" in token.value:
            self.fail("a name is expected", token)
        return token.value

    def qualified_name(self) -> tuple[str, str]:
        first = self.name()
        return (first, self.name()) if self.take_sign(".") else ("", first)

    def number(self) -> int:
        token = self.take_token()
        if not (token.kind == "number" and token.value.isdecimal() and len(token.value) <= MAX_DIGITS):
            self.fail("a number is expected", token)
        return int(token.value)

    def in_brackets(self, item: Callable[[], _Item]) -> tuple[_Item, ...]:
        self.sign("(")
        items = [item()]
        while self.take_sign(","):
            items.append(item())
        self.sign(")")
        return tuple(items)

    def go_on_at(self, place: int) -> None:
        del self.tokens[self.place :]
        self._unread = tokens(self.text, place)

    def fail(self, problem: str, token: Token | None = None) -> Never:
        if token is None and self.at_end():
            raise DdlUnreadable(f"the CREATE TABLE text breaks off: {problem}", subject=self.subject)
        token = token or self.tokens[self.place]
        line, _ = line_and_column(self.text, token.start)
        found = excerpt(self.text, token.start, 40)
        raise DdlUnreadable(f"{problem}, at character {token.start} in line {line}: {found!r}", subject=self.subject)
