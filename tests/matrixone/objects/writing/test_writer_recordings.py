"""Every recorded object, written again, is what the server wrote.

Two ways. *From its parts*: entries, zone maps, filters, counts as decoded; then each decompressed area (metadata,
filters, zone maps, columns), the header, and all placements are equal byte for byte where the compressor's choices are
taken over; the footer's eight address bytes are left out. *From its rows as Arrow*: what the writer itself works out.
Then are equal:

* the zone maps of all blocks and of the object, the zone map area, and the stats but for sizes and the metadata's
  extent;
* headers of metadata and blocks but for extents; type, position and count of nulls of every column;
* every column's decompressed entry without nulls and with values of up to 23 bytes. The others leave freedom: a bitmap
  of nulls may be longer than the rows, and slots of null rows hold anything; values may lie in the area in another
  order. They are compared by what they say: type, nulls, slots of rows that are not null, values;
* the size of each filter, and its head where the server was content with its first seed (the few others are of
  segments half as long); it answers every stored key with yes. Fingerprints depend on the order in which keys are
  taken;
* of distinct values only those of a unique key: others are estimates.
"""

import struct
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.vectors import varlena_array
from ccpr.matrixone.objects.writing import object_parts as encode_layout
from ccpr.matrixone.objects.writing.object_parts import ObjectParts, StoredBlock, StoredColumn, object_content
from ccpr.matrixone.objects.writing.packed_keys import packed_keys
from ccpr.matrixone.objects.writing.writer import WrittenObject, write_data, write_tombstones
from ccpr.matrixone.schema import CLUSTER_KEY_PREFIX, COMPOSITE_KEY, Column, SqlType, Table
from tests.matrixone.objects.filter_reading import contains, hybrid_parts
from tests.matrixone.objects.object_areas import Areas, areas, extent_of, stored
from tests.support.recorded import Snapshot
from tests.support.recordings_location import recordings_folder, scenarios

_FOLDER = recordings_folder()
_PATHS = scenarios()
_SCENARIOS = [pytest.param(path, id=name) for name, path in _PATHS.items()]
_KEYS_TRIED = 400  # of a filter, one at a time
_FIRST_SEED = struct.pack("<Q", 10451216379200822465)  # of splitmix64 from 1
_EXTENTS_IN_HEADER = ((43, 55), (56, 68), (73, 85))  # offsets, lengths, origins; not the algorithm


def _objects(scenario: str) -> Iterator[tuple[Table, ObjectStats, bool, ObjectFile]]:
    """Each listed object once: its table, its stats as of its first list, whether it holds tombstones."""
    assert _FOLDER is not None
    seen: set[str] = set()
    for folder in sorted((_FOLDER / scenario).glob("snapshot-*")):
        snapshot = Snapshot(folder)
        for name, listed in (snapshot.objects if snapshot.listed else {}).items():
            for entry in listed:
                if entry.stats.name not in seen:
                    seen.add(entry.stats.name)
                    yield snapshot.tables[name], entry.stats, entry.tombstone, snapshot.open_object(entry.stats.name)


@pytest.mark.recordings
@pytest.mark.parametrize("scenario", _SCENARIOS)
def test_a_file_rebuilt_from_its_parts_is_equal(scenario: str) -> None:
    assert _FOLDER is not None
    for path in sorted((_FOLDER / scenario / "objects").iterdir()):
        file = path.read_bytes()
        found = areas(file)
        with mock.patch.object(encode_layout, "_LZ4", _Compressed(file, found)):
            rebuilt = object_content(_parts(found))
        assert rebuilt.content[:-16] == file[:-16], path.name
        assert rebuilt.content[-8:] == file[-8:]
        with_our_own = object_content(_parts(found))
        ours = areas(with_our_own.content)
        assert (ours.entries, ours.filter_area, ours.zonemap_area) == (
            found.entries,
            found.filter_area,
            found.zonemap_area,
        )
        assert _without_extents(ours.meta, len(found.blocks), len(found.whole[1])) == _without_extents(
            found.meta, len(found.blocks), len(found.whole[1])
        )
        assert with_our_own.origin_size == rebuilt.origin_size


