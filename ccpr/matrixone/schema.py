"""A table as the catalog describes it: types, columns, tables. Plain values, no I/O.

Source: docs/format/object-file.md 3.1, 4 and 5; docs/upstream.md 5.4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

FAKE_KEY = "__mo_fake_pk_col"
COMPOSITE_KEY = "__mo_cpkey_col"
CLUSTER_KEY_PREFIX = "__mo_cbkey_"
ROWID = "__mo_rowid"
INDEX_TABLE_PREFIX = "__mo_index_"
_SERVER_PREFIX = "__mo_"  # of columns of an index table; a user's column of a user's table may begin so, too
SYSTEM_DATABASES = (
    "information_schema",
    "mo_catalog",
    "mo_debug",
    "mo_task",
    "mysql",
    "system",
    "system_metrics",
)


def integer_of(value: object) -> int:
    """`value` if it is a whole number of 64 bits; raises TypeError or ValueError. For JSON that may be damaged."""
    if type(value) is not int:  # isinstance would accept a bool
        raise TypeError(f"{value!r:.40} is not a whole number")
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r:.40} is beyond 64 bits")
    return value


def text_of(value: object) -> str:
    """`value` if it is text that can be stored as UTF-8; raises TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    value.encode()
    return value


def _flag_of(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


class Kind(StrEnum):
    """What a row of `mo_tables` is, as far as it matters to replication."""

    TABLE = "table"
    INDEX = "index"
    PARTITION = "partition"
    OTHER = "other"  # view, sequence, external or cluster table: reported, not replicated


@dataclass(frozen=True, slots=True)
class SqlType:
    """A MatrixOne type: docs/format/object-file.md 3.1.

    Attributes
    ----------
    oid : type number, e.g. 22 for int.
    width : declared length, precision or bits; its meaning depends on the oid.
    scale : fraction digits of decimals and times; -1 where it has no meaning.
    """

    oid: int
    width: int = 0
    scale: int = 0


class InvalidText(StrEnum):
    """What text is read as that is not UTF-8. MatrixOne stores any bytes in a text column."""

    ESCAPE = "escape"  # each byte that is not part of a character is a private character, U+10FE80 to U+10FEFF
    REPLACE = "replace"  # it is U+FFFD, so that the byte is lost
    BINARY = "binary"  # text columns are read as bytes
    ERROR = "error"


class ZeroDates(StrEnum):
    """What the zero value of a date, datetime or timestamp is read as, `0000-00-00`. Arrow has no such value."""

    NULL = "null"
    KEEP = "keep"  # the day, or the microsecond, before 0001-01-01, as MatrixOne stores it
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Reading:
    """How values are read that MatrixOne stores and Arrow's types do not hold."""

    invalid_text: InvalidText = InvalidText.ESCAPE
    zero_dates: ZeroDates = ZeroDates.NULL


DEFAULT_READING = Reading()


@dataclass(frozen=True, slots=True)
class Unread:
    """Why values of a column could not be read in a file that was copied all the same, and the release of this program
    that says so. A later one may know how to read them."""

    reason: str
    release: str


@dataclass(frozen=True, slots=True)
class Column:
    """One stored column of a table.

    Attributes
    ----------
    name : as declared, in its letter case.
    seqnum : its permanent number in the table, under which object files store it.
    type : see `SqlType`.
    hidden : true for the key columns that the server adds, false for user columns.
    labels : members of an enum or a set, in order; empty for all other types. A u64 column (oid 28) with labels is a
        set.
    nullable : false if declared NOT NULL.
    digits : of a decimal: how many digits its longest stored value has; 0 where that is not known. It can be more than
        declared, because MatrixOne checks literals and texts, not integers.
    unread : set if one of its files has a form that is not known.
    zero_dates : of a date, datetime or timestamp: how many stored values are the zero value, those of deleted rows
        included that have not been merged away; None where that was not counted.
    default_text : what the DEFAULT of a text column is, unquoted; None if it has none, or that is not known. The DDL
        text has it too, and may have its quotes doubled.
    indexed : true for a column of an index table that the server named. Its `Table` sets it.

    `digits`, `unread` and `zero_dates` were found in the files and are no part of the definition; tables of 0.1 have no
    `default_text`. So these do not count when columns are compared.
    """

    name: str
    seqnum: int
    type: SqlType
    hidden: bool = False
    labels: tuple[str, ...] = ()
    nullable: bool = True
    digits: int = field(default=0, compare=False)
    unread: Unread | None = field(default=None, compare=False)
    zero_dates: int | None = field(default=None, compare=False)
    default_text: str | None = field(default=None, compare=False)
    indexed: bool = field(default=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "seqnum": self.seqnum,
            "type": [self.type.oid, self.type.width, self.type.scale],
            "hidden": self.hidden,
            "labels": list(self.labels),
            "nullable": self.nullable,
            **({"digits": self.digits} if self.digits else {}),
            **({"unread": asdict(self.unread)} if self.unread else {}),
            **({} if self.zero_dates is None else {"zero_dates": self.zero_dates}),
            **({} if self.default_text is None else {"default_text": self.default_text}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Column":
        """The column of a `to_json`. Raises ValueError, KeyError or TypeError for what `to_json` does not write."""
        kind = SqlType(*map(integer_of, value["type"]))
        labels = tuple(map(text_of, value["labels"]))
        unread, zero_dates, default = value.get("unread"), value.get("zero_dates"), value.get("default_text")
        return cls(
            text_of(value["name"]),
            integer_of(value["seqnum"]),
            kind,
            _flag_of(value["hidden"]),
            labels,
            _flag_of(value["nullable"]),
            integer_of(value.get("digits", 0)),
            None if unread is None else Unread(text_of(unread["reason"]), text_of(unread["release"])),
            None if zero_dates is None else integer_of(zero_dates),
            None if default is None else text_of(default),
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a partitioned table, by its name, and the id of the hidden table that holds its rows. That id
    changes when the partition is truncated."""

    name: str
    id: int


@dataclass(frozen=True, slots=True)
class Table:
    """One table at one snapshot.

    Attributes
    ----------
    id : physical id (`rel_id`); changes on TRUNCATE and copying ALTER, kept by RENAME.
    logical_id : `rel_logical_id`; kept by TRUNCATE and copying ALTER.
    database, name : names at the snapshot.
    kind : see `Kind`.
    columns : in declared order, hidden key columns after the user's; without `__mo_rowid`, which is computed and never
        stored.
    ddl : the statement that `get_ddl` returned; empty where it returns none (index tables).
    comment : the table's comment.
    indexes : the rows of `get_mo_indexes`: name, algo_table_type and hidden table of each indexed column. None where
        they were not asked for. Not part of the definition.
    partitions : of a partitioned table, by id: its objects are theirs. Empty for every other table.
    """

    id: int
    logical_id: int
    database: str
    name: str
    kind: Kind
    columns: tuple[Column, ...]
    ddl: str = ""
    comment: str = ""
    indexes: tuple[tuple[str, str, str], ...] | None = field(default=None, compare=False)
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is Kind.INDEX:
            columns = tuple(replace(one, indexed=one.name.startswith(_SERVER_PREFIX)) for one in self.columns)
            object.__setattr__(self, "columns", columns)

    @property
    def qualified_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def user_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.hidden)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "logical_id": self.logical_id,
            "database": self.database,
            "name": self.name,
            "kind": self.kind.value,
            "columns": [column.to_json() for column in self.columns],
            "ddl": self.ddl,
            "comment": self.comment,
            **({} if self.indexes is None else {"indexes": [list(row) for row in self.indexes]}),
            **({"partitions": [[part.name, part.id] for part in self.partitions]} if self.partitions else {}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Table":
        """The table of a `to_json`. Raises ValueError, KeyError or TypeError for what `to_json` does not write."""
        columns = tuple(Column.from_json(column) for column in value["columns"])
        database, name, ddl, comment = (text_of(value[key]) for key in ("database", "name", "ddl", "comment"))
        indexes = value.get("indexes")
        return cls(
            integer_of(value["id"]),
            integer_of(value["logical_id"]),
            database,
            name,
            Kind(value["kind"]),
            columns,
            ddl,
            comment,
            None if indexes is None else tuple(_index_of(row) for row in indexes),
            tuple(Partition(text_of(name), integer_of(number)) for name, number in value.get("partitions", ())),
        )


def names_keep_meaning(before: Mapping[str, tuple[int, Any]], now: Mapping[str, tuple[int, Any]]) -> bool:
    """Whether who goes by the names of columns may take later rows for those of before: columns came or went, and no
    name means another column, or another type of it, and no column is called otherwise. Given for each name the number
    of the column, which a rename keeps, and what its values are."""
    numbers = {number for number, _ in before.values()}
    return all(before[name] == one if name in before else one[0] not in numbers for name, one in now.items())


def _index_of(row: Any) -> tuple[str, str, str]:
    name, kind, table = map(text_of, row)
    return name, kind, table


def zero_dates_of(tables: Iterable[Table]) -> dict[str, dict[str, int]]:
    """By table and column, how many values are the zero date `0000-00-00`, those of deleted rows included that are
    still stored; only those that have some. What was copied by 0.1.0 is not counted."""
    found = {
        table.qualified_name: {column.name: column.zero_dates for column in table.user_columns if column.zero_dates}
        for table in tables
    }
    return {name: columns for name, columns in sorted(found.items()) if columns}
