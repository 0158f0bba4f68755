"""The object files of a simulated upstream: names and writes them, and counts how many tables list each."""

import random
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from ccpr.matrixone.objects.identifiers import ROWID_SIZE, UUID_NOISE, object_name, uuid7
from ccpr.matrixone.objects.writing import writer
from ccpr.matrixone.schema import Kind, Table
from ccpr_emulator.engine.clock import Clock
from ccpr_emulator.engine.definitions import Definition

BLOCK_ROWS: Final = writer.BLOCK_ROWS
OBJECT_ROWS: Final = 128 * BLOCK_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A file: its name, the 154 bytes of its stats, its content."""

    name: str
    stats: bytes
    content: bytes
    appendable: bool


class ObjectFiles:
    """Object files by name. Not thread-safe: the engine's lock protects it.

    Parameters
    ----------
    clock : for the time in segment ids, and the commit timestamps of rows.
    object_rows : the most rows of one object of a merge; a multiple of a block's.

    Attributes
    ----------
    abort_column, wkb : what differs by release, see `ccpr_emulator.engine.storage.Storage`.
    """

    def __init__(self, clock: Clock, seed: int, object_rows: int) -> None:
        self._clock = clock
        self._random = random.Random(seed)
        self.object_rows = object_rows
        self.abort_column = self.wkb = False
        self._files: dict[str, bytes] = {}
        self._references: dict[str, int] = {}

    def new_uuid(self) -> bytes:
        """A UUID of version 7, in its 16 bytes."""
        milliseconds = self._clock.time(self._clock.last).physical // 1_000_000
        return uuid7(milliseconds, self._random.getrandbits(UUID_NOISE))

    def new_ids(self, count: int) -> list[bytes]:
        """Object ids of one new segment: file numbers 0, 1, 2 …"""
        segment = self.new_uuid()
        return [segment + number.to_bytes(2, "little") for number in range(count)]

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def share(self, written: Written) -> None:
        """Note that one more table lists the object."""
        self._references[written.name] += 1

    def release(self, written: Written) -> None:
        """Note that one table less lists the object; without any the file is removed."""
        self._references[written.name] -= 1
        if not self._references[written.name]:
            del self._files[written.name], self._references[written.name]

    def __len__(self) -> int:
        return len(self._files)

    def write_rows(
        self,
        definition: Definition,
        rows: pa.Table,
        object_id: bytes,
        ticks: np.ndarray | None,
        *,
        appendable: bool,
        by_cn: bool = False,
        aborted: np.ndarray | None = None,
    ) -> Written:
        """A data object in blocks of 8,192 rows, in the given order. `aborted` says which rows do not exist."""
        made = writer.write_data(
            Table(0, 0, definition.database, definition.name, Kind.TABLE, definition.columns),
            writer.cut_blocks(rows),
            name=object_name(object_id),
            appendable=appendable,
            by_cn=by_cn,
            commit_ts=self._times(ticks),
            aborted=self._aborted(ticks, aborted) if appendable else None,
            wkb=self.wkb,
            primary_key=definition.key.seqnum if definition.primary_key else None,
            cluster_by=definition.sort_key.seqnum if definition.cluster_by and definition.sort_key else None,
            schema_version=definition.version,
        )
        return self._keep(object_id, made, appendable)

    def write_tombstones(
        self,
        definition: Definition,
        rowids: np.ndarray,
        keys: pa.Array,
        object_id: bytes,
        ticks: np.ndarray | None,
        *,
        appendable: bool,
        by_cn: bool,
        aborted: np.ndarray,
    ) -> Written:
        """A tombstone object; rowids (ROWID_DTYPE) must be sorted."""
        raw = pa.Array.from_buffers(
            pa.binary(ROWID_SIZE), len(rowids), [None, pa.py_buffer(np.ascontiguousarray(rowids))]
        )
        starts = range(0, len(rowids), BLOCK_ROWS)
        made = writer.write_tombstones(
            [raw.slice(start, BLOCK_ROWS) for start in starts],
            [keys.slice(start, BLOCK_ROWS) for start in starts],
            definition.key,
            name=object_name(object_id),
            appendable=appendable,
            by_cn=by_cn,
            commit_ts=self._times(ticks),
            aborted=self._aborted(ticks, aborted),
            schema_version=definition.version,
        )
        return self._keep(object_id, made, appendable)

    def _times(self, ticks: np.ndarray | None) -> list[np.ndarray] | None:
        """Commit times by block."""
        if ticks is None:
            return None
        times = self._clock.times(ticks)
        return [times[start : start + BLOCK_ROWS] for start in range(0, len(times), BLOCK_ROWS)]

    def _aborted(self, ticks: np.ndarray | None, aborted: np.ndarray | None) -> list[np.ndarray] | None:
        """Flags by block; None where the object has no such column."""
        if not self.abort_column or ticks is None:
            return None
        flags = np.zeros(len(ticks), bool) if aborted is None else aborted
        return [flags[start : start + BLOCK_ROWS] for start in range(0, len(flags), BLOCK_ROWS)]

    def _keep(self, object_id: bytes, made: writer.WrittenObject, appendable: bool) -> Written:
        written = Written(object_name(object_id), made.stats.raw, made.content, appendable)
        self._files[written.name] = written.content
        self._references[written.name] = 1
        return written
