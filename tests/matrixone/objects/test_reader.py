import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ObjectUnsupported
from ccpr.matrixone.objects.object_layout import COLUMN_META_DTYPE, Block
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.schema import Column, SqlType
from tests.matrixone.objects.building import OBJECT_ID, column_entry, object_file, stats_bytes, varlena_entry
from tests.support.recorded import every_snapshot

INT, TEXT = SqlType(22, 32, -1), SqlType(61, 20, 0)


def ints(*values: int) -> tuple[int, bytes]:
    return 22, column_entry(22, struct.pack(f"<{len(values)}i", *values), len(values))


def timestamps(*physical: int) -> tuple[int, bytes]:
    return 100, column_entry(100, b"".join(struct.pack("<Iq", 0, value) for value in physical), len(physical))


FILE = object_file(
    [
        (2, {0: ints(1, 2), 2: (61, varlena_entry(61, [b"a", None]))}),
        (1, {0: ints(3), 2: (61, varlena_entry(61, [b"c"]))}),
    ],
    sort_key=0,
)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("compressed", [False, True])
def test_an_object_is_read_block_by_block_and_column_by_column(version: int, compressed: bool) -> None:
    file = ObjectFile(
        object_file([(2, {0: ints(1, 2)}), (1, {0: ints(3)})], meta_version=version, compressed=compressed, sort_key=0)
    )
    assert file.object_id == OBJECT_ID
    assert (file.rows, [block.rows for block in file.blocks], file.appendable, file.sort_key) == (3, [2, 1], False, 0)
    assert file.schema_version == 7
    assert [file.column(block, Column("a", 0, INT)).to_pylist() for block in (0, 1)] == [[1, 2], [3]]
    assert file.commit_timestamps(0) is None
    file.check(deep=True)


@pytest.mark.parametrize("compressed", [False, True])
def test_values_are_aligned_and_do_not_change_with_the_memory_of_the_file(compressed: bool) -> None:
    memory = bytearray(object_file([(2, {0: ints(1, 2)}), (1, {0: ints(3)})], compressed=compressed))
    file = ObjectFile(pa.py_buffer(memory))
    values = [file.column(block, Column("a", 0, INT)) for block in (0, 1)]
    assert [array.buffers()[1].address % 64 for array in values] == [0, 0]
    memory[64:] = bytes(len(memory) - 64)
    assert [array.to_pylist() for array in values] == [[1, 2], [3]]


def test_columns_that_the_object_lacks_are_null() -> None:
    file = ObjectFile(FILE)
    assert file.sort_key == 0
    assert file.column(0, Column("late", 9, TEXT)).to_pylist() == [None, None]
    assert file.column(1, Column("dropped and never stored", 1, SqlType(33, 38, 2))).to_pylist() == [None]
    assert str(file.column(1, Column("x", 1, SqlType(33, 38, 2))).type) == "decimal128(38, 2)"


def test_a_column_of_another_type_is_a_mismatch() -> None:
    with pytest.raises(ObjectMismatch, match="type 22 in the file, 23 in the schema"):
        ObjectFile(FILE).column(0, Column("a", 0, SqlType(23, 64, -1)))


def test_commit_times_are_the_last_column_if_it_is_of_their_type() -> None:
    file = ObjectFile(object_file([(2, {0: ints(1, 2), 1: timestamps(10, 20)})], appendable=True))
    times = file.commit_timestamps(0)
    assert times is not None
    assert times["physical"].tolist() == [10, 20]
    assert file.appendable


def test_an_object_is_compared_with_its_stats() -> None:
    file = ObjectFile(FILE)
    file.check(ObjectStats.parse(stats_bytes(FILE, rows=3, blocks=2)), deep=True)
    other = object_file([(3, {0: ints(1, 2, 3)})])
    for wrong in (
        stats_bytes(FILE, rows=4, blocks=2),
        stats_bytes(FILE, rows=3, blocks=1),
        stats_bytes(FILE, rows=3, blocks=2, object_id=bytes(16) + b"\x01\x00"),
        stats_bytes(other, rows=3, blocks=2),
    ):
        with pytest.raises(ObjectMismatch):
            file.check(ObjectStats.parse(wrong))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(128),
        FILE[:-1],
        FILE + b"\x00",
        FILE[:8] + b"\x02" + FILE[9:],
        FILE[:100],
    ],
)
def test_what_is_not_an_object_is_refused_with_a_typed_error(data: bytes) -> None:
    with pytest.raises((ObjectDamaged, ObjectUnsupported)):
        ObjectFile(data)


