"""Commits to the tables of a lake: updates and requirements as the specification of Iceberg's REST catalog has them,
applied by pyiceberg. One commit may change many tables; it is there as a whole or not at all.

New metadata files are written first, then the pointers move in one transaction, if they are what the requirements were
tried on. So of two committers one is refused, and a killed one leaves files that nothing names.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ccpr.base.errors import require
from ccpr.catalog.refusals import Refusal, bad_request, conflict, exists, no_table
from ccpr.catalog.warehouses import Identifier, LiveView, Warehouse, loaded
from ccpr.lake.iceberg import AT, VERSION
from ccpr.lake.lake_catalog import new_folder
from ccpr.mirror.errors import StoreFailed
from ccpr.state.table_pointers import PointerMove, TablePointer

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

T = TypeVar("T")
_WRITERS = 8
_OLD_GO = "write.metadata.delete-after-commit.enabled"
_NUMBER = re.compile(r"/metadata/([0-9]{1,9})-")
_MILLISECOND = 1_000_000  # nanoseconds
# What pyiceberg's models raise for a value that is none of theirs: ValidationError is a ValueError.
_BAD = (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, RecursionError, OverflowError)


@dataclass(frozen=True, slots=True)
class AskedCommit:
    """What a commit asks of one table; `requirements` and `updates` as they were sent."""

    table: Identifier
    requirements: Any
    updates: Any


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """New metadata of a table."""

    move: PointerMove
    content: bytes
    unneeded: tuple[str, ...] = ()  # older metadata files

    @property
    def pointer(self) -> TablePointer:
        assert self.move.after is not None
        return self.move.after


def create_table(warehouse: Warehouse, table: Identifier, asked: Mapping[str, Any]) -> bytes:
    """A new table, or with `stage-create` what it would be: a LoadTableResult. One whose metadata file is lost is none.
    Raises Refusal, CcprError."""
    require("iceberg", "pyiceberg")
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

    known = LiveView(warehouse, unborn=True).tables()
    before = known.get(table)
    if before is not None and warehouse.content(before) is not None:
        raise exists(".".join(table))
    taken = {one.folder for one in known.values() if one is not before}
    location = asked.get("location") or warehouse.store.location(new_folder(*table, 0, taken))
    with _understood():
        spec, order = asked.get("partition-spec"), asked.get("write-order")
        metadata = new_table_metadata(
            Schema.model_validate(asked["schema"]),
            PartitionSpec.model_validate(spec) if spec else UNPARTITIONED_PARTITION_SPEC,
            SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
            str(location).rstrip("/"),
            {str(name): str(value) for name, value in (asked.get("properties") or {}).items()},
        )
    written = _written(warehouse, table, before, metadata)
    if asked.get("stage-create") is True:
        return loaded(None, written.content)
    gone = () if before is None else (PointerMove(before, None),)
    commit_written(warehouse, [written], gone)
    return loaded(warehouse.store.location(written.pointer.metadata), written.content)


def commit_tables(warehouse: Warehouse, changes: Sequence[AskedCommit]) -> list[bytes]:
    """All changes together. LoadTableResults, in their order. A table that is `assert-create` is made. Raises Refusal,
    CcprError."""
    require("iceberg", "pyiceberg")
    known = LiveView(warehouse, unborn=True).tables()
    if len({change.table for change in changes}) < len(changes):
        raise bad_request("a table is named twice in one commit")
    lost = [one for change in changes if (one := known.get(change.table)) and warehouse.content(one) is None]
    found = [_changed(warehouse, one, None if (now := known.get(one.table)) in lost else now) for one in changes]
    moved = [one for one in found if one.move.before != one.move.after]
    commit_written(warehouse, moved, [PointerMove(one, None) for one in lost])
    return [loaded(warehouse.store.location(one.pointer.metadata), one.content) for one in found]


def rename_table(warehouse: Warehouse, table: Identifier, to: Identifier) -> None:
    """Raises Refusal, CcprError."""
    known = LiveView(warehouse, unborn=True).tables()
    if (before := known.get(table)) is None:
        raise no_table(".".join(table))
    if to in known:
        raise exists(".".join(to))
    _move(warehouse, [PointerMove(before, replace(before, database=to[0], name=to[1]))])


def drop_table(warehouse: Warehouse, table: Identifier) -> None:
    """It is gone from now on; a point before, which is kept, still shows it. Files go with the lake's folders. Raises
    Refusal, CcprError."""
    if (before := LiveView(warehouse, unborn=True).tables().get(table)) is None:
        raise no_table(".".join(table))
    after = None if before.at is None else replace(before, gone=True)
    gone = (one for one in warehouse.pointers.all() if one.gone)
    forgotten = [one for one in gone if warehouse.store.files.size(one.metadata) is None]
    _move(warehouse, [PointerMove(before, after), *(PointerMove(one, None) for one in forgotten)])


def _changed(warehouse: Warehouse, change: AskedCommit, pointer: TablePointer | None) -> WrittenTable:
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV1
    from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

    name = ".".join(change.table)
    content = None if pointer is None else warehouse.content(pointer)
    with _understood():
        requirements = _parsed(tuple[TableRequirement, ...], change.requirements)
        updates = _parsed(tuple[TableUpdate, ...], change.updates)
    base: TableMetadata | None = None if content is None else TableMetadataUtil.parse_raw(content.decode())
    if base is None and not any(one.type == "assert-create" for one in requirements):
        raise no_table(name)
    try:
        for requirement in requirements:
            requirement.validate(base)
    except CommitFailedException as error:
        raise conflict(f"table {name}: {error}") from error
    with _understood():
        metadata = update_table_metadata(
            TableMetadataV1.model_construct(last_column_id=-1, schema=Schema()) if base is None else base,
            updates,
            enforce_validation=base is None,
            metadata_location=None if pointer is None else warehouse.store.location(pointer.metadata),
        )
    if base is not None and (metadata.location != base.location or metadata.table_uuid != base.table_uuid):
        raise bad_request(f"table {name}: its location and its uuid stay")
    if pointer is not None and content is not None and metadata == base:
        return WrittenTable(PointerMove(pointer, pointer), content)
    return _written(warehouse, change.table, pointer, metadata, base)


def _written(
    warehouse: Warehouse,
    table: Identifier,
    before: TablePointer | None,
    metadata: "TableMetadata",
    base: "TableMetadata | None" = None,
) -> WrittenTable:
    """Nothing is written yet."""
    from pyiceberg.table.metadata import TableMetadataV3
    from pyiceberg.typedef import IcebergBaseModel

    folder = warehouse.folder_of(metadata.location)
    name = new_name(folder, before if base is not None else None)
    pointer = TablePointer(str(metadata.table_uuid), *table, name, _point_of(metadata), version=_version_of(metadata))
    if isinstance(metadata, TableMetadataV3) and metadata.next_row_id is None:  # pyiceberg only reads it
        numbered = ((one.first_row_id or 0) + (one.added_rows or 0) for one in metadata.snapshots)
        metadata = metadata.model_copy(update={"next_row_id": max(numbered, default=0)})
    content = IcebergBaseModel.model_dump_json(metadata).encode()  # the class of version 3 refuses to be written
    unneeded = ()
    if base is not None and metadata.properties.get(_OLD_GO) == "true":
        named = {one.metadata_file for one in metadata.metadata_log}
        old = (one.metadata_file for one in base.metadata_log if one.metadata_file not in named)
        own = warehouse.store.location(f"{folder}/metadata/")
        unneeded = tuple(f"{folder}/metadata/{one.removeprefix(own)}" for one in old if one.startswith(own))
    return WrittenTable(PointerMove(before if base is not None else None, pointer), content, unneeded)


def new_name(folder: str, before: TablePointer | None) -> str:
    """Of a metadata file that takes the place of one."""
    number = None if before is None else _NUMBER.search(before.metadata)
    return f"{folder}/metadata/{int(number[1]) + 1 if number else 0:05}-{uuid.uuid4()}.metadata.json"


def _version_of(metadata: "TableMetadata") -> int | None:
    snapshot = metadata.current_snapshot()
    said = None if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties.get(VERSION)
    return int(said) if said and said.isdecimal() and len(said) < 20 else None


def _point_of(metadata: "TableMetadata") -> int | None:
    """The time of the point that the newest snapshot shows; without one of ours, that of the snapshot."""
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return None
    said = None if snapshot.summary is None else snapshot.summary.additional_properties.get(AT)
    return int(said) if said and said.isdecimal() and len(said) < 20 else snapshot.timestamp_ms * _MILLISECOND


def commit_written(warehouse: Warehouse, written: Sequence[WrittenTable], others: Iterable[PointerMove] = ()) -> None:
    """Write metadata files, then move their pointers, and others. Raises Refusal, StoreFailed, StateUnavailable."""
    files = warehouse.store.files

    def write(one: WrittenTable) -> None:
        warehouse.store.create(one.pointer.metadata, one.content)
        warehouse.keep(one.pointer.metadata, one.content)
        files.sync(f"{one.pointer.folder}/metadata")

    with ThreadPoolExecutor(_WRITERS) as writers:
        list(writers.map(write, written))
    try:
        _move(warehouse, [*(one.move for one in written), *others])
    except Refusal:  # after another error nobody knows whether they moved
        _delete(warehouse, [one.pointer.metadata for one in written])
        raise
    _delete(warehouse, [name for one in written for name in one.unneeded])


def _delete(warehouse: Warehouse, names: Iterable[str]) -> None:
    for name in names:
        with suppress(StoreFailed):  # the lake's cleaning deletes what nothing names
            warehouse.store.files.delete(name)


def _move(warehouse: Warehouse, moves: Sequence[PointerMove]) -> None:
    if moves and not warehouse.pointers.move(moves):
        raise conflict("another commit has changed one of the tables, or their names")


def _parsed(kind: type[T], value: Any) -> T:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)


@contextmanager
def _understood() -> Iterator[None]:
    """What a client sent and Iceberg does not allow is its mistake."""
    try:
        yield
    except _BAD as error:
        raise bad_request(f"{type(error).__name__}: {error!s:.600}") from error
