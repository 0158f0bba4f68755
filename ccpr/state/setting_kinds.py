"""What values a setting can have, and how they are written: in a file or a statement, as the text of an option, and as
they are stored.

An error is a ValueError that says what was expected and never the value, which may be a password at the wrong place.
No kind is a dataclass: of these each costs every start half a millisecond.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from ccpr.base.wording import NO_SPAN, SPAN, seconds_of
from ccpr.schema.choices import MaxDrop
from ccpr.state.keep_rules import KeepRules
from ccpr.state.patterns import NamePatterns

T = TypeVar("T")
_MOST = 10**9


class SettingKind(ABC, Generic[T]):
    """
    Attributes
    ----------
    forms : types of the literals by which a statement may say it.
    multiple : its option may be repeated.
    metavar : its value in the help of an option.
    words : its values, in Markdown.
    may_be_secret : what is no value of it may have a password, and is not shown.
    schema : JSON schema of its values in a file.
    """

    forms: ClassVar[tuple[type, ...]] = (str,)
    multiple: ClassVar[bool] = False
    may_be_secret: ClassVar[bool] = False
    metavar: str = "TEXT"
    words: str = "text"
    schema: Mapping[str, Any] = {"type": "string"}

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


class Flag(SettingKind[bool]):
    forms = (bool,)
    words = "true, false"
    schema: Mapping[str, Any] = {"type": "boolean"}

    def read(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError("not true or false, without quotes")
        return value


class _Limited(SettingKind[T]):
    """A number from `least` to `most`."""

    noun: ClassVar[str]
    json_type: ClassVar[str] = "integer"
    metavar = "NUMBER"

    def __init__(self, least: int = 0, most: int = _MOST) -> None:
        self.least, self.most = least, most
        self.limits = f"{least:,} to {most:,}"
        self.words = f"{self.noun}, {self.limits}"
        self.schema = {"type": self.json_type, "minimum": least, "maximum": most}

    def check(self, value: Any) -> None:
        if not self.least <= value <= self.most:
            raise ValueError(f"not from {self.limits}")


class Whole(_Limited[int]):
    forms = (int,)
    noun = "whole number"

    def read(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("not a whole number")
        return value

    def parse(self, given: Any) -> int:
        try:
            return int(given)
        except ValueError:
            raise ValueError("not a whole number") from None


class Number(_Limited[float]):
    forms = (int, float)
    noun = json_type = "number"

    def read(self, value: object) -> float:
        return self.parse(value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan)

    def parse(self, given: Any) -> float:
        try:
            found = float(given)
        except (ValueError, OverflowError):
            found = math.nan
        if not math.isfinite(found):
            raise ValueError("not a number")
        return found


class Span(_Limited[int]):
    """A time: whole seconds, or a text that `seconds_of` knows."""

    forms = (int, str)
    noun = "seconds"
    metavar = "TIME"

    def __init__(self, least: int = 0, most: int = _MOST) -> None:
        super().__init__(least, most)
        self.schema = {"anyOf": [self.schema, {"type": "string", "pattern": SPAN}]}

    def read(self, value: object) -> int:
        if isinstance(value, str):
            return seconds_of(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(NO_SPAN)
        return value


class Choice(SettingKind[T]):
    """One of some texts."""

    def __init__(self, values: Iterable[T]) -> None:
        self.values = tuple(values)
        texts = list(map(str, self.values))
        self.metavar = "|".join(texts)
        self.words = ", ".join(f"`{text}`" for text in texts)
        self.either = f"{', '.join(texts[:-1])} or {texts[-1]}"
        self.schema = {"type": "string", "enum": texts}

    def read(self, value: object) -> T:
        for one in self.values:
            if one == value:
                return one
        raise ValueError(f"not one of {', '.join(map(str, self.values))}")

    def plain(self, value: T) -> str:
        return str(value)


class Text(SettingKind[str]):
    def read(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("not text; put it in quotes")
        return value


class Url(Text):
    """A folder, or the URL of one. Which URLs there are the stores know."""

    metavar = "URL"
    words = "folder or URL"


class KeyPlace(Text):
    """Where a key is, see `ccpr.mirror.encryption_keys`."""

    metavar = "file:PATH|env:NAME|command"
    words = "`file:PATH`, `env:NAME`, `command`"

    def read(self, value: object) -> str:
        from ccpr.mirror.encryption_keys import REFERENCE

        if (text := super().read(value)) and not REFERENCE.fullmatch(text):
            raise ValueError("not file:PATH, env:NAME or command, which says where the key is")
        return text


class CopyPlace(Url):
    """As a mirror is opened by its URL: it may say where the key is."""


class DrillPlace(Url):
    """A folder, or the URI of a server. A password has no place in a setting, which is shown."""

    may_be_secret = True
    metavar = "FOLDER|URI"
    words = "folder or URI"

    def read(self, value: object) -> str:
        if (text := super().read(value)).startswith("mysql://") and not _has_password_elsewhere(text):
            raise ValueError("not mysql://user:env:NAME@host:port, nor a folder")
        return text


def _has_password_elsewhere(uri: str) -> bool:
    from ccpr.matrixone.client.endpoint import parse_uri
    from ccpr.matrixone.client.errors import BadUri

    try:
        password = parse_uri(uri)[1]
    except BadUri:
        return False
    return password is not None and password.startswith("env:")


class Keep(Text):
    """See `KeepRules`."""

    metavar = "RULES"
    words = "rules"

    def read(self, value: object) -> str:
        text = super().read(value)
        KeepRules.parse(text)
        return text


class Patterns(Text):
    """See `NamePatterns`."""

    metavar = "PATTERNS"
    words = "names and patterns"

    def read(self, value: object) -> str:
        text = super().read(value)
        NamePatterns.of(text)
        return text


class Columns(SettingKind[tuple[str, ...]]):
    """Names of columns, each `table.column`."""

    multiple = True
    metavar = "TABLE.COLUMN"
    words = "list of columns"
    schema: Mapping[str, Any] = {"type": "array", "items": {"type": "string", "pattern": r"^.+\..+$"}}

    def read(self, value: object) -> tuple[str, ...]:
        names = tuple(value) if isinstance(value, list | tuple) else ("",)
        if not all(isinstance(name, str) and all(name.rpartition(".")[::2]) for name in names):
            raise ValueError("not a list of columns, each table.column")
        return tuple(dict.fromkeys(names))

    def plain(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class Drops(SettingKind[MaxDrop]):
    """A number of tables, or `half`."""

    forms = (int, str)
    metavar = "NUMBER|half"
    words = f"`half`, or 0 to {MaxDrop.MOST:,}"
    schema: Mapping[str, Any] = {"anyOf": [Whole(most=MaxDrop.MOST).schema, {"const": str(MaxDrop())}]}

    def read(self, value: object) -> MaxDrop:
        if not isinstance(value, int | str | MaxDrop) or isinstance(value, bool):
            raise ValueError("not a number of tables, and not `half`")
        return MaxDrop.parse(str(value))

    def plain(self, value: MaxDrop) -> int | str:
        return str(value) if value.tables is None else value.tables
