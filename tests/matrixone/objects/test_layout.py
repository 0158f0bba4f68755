import pyarrow as pa
import pytest

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectUnsupported
from ccpr.matrixone.objects.object_layout import Scratch, inflate
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import Extent
from tests.matrixone.objects.building import column_entry, object_file

PLAIN = bytes(range(200)) + bytes(4000) + b"the end"
STORED = pa.Codec("lz4_raw").compress(PLAIN, asbytes=True)
CONTENT = pa.py_buffer(b"head" + STORED + b"tail")


def extent(**changes: int) -> Extent:
    return Extent(**({"algorithm": 1, "offset": 4, "length": len(STORED), "origin": len(PLAIN)} | changes))


def test_an_extent_inflates_to_its_origin() -> None:
    assert inflate(CONTENT, extent(), len(PLAIN), "test").to_pybytes() == PLAIN
    assert inflate(CONTENT, Extent(0, 0, 4, 4), 4, "test").to_pybytes() == b"head"


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": 0xFFFFFFFF},
        {"length": 0xFFFFFFFF},
        {"offset": len(STORED) + 5},
        {"origin": len(PLAIN) + 1},
        {"origin": len(PLAIN) - 1},
        {"origin": len(PLAIN) + 1000},
        {"origin": 0},
        {"length": 0},
        {"length": len(STORED) - 1},
        {"origin": 0xFFFFFFFF},
        {"algorithm": 0},
    ],
)
def test_an_extent_that_is_not_so_is_damage(changes: dict[str, int]) -> None:
    with pytest.raises(ObjectDamaged):
        inflate(CONTENT, extent(**changes), 2**32, "test")


def test_a_stream_that_is_short_by_zeros_is_damage_whatever_the_memory_held_before() -> None:
    zeros = pa.Codec("lz4_raw").compress(bytes(1000), asbytes=True)
    content = pa.py_buffer(zeros)
    for _ in range(3):
        assert inflate(content, Extent(1, 0, len(zeros), 1000), 2**32, "test").to_pybytes() == bytes(1000)
        with pytest.raises(ObjectDamaged, match="inflates to 1000 bytes, not to 1001"):
            inflate(content, Extent(1, 0, len(zeros), 1001), 2**32, "test")


def test_scratch_memory_is_as_large_as_the_largest_that_was_asked_for() -> None:
    scratch = Scratch()
    first = scratch.take(10)
    first[:] = bytes(range(10))
    assert bytes(scratch.take(4)) == bytes(range(4))
    assert len(scratch.take(100)) == 100


def test_an_origin_length_is_believed_only_within_the_limit_and_lz4s_best_ratio() -> None:
    with pytest.raises(ObjectDamaged, match="justified"):
        inflate(CONTENT, extent(), len(PLAIN) - 1, "test")
    before = pa.total_allocated_bytes()
    with pytest.raises(ObjectDamaged, match="cannot inflate"):
        inflate(CONTENT, extent(origin=255 * len(STORED) + 1), 2**32, "test")
    assert pa.total_allocated_bytes() == before


def test_unknown_algorithms_and_versions_are_unsupported() -> None:
    with pytest.raises(ObjectUnsupported, match="algorithm"):
        inflate(CONTENT, extent(algorithm=2), 2**32, "test")
    with pytest.raises(ObjectUnsupported, match="metadata version"):
        ObjectFile(object_file([(1, {0: (22, column_entry(22, bytes(4), 1))})], meta_version=4))


def test_a_header_that_claims_gigabytes_is_refused_without_allocating_them() -> None:
    file = bytearray(object_file([(1, {0: (22, column_entry(22, bytes(4), 1))})]))
    file[19:23] = b"\xff\xff\xff\xff"
    before = pa.total_allocated_bytes()
    with pytest.raises(CcprError):
        ObjectFile(bytes(file))
    assert pa.total_allocated_bytes() == before


def test_an_object_without_blocks_is_empty() -> None:
    file = ObjectFile(object_file([], columns=2))
    assert (file.rows, file.blocks) == (0, ())
    file.check(deep=True)
