"""How much work a regular expression does, in steps of a matcher that backtracks: a number that is the same on every
machine, where seconds are not."""

import re
from collections.abc import Callable, Iterator, Sequence
from re import _constants as op  # pyright: ignore[reportAttributeAccessIssue]  # no stub has it
from re import _parser as parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

Then = Callable[[int], int | None]
_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_DIGIT: str.isdecimal,
    op.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    op.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    op.CATEGORY_NOT_DIGIT: lambda char: not char.isdecimal(),
    op.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}
_ONE = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)


class Matcher:
    """Reads a text as `pattern.finditer` does.

    Attributes
    ----------
    steps : parts of the pattern that were tried at a place, until now.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self.steps = 0
        self._tree = list(parser.parse(pattern.pattern, pattern.flags))
        self._dotall, self._text = bool(pattern.flags & re.DOTALL), text

    def ends(self) -> Iterator[int]:
        """Where each match ends; there has to be one at every place."""
        place = 0
        while place < len(self._text):
            end = self._match(self._tree, 0, place, lambda end: end)
            assert end is not None, f"no match at {place}"
            assert end > place, f"an empty match at {place}"
            yield (place := end)

    def _match(self, parts: Sequence[Any], number: int, place: int, then: Then) -> int | None:
        """The end of the whole match, if the parts from `number` on match here and `then` finds the rest."""
        if number == len(parts):
            return then(place)
        self.steps += 1
        kind, value = parts[number]

        def rest(end: int) -> int | None:
            return self._match(parts, number + 1, end, then)

        if kind in _ONE:
            return rest(place + 1) if self._is_one(kind, value, place) else None
        if kind is op.BRANCH:
            return self._first(value[1], place, rest)
        if kind is op.SUBPATTERN:
            return self._match(value[3], 0, place, rest)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            direction, inner = value
            assert direction == 1
            found = self._match(inner, 0, place, lambda end: end) is not None
            return rest(place) if found == (kind is op.ASSERT) else None
        if kind is op.AT:
            assert value is op.AT_END_STRING
            return rest(place) if place == len(self._text) else None
        least, most, inner = value
        if kind is op.POSSESSIVE_REPEAT:
            return self._possessive(least, most, inner, place, rest)
        if len(inner) > 1 or inner[0][0] not in _ONE:
            assert (kind, most) == (op.MAX_REPEAT, 1), "other repetitions are not needed"
            end = self._match(inner, 0, place, rest)
            return rest(place) if end is None and not least else end
        return self._repeat(least, most, inner[0], place, rest, lazy=kind is op.MIN_REPEAT)

    def _first(self, branches: Sequence[Any], place: int, rest: Then) -> int | None:
        for branch in branches:
            if (end := self._match(branch, 0, place, rest)) is not None:
                return end
        return None

    def _possessive(self, least: int, most: int, inner: Sequence[Any], place: int, rest: Then) -> int | None:
        count = 0
        while count < most and (end := self._match(inner, 0, place, lambda end: end)) is not None:
            place, count = end, count + 1
        return rest(place) if count >= least else None

    def _repeat(self, least: int, most: int, one: Any, place: int, rest: Then, *, lazy: bool) -> int | None:
        """Of one character."""
        count = 0
        while count < (least if lazy else most) and self._is_one(one[0], one[1], place + count):
            count += 1
        while count >= least:
            if (end := rest(place + count)) is not None:
                return end
            if lazy and (count >= most or not self._is_one(one[0], one[1], place + count)):
                return None
            count += 1 if lazy else -1
        return None

    def _is_one(self, kind: Any, value: Any, place: int) -> bool:
        self.steps += 1
        if place >= len(self._text):
            return False
        char = self._text[place]
        if kind is op.ANY:
            return self._dotall or char != "\n"
        if kind is op.LITERAL:
            return ord(char) == value
        if kind is op.NOT_LITERAL:
            return ord(char) != value
        negated = value[0][0] is op.NEGATE
        return negated != any(_is_in(char, *item) for item in value[negated:])


def _is_in(char: str, kind: Any, value: Any) -> bool:
    if kind is op.CATEGORY:
        return _CATEGORIES[value](char)
    return value[0] <= ord(char) <= value[1] if kind is op.RANGE else ord(char) == value
