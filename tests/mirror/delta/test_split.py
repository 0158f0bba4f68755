"""What a delta reads, and what it makes of objects that no recording has: hand-made ones, two rows at most."""

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.errors import ObjectMismatch
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE, ROWID_SIZE, object_name
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.objects.writing.writer import WrittenObject, write_data, write_tombstones
from ccpr.matrixone.schema import COMPOSITE_KEY, Column, Kind, SqlType, Table
from ccpr.mirror.delta import split
from ccpr.mirror.delta.delta import TableAt, table_delta
from ccpr.mirror.delta.row_keys import RowKey
from ccpr.mirror.delta.split import DeltaPart, DeltaShape, joined, run_split
from ccpr.mirror.errors import KeysNotBytes, MirrorDamaged, TableWithoutKey
from ccpr.mirror.layout import MANIFEST_SCHEMA_1, object_path
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef
from tests.support.delta_truth import together
from tests.support.publishing import write_manifest
from tests.support.spark_fixtures import RecordedMirror

INT, TEXT = SqlType(types.INT32, 32, -1), SqlType(types.VARCHAR, 10, 0)
K, V, W = Column("k", 0, INT, nullable=False), Column("v", 1, TEXT), Column("w", 2, INT)
DDL = "CREATE TABLE `t` (\n  `k` int NOT NULL,\n  `v` varchar(10) DEFAULT NULL,\n  PRIMARY KEY (`k`)\n)"
DDL_W = DDL.replace("DEFAULT NULL,\n", "DEFAULT NULL,\n  `w` int DEFAULT NULL,\n")
TABLE = Table(1, 1, "db", "t", Kind.TABLE, (K, V), DDL)
THEN, NOW = Timestamp(100), Timestamp(200)
BY_CN = 0x04
Row = tuple[Any, ...]


@dataclass
class Scene:
    """A table of (k, v) with two points, at 100 and 200."""

    root: Path
    table: Table = TABLE
    written: int = 0
    refs: list[TableRef] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mirror = Mirror(LocalStore(self.root))

    def rows(
        self,
        rows: Iterable[Row],
        committed: Iterable[int] | None,
        *,
        appendable: bool = False,
        table: Table | None = None,
    ) -> bytes:
        """A data object; its stats."""
        table = table or self.table
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(values, kind)
                for values, kind in zip(zip(*rows, strict=True), arrow_schema(table.columns).types, strict=True)
            ],
            schema=arrow_schema(table.columns),
        )
        commits = None if committed is None else [np.array([(0, at) for at in committed], TIMESTAMP_DTYPE)]
        return self._put(
            write_data(
                table,
                [batch],
                name=self._name(),
                appendable=appendable,
                by_cn=False,
                commit_ts=commits,
                primary_key=K.seqnum,
            )
        )

    def tombstones(self, target: bytes, deleted: Iterable[tuple[int, int, int]]) -> bytes:
        """Rows of a data object are deleted: row, key, time."""
        numbers, keys, times = (list(values) for values in zip(*deleted, strict=True))
        rowids = np.zeros(len(numbers), ROWID_DTYPE)
        rowids["object"], rowids["row"] = np.void(ObjectStats.parse(target).object_id), numbers
        raw = pa.Array.from_buffers(pa.binary(ROWID_SIZE), len(rowids), [None, pa.py_buffer(rowids)])
        commits = [np.array([(0, at) for at in times], TIMESTAMP_DTYPE)]
        made = write_tombstones(
            [raw], [pa.array(keys, pa.int32())], K, name=self._name(), appendable=False, by_cn=False, commit_ts=commits
        )
        return self._put(made)

    def point(self, *objects: bytes, tombstones: Iterable[bytes] = (), table: Table | None = None) -> None:
        rows = [(stats, 1, 0, False) for stats in objects] + [(stats, 1, 0, True) for stats in tombstones]
        columns = [
            pa.array([row[number] for row in rows], field.type) for number, field in enumerate(MANIFEST_SCHEMA_1)
        ]
        objects = pa.Table.from_arrays(columns, schema=MANIFEST_SCHEMA_1)
        name = write_manifest(self.mirror, table or self.table, objects, len(self.refs))
        self.refs.append(TableRef(1, "db", "t", Kind.TABLE, len(self.refs), name, len(rows), 0, 0))

    def delta(self, **options: Any) -> tuple[list[Row], list[Row]]:
        delta = table_delta(self.mirror, TableAt(self.refs[0], THEN), TableAt(self.refs[1], NOW), **options)
        change = together(delta.parts(), delta.shape)
        return rows_of(change.upserts), rows_of(change.deletes)

    def _name(self) -> str:
        self.written += 1
        return object_name(self.written.to_bytes(16, "big") + bytes(2))

    def _put(self, made: WrittenObject) -> bytes:
        self.mirror.store.put(object_path(made.stats.name), [made.content])
        return made.stats.raw


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "mirror")


