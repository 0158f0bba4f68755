"""What values a setting can have, and how they are written: in a file or a statement, as the text of an option, and as
they are stored.

An error is a ValueError that says what was expected and never the value, which may be a password at the wrong place.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

from ccpr.schema.choices import MaxDrop
from ccpr.state.patterns import NamePatterns

T = TypeVar("T")
_MOST = 10**9
SPAN = r"^[0-9]{1,11}[smhd]?$"  # seconds, or a number with its unit
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(span: str) -> int:
    """`90`, `90s`, `15m`, `24h` or `7d` in seconds. Raises ValueError."""
    if not re.fullmatch(SPAN, span):
        raise ValueError("not a number of seconds, or one with s, m, h or d")
    number = span.rstrip("smhd")
    return int(number) * _SECONDS[span[len(number) :]]


class Kind(ABC, Generic[T]):
    """No kind is a dataclass: of these each costs every start half a millisecond.

    Attributes
    ----------
    forms : types of the literals by which a statement may say it.
    multiple : the option may be repeated.
    """

    forms: ClassVar[tuple[type, ...]] = (str,)
    multiple: ClassVar[bool] = False

    @abstractmethod
    def read(self, value: object) -> T:
        """What a value of a file, a statement or the stored JSON means; what was read before is itself. Raises
        ValueError."""

    def parse(self, given: Any) -> T:
        """What the text of an option means; a flag's is a bool, a repeated one's a list. Raises ValueError."""
        return self.read(given)

    def check(self, value: T) -> None:
        """Whether it is within the limits of what may be asked for. Raises ValueError."""

    def plain(self, value: T) -> Any:
        """As YAML and JSON have it."""
        return value

    @property
    def metavar(self) -> str:
        """Its value in the help of an option."""
        return "TEXT"

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON schema of its values in a file."""

    @property
    @abstractmethod
    def words(self) -> str:
        """Its values in Markdown, for reference pages."""


class Flag(Kind[bool]):
    forms = (bool,)

    def read(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError("not true or false")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    @property
    def words(self) -> str:
        return "true, false"


class _Limited(Kind[T]):
    """A number from `least` to `most`."""

    def __init__(self, least: int = 0, most: int = _MOST) -> None:
        self.least, self.most = least, most

    def check(self, value: Any) -> None:
        if not self.least <= value <= self.most:
            raise ValueError(f"not from {self.limits}")

    @property
    def limits(self) -> str:
        return f"{self.least:,} to {self.most:,}"

    @property
    def metavar(self) -> str:
        return "NUMBER"


class Whole(_Limited[int]):
    forms = (int,)

    def read(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("not a whole number")
        return value

    def parse(self, given: Any) -> int:
        try:
            return int(given)
        except ValueError:
            raise ValueError("not a whole number") from None

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    @property
    def words(self) -> str:
        return f"whole number, {self.limits}"


class Number(_Limited[float]):
    forms = (int, float)

    def read(self, value: object) -> float:
        try:
            found = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise ValueError("not a number")
        return found

    def parse(self, given: Any) -> float:
        try:
            return self.read(float(given))
        except ValueError:
            raise ValueError("not a number") from None

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}

    @property
    def words(self) -> str:
        return f"number, {self.limits}"


class Span(_Limited[int]):
    """A time: whole seconds, or a text that `seconds_of` knows."""

    forms = (int, str)

    def read(self, value: object) -> int:
        if isinstance(value, str):
            return seconds_of(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("not a number of seconds, or one with s, m, h or d")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        seconds = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return {"anyOf": [seconds, {"type": "string", "pattern": SPAN}]}

    @property
    def words(self) -> str:
        return f"time, {self.limits} seconds"

    @property
    def metavar(self) -> str:
        return "TIME"


class Choice(Kind[T]):
    """One of some texts."""

    def __init__(self, values: Iterable[T]) -> None:
        self.values = tuple(values)

    @property
    def metavar(self) -> str:
        return "|".join(map(str, self.values))

    @property
    def either(self) -> str:
        """For a sentence."""
        *before, last = map(str, self.values)
        return f"{', '.join(before)} or {last}"

    def read(self, value: object) -> T:
        for one in self.values:
            if one == value:
                return one
        raise ValueError(f"not one of {', '.join(map(str, self.values))}")

    def plain(self, value: T) -> str:
        return str(value)

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(map(str, self.values))}

    @property
    def words(self) -> str:
        return ", ".join(f"`{value}`" for value in self.values)


class Text(Kind[str]):
    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("not text; put it in quotes")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string"}

    @property
    def words(self) -> str:
        return "text"


class Url(Text):
    """A folder, or the URL of one. Which URLs there are the stores know."""

    @property
    def metavar(self) -> str:
        return "URL"

    @property
    def words(self) -> str:
        return "folder or URL"


class Patterns(Text):
    """See `NamePatterns`."""

    def read(self, value: object) -> str:
        text = Text.read(self, value)
        NamePatterns.of(text)
        return text

    @property
    def metavar(self) -> str:
        return "PATTERNS"

    @property
    def words(self) -> str:
        return "names and patterns"


class Columns(Kind[tuple[str, ...]]):
    """Names of columns, each `table.column`."""

    multiple: ClassVar[bool] = True

    def read(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError("not a list of columns")
        for name in value:
            if not isinstance(name, str) or not all(name.rpartition(".")[::2]):
                raise ValueError("not a list of columns, each table.column")
        return tuple(value)

    def plain(self, value: tuple[str, ...]) -> list[str]:
        return list(value)

    @property
    def metavar(self) -> str:
        return "TABLE.COLUMN"

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "pattern": r"^.+\..+$"}}

    @property
    def words(self) -> str:
        return "list of columns"


class Drops(Kind[MaxDrop]):
    """A number of tables, or `half`."""

    forms = (int, str)

    def read(self, value: object) -> MaxDrop:
        if not isinstance(value, int | str | MaxDrop) or isinstance(value, bool):
            raise ValueError("not a number of tables, and not `half`")
        return MaxDrop.parse(str(value))

    def plain(self, value: MaxDrop) -> int | str:
        return str(value) if value.tables is None else value.tables

    @property
    def metavar(self) -> str:
        return "NUMBER|half"

    @property
    def schema(self) -> dict[str, Any]:
        return {"anyOf": [Whole(most=MaxDrop.MOST).schema, {"const": str(MaxDrop())}]}

    @property
    def words(self) -> str:
        return f"`half`, or 0 to {MaxDrop.MOST:,}"