@pytest.mark.recordings
@pytest.mark.parametrize("scenario", _SCENARIOS)
def test_rows_written_again_give_the_servers_object(scenario: str) -> None:
    seen = 0
    for table, stats, tombstone, file in _objects(scenario):
        raw = file.content.slice(0, file.size).to_pybytes()
        server = areas(raw)
        written = _tombstones(table, stats, file, server) if tombstone else _data(table, stats, file, server)
        ours = areas(written.content)
        _assert_stats(written.stats, stats)
        assert _plain_header(ours.header) == _plain_header(server.header)
        assert _plain_header_of(ours.whole[0]) == _plain_header_of(server.whole[0])
        assert _plain_header_of(ours.second) == _plain_header_of(server.second)
        assert ours.zonemap_area == server.zonemap_area
        assert [column.zonemap for column in ours.whole[1]] == [column.zonemap for column in server.whole[1]]
        if server.filters[0] and file.sort_key is not None:
            assert ours.whole[1][file.sort_key].distinct == server.whole[1][file.sort_key].distinct
        assert [column.nulls for column in ours.whole[1]] == [column.nulls for column in server.whole[1]]
        for number, ((our_header, our_columns), (header, columns)) in enumerate(
            zip(ours.blocks, server.blocks, strict=True)
        ):
            assert our_header == header
            for seqnum, (our, their) in enumerate(zip(our_columns, columns, strict=True)):
                assert (our.oid, our.position, our.nulls, our.zonemap, our.rest) == (
                    their.oid,
                    their.position,
                    their.nulls,
                    their.zonemap,
                    their.rest,
                )
                _assert_entries(
                    ours.entries[number][seqnum], server.entries[number][seqnum], written, file, number, seqnum
                )
        _assert_filters(ours, server, file, tombstone=tombstone)
        seen += 1
    assert seen


@pytest.mark.recordings
def test_packed_keys_of_recorded_rows_are_the_servers() -> None:
    seen = 0
    for scenario in _PATHS.values():
        for table, _, tombstone, file in _objects(scenario):
            packed = [
                column
                for column in table.columns
                if column.name == COMPOSITE_KEY or column.name.startswith(CLUSTER_KEY_PREFIX)
            ]
            if tombstone or not packed:
                continue
            parts = _components(table, packed[0])
            for block in range(len(file.blocks)):
                keys = packed_keys(
                    parts, [file.column(block, part) for part in parts], full=packed[0].name != COMPOSITE_KEY
                )
                assert keys.equals(file.column(block, packed[0]))
                seen += len(keys)
    assert seen


def _components(table: Table, packed: Column) -> list[Column]:
    by_name = {column.name: column for column in table.columns}
    if packed.name == COMPOSITE_KEY:
        declared = table.ddl.split("PRIMARY KEY (", 1)[1].split(")", 1)[0]
        return [by_name[name.strip("`")] for name in declared.split(",")]
    found, rest = [], packed.name.removeprefix(CLUSTER_KEY_PREFIX)
    while rest:
        found.append(by_name[rest[3 : 3 + int(rest[:3])]])
        rest = rest[3 + int(rest[:3]) :]
    return found


class _Compressed:
    """A codec that gives the server's own compressed bytes for each of its areas."""

    def __init__(self, file: bytes, found: Areas) -> None:
        extents = [column.extent for _, columns in found.blocks for column in columns if column.oid]
        extents += [extent_of(file, 10), extent_of(found.whole[0], 72), extent_of(found.second, 72)]
        self._known = {stored(file, extent): file[extent[1] : extent[1] + extent[2]] for extent in extents}

    def compress(self, raw: bytes) -> bytes:
        return self._known[raw]


