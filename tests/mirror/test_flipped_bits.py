"""Each bit of each file that vouches for rows, flipped by itself, is found when the file is read."""

from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.layout import HEAD, IDENTITY, LEDGER_SCHEMA, MANIFEST_SCHEMA, Identity
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import LaggingTable, Point, TableRef
from tests.hostile.targets.mirror_files import MemoryStore, mirror_of
from tests.support.publishing import publish
from tests.support.values import a_table

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TABLE = a_table()
SUM = bytes(range(32))


def written() -> tuple[MemoryStore, TableRef, str]:
    """Files of two points, the table of the second, and the path of the ledger."""
    store = MemoryStore()
    mirror = mirror_of(store)
    rows = [[bytes(range(154))], [7], [0], [False], [SUM], [SUM]]
    columns = [pa.array(values, field.type) for values, field in zip(rows, MANIFEST_SCHEMA, strict=True)]
    manifest = mirror.write_manifest(TABLE, pa.Table.from_arrays(columns, schema=MANIFEST_SCHEMA), 0, 1)
    ref = TableRef(TABLE.id, TABLE.database, TABLE.name, TABLE.kind, 0, manifest, 1, 1, 1)
    ledger = mirror.write_ledger(pa.table([["a"], [7], [SUM]], schema=LEDGER_SCHEMA), 0, 1)
    point = Point(0, Timestamp(10**18), "xr_1", NOW, ledger, {TABLE.id: ref})
    publish(mirror, point)
    publish(mirror, Point(1, Timestamp(10**18 + 1), "xr_2", NOW, "", {TABLE.id: ref}, {9: LaggingTable("d", "u", 0)}))
    mirror.write_identity(Identity("4f2c", "shop", "0a1b2c3d"))
    return store, ref, ledger


STORE, REF, LEDGER = written()
FIRST, SECOND = sorted(name for name in STORE.files if name.startswith("points/"))
READS: dict[str, Callable[[Mirror], object]] = {
    HEAD: lambda mirror: mirror.point(),
    IDENTITY: Mirror.identity,
    FIRST: lambda mirror: mirror.point(0),
    SECOND: lambda mirror: mirror.point(1),
    REF.manifest: lambda mirror: mirror.manifest(REF),
    LEDGER: lambda mirror: mirror.files.read_arrow(LEDGER, LEDGER_SCHEMA),
}


def test_no_file_is_left_out() -> None:
    assert set(READS) == set(STORE.files)


@pytest.mark.parametrize("name", READS)
def test_every_flipped_bit_is_found(name: str) -> None:
    content = STORE.files[name]
    READS[name](mirror_of(STORE))
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MirrorDamaged):
            READS[name](mirror_of(MemoryStore({**STORE.files, name: bytes(flipped)})))