def test_rows_that_do_not_add_up_and_blocks_of_any_size_are_refused() -> None:
    with pytest.raises(ObjectUnsupported, match="rows"):
        ObjectFile(object_file([(70_000, {})], columns=1))
    with pytest.raises(ObjectDamaged, match="appendable"):
        ObjectFile(object_file([(1, {0: ints(1)}), (1, {0: ints(1)})], appendable=True))
    with pytest.raises(ObjectDamaged, match="block of"):
        ObjectFile(object_file([(2, {0: ints(1)})])).column(0, Column("a", 0, INT))


def test_a_stream_that_inflates_to_less_than_it_says_is_damage() -> None:
    entry = column_entry(22, bytes(4000), 1000)
    file = bytearray(object_file([(1000, {0: (22, entry)})]))
    sound = ObjectFile(bytes(file))
    length = int(sound.blocks[0].columns["length"][0])
    # A literal-only LZ4 block of a few bytes in the place of the column: valid, and far too short.
    file[64 : 64 + length] = (
        bytes([(length - 1) << 4]) + bytes(range(1, length))
        if length <= 15
        else bytes([0xF0, length - 17]) + bytes(range(1, length - 1))
    )
    with pytest.raises(ObjectDamaged, match="inflate"):
        ObjectFile(bytes(file)).column(0, Column("a", 0, INT))


def test_an_empty_file() -> None:
    with pytest.raises(ObjectDamaged):
        ObjectFile(b"")
    assert ObjectFile(FILE).rows == 3


def test_rows_that_share_one_long_value_are_decoded_up_to_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    value = b"v" * 60_000
    slots = (struct.pack("<III", 0xFFFFFFFF, 0, len(value)) + bytes(12)) * 8192
    column = (70, column_entry(70, slots, 8192, area=value))
    file = ObjectFile(object_file([(8192, dict.fromkeys(range(60), column))]))
    decoded, check = [], ObjectFile._check_column

    def counting(*arguments: object, decode: bool) -> int:
        decoded.append(decode)
        return check(*arguments, decode=decode)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(ObjectFile, "_check_column", counting)
    file.check(deep=True)
    assert (len(decoded), 0 < sum(decoded) < 10) == (60, True)
    assert file.column(0, Column("blob", 59, SqlType(70))).nbytes > 8192 * len(value)


def test_columns_and_blocks_may_not_overlap() -> None:
    entry = column_entry(22, bytes(range(200)), 50)
    data = bytearray(object_file([(50, {0: (22, entry), 1: (22, entry)})], compressed=False))
    file = ObjectFile(bytes(data))
    file.check(deep=True)
    overlapping = np.frombuffer(file.blocks[0].columns.tobytes() * 3, COLUMN_META_DTYPE)
    file.blocks = (Block(0, 50, overlapping),)
    with pytest.raises(ObjectDamaged, match="overlap"):
        file.check()


@pytest.mark.recordings
def test_every_recorded_object_agrees_with_its_stats_and_decodes(recordings: Path) -> None:
    checked: set[str] = set()
    for snapshot in every_snapshot(recordings):
        if not snapshot.listed:
            continue
        for listed in (entry for entries in snapshot.objects.values() for entry in entries):
            if listed.stats.name in checked:
                continue
            checked.add(listed.stats.name)
            file = snapshot.open_object(listed.stats.name)
            file.check(listed.stats, deep=True)
            assert file.rows == sum(block.rows for block in file.blocks)
            if listed.tombstone:
                assert np.concatenate([file.rowids(block.number) for block in file.blocks]).size == file.rows
    assert checked
