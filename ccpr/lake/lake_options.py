"""How a lake is kept and its tables are published, as values that need no Arrow. A target is stored with them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ccpr.matrixone.schema import integer_of, text_of
from ccpr.state.patterns import NamePatterns

if TYPE_CHECKING:
    from ccpr.state.targets import Target


class Mapped(StrEnum):
    """How the columns of the files are called."""

    NONE = "none"  # as the columns of the table
    NAME = "name"  # by number: a RENAME COLUMN changes no file. Delta calls this column mapping


@dataclass(frozen=True, slots=True)
class TableRules:
    """How a table is published.

    Attributes
    ----------
    mapped : how the columns of the files are called.
    copy_on_write : files are written again where rows of them go, and there are no deletion vectors.
    change_data : the changes of rows are published as files of their own.
    """

    mapped: Mapped = Mapped.NONE
    copy_on_write: bool = False
    change_data: bool = False


DEFAULT_RULES = TableRules()


class Format(StrEnum):
    """Which metadata a lake has. Delta's log is there always, and publishing goes by it; with ICEBERG it is the lake's
    own record, and nobody else's."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    BOTH = "delta,iceberg"


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """
    Attributes
    ----------
    tables : patterns of names, joined by commas; empty for all tables.
    columns : how the columns of the files are called.
    iceberg_version : of Iceberg's format: 2 or 3.
    catalog : of Iceberg tables, a REST catalog's URL with its properties; empty for the one of ccpr's own.
    keep, keep_for : of the lake's points the newest so many, and those of the last so many seconds, as the retention of
        the mirror's; both None: as the mirror's. 0 for both keeps all.
    """

    format: Format = Format.DELTA
    tables: str = ""
    columns: Mapped = Mapped.NONE
    copy_on_write: bool = False
    change_data: bool = False
    keep: int | None = None
    keep_for: int | None = None
    iceberg_version: int = 2
    catalog: str = ""

    @property
    def has_iceberg(self) -> bool:
        return self.format is not Format.DELTA

    @property
    def rules(self) -> TableRules:
        return TableRules(self.columns, self.copy_on_write, self.change_data)

    @property
    def patterns(self) -> NamePatterns:
        """Raises ValueError."""
        return NamePatterns.of(self.tables)

    def to_text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> "LakeOptions":
        """Raises ValueError, KeyError or TypeError for what `to_text` would not have written."""
        value: Mapping[str, Any] = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("not an object")
        flags = (value["copy_on_write"], value["change_data"])
        if not all(isinstance(flag, bool) for flag in flags):
            raise TypeError("not a bool")
        kept = (None if value[key] is None else integer_of(value[key]) for key in ("keep", "keep_for"))
        about = (Format(value["format"]), text_of(value["tables"]), Mapped(value["columns"]))
        # They are not in what former releases wrote.
        version, catalog = integer_of(value.get("iceberg_version", 2)), text_of(value.get("catalog", ""))
        return cls(*about, *flags, *kept, iceberg_version=version, catalog=catalog)


def options_of(target: "Target") -> LakeOptions:
    """Raises ValueError, KeyError or TypeError for what this program has not written."""
    return LakeOptions.from_text(target.lake or "{}")
