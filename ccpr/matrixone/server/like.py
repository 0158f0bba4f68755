"""LIKE, in time that grows with the length of the text and hardly with the pattern. The pattern is a client's: what
tried one `%` after the other in all places, as a regular expression does, could be kept busy for ever.

Each piece between two `%` is looked for behind the one before, at its first place: what follows fits behind a later
place only if it fits behind that one.
"""

import re
from collections.abc import Sequence

_PARTS = re.compile(r"\\.|%+|.", re.DOTALL)


class Like:
    """A pattern: `%` is any text, `_` any one character, a backslash makes the next character itself."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        self._ignore_case = ignore_case
        pieces: list[list[str | None]] = [[]]
        for part in _PARTS.findall(pattern.lower() if ignore_case else pattern):
            if part[0] == "%":
                pieces.append([])
            else:
                pieces[-1].append(None if part == "_" else part[-1])
        self._pieces = [_PatternPiece(piece) for piece in pieces]
        self._least = sum(piece.length for piece in self._pieces)

    def matches(self, text: str) -> bool:
        if self._ignore_case:
            text = text.lower()
        first, last, end = self._pieces[0], self._pieces[-1], len(text)
        if end < self._least or not first.is_at(text, 0):
            return False
        if len(self._pieces) == 1:
            return end == first.length
        place, end = first.length, end - last.length
        for piece in self._pieces[1:-1]:
            found = piece.find(text, place, end)
            if found is None:
                return False
            place = found + piece.length
        return last.is_at(text, end)


class _PatternPiece:
    """Characters in a row; None is any one."""

    def __init__(self, characters: Sequence[str | None]) -> None:
        self.length = len(characters)
        self._text = "".join(one or "" for one in characters)
        self._fixed = [(place, one) for place, one in enumerate(characters) if one is not None]
        # For each character the places where it may stand, as bits.
        self._any = int("".join("1" if one is None else "0" for one in reversed(characters)) or "0", 2)
        self._places: dict[str, int] = {}
        if self._any and self._fixed:
            for place, one in self._fixed:
                self._places[one] = self._places.get(one, self._any) | 1 << place

    def is_at(self, text: str, place: int) -> bool:
        if not self._any:
            return text.startswith(self._text, place)
        return all(text[place + offset] == one for offset, one in self._fixed)

    def find(self, text: str, start: int, end: int) -> int | None:
        """Its first place from `start` on, if it ends by `end`."""
        if end - start < self.length:
            return None
        if not self._any:
            found = text.find(self._text, start, end)
            return None if found < 0 else found
        if not self._fixed:
            return start
        # Bit n of `begun`: its first n + 1 characters end here.
        begun, whole = 0, 1 << (self.length - 1)
        for place in range(start, end):
            begun = (begun << 1 | 1) & self._places.get(text[place], self._any)
            if begun & whole:
                return place - self.length + 1
        return None
