"""docs/reference/types.md: what each type of MatrixOne becomes, from the functions that convert."""

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from ccpr.matrixone.ddl.definition import ColumnType
from ccpr.matrixone.objects.types import arrow_type
from ccpr.matrixone.schema import Column
from ccpr.pipeline.spark.tasks import spark_schema
from ccpr.schema.choices import Dialect
from ccpr.schema.target_types import target_type
from scripts.reference.tables import code, table

_HEAD = """# Types

Generated from the code by `make reference`; do not edit.

## Read from the mirror

`ccpr export` writes the Arrow types as Parquet. There are no unsigned 64-bit integers, no views and
no 64-bit offsets ([`spark-dataframes`](../decisions/state.md#spark-dataframes)).
"""
_NOTES = """
* `json` is the text that the server prints. Members of a `set` are joined by commas. An `enum` with
  a value that is not a member is the empty text.
* A decimal of more than 38 digits is text with all its digits. MatrixOne can store values that are
  longer than declared (100 in a decimal(4,2)): then the column has as many digits as its longest
  value, here decimal128(5, 2), at the points that have such values and in targets.
* Text that is not UTF-8 is read as text: each byte that is not part of a character is a private
  character, U+10FE00 plus the byte. `--invalid-text` (`open_mirror(…, invalid_text=…)`) chooses
  U+FFFD, bytes for all text columns, or an error instead.
* The zero date `0000-00-00` is null. `--zero-dates` (`open_mirror(…, zero_dates=…)`) chooses the
  day, or the microsecond, before 0001-01-01, or an error. In a target it is `0000-00-00`. Changes
  (`Table.changes`) of a table whose key has one are given with `"keep"` only.
  `ccpr status NAME` says how many a column has.
* A `geometry` is its WKT; what is neither WKT nor WKB is `UNKNOWN(0x…)`.
* A `time` is a duration; it can exceed a day.
* Hidden key columns are binary or, for the fake key, decimal(20,0).
"""
_TARGETS = """## In a target

Nothing is lost but the sign of a float's zero. `ccpr plan` shows the remarks for your tables. With
`--as-text TABLE.COLUMN` any column is `longtext`. A varchar or varbinary for which a row has no room
becomes `longtext` or `longblob`.
"""
_MEMBERS = ("small", "large")
DECLARED: Sequence[ColumnType] = (
    ColumnType("bool"),
    ColumnType("bit", (10,)),
    *(ColumnType(name) for name in ("tinyint", "smallint", "int", "bigint")),
    *(ColumnType(name, unsigned=True) for name in ("tinyint", "smallint", "int", "bigint")),
    ColumnType("float"),
    ColumnType("double"),
    ColumnType("decimal", (12, 2)),
    ColumnType("decimal", (38, 10)),
    ColumnType("decimal", (76, 20)),
    ColumnType("date"),
    ColumnType("time", (6,)),
    ColumnType("datetime", (6,)),
    ColumnType("timestamp", (6,)),
    ColumnType("year"),
    ColumnType("char", (10,)),
    ColumnType("varchar", (100,)),
    ColumnType("text"),
    ColumnType("datalink"),
    ColumnType("json"),
    ColumnType("uuid"),
    ColumnType("binary", (10,)),
    ColumnType("varbinary", (100,)),
    ColumnType("blob"),
    ColumnType("enum", members=_MEMBERS),
    ColumnType("set", members=_MEMBERS),
    ColumnType("geometry"),
    ColumnType("geometry32"),
    ColumnType("vecf32", (3,)),
    ColumnType("vecf64", (3,)),
    *(ColumnType(name, (3,)) for name in ("vecbf16", "vecf16", "vecint8", "vecuint8")),
)


def page() -> str:
    """The text of docs/reference/types.md."""
    lines = [
        *_HEAD.split("\n"),
        *table(("MatrixOne", "Arrow, Parquet", "Spark"), _joined(map(_read, DECLARED))),
        *_NOTES.split("\n"),
        *_TARGETS.split("\n"),
        *table(("MatrixOne", "MariaDB", "MySQL", "remark"), _joined(map(_target, DECLARED))),
    ]
    return "\n".join(lines) + "\n"


def _joined(rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """One row for all types that become the same."""
    joined: dict[tuple[str, ...], list[str]] = {}
    for declared, *becomes in rows:
        joined.setdefault(tuple(becomes), []).append(declared)
    return [(", ".join(types), *becomes) for becomes, types in joined.items()]


def _read(declared: ColumnType) -> tuple[str, str, str]:
    kind = declared.sql_type
    if kind is None:
        raise ValueError(f"{declared} is not a type of MatrixOne")
    arrow = arrow_type(Column("c", 0, kind, labels=declared.members))
    spark = spark_schema(pa.schema([pa.field("c", arrow)])).fields[0].dataType.simpleString()
    return code(str(declared)), code(str(arrow)), code(spark)


def _target(declared: ColumnType) -> tuple[str, str, str, str]:
    maria, mysql = (target_type(declared, dialect, "table t") for dialect in (Dialect.MARIADB, Dialect.MYSQL8))
    there = ["the same" if str(one.type) == str(declared) else code(str(one.type)) for one in (maria, mysql)]
    if declared.name in ("float", "double"):  # for all such columns, so no plan shows it
        return code(str(declared)), there[0], there[1], "MariaDB: -0 is stored as 0"
    remarks = [maria.remark] if maria.remark == mysql.remark else [f"MariaDB: {maria.remark}", f"MySQL: {mysql.remark}"]
    remark = "; ".join(filter(None, remarks))
    return code(str(declared)), there[0], there[1], re.sub(rf"^{re.escape(str(declared))} is kept", "kept", remark)
