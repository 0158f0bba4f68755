"""Object files: as data and as tombstones, through every reader of them."""

import random
from dataclasses import replace
from functools import partial

import numpy as np

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE, object_name
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import Extent, ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, deleted_rows
from ccpr.matrixone.objects.zonemap import parse_zonemap, rowid_range
from ccpr.matrixone.schema import Column, SqlType
from tests.hostile.mutate import mutated
from tests.hostile.objects_apart import damaged
from tests.hostile.seeds import objects, objects_apart
from tests.matrixone.objects.building import column_entry, object_file
from tests.support.disk_files import framed
from tests.support.recorded import visible_batches

_AT = Timestamp(2**62)
_TOMBSTONE_ID = bytes(range(100, 116)) + b"\x02\x00"
_MOST_BLOCKS = 8  # that are decoded a second time for visibility; the deep check has read them all


class Objects:
    """An input is an object file."""

    name = "objects"
    decoded_bytes = 0

    def make(self, chance: random.Random) -> bytes:
        seeds, apart = objects(), objects_apart()
        number = chance.randrange(len(seeds))
        choice = chance.random()
        if choice < 0.75:
            return damaged(apart[number], chance, [chance.choice(apart)])
        if choice < 0.995:
            return mutated(seeds[number], chance, [chance.choice(seeds)])
        return framed(mutated(seeds[number], chance, gentle=True))

    def run(self, data: bytes) -> str:
        file = ObjectFile(data)
        self._schema = _columns(file)
        first = "rows"
        tombstone = (
            bool(file.blocks) and bool(len(file.blocks[0].columns)) and file.blocks[0].columns["oid"][0] == types.ROWID
        )
        fitting, other = (self._as_tombstone, self._as_data) if tombstone else (self._as_data, self._as_tombstone)
        steps = (self._check, self._columns, fitting, *((other,) if len(data) % 4 == 0 else ()))
        for step in steps:
            try:
                step(file)
            except CcprError as error:
                str(error)
                first = error.code if first == "rows" and step is not other else first
        return first

    def close(self) -> None:
        pass

    def _check(self, file: ObjectFile) -> None:
        for block in file.blocks:
            for meta in block.columns["zonemap"]:
                parse_zonemap(meta.item())
                rowid_range(meta.item())
        stats = _stats(file)
        file.check(stats, deep=True)

    def _columns(self, file: ObjectFile) -> None:
        """Each column alone, like a reader that asks for some columns and never for a check."""
        error = None
        for block in file.blocks[:_MOST_BLOCKS]:
            for column in self._schema:
                try:
                    array = file.column(block.number, column)
                    self.decoded_bytes = max(self.decoded_bytes, array.nbytes)
                    array.validate(full=True)
                except CcprError as raised:
                    error = error or raised
            file.commit_timestamps(block.number)
        if error is not None:
            raise error

    def _as_data(self, file: ObjectFile) -> None:
        """The visible rows, with a tombstone that deletes one of them."""
        listed = ListedObject(_stats(file), Timestamp(1), None, tombstone=False)
        tombstone = _tombstone_of(file.object_id)
        opened = {listed.stats.name: file, tombstone.stats.name: ObjectFile(_tombstone_bytes(file.object_id))}
        columns = [column for column in self._schema if column.type.oid not in types.MAX_PRECISION][:3]
        for batch in visible_batches([listed, tombstone], partial(_of, opened), columns, _AT):
            self.decoded_bytes = max(self.decoded_bytes, batch.nbytes)
            batch.validate(full=True)

    def _as_tombstone(self, file: ObjectFile) -> None:
        listed = ListedObject(_stats(file), Timestamp(1), None, tombstone=True)
        dead = deleted_rows([listed], lambda name, _: file, _AT)
        for target in list(dead)[:3]:
            assert (np.diff(dead[target].astype(np.int64)) > 0).all()
            data = ObjectFile(object_file([(1, {0: (22, column_entry(22, bytes(4), 1))})] * 3, object_id=target))
            of = ListedObject(_stats(data), Timestamp(1), None, tombstone=False)
            by_name = {listed.stats.name: file, of.stats.name: data}
            list(visible_batches([of, listed], partial(_of, by_name), _columns(data), _AT))


def _of(opened: dict[str, ObjectFile], name: str, sums: bytes | None) -> ObjectFile:
    return opened[name]


def _stats(file: ObjectFile) -> ObjectStats:
    """Stats as a hostile list would give them for the file: they agree with whatever it claims."""
    return ObjectStats(
        raw=bytes(154),
        object_id=file.object_id,
        name=object_name(file.object_id),
        meta=Extent(file.meta.algorithm, file.meta.offset, file.meta.length, file.meta.origin),
        rows=file.rows,
        blocks=len(file.blocks),
        sort_key_zonemap=bytes(64),
        size=file.size,
        origin_size=0,
        appendable=file.appendable,
        sorted=False,
        created_by_cn=False,
        level=0,
    )


def _columns(file: ObjectFile) -> list[Column]:
    """A schema that fits the first block, so that decoding goes as deep as it can."""
    columns = []
    for seqnum, oid in enumerate(file.blocks[0].columns["oid"].tolist() if file.blocks else ()):
        if oid in types.SLOT_SIZES:
            kind = SqlType(oid, types.MAX_PRECISION.get(oid, 0), 0)
            labels = ("a", "b", "c") if oid == types.ENUM or (oid == types.UINT64 and seqnum % 2) else ()
            columns.append(_fitted(file, Column(f"c{seqnum}", seqnum, kind, labels=labels)))
    return columns


def _fitted(file: ObjectFile, column: Column) -> Column:
    """With the scale that the file has; hidden, so that it is read as packed keys, where it cannot be read as text."""
    oid = column.type.oid
    if oid not in types.MAX_PRECISION and oid not in (types.CHAR, types.VARCHAR):
        return column
    try:
        if oid in types.MAX_PRECISION:
            vector = file._vector(0, column.seqnum, oid)  # there is no public way to read a scale
            return replace(column, type=replace(column.type, scale=vector.scale)) if vector is not None else column
        file.column(0, column)
    except CcprError:
        return replace(column, hidden=True)
    return column


def _tombstone_bytes(target: bytes) -> bytes:
    """A tombstone object that deletes the first row."""
    rowids = np.zeros(1, ROWID_DTYPE)
    rowids["object"] = np.void(target)
    return object_file([(1, {0: (101, column_entry(101, rowids.tobytes(), 1))})], object_id=_TOMBSTONE_ID)


def _tombstone_of(target: bytes) -> ListedObject:
    return ListedObject(_stats(ObjectFile(_tombstone_bytes(target))), Timestamp(1), None, tombstone=True)