def _parts(found: Areas) -> ObjectParts:
    header, whole = found.whole
    columns = found.blocks[0][1]
    order = sorted(
        (seqnum for seqnum, column in enumerate(columns) if column.oid), key=lambda seqnum: columns[seqnum].position
    )
    (largest,) = struct.unpack_from("<H", header, 142)
    (sort_key,) = struct.unpack_from("<H", header, 147)
    blocks = []
    for (block_header, block_columns), entries, filter_ in zip(
        found.blocks, found.entries, found.filters, strict=False
    ):
        stored_columns = [
            StoredColumn.compressed(entries[seqnum], block_columns[seqnum].nulls, block_columns[seqnum].zonemap)
            for seqnum in order
        ]
        blocks.append(StoredBlock(struct.unpack_from("<I", block_header, 36)[0], stored_columns, filter_))
    return ObjectParts(
        object_id=header[16:34],
        oids=[columns[seqnum].oid for seqnum in order],
        seqnums=order,
        special=sum(seqnum > largest for seqnum in order),
        blocks=blocks,
        appendable=bool(header[146]),
        sort_key=None if sort_key == 65535 else sort_key,
        filter_kind=found.blocks[0][0][149],
        zonemaps=[whole[seqnum].zonemap for seqnum in order],
        distinct=[whole[seqnum].distinct for seqnum in order],
        nulls=[whole[seqnum].nulls for seqnum in order],
        schema_version=struct.unpack_from("<I", found.header, 23)[0],
    )


def _without_extents(meta: bytes, blocks: int, columns: int) -> bytes:
    """The metadata with zeros for offsets and compressed lengths, which depend on the compressor."""
    raw = bytearray(meta)
    first = 4 + 34
    starts = [first, len(raw) - 179 - 4]
    column_at = [first + 179 + 124 * number for number in range(columns)]
    block_at = first + 179 + 124 * columns + 4 + 8 * blocks
    for block in range(blocks):
        column_at += [block_at + block * (179 + 124 * columns) + 179 + 124 * number for number in range(columns)]
    for at in [start + place for start in starts for place in (43, 56, 73)] + [at + 12 for at in column_at]:
        raw[at : at + 8] = bytes(8)
    return bytes(raw)


def _plain_header(header: bytes) -> bytes:
    return header[:11] + header[23:]


def _plain_header_of(header: bytes) -> bytes:
    raw = bytearray(header)
    for start, stop in _EXTENTS_IN_HEADER:
        raw[start:stop] = bytes(stop - start)
    return bytes(raw)


def _data(table: Table, stats: ObjectStats, file: ObjectFile, server: Areas) -> WrittenObject:
    schema = [_as_written(column, server) for column in table.columns]
    names = [str(column.seqnum) for column in schema]
    numbers = range(len(file.blocks))
    blocks = [
        pa.RecordBatch.from_arrays([file.column(number, column) for column in schema], names=names)
        for number in numbers
    ]
    times = [file.commit_timestamps(number) for number in numbers]
    unique = bool(server.filters[0])
    return write_data(
        replace(table, columns=tuple(schema)),
        blocks,
        name=stats.name,
        appendable=stats.appendable,
        by_cn=stats.created_by_cn,
        commit_ts=None if times[0] is None else [block for block in times if block is not None],
        primary_key=file.sort_key if unique else None,
        cluster_by=None if unique else file.sort_key,
        level=stats.level,
        schema_version=file.schema_version,
        wkb=_has_wkb(file, schema),
    )


def _has_wkb(file: ObjectFile, columns: list[Column]) -> bool:
    """Whether the object's geometries, if it has any, are stored as WKB."""
    for column in columns:
        if column.type.oid in types.GEOMETRY_TYPES:
            vector = file._vector(0, column.seqnum, column.type.oid)
            assert vector is not None
            first = varlena_array(vector, "").drop_null()
            if len(first):
                return first[0].as_py()[0] <= 1
    return False


