"""The columns of a table in a lake: each has a number that is never used again, a physical name in the files, and the
form of what the files hold.

The upstream's own numbers do not do: an ALTER that copies the table numbers its columns anew. Files of one *generation*
have one meaning for each physical name. Where a change of the table would give a name another meaning, a new generation
begins, and all files are written again. Source: decision lake-columns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from ccpr.lake.errors import LakeTableRefused
from ccpr.lake.lake_options import Mapped
from ccpr.lake.lake_types import LakeType, lake_type
from ccpr.matrixone.schema import Column, Reading, Table, integer_of, names_keep_meaning, text_of

FIELD_ID = b"PARQUET:field_id"
_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """
    Attributes
    ----------
    id : its number in the table.
    physical : its name in the files.
    name : its name in the table.
    seqnum : its number upstream, in the table of this id.
    form : see `LakeType`.
    """

    id: int
    physical: str
    name: str
    seqnum: int
    form: str


@dataclass(frozen=True, slots=True)
class LakeColumns:
    """The columns of a table as a version of it has them.

    Attributes
    ----------
    table_id : of the upstream's table that the seqnums are of.
    generation : of the files.
    top : the greatest number that was given so far.
    used : physical names of this generation, those of dropped columns too, with the column's number.
    """

    table_id: int
    generation: int
    top: int
    columns: tuple[LakeColumn, ...]
    used: Mapping[str, int] = field(default_factory=dict)

    def continues(self, before: "LakeColumns") -> bool:
        """Whether no name has another meaning than before: `names_keep_meaning`."""
        then, now = ({one.name: (one.id, one.form) for one in found.columns} for found in (before, self))
        return names_keep_meaning(then, now)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LakeColumns":
        """Raises ValueError, KeyError or TypeError for what `to_json` would not have written."""
        columns = (
            LakeColumn(
                integer_of(one["id"]),
                text_of(one["physical"]),
                text_of(one["name"]),
                integer_of(one["seqnum"]),
                text_of(one["form"]),
            )
            for one in value["columns"]
        )
        table_id, generation, top = (integer_of(value[key]) for key in ("table_id", "generation", "top"))
        used = {text_of(name): integer_of(number) for name, number in value["used"].items()}
        return cls(table_id, generation, top, tuple(columns), used)


def next_columns(table: Table, reading: Reading, mapped: Mapped, before: LakeColumns | None) -> LakeColumns:
    """The columns of a table, given those of the version before. Raises LakeTableRefused, ObjectUnsupported."""
    user = table.user_columns
    _check_names(table)
    if before is None:
        return _numbered(table.id, 0, 0, user, [None] * len(user), reading, mapped, {})
    if before.table_id != table.id:  # all of its files are new, whatever the columns
        by_name = {(one.name, one.form): one for one in before.columns}
        kept = [by_name.get((column.name, lake_type(column, reading).form)) for column in user]
        return _numbered(table.id, before.generation + 1, before.top, user, kept, reading, mapped, {})
    by_seqnum = {one.seqnum: one for one in before.columns}
    kept = [by_seqnum.get(column.seqnum) for column in user]
    same = [
        one if one is not None and one.form == lake_type(column, reading).form else None
        for one, column in zip(kept, user, strict=True)
    ]
    found = _numbered(table.id, before.generation, before.top, user, same, reading, mapped, before.used)
    if same == kept and all(map(_keeps_its_files(before), kept, found.columns)):
        return found
    return _numbered(table.id, before.generation + 1, before.top, user, same, reading, mapped, {})


def _keeps_its_files(before: LakeColumns) -> Callable[[LakeColumn | None, LakeColumn], bool]:
    """Whether the files of a generation say of a column what they have to: what it had before, or nothing."""

    def keeps(one: LakeColumn | None, found: LakeColumn) -> bool:
        return found.physical not in before.used if one is None else one.physical == found.physical

    return keeps


def _numbered(
    table_id: int,
    generation: int,
    top: int,
    user: Sequence[Column],
    kept: Sequence[LakeColumn | None],
    reading: Reading,
    mapped: Mapped,
    used: Mapping[str, int],
) -> LakeColumns:
    columns = []
    for column, one in zip(user, kept, strict=True):
        if one is None:
            top += 1
            physical = column.name if mapped is Mapped.NONE else f"c{top}"
            columns.append(LakeColumn(top, physical, column.name, column.seqnum, lake_type(column, reading).form))
        else:
            physical = column.name if mapped is Mapped.NONE else one.physical
            columns.append(replace(one, physical=physical, name=column.name, seqnum=column.seqnum))
    return LakeColumns(table_id, generation, top, tuple(columns), {**used, **{one.physical: one.id for one in columns}})


def _check_names(table: Table) -> None:
    """Engines compare the names of columns without letter case, and so does MatrixOne."""
    names = [column.name.casefold() for column in table.user_columns]
    twice = {name for name in names if names.count(name) > 1}
    if twice or not names:
        what = f"two columns differ by letter case only: {', '.join(sorted(twice))}" if twice else "it has no columns"
        raise LakeTableRefused(what, subject=f"table {table.qualified_name}")


# ---- schemas


def delta_schema(table: Table, columns: LakeColumns, reading: Reading, mapped: Mapped) -> dict[str, Any]:
    """As `schemaString` has it."""
    fields = []
    for column, one in zip(table.user_columns, columns.columns, strict=True):
        about: dict[str, Any] = {}
        if mapped is Mapped.NAME:
            about = {"delta.columnMapping.id": one.id, "delta.columnMapping.physicalName": one.physical}
        fields.append({"name": one.name, "type": lake_type(column, reading).delta, "nullable": True, "metadata": about})
    return {"type": "struct", "fields": fields}


def file_schema(table: Table, columns: LakeColumns, reading: Reading) -> pa.Schema:
    """Of the Parquet files that are written now. All fields are nullable: rows that do not exist are nulls."""
    pairs = zip(table.user_columns, columns.columns, strict=True)
    return pa.schema([_file_field(one, lake_type(column, reading)) for column, one in pairs])


def _file_field(column: LakeColumn, kind: LakeType) -> pa.Field:
    arrow = kind.arrow
    if pa.types.is_list(arrow):  # Iceberg knows the elements by a number, too
        arrow = pa.list_(
            pa.field("element", arrow.value_type, metadata={FIELD_ID: str(element_id(column.id)).encode()})
        )
    return pa.field(column.physical, arrow, metadata={FIELD_ID: str(column.id).encode()})


def element_id(number: int) -> int:
    """Of the elements of a column that is a list."""
    return _ELEMENTS + number
