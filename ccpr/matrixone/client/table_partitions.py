"""The partitions of each partitioned table of a catalog (decision partitioned-tables).

The rows of a partitioned table are in hidden tables, one for each partition, of relkind `partition` and named
`%!%<partition>%!%<table>`. After an ALTER that copies the table their names have `<table>_copy_<uuid>` in the place of
its name, until it is renamed. `extra_info` of `mo_tables` has the id of their table, until the partition is truncated:
then it is empty, and the relkind is that of an ordinary table. Source: docs/upstream.md, "Partitioned tables".
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ccpr.matrixone.protobuf import NotProtobuf, ProtobufMessage
from ccpr.matrixone.schema import Kind, Partition, Table

PARTITION_PREFIX = "%!%"
_COPY = re.compile(r"_copy_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_FEATURES, _PARENT = 12, 14  # fields of `SchemaExtra`
_INDEX_TABLE, _PARTITION = 2, 4  # in its features


@dataclass(frozen=True, slots=True)
class Owners:
    """What `extra_info` says: whose partition, or whose index table, a table is. By id."""

    partitions: Mapping[int, int] = field(default_factory=dict)
    indexes: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, bytes]]) -> "Owners":
        partitions, indexes = {}, {}
        for table_id, message in rows:
            try:
                extra = ProtobufMessage(message)
                features, owner = extra.number(_FEATURES), extra.number(_PARENT)
            except NotProtobuf:
                continue
            if features & _PARTITION:
                partitions[table_id] = owner
            elif features & _INDEX_TABLE:
                indexes[table_id] = owner
        return cls(partitions, indexes)


def with_partitions(
    tables: Iterable[Table], partitioned: Iterable[str], owners: Owners
) -> tuple[tuple[Table, ...], dict[int, str]]:
    """The relations of a database, its partitioned tables with their partitions, and what is one as of kind PARTITION;
    and for each table whose partitions are not known the reason, by id.

    Of kind OTHER are the index tables of partitions: readers need none of them. A relation that looks like a partition
    and is of no table, or of several, makes all partitioned tables unknown: one of them may lack it.
    """
    every = tuple(tables)
    names = set(partitioned)
    parents = {table.id: table for table in every if table.name in names and table.kind is Kind.TABLE}
    found: dict[int, list[Partition]] = {number: [] for number in parents}
    unknown: dict[int, str] = {}
    parts: dict[int, Table] = {}
    for part in every:
        if part.id not in owners.partitions and not _may_be_partition(part):
            continue
        parts[part.id] = replace(part, kind=Kind.PARTITION)
        named = {number: name for number, table in parents.items() if (name := _partition_name(part.name, table.name))}
        owner = owners.partitions.get(part.id) or (next(iter(named)) if len(named) == 1 else 0)
        if owner not in named:
            unknown |= dict.fromkeys(parents, f"{part.name} is a partition, and its table is not known")
        elif part.columns != parents[owner].columns:
            unknown.setdefault(owner, f"partition {part.name} has other columns than the table")
        else:
            found[owner].append(Partition(named[owner], part.id))
    for number, its in found.items():
        if not its:
            unknown.setdefault(number, "none of its partitions is found")
    hidden = {number for number, owner in owners.indexes.items() if owner in parts or owner in parents}
    result = []
    for table in every:
        changed = parts.get(table.id, table)
        if table.id in hidden:
            changed = replace(table, kind=Kind.OTHER)
        elif table.id in parents and table.id not in unknown:
            changed = replace(table, partitions=tuple(found[table.id]))
        result.append(changed)
    return tuple(result), unknown


def _may_be_partition(table: Table) -> bool:
    """By its relkind, or by name and ids as a partition that was truncated."""
    truncated = table.kind is Kind.TABLE and table.name.startswith(PARTITION_PREFIX) and table.id != table.logical_id
    return table.kind is Kind.PARTITION or truncated


def _partition_name(name: str, table: str) -> str:
    """The partition in the name of a partition of `table`; empty if it is none of that table."""
    name = _COPY.sub("", name) if not name.endswith(PARTITION_PREFIX + table) else name
    end = PARTITION_PREFIX + table
    is_one = name.startswith(PARTITION_PREFIX) and name.endswith(end) and len(name) > len(PARTITION_PREFIX) + len(end)
    return name[len(PARTITION_PREFIX) : -len(end)] if is_one else ""
