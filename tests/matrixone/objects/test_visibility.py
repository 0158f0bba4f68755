import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from ccpr.matrixone.objects.errors import ObjectMismatch
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, deleted_rows
from ccpr.matrixone.schema import Column, SqlType
from tests.matrixone.objects.building import column_entry, object_file, stats_bytes
from tests.support.recorded import Snapshot, visible_batches

A = Column("a", 0, SqlType(22, 32, -1))
FIRST, SECOND = bytes(15) + b"\x01\x00\x00", bytes(15) + b"\x01\x00\x01"  # file numbers 0 and 256 of one segment
CN, APPENDABLE = 0x04, 0x01


class Store:
    """Objects in memory, listed as an upstream would."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.opened: list[str] = []

    def open(self, name: str, sums: bytes | None = None) -> ObjectFile:
        self.opened.append(name)
        return ObjectFile(self.files[name])

    def add(
        self,
        file: bytes,
        object_id: bytes,
        *,
        rows: int,
        blocks: int,
        created: int,
        deleted: int | None,
        tombstone: bool,
        flags: int,
        zonemap: bytes,
    ):
        stats = ObjectStats.parse(
            stats_bytes(file, rows=rows, blocks=blocks, flags=flags, object_id=object_id, zonemap=zonemap)
        )
        self.files[stats.name] = file
        return ListedObject(stats, Timestamp(created), None if deleted is None else Timestamp(deleted), tombstone)

    def data(
        self,
        object_id: bytes,
        blocks: Sequence[Sequence[int]],
        *,
        created: int = 1,
        deleted: int | None = None,
        times: Sequence[int] | None = None,
    ):
        written = []
        for values in blocks:
            columns = {0: (22, column_entry(22, struct.pack(f"<{len(values)}i", *values), len(values)))}
            if times is not None:
                columns[1] = (
                    100,
                    column_entry(100, b"".join(struct.pack("<Iq", 0, time) for time in times), len(values)),
                )
            written.append((len(values), columns))
        flags = 0 if times is None else APPENDABLE
        file = object_file(written, object_id=object_id, appendable=times is not None)
        rows = sum(map(len, blocks))
        return self.add(
            file,
            object_id,
            rows=rows,
            blocks=len(blocks),
            created=created,
            deleted=deleted,
            tombstone=False,
            flags=flags,
            zonemap=bytes(64),
        )

    def tombstone(
        self,
        number: int,
        targets: Sequence[tuple[bytes, int, int]],
        *,
        created: int = 1,
        deleted: int | None = None,
        times: Sequence[int] | None = None,
        flags: int = 0,
        zonemap: bytes | None = None,
    ) -> ListedObject:
        rowids = [target + struct.pack("<HI", block, row) for target, block, row in targets]
        columns = {0: (101, column_entry(101, b"".join(rowids), len(rowids)))}
        if times is not None:
            columns[1] = (100, column_entry(100, b"".join(struct.pack("<Iq", 0, time) for time in times), len(rowids)))
        object_id = b"T" * 16 + number.to_bytes(2, "little")
        file = object_file([(len(rowids), columns)], object_id=object_id, appendable=bool(flags & APPENDABLE))
        if zonemap is None:
            zonemap = rowids[0].ljust(30, b"\x00") + b"\x18" + rowids[-1].ljust(30, b"\x00") + b"\x18\x80\x65"
        return self.add(
            file,
            object_id,
            rows=len(rowids),
            blocks=1,
            created=created,
            deleted=deleted,
            tombstone=True,
            flags=flags,
            zonemap=zonemap,
        )

    def rows(self, objects: Sequence[ListedObject], at: int) -> list[int]:
        batches = visible_batches(objects, self.open, [A], Timestamp(at))
        return [value for batch in batches for value in batch.column(0).to_pylist()]


def share_of(objects: Sequence[ListedObject], data: bytes) -> list[ListedObject]:
    """One data object, and all tombstones."""
    return [listed for listed in objects if listed.tombstone or listed.stats.object_id == data]


def test_an_object_takes_part_from_its_creation_until_just_before_its_deletion() -> None:
    store = Store()
    old, new = store.data(FIRST, [[1]], created=5, deleted=9), store.data(SECOND, [[2]], created=9)
    assert [store.rows([old, new], at) for at in (4, 5, 8, 9, 100)] == [[], [1], [1], [2], [2]]


def test_rows_of_an_appendable_object_exist_from_their_own_commit_on() -> None:
    store = Store()
    listed = store.data(FIRST, [[1, 2, 3]], created=5, deleted=9, times=[5, 6, 8])
    assert [store.rows([listed], at) for at in (5, 6, 7, 8)] == [[1], [1, 2], [1, 2], [1, 2, 3]]


def test_a_tombstone_deletes_from_its_commit_on_and_a_cns_from_its_creation_on() -> None:
    store = Store()
    data = store.data(FIRST, [[1, 2], [3, 4]])
    timed = store.tombstone(0, [(FIRST, 0, 1), (FIRST, 1, 0)], created=2, times=[3, 7])
    from_cn = store.tombstone(1, [(FIRST, 1, 1)], created=4, times=[99], flags=CN)
    assert [store.rows([data, timed, from_cn], at) for at in (1, 3, 4, 7)] == [[1, 2, 3, 4], [1, 3, 4], [1, 3], [1]]


def test_tombstones_of_objects_that_are_gone_are_ignored() -> None:
    store = Store()
    data = store.data(SECOND, [[1, 2]])
    dangling = store.tombstone(0, [(FIRST, 0, 0), (FIRST, 9, 77), (SECOND, 0, 1)])
    assert store.rows([data, dangling], 5) == [1]
    rows = deleted_rows([data, dangling], store.open, Timestamp(5))
    assert {target: found.tolist() for target, found in rows.items()} == {FIRST: [0, 9 << 32 | 77], SECOND: [1]}


def test_deleted_rows_are_sorted_and_named_once() -> None:
    store = Store()
    listed = [
        store.tombstone(0, [(FIRST, 1, 5), (FIRST, 2, 0)]),
        store.tombstone(1, [(FIRST, 0, 9), (FIRST, 1, 5)], flags=CN),
    ]
    assert deleted_rows(listed, store.open, Timestamp(5))[FIRST].tolist() == [9, 1 << 32 | 5, 2 << 32]


def test_tombstones_whose_zone_map_lies_apart_are_not_opened() -> None:
    store = Store()
    other = bytes(15) + b"\x09\x00\x00"
    listed = [
        store.tombstone(0, [(FIRST, 0, 0)]),
        store.tombstone(1, [(SECOND, 0, 0)]),
        store.tombstone(2, [(other, 0, 0)]),
    ]
    assert list(deleted_rows(listed, store.open, Timestamp(5), of={SECOND})) == [SECOND]
    assert len(store.opened) == 1
    unknown = store.tombstone(3, [(SECOND, 0, 4)], zonemap=bytes(64))
    assert deleted_rows([unknown], store.open, Timestamp(5), of={SECOND})[SECOND].tolist() == [4]
    assert deleted_rows(listed, store.open, Timestamp(5), of=()) == {}
    assert deleted_rows([unknown], store.open, Timestamp(5), of=()) == {}
    assert list(deleted_rows(listed, store.open, Timestamp(5), of={FIRST, other})) == [FIRST, other]
    assert len(store.opened) == 4


def test_a_share_of_the_objects_reads_only_those() -> None:
    store = Store()
    objects = [store.data(FIRST, [[1, 2]]), store.data(SECOND, [[3]]), store.tombstone(0, [(FIRST, 0, 0)])]
    assert store.rows(share_of(objects, FIRST), 5) == [2]
    assert store.rows(share_of(objects, SECOND), 5) == [3]
    assert store.rows(objects[2:], 5) == []


def test_columns_come_in_the_order_asked_for_and_none_still_counts_rows() -> None:
    store = Store()
    objects = [store.data(FIRST, [[1, 2, 3]]), store.tombstone(0, [(FIRST, 0, 1)])]
    late = Column("late", 4, SqlType(61, 10, 0))
    (batch,) = visible_batches(objects, store.open, [late, A], Timestamp(5))
    assert batch.to_pydict() == {"late": [None, None], "a": [1, 3]}
    assert [batch.num_rows for batch in visible_batches(objects, store.open, [], Timestamp(5))] == [2]


def test_contradictions_between_list_and_files_are_typed_errors() -> None:
    store = Store()
    data = store.data(FIRST, [[1, 2]])
    with pytest.raises(ObjectMismatch, match="is deleted"):
        store.rows([data, store.tombstone(0, [(FIRST, 0, 2)])], 5)
    with pytest.raises(ObjectMismatch, match="is deleted"):
        store.rows([data, store.tombstone(0, [(FIRST, 1, 0)])], 5)
    with pytest.raises(ObjectMismatch, match="commit times"):
        store.rows([data, store.tombstone(0, [(FIRST, 0, 0)], flags=APPENDABLE)], 5)
    store.files[data.stats.name] = store.files[store.data(SECOND, [[7]]).stats.name]
    with pytest.raises(ObjectMismatch, match="another object"):
        store.rows([data], 5)


@pytest.mark.recordings
def test_shares_of_a_table_add_up_to_the_table(recordings: Path) -> None:
    for folder in sorted((recordings / "dml").glob("snapshot-*"))[-2:]:
        snapshot = Snapshot(folder)
        for name, objects in snapshot.objects.items():
            columns = snapshot.tables[name].columns[:1]
            ids = [listed.stats.object_id for listed in objects if not listed.tombstone]
            shares = [
                visible_batches(share_of(objects, one), snapshot.open_object, columns, snapshot.at) for one in ids
            ]
            found = [value for share in shares for batch in share for value in batch.column(0).to_pylist()]
            assert sorted(found) == sorted(snapshot.read(name, columns).column(0).to_pylist())
