"""The Iceberg tables of a lake as this program's catalog names them: what publishes the lake changes them here, without
a client in between."""

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ccpr.catalog.warehouses import Warehouse, identifier_of
from ccpr.lake.errors import LakeConflict
from ccpr.lake.iceberg import (
    AT,
    VERSION,
    ChangedTable,
    IcebergChange,
    IcebergMetadata,
    current_snapshot,
    name_aside,
    unreadable,
)
from ccpr.lake.iceberg_jvm import IcebergJvm
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.errors import StoreFailed
from ccpr.state.table_pointers import PointerMove, TablePointer

_WRITERS = 8
_METADATA = re.compile(r"(?:.*/)?([0-9]{5,9})-[0-9a-f-]{36}\.metadata\.json")


@dataclass(frozen=True, slots=True)
class _Written:
    """New metadata of a table. `unneeded`: older metadata files."""

    move: PointerMove
    content: bytes
    unneeded: tuple[str, ...] = ()

    @property
    def pointer(self) -> TablePointer:
        assert self.move.after is not None
        return self.move.after


class OwnTables:
    """A table is known by its folder, so that it may change its name together with its rows, and names be exchanged.

    Parameters
    ----------
    properties : of the lake's store.
    """

    def __init__(self, warehouse: Warehouse, jvm: IcebergJvm, properties: Mapping[str, str]) -> None:
        self.warehouse, self.jvm, self.files = warehouse, jvm, jvm.files(properties)
        self.subject = f"catalog of lake {warehouse.name}"
        self._pointers: dict[str, TablePointer] | None = None

    @property
    def pointers(self) -> Mapping[str, TablePointer]:
        """By the folder, as they were after the last commit. Of two that a folder has had the one that is there."""
        if self._pointers is None:
            found = sorted(self.warehouse.pointers.all(), key=lambda one: not one.gone)
            self._pointers = {one.folder: one for one in found}
        return self._pointers

    def find(self, table: ChangedTable) -> IcebergMetadata | None:
        pointer = self.pointers.get(table.folder)
        content = None if pointer is None else self.warehouse.content(pointer)
        if pointer is None or content is None:
            return None
        location = self.warehouse.store.location(pointer.metadata)
        return IcebergMetadata(location, content.decode(), pointer)

    def commit(self, changes: Sequence[IcebergChange]) -> Mapping[str, CcprError]:
        """Raises LakeConflict, StoreFailed, StateUnavailable, and what Java raises."""
        staged, failed = self._staged([one for one in changes if one.asked is not None])
        written = [self._written(one, content) for one, content in staged]
        named = [one for one in changes if one.asked is None]
        moves = [self._named(one) for one in named]
        moves += [PointerMove(self.pointers[one.table.folder], None) for one, _ in staged if self._is_lost(one)]
        done = {one.table.folder for one in (*named, *(one for one, _ in staged))}
        moves += self._aside(done, [*(one.move for one in written), *moves])
        moves = [one for one in moves if one.before != one.after]
        self._pointers = None
        if written or moves:
            self._write(written, moves)
        return failed

    def _write(self, written: Sequence[_Written], others: Sequence[PointerMove]) -> None:
        """Metadata files first, then all pointers move: what is killed before leaves files that nothing names."""
        warehouse = self.warehouse

        def write(one: _Written) -> None:
            warehouse.store.create(one.pointer.metadata, one.content)
            warehouse.keep(one.pointer.metadata, one.content)

        with ThreadPoolExecutor(_WRITERS) as writers:
            list(writers.map(write, written))
        for one in written:
            warehouse.store.files.sync(f"{one.pointer.folder}/metadata")
        if not warehouse.pointers.move([*(one.move for one in written), *others]):
            self._delete(one.pointer.metadata for one in written)
            raise LakeConflict("another writer has changed one of the tables, or their names", subject=self.subject)
        self._delete(name for one in written for name in one.unneeded)

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(StoreFailed):  # the lake's cleaning deletes what nothing names
                self.warehouse.store.files.delete(name)

    def _staged(self, changes: Sequence[IcebergChange]) -> tuple[list[tuple[IcebergChange, str]], dict[str, CcprError]]:
        """With what each is to be; and those that cannot be changed. One that is published `again` is then made anew:
        its snapshots are lost."""
        if not changes:
            return [], {}
        ends = self.jvm.contents(self.jvm.staged(self.files, [one.asked or {} for one in changes]))
        staged, failed, anew = [], dict[str, CcprError](), []
        for one, (content, why) in zip(changes, ends, strict=True):
            if content is not None:
                staged.append((one, content))
            elif one.table.again and one.known is not None:
                anew.append(one.without_base())
            else:
                failed[one.table.folder] = unreadable(one.table, why)
        more, errors = self._staged(anew)
        return staged + more, failed | errors

    def unneeded(self, known: IcebergMetadata, names: Iterable[str]) -> Iterable[str]:
        """A file of a commit that may still be made has a higher number than the newest."""
        folder, newest = known.source.folder, _number(known.location)
        rows = (one.metadata for one in self.warehouse.pointers.all() if one.folder == folder)
        named = {one.rpartition("/")[2] for one in (*rows, *_logged(known.metadata))}
        return [one for one in names if 0 <= _number(one) <= newest and one not in named]

    def drop(self, name: str, folder: str) -> None:
        """Raises LakeConflict, StateUnavailable."""
        gone = [PointerMove(one, None) for one in self.warehouse.pointers.all() if one.folder == folder]
        self._pointers = None
        if gone and not self.warehouse.pointers.move(gone):
            raise LakeConflict(f"another writer has changed table {name}", subject=self.subject)

    def _is_lost(self, one: IcebergChange) -> bool:
        """Whether the metadata file of the table is, so that it is made anew."""
        return one.known is None and one.table.folder in self.pointers

    def _written(self, one: IcebergChange, content: str) -> _Written:
        metadata, folder = json.loads(content), one.table.folder
        lost = self.pointers.get(folder)
        before = None if one.known is None else lost
        database, name = identifier_of(one.table.name, folder)
        at, version = _marks(metadata)
        pointer = TablePointer(metadata["table-uuid"], database, name, _new_name(folder, lost), at, version=version)
        gone = () if one.known is None else _logged(one.known.metadata) - _logged(metadata)
        own = self.warehouse.store.location(f"{folder}/metadata/")
        unneeded = (f"{folder}/metadata/{each.removeprefix(own)}" for each in gone if each.startswith(own))
        return _Written(PointerMove(before, pointer), content.encode(), tuple(unneeded))

    def _named(self, one: IcebergChange) -> PointerMove:
        """Of a table whose metadata stay: it has another name, or is gone."""
        before = self.pointers[one.table.folder]
        if one.table.dropped or one.known is None:
            return PointerMove(before, replace(before, gone=True))
        database, name = identifier_of(one.table.name, one.table.folder)
        _, version = _marks(one.known.metadata)
        return PointerMove(before, replace(before, database=database, name=name, gone=False, version=version))

    def _aside(self, changed: set[str], moves: Sequence[PointerMove]) -> list[PointerMove]:
        """Of tables whose name another one gets, because they failed, or will get their own name in a moment."""
        names = {(one.after.database, one.after.name) for one in moves if one.after is not None and not one.after.gone}
        there = (one for folder, one in self.pointers.items() if folder not in changed and not one.gone)
        taken = [one for one in there if (one.database, one.name) in names]
        return [PointerMove(one, replace(one, name=name_aside(one.folder))) for one in taken]


def _new_name(folder: str, before: TablePointer | None) -> str:
    """Of a metadata file that takes the place of one."""
    number = 0 if before is None else _number(before.metadata) + 1
    return f"{folder}/metadata/{number:05}-{uuid.uuid4()}.metadata.json"


def _number(path: str) -> int:
    """Of a metadata file; -1 for another one."""
    found = _METADATA.fullmatch(path)
    return int(found[1]) if found else -1


def _marks(metadata: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The point that the newest snapshot shows, and the version of the lake's own log."""
    summary = (current_snapshot(metadata) or {}).get("summary", {})
    at, version = (int(summary[key]) if key in summary else None for key in (AT, VERSION))
    return at, version


def _logged(metadata: Mapping[str, Any]) -> set[str]:
    """Former metadata files that it names."""
    return {str(one["metadata-file"]) for one in metadata.get("metadata-log", ())}
