"""How a lake is kept and its tables are published, as values that need no Arrow. A target is stored with them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ccpr.matrixone.schema import integer_of, text_of
from ccpr.state.patterns import NamePatterns
from ccpr.state.setting_entry import FilePart, Setting, entries, setting
from ccpr.state.setting_kinds import Choice, Flag, Patterns, Text, Whole

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


class _Version(Whole):
    metavar = "2|3"


class _Seconds(Whole):
    metavar = "SECONDS"


class _CatalogUrl(Text):
    metavar, may_be_secret = "URL", True


_AS_MIRROR: Any = None
_LAKE: Any = {"part": FilePart.LAKE}
_FIXED: Any = {**_LAKE, "changeable": False}


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """Of the lake's points `keep` are the newest so many, and `keep_for` those of the last so many seconds, as the
    retention of the mirror's; both None: as the mirror's. 0 for both keeps all."""

    format: Format = setting(
        Format.DELTA,
        Choice(Format),
        "Whose metadata the tables have: Delta Lake's, Apache Iceberg's, or both over the same files.",
        **_LAKE,
    )
    tables: str = setting("", Patterns(), "Names or patterns of tables, joined by commas; all without.", **_FIXED)
    columns: Mapped = setting(
        Mapped.NONE,
        Choice(Mapped),
        "What columns are called in the files. none: as in the table, which every reader knows; a RENAME COLUMN writes "
        "all files again. name: by number (Delta's column mapping), so that it writes none; polars does not read that.",
        **_FIXED,
    )
    copy_on_write: bool = setting(
        False,
        Flag(),
        "No deletion vectors: files are written again where rows go. For older readers.",
        **_FIXED,
    )
    change_data: bool = setting(False, Flag(), "Publish the changes of rows, too (Delta's change data feed).", **_FIXED)
    keep: int | None = setting(
        _AS_MIRROR, Whole(), "How many points stay readable there; else as in the mirror.", **_LAKE
    )
    keep_for: int | None = setting(_AS_MIRROR, _Seconds(), "For how many seconds points stay readable there.", **_LAKE)
    iceberg_version: int = setting(
        2,
        _Version(2, 3),
        "Of Iceberg's format. 2: positions of deleted rows, which every reader knows; 3: deletion vectors.",
        **_LAKE,
    )
    catalog: str = setting(
        "",
        _CatalogUrl(),
        "The REST catalog of Iceberg tables, its properties as options: "
        "https://host/path?warehouse=w&token=env:NAME. Without it, ccpr's own.",
        **_LAKE,
    )

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


LAKE_SETTINGS: Mapping[str, Setting] = entries(LakeOptions)


def options_of(target: "Target") -> LakeOptions:
    """Raises ValueError, KeyError or TypeError for what this program has not written."""
    return LakeOptions.from_text(target.lake or "{}")
