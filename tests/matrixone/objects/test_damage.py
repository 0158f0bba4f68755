"""Any damage to an object's bytes gives rows or a typed error, quickly and in little memory."""

import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.types import ROWID
from tests.matrixone.objects.building import column_entry, json_bytes, object_file, varlena_entry
from tests.support.recorded import Snapshot
from tests.support.recordings_location import recordings_folder

pytestmark = pytest.mark.integration

_MEMORY_BYTES = 1 << 30  # of address space beyond what the process has after its imports
_SECONDS = 120
_FLIPS_AN_OBJECT, _CUTS_AN_OBJECT = 120, 60


def read_everything(data: bytes) -> bool:
    """Decode all that an object says it holds; whether it could be read. Any exception that is not ours escapes."""
    try:
        file = ObjectFile(data)
        file.check(deep=True)
        for block in file.blocks:
            file.commit_timestamps(block.number)
            if len(block.columns) and block.columns["oid"][0] == ROWID:
                file.rowids(block.number)
    except CcprError:
        return False
    return True


def flipped(data: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def many_types() -> bytes:
    """A small object of our own with each kind of column, not compressed, so that a flipped bit hits the structures
    themselves."""
    rows = 9
    texts = [
        b"short",
        None,
        b"a value that stands in the area",
        b"",
        b"x" * 23,
        b"y" * 24,
        b"z" * 60,
        b"12 bytes....",
        b"13 bytes.....",
    ]
    json = [json_bytes({"k": [1, {"n": None}], "s": "text " * 6})] * 8 + [None]
    columns = {
        oid: (oid, column_entry(oid, bytes(size * rows), rows))
        for oid, size in ((10, 1), (22, 4), (33, 16), (34, 32), (50, 4), (53, 8), (63, 16))
    }
    columns |= {oid: (oid, varlena_entry(oid, texts)) for oid in (61, 64)}
    columns |= {
        62: (62, varlena_entry(62, json)),
        66: (66, column_entry(66, b"\x01\x00" * rows, rows)),
        225: (225, varlena_entry(225, [bytes(32)] * rows)),
    }
    return object_file([(rows, columns)], compressed=False)


def small_objects(folder: Path) -> list[bytes]:
    """One recorded object of each size class: data and tombstones, appendable or not, all column types."""
    found = sorted(folder.glob("*/objects/*"), key=lambda path: path.stat().st_size)
    found = [path for path in found if path.stat().st_size < 200_000]
    chosen = found[:: max(1, len(found) // 8)]
    types = sorted((folder / "all_types" / "objects").glob("*"), key=lambda path: path.stat().st_size)
    return [path.read_bytes() for path in {*chosen, *types[:1], *types[len(types) // 2 : len(types) // 2 + 1]}]


def attack(objects: list[bytes], seed: int) -> tuple[int, int]:
    """How many damaged objects were read, and how many refused."""
    chance = random.Random(seed)
    outcomes = []
    for data in objects:
        outcomes += [read_everything(flipped(data, chance)) for _ in range(_FLIPS_AN_OBJECT)]
        outcomes += [read_everything(data[: chance.randrange(len(data))]) for _ in range(_CUTS_AN_OBJECT)]
    return sum(outcomes), len(outcomes) - sum(outcomes)


def main(seed: int) -> None:
    folder = recordings_folder()
    objects = [many_types()] * 4 + (small_objects(folder) if folder else [])
    assert all(map(read_everything, objects))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    start = time.monotonic()
    read, refused = attack(objects, seed)
    print(f"{read} read, {refused} refused in {time.monotonic() - start:.1f} s")
    assert refused > read / 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory limit is read from /proc")
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_objects_give_rows_or_typed_errors_in_bounded_memory(seed: int) -> None:
    command = [sys.executable, "-c", f"from tests.matrixone.objects.test_damage import main; main({seed})"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_object_cut_at_any_byte_is_refused() -> None:
    data = many_types()
    assert read_everything(data)
    for length in range(len(data)):
        assert not read_everything(data[:length])


def test_any_single_flipped_bit_of_the_structures_gives_rows_or_a_typed_error() -> None:
    data = bytearray(many_types())
    for at in range(0, len(data), 3):
        bit = 1 << at % 8
        data[at] ^= bit
        read_everything(bytes(data))
        data[at] ^= bit


@pytest.mark.recordings
def test_a_recorded_object_cut_anywhere_is_refused(recordings: Path) -> None:
    for data in small_objects(recordings)[:4]:
        for length in range(0, len(data), max(1, len(data) // 300)):
            assert not read_everything(data[:length])


@pytest.mark.recordings
def test_damage_on_the_way_through_a_table_is_a_typed_error(recordings: Path) -> None:
    """Visibility over damaged data objects and tombstones: rows or typed errors there, too."""
    chance = random.Random(3)
    folder = next(iter(sorted((recordings / "dml").glob("snapshot-*"))[-1:]), None) or next(
        recordings.glob("*/snapshot-*")
    )
    snapshot = Snapshot(folder)

    class Damaged(Snapshot):
        def open_object(self, name: str, sums: bytes | None = None) -> ObjectFile:
            return ObjectFile(flipped((self.folder.parent / "objects" / name).read_bytes(), chance), subject=name)

    outcomes = {True: 0, False: 0}
    for _ in range(60):
        try:
            Damaged(snapshot.folder).read(next(iter(snapshot.objects)))
            outcomes[True] += 1
        except CcprError:
            outcomes[False] += 1
    assert outcomes[False]
