"""A mirror that statements read again and again: what they read last stays in memory, as its files never change.

What is kept of an object was compared with its checksums when it was read. An object without checksums is read each
time, and so is one for which a read has failed: it may have been repaired.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from ccpr.base.newest import Newest
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectDamaged, ValueRefused
from ccpr.matrixone.objects.object_layout import COLUMN_META_SIZE, Block
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, VisibleRows, together, visible_blocks
from ccpr.matrixone.schema import Column, Table
from ccpr.mirror.filters import ColumnCondition, Filter
from ccpr.mirror.layout import object_path
from ccpr.mirror.manifests import Manifest, Rows
from ccpr.mirror.mirror import ReadMirror
from ccpr.mirror.points import TableRef
from ccpr.mirror.store import Store

KEPT_BYTES = 192 << 20  # of all mirrors of a process together
RUN_BLOCKS = 16  # that are kept together
_WIDE = 1 << 20  # bytes of a file for each of its blocks, from which on each block is kept by itself
MOST_LISTED = 20_000  # objects in the manifests that a mirror keeps: some MB
_ENTRY_BYTES = 500  # of each, besides its values
KeptObjects = Newest[Any, Any]  # files by name and sums, and of each file what was decoded of it


class ServedMirror(ReadMirror):
    """Thread-safe."""

    def __init__(self, store: Store, kept: KeptObjects) -> None:
        super().__init__(store)
        self._manifests = Newest[str, Manifest](MOST_LISTED)  # by path, which is made of what the file says
        self._kept = kept

    def manifest(self, ref: TableRef, choose: Rows | None = None) -> Manifest:
        if choose is not None:
            return super().manifest(ref, choose)
        found = self._manifests.get(ref.manifest)
        if found is None:
            read = super().manifest(ref)
            found = _ListedManifest(read.table, read.objects)
            self._manifests.put(ref.manifest, found, 1 + found.objects.num_rows)
        return found

    def open_object(self, name: str, sums: bytes | None) -> ObjectFile:
        if sums is None:
            return super().open_object(name, sums)
        file = self._kept.get((name, sums))
        if file is None:
            file = super().open_object(name, sums)
            self._kept.put((name, sums), file, _size_of(file))
        elif self.store.folder is not None:
            file.reopen(self.store.open(object_path(name)))  # another file may have taken its place
        return file

    def runs(
        self,
        objects: Sequence[ListedObject],
        columns: Sequence[Column],
        stored: int,
        at: Timestamp,
        choose: Callable[[ObjectFile], Iterable[Block]],
    ) -> Iterator[VisibleRows]:
        """What would take the place of everything else is not kept."""
        size = sum(listed.stats.origin_size for listed in objects if not listed.tombstone)
        if size * len(columns) > KEPT_BYTES // 2 * stored:
            return super().runs(objects, columns, stored, at, choose)
        blocks = visible_blocks(objects, self._open_keeping, at, choose=choose)
        return (_KeptRows.of(together(list(run))) for _, run in groupby(blocks, _run_of))

    def _open_keeping(self, name: str, sums: bytes | None) -> ObjectFile:
        file = self.open_object(name, sums)
        return file if sums is None else _KeptColumns(file, self._kept)

    def _rows(
        self,
        table: Table,
        objects: Sequence[ListedObject],
        columns: tuple[Column, ...],
        at: Timestamp,
        filters: tuple[Filter, ...],
        tests: tuple[ColumnCondition, ...],
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from super()._rows(table, objects, columns, at, filters, tests)
        except CcprError:
            for listed in objects:
                self._kept.drop((listed.stats.name, listed.sums))
            raise


class _ListedManifest(Manifest):
    """Its objects are made out once."""

    @cached_property
    def _listed(self) -> list[ListedObject]:
        return super().listed_objects()

    def listed_objects(self) -> list[ListedObject]:
        return self._listed


class _KeptRows(VisibleRows):
    """Blocks stay together, as they are kept."""

    @classmethod
    def of(cls, rows: VisibleRows) -> "_KeptRows":
        return cls(rows.file, rows.blocks, rows.rows)

    def where(self, mask: np.ndarray) -> VisibleRows | None:
        rows = np.flatnonzero(mask) if self.rows is None else self.rows[mask]
        if len(rows) == self.stored:
            return self
        return _KeptRows(self.file, self.blocks, rows) if len(rows) else None


def _run_of(rows: VisibleRows) -> tuple[ObjectFile, int]:
    """Equal for blocks that are kept together: the first one of an object is alone, as who stops after some rows needs
    no more."""
    number = rows.blocks[0].number
    return rows.file, number if rows.file.size > _WIDE * len(rows.file.blocks) else -(-number // RUN_BLOCKS)


class _KeptColumns(ObjectFile):
    """An object whose decoded columns are kept."""

    def __init__(self, file: ObjectFile, kept: KeptObjects) -> None:
        self.__dict__.update(file.__dict__)
        self._file, self._kept = file, kept

    def column(self, block: int, column: Column, rows: np.ndarray | None = None) -> pa.Array:
        if rows is None:
            return self.values([block], column)
        try:
            return self.values([block], column).take(pa.array(rows))
        except (ObjectDamaged, ValueRefused):
            return super().column(block, column, rows)  # what is wrong may be of a row that nobody asked for

    def values(self, blocks: Sequence[int], column: Column) -> pa.Array:
        key = self._file, tuple(blocks), column
        values = self._kept.get(key)
        if values is None:
            values = self._part_of_kept(blocks, column)
        if values is None:
            values = self._file.values(blocks, column)
            held = (buffer if buffer.parent is None else buffer.parent for buffer in values.buffers() if buffer)
            self._kept.put(key, values, _ENTRY_BYTES + sum(buffer.size for buffer in held))
        return values

    def _part_of_kept(self, blocks: Sequence[int], column: Column) -> pa.Array | None:
        """Of all blocks that are kept together, where these are."""
        run = -(-blocks[0] // RUN_BLOCKS)
        whole = range(max(0, (run - 1) * RUN_BLOCKS + 1), min(run * RUN_BLOCKS + 1, len(self.blocks)))
        values = self._kept.get((self._file, tuple(whole), column))
        if values is None or blocks[-1] - blocks[0] != len(blocks) - 1:
            return None
        first = sum(self.blocks[number].rows for number in range(whole.start, blocks[0]))
        return values.slice(first, sum(self.blocks[number].rows for number in blocks))

    def rowids(self, block: int) -> np.ndarray:
        return self._noted("rowids", block, super().rowids)

    def commit_timestamps(self, block: int) -> np.ndarray | None:
        return self._noted("times", block, super().commit_timestamps)

    def aborted(self, block: int) -> np.ndarray | None:
        return self._noted("aborted", block, super().aborted)

    def _noted(self, what: str, block: int, read: Any) -> Any:
        key = self._file, block, what
        found = self._kept.get(key)
        if found is None:
            found = (read(block),)
            self._kept.put(key, found, _ENTRY_BYTES + (0 if found[0] is None else found[0].nbytes))
        return found[0]


def _size_of(file: ObjectFile) -> int:
    content = file.content.size if isinstance(file.content, pa.Buffer) else 0
    metas = sum(_ENTRY_BYTES + len(block.columns) * (COLUMN_META_SIZE + 8) for block in file.blocks)
    return _ENTRY_BYTES + content + metas