def rows_of(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def by_cn(stats: bytes) -> bytes:
    return stats[:-1] + bytes([stats[-1] | BY_CN])


# ---- what commit times show


def test_a_moved_row_with_an_old_commit_time_is_no_change(scene: Scene) -> None:
    scene.point(scene.rows([(1, "a"), (2, "b")], [10, 20]))
    scene.point(scene.rows([(1, "a"), (2, "B"), (3, "c")], [10, 150, 160]))
    assert scene.delta() == ([(2, "B"), (3, "c")], [])


def test_a_row_with_a_new_commit_time_and_the_same_values_is_no_change(scene: Scene) -> None:
    scene.point(scene.rows([(1, "a"), (2, None)], [10, 20]))
    scene.point(scene.rows([(1, "a"), (2, None)], [150, 150]))
    assert scene.delta() == ([], [])


def test_commit_times_in_an_object_of_a_cn_are_not_believed(scene: Scene) -> None:
    scene.point(scene.rows([(1, "a")], [10]))
    scene.point(by_cn(scene.rows([(1, "b")], [5])))
    assert scene.delta() == ([(1, "b")], [])


def test_without_commit_times_values_are_compared(scene: Scene) -> None:
    scene.point(scene.rows([(1, "a"), (2, "b")], None))
    scene.point(scene.rows([(1, "a"), (2, "c")], None))
    assert scene.delta() == ([(2, "c")], [])


def test_a_row_that_claims_to_be_old_and_was_not_there_is_written(scene: Scene) -> None:
    scene.point(scene.rows([(1, "a")], [10]))
    scene.point(scene.rows([(2, "b")], [5]))
    assert scene.delta() == ([(2, "b")], [(1,)])


def test_an_old_row_that_a_merge_gave_a_value_in_an_added_column_is_written(scene: Scene) -> None:
    scene.point(scene.rows([(1, "a"), (2, "b")], [10, 20]))
    wide = replace(scene.table, columns=(K, V, W), ddl=DDL_W)
    scene.point(scene.rows([(1, "a", None), (2, "b", 7)], [10, 20], table=wide), table=wide)
    assert scene.delta() == ([(2, "b", 7)], [])


def test_a_row_whose_time_has_come_in_an_object_of_both_points_is_written(scene: Scene) -> None:
    data = scene.rows([(1, "a"), (2, "b")], [100, 200], appendable=True)
    scene.point(data)
    scene.point(data)
    assert scene.delta() == ([(2, "b")], [])


# ---- tombstones of an object that stays


def test_a_row_deleted_and_written_again_with_the_same_values_is_no_change(scene: Scene) -> None:
    data = scene.rows([(1, "a"), (2, "b"), (3, "c")], [10, 10, 10])
    scene.point(data)
    scene.point(
        data,
        scene.rows([(1, "a"), (2, "B")], [150, 150]),
        tombstones=[scene.tombstones(data, [(0, 1, 150), (1, 2, 150), (2, 3, 150)])],
    )
    assert scene.delta() == ([(2, "B")], [(3,)])


def test_tombstones_that_were_merged_delete_nothing_again(scene: Scene) -> None:
    data = scene.rows([(1, "a"), (2, "b"), (3, "c")], [10, 10, 10])
    scene.point(data, tombstones=[scene.tombstones(data, [(0, 1, 50)]), scene.tombstones(data, [(1, 2, 60)])])
    scene.point(data, tombstones=[scene.tombstones(data, [(0, 1, 50), (1, 2, 60)])])
    assert scene.delta() == ([], [])


def test_a_tombstone_object_that_is_gone_without_a_successor_brings_its_rows_back(scene: Scene) -> None:
    data = scene.rows([(1, "a"), (2, "b")], [10, 10])
    scene.point(data, tombstones=[scene.tombstones(data, [(0, 1, 50)])])
    scene.point(data)
    assert scene.delta() == ([(1, "a")], [])


def test_a_change_that_was_undone_is_no_change(scene: Scene) -> None:
    scene.point()
    data = scene.rows([(1, "a")], [150])
    scene.point(data, tombstones=[scene.tombstones(data, [(0, 1, 160)])])
    assert scene.delta() == ([], [])


# ---- what cannot be


def test_two_visible_rows_of_one_key_are_an_error(scene: Scene) -> None:
    scene.point(scene.rows([(1, "a")], None))
    scene.point(scene.rows([(1, "a")], None), scene.rows([(1, "b")], None))
    with pytest.raises(ObjectMismatch, match=r"two visible rows have the same key \[table db\.t\]"):
        scene.delta()


def test_a_key_that_goes_by_a_collation_is_refused_and_not_written_beside_the_old_one(tmp_path: Path) -> None:
    packed = Column(COMPOSITE_KEY, 2, SqlType(types.VARCHAR, 65535, 0), hidden=True, nullable=False)
    ddl = DDL.replace("(`k`)", "(`k`,`v`)")
    scene = Scene(tmp_path / "mirror", replace(TABLE, columns=(K, V, packed), ddl=ddl))
    scene.point(scene.rows([(1, "a", b"1a"), (2, "b", b"2b")], [10, 20]))
    scene.point(scene.rows([(1, "a", b"1a"), (2, "c", b"2c")], [150, 150]))
    assert scene.delta() == ([(2, "c")], [(2, "b")])
    scene.refs.pop()
    scene.point(scene.rows([(1, "A", b"1a"), (2, "b", b"2b")], [150, 150]))
    with pytest.raises(KeysNotBytes, match=r"KEYS_NOT_BYTES.*column v.*table db\.t"):
        scene.delta()


def test_a_missing_object_is_reported_with_the_tables_name(scene: Scene) -> None:
    old = scene.rows([(1, "a")], None)
    scene.point(old)
    scene.point(scene.rows([(1, "b")], None))
    scene.mirror.store.delete(object_path(ObjectStats.parse(old).name))
    with pytest.raises(MirrorDamaged, match=r"table db\.t.*ccpr resync"):
        scene.delta()


def test_tables_of_two_ids_have_no_delta(scene: Scene) -> None:
    scene.point()
    other = replace(scene.refs[0], table_id=2)
    with pytest.raises(ValueError, match="table 2 is not table 1"):
        table_delta(scene.mirror, TableAt(other, THEN), TableAt(scene.refs[0], NOW))


def test_a_table_without_any_key_is_refused(scene: Scene) -> None:
    index = replace(scene.table, kind=Kind.INDEX, ddl="")
    scene.point(table=index)
    with pytest.raises(TableWithoutKey, match=r"TABLE_WITHOUT_KEY.*table db\.t"):
        table_delta(scene.mirror, None, TableAt(scene.refs[0], NOW))


# ---- what is read


@dataclass
class Watch:
    """Columns read, by object name and seqnum."""

    read: list[tuple[str, int]] = field(default_factory=list)

    def objects(self) -> set[str]:
        return {name for name, _ in self.read}


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    seen = Watch()
    original: Callable[..., Any] = ObjectFile._vector

    def vector(self: ObjectFile, block: int, seqnum: int, *others: Any) -> Any:
        seen.read.append((object_name(self.object_id), seqnum))
        return original(self, block, seqnum, *others)

    monkeypatch.setattr(ObjectFile, "_vector", vector)
    return seen


def test_what_stayed_as_it_was_is_not_opened(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, touched = scene.rows([(1, "a")], [10]), scene.rows([(2, "b"), (3, "c")], [10, 10])
    old = scene.tombstones(touched, [(1, 3, 50)])
    scene.point(kept, touched, tombstones=[old])
    scene.point(kept, touched, tombstones=[old, scene.tombstones(touched, [(0, 2, 150)])])
    opened: list[str] = []
    original = Mirror.open_object

    def open_object(self: Mirror, name: str, sums: bytes | None) -> ObjectFile:
        opened.append(name)
        return original(self, name, sums)

    monkeypatch.setattr(Mirror, "open_object", open_object)
    assert scene.delta() == ([], [(2,)])
    assert ObjectStats.parse(kept).name not in opened
    assert ObjectStats.parse(touched).name in opened
    opened.clear()
    delta = table_delta(scene.mirror, TableAt(scene.refs[1], NOW), TableAt(scene.refs[1], Timestamp(300)))
    assert (delta.splits(), list(delta.parts()), delta.bytes, opened) == ([], [], 0, [])


def test_of_a_merge_by_the_transaction_node_only_keys_and_times_are_read(scene: Scene, watch: Watch) -> None:
    scene.point(scene.rows([(1, "a")], [10]), scene.rows([(2, "b")], [20]))
    merged = scene.rows([(1, "a"), (2, "b")], [10, 20])
    scene.point(merged)
    assert scene.delta() == ([], [])
    commit = V.seqnum + 1
    assert {seqnum for _, seqnum in watch.read} == {K.seqnum, commit}
    assert {name for name, seqnum in watch.read if seqnum == commit} == {ObjectStats.parse(merged).name}


def test_the_column_that_showed_a_difference_is_read_first(scene: Scene, watch: Watch) -> None:
    wide = scene.table = replace(scene.table, columns=(K, V, W), ddl=DDL_W)
    old = [scene.rows([(key, "v", 0)], [10], table=wide) for key in range(5)]
    scene.point(*old, table=wide)
    scene.point(scene.rows([(key, "v", 1) for key in range(5)], [150] * 5, table=wide), table=wide)
    assert len(scene.delta()[0]) == 5
    names = [ObjectStats.parse(stats).name for stats in old]
    assert [(name, V.seqnum) in watch.read for name in names] == [True] + [False] * 4
    assert all((name, W.seqnum) in watch.read for name in names)


def test_an_initial_load_streams_every_row_once_in_bounded_parts(recorded_mirror: RecordedMirror) -> None:
    mirror = recorded_mirror("wide_and_large")
    point = mirror.point()
    ref = max(point.tables.values(), key=lambda ref: ref.rows)
    delta = table_delta(mirror, None, TableAt.of(point, ref.table_id), split_rows=1)
    splits = [pickle.loads(pickle.dumps(split)) for split in delta.splits()]
    assert len(splits) > 1
    parts = [part for split in splits for part in run_split(mirror.store.url, split)]
    assert max(part.rows for part in parts) < 50_000
    assert not any(part.deletes.num_rows for part in parts)
    keys = [column.name for column in delta.shape.key.columns]
    rows = pa.concat_tables([part.upserts for part in parts])
    assert rows.num_rows == sum(batch.num_rows for batch in mirror.read(point, ref.qualified_name, columns=[])[1])
    assert rows.group_by(keys).aggregate([]).num_rows == rows.num_rows


# ---- keys and values


def test_parts_are_joined_until_they_are_worth_it(scene: Scene) -> None:
    scene.point()
    scene.point(*(scene.rows([(key, "a")], [150]) for key in range(4)))
    delta = table_delta(scene.mirror, TableAt(scene.refs[0], THEN), TableAt(scene.refs[1], NOW), split_rows=1)
    assert len(delta.splits()) == 4
    parts: list[DeltaPart] = list(delta.parts())
    assert [part.rows for part in parts] == [4]


def test_a_part_ends_as_soon_as_it_has_enough_rows_and_empty_ones_are_left_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "PART_ROWS", 4)
    shape = DeltaShape("db.t", (K, V), RowKey((K,), K))
    none = shape.delete_schema.empty_table()

    def part(rows: int) -> DeltaPart:
        return DeltaPart(pa.table([list(range(rows)), ["a"] * rows], schema=shape.upsert_schema), none)

    parts = list(joined(map(part, [0, 1, 0, 2, 3, 9, 0, 4, 0, 1, 1, 0])))
    assert [part.rows for part in parts] == [6, 9, 4, 2]
    assert list(joined(map(part, [0, 0]))) == []


def test_an_initial_load_is_divided_into_consecutive_objects_of_about_as_many_rows(scene: Scene) -> None:
    counts = [1, 2, 3, 1, 1, 1, 5, 1]
    keys = iter(range(100))
    scene.point(*(scene.rows([(next(keys), "a") for _ in range(count)], [150] * count) for count in counts))
    found = table_delta(scene.mirror, None, TableAt(scene.refs[0], NOW), split_rows=4).splits()
    assert [[listed.stats.rows for listed in share.added] for share in found] == [[1, 2, 3], [1, 1, 1, 5], [1]]
