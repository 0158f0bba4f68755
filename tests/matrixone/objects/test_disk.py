from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from matrixone.objects.disk import crc32c, is_disk_file, logical_content
from matrixone.objects.errors import ObjectDamaged
from matrixone.objects.reader import ObjectFile
from tests.matrixone.objects.building import column_entry, object_file


def checksum(data: bytes) -> int:
    """CRC32C bit by bit."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def on_disk(content: bytes) -> bytes:
    pieces = (content[at : at + 2044] for at in range(0, len(content), 2044))
    return b"".join(checksum(piece).to_bytes(4, "little") + piece for piece in pieces)


def test_the_checksum_is_crc32c() -> None:
    assert checksum(b"123456789") == 0xE3069283
    assert crc32c(np.frombuffer(b"123456789", np.uint8).reshape(1, -1)).tolist() == [0xE3069283]


@pytest.mark.parametrize("rows", [1, 400, 511, 512, 2000])
def test_a_file_of_the_disk_backend_reads_as_its_content(tmp_path: Path, rows: int) -> None:
    values = np.arange(rows, dtype="<i4")
    content = object_file([(rows, {0: (22, column_entry(22, values.tobytes(), rows))})], compressed=False)
    file = on_disk(content)
    assert is_disk_file(pa.py_buffer(file))
    assert not is_disk_file(pa.py_buffer(content))
    assert logical_content(pa.py_buffer(file), "test").to_pybytes() == content
    path = tmp_path / "object"
    path.write_bytes(file)
    read = ObjectFile.open(path)
    assert (read.rows, read.size) == (rows, len(content))


def test_a_flipped_bit_or_a_cut_piece_is_damage() -> None:
    file = on_disk(object_file([(900, {0: (22, column_entry(22, bytes(3600), 900))})], compressed=False))
    for at in (1, 500, 2049, 3000, len(file) - 1):
        flipped = bytearray(file)
        flipped[at] ^= 4
        with pytest.raises(ObjectDamaged, match="checksum"):
            logical_content(pa.py_buffer(bytes(flipped)), "test")
    with pytest.raises(ObjectDamaged):
        logical_content(pa.py_buffer(file[:2050]), "test")
