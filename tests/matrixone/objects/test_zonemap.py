import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.zonemap import parse_zonemap, rowid_range
from tests.support.recorded import every_snapshot


def zonemap(oid: int, low: bytes, high: bytes, *, flags: int = 0x80, high_flags: int = 0) -> bytes:
    return (
        low.ljust(30, b"\x99")
        + bytes([len(low)])
        + high.ljust(30, b"\x99")
        + bytes([len(high) | high_flags, flags, oid])
    )


def test_numbers_are_read_by_their_type() -> None:
    parsed = parse_zonemap(zonemap(22, struct.pack("<i", -5), struct.pack("<i", 9)))
    assert (parsed.minimum, parsed.maximum) == (-5, 9) if parsed else False
    parsed = parse_zonemap(zonemap(28, struct.pack("<Q", 0), struct.pack("<Q", 2**64 - 1)))
    assert (parsed.minimum, parsed.maximum) == (0, 2**64 - 1) if parsed else False
    parsed = parse_zonemap(zonemap(100, struct.pack("<Iq", 7, 1), struct.pack("<Iq", 0, 2)))
    assert (parsed.minimum, parsed.maximum) == (Timestamp(1, 7), Timestamp(2)) if parsed else False


def test_texts_are_prefixes_and_a_maximum_may_have_no_bound() -> None:
    parsed = parse_zonemap(zonemap(61, b"a" * 30, b"b"))
    assert (parsed.minimum, parsed.maximum) == (b"a" * 30, b"b") if parsed else False
    parsed = parse_zonemap(zonemap(61, b"", b"\xff" * 30, high_flags=0x80))
    assert (parsed.minimum, parsed.maximum) == (b"", None) if parsed else False


@pytest.mark.parametrize(
    "raw",
    [
        bytes(64),
        b"",
        zonemap(22, bytes(4), bytes(4), flags=0),
        zonemap(10, b"\x00", b"\x00"),  # bool: the AND of the values bounds nothing
        zonemap(34, b"", b""),
        zonemap(7, bytes(4), bytes(4)),
        zonemap(31, struct.pack("<d", float("nan")), bytes(8)),
        zonemap(61, b"", b"")[:30] + b"\x1f" + zonemap(61, b"", b"")[31:],
    ],
)
def test_nothing_is_concluded_from_what_bounds_nothing(raw: bytes) -> None:
    assert parse_zonemap(raw) is None


@given(st.binary(min_size=64, max_size=64))
def test_any_bytes_are_a_zone_map_or_none(raw: bytes) -> None:
    parse_zonemap(raw)
    rowid_range(raw)


@pytest.mark.recordings
def test_recorded_tombstones_lie_inside_their_zone_maps(recordings: Path) -> None:
    seen = 0
    for snapshot in every_snapshot(recordings):
        for listed in (
            entry
            for entries in (snapshot.objects.values() if snapshot.listed else ())
            for entry in entries
            if entry.tombstone
        ):
            file = snapshot.open_object(listed.stats.name)
            bounds = rowid_range(listed.stats.sort_key_zonemap)
            assert bounds is not None
            for block in file.blocks:
                rowids = [row.tobytes() for row in file.rowids(block.number)]
                keys = [(raw[:16], *struct.unpack("<HHI", raw[16:])) for raw in (bounds[0], bounds[1], *rowids)]
                assert keys[0] <= min(keys[2:])
                assert max(keys[2:]) <= keys[1]
                seen += 1
        if seen > 50:
            break
    assert seen