def _as_written(column: Column, server: Areas) -> Column:
    """The column with the width that the file has: a later ALTER may have widened it."""
    oid, width, scale = struct.unpack_from("<B7xii", server.entries[0][column.seqnum], 5)
    return replace(column, type=SqlType(oid, width, scale))


def _tombstones(table: Table, stats: ObjectStats, file: ObjectFile, server: Areas) -> WrittenObject:
    oid, width, scale = struct.unpack_from("<B7xii", server.entries[0][1], 5)
    key = Column("key", 1, SqlType(oid, width, scale), hidden=any(map(types.is_packed, table.columns)))
    keys = [file.column(block.number, key) for block in file.blocks]
    rowids = [file.column(block.number, Column("rowid", 0, SqlType(types.ROWID))) for block in file.blocks]
    times = [file.commit_timestamps(block.number) for block in file.blocks]
    return write_tombstones(
        rowids,
        keys,
        key,
        name=stats.name,
        appendable=stats.appendable,
        by_cn=stats.created_by_cn,
        commit_ts=None if times[0] is None else [block for block in times if block is not None],
        level=stats.level,
        schema_version=file.schema_version,
    )


def _assert_stats(ours: ObjectStats, server: ObjectStats) -> None:
    whatever = {"raw": b"", "meta": None, "size": 0, "origin_size": 0}
    assert replace(ours, **whatever) == replace(server, **whatever)


def _assert_entries(
    ours: bytes, server: bytes, written: WrittenObject, file: ObjectFile, block: int, seqnum: int
) -> None:
    if ours == server:
        return
    oid = ours[5]
    rewritten = ObjectFile(written.content)
    left, right = rewritten._vector(block, seqnum, oid), file._vector(block, seqnum, oid)
    assert left is not None
    assert right is not None
    assert (left.oid, left.width, left.scale, left.rows) == (right.oid, right.width, right.scale, right.rows)
    assert ours[:25] == server[:25]
    nulls = left.null_mask()
    if nulls is None:
        assert right.nulls is None
        kept = np.ones(left.rows, bool)
        assert left.area.size, "without nulls only values in the area may lie in another order"
    else:
        assert (nulls == right.null_mask()).all()
        kept = ~nulls
    size = types.SLOT_SIZES[oid]
    our_slots, slots = (np.frombuffer(vector.slots, np.uint8).reshape(-1, size)[kept] for vector in (left, right))
    if oid in types.VARLENA_TYPES:
        assert varlena_array(left, "ours").equals(varlena_array(right, "server's"))
        inside = our_slots[:, 0] < 24
        our_slots, slots = our_slots[inside], slots[inside]
    assert (our_slots == slots).all()


def _assert_filters(ours: Areas, server: Areas, file: ObjectFile, *, tombstone: bool) -> None:
    assert [len(filter_) for filter_ in ours.filters] == [len(filter_) for filter_ in server.filters]
    for number, (our, their) in enumerate(zip(ours.filters, server.filters, strict=True)):
        if not their:
            continue
        parts = hybrid_parts(our) if tombstone else [(None, our)]
        theirs = hybrid_parts(their) if tombstone else [(None, their)]
        keys = _keys(file, number)
        for (size, part), (_, whole) in zip(parts, theirs, strict=True):
            assert part[:24] == whole[:24] or whole[:8] != _FIRST_SEED
            for key in keys[:: max(1, len(keys) // _KEYS_TRIED)]:
                assert contains(whole, key[:size])  # this very reading of filters is the server's
                assert contains(part, key[:size])


def _keys(file: ObjectFile, block: int) -> list[bytes]:
    assert file.sort_key is not None
    oid = int(file.blocks[block].columns["oid"][file.sort_key])
    vector = file._vector(block, file.sort_key, oid)
    assert vector is not None
    if oid in types.VARLENA_TYPES:
        return varlena_array(vector, "keys").to_pylist()
    size, slots = types.SLOT_SIZES[oid], vector.slots.to_pybytes()
    return [slots[at : at + size] for at in range(0, len(slots), size)]
