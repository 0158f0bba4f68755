"""What an operator chooses for a target, as values (docs/requirements.md B9). What the DDL policies mean:
`ccpr.schema.policy`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Dialect(StrEnum):
    """The servers that a table can be synced to, as far as their SQL differs."""

    MYSQL8 = "mysql8"  # 8.0.23 and later: invisible columns
    MARIADB = "mariadb"  # 10.6 and later; tested with 10.11
    MATRIXONE = "matrixone"

    @property
    def server(self) -> str:
        """Whose it is, in a word that others know."""
        return "mysql" if self is Dialect.MYSQL8 else self.value

    @property
    def speaks_mysql(self) -> bool:
        """MySQL itself and MariaDB."""
        return self in (Dialect.MYSQL8, Dialect.MARIADB)


class DuplicateKeys(StrEnum):
    """What happens to a table with two visible rows of one primary key (the upstream's LOAD DATA does not
    check)."""

    ERROR = "error"  # the table requires operator action
    LAST = "last"  # the row with the later commit counts


class DdlPolicy(StrEnum):
    ADDITIVE = "additive"
    FULL = "full"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class MaxDrop:
    """How many tables a target drops at once without being asked (decision drops-held).

    Attributes
    ----------
    tables : at most so many; None: fewer than half of those that it has, or fewer than three, and not all of several.
    """

    MOST: ClassVar[int] = 999_999_999
    tables: int | None = None

    @classmethod
    def parse(cls, text: str) -> "MaxDrop":
        """`half` or a number. Raises ValueError."""
        if text == _HALF:
            return cls()
        if not (text.isascii() and text.isdecimal() and len(text) <= len(str(cls.MOST))):
            raise ValueError(f"not a number of tables, and not `{_HALF}`")
        return cls(int(text))

    def __str__(self) -> str:
        return _HALF if self.tables is None else str(self.tables)

    def holds(self, gone: int, there: int) -> bool:
        """Whether so many tables of those that are there are too many."""
        if self.tables is not None:
            return gone > self.tables
        return gone > 1 and (gone == there or (gone >= _FEW and 2 * gone >= there))


_HALF, _FEW = "half", 3
DEFAULT_MAX_DROP = MaxDrop()
