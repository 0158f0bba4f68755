"""A mirror as iterations over a recording would leave it: point n shows snapshot n."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from ccpr.mirror.layout import MANIFEST_SCHEMA_1
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point, TableRef
from tests.support.publishing import publish, write_manifest
from tests.support.recorded import Snapshot


def mirror_of_recording(recording: Path, root: Path) -> Mirror:
    """The mirror below `root`; its folder of objects is a link into the recording."""
    root.mkdir(parents=True)
    (root / "objects").symlink_to(recording / "objects")
    mirror = Mirror(LocalStore(root))
    for lsn, folder in enumerate(sorted(recording.glob("snapshot-*")), start=1):
        snapshot = Snapshot(folder)
        tables = {ref.table_id: ref for ref in (_write(mirror, snapshot, name, lsn) for name in snapshot.tables)}
        point = Point(lsn, snapshot.at, f"xr_test_{lsn}_0", datetime.now(UTC), "", tables)
        publish(mirror, point)
    return mirror


def database_of_recording(recording: Path) -> str:
    return json.loads((recording / "about.json").read_text())["database"]


def _write(mirror: Mirror, snapshot: Snapshot, name: str, lsn: int) -> TableRef:
    table = snapshot.tables[name]
    live = [listed for listed in snapshot.objects.get(name, []) if listed.deleted is None]
    values = [
        [listed.stats.raw for listed in live],
        [listed.created.physical for listed in live],
        [listed.created.logical for listed in live],
        [listed.tombstone for listed in live],
    ]
    columns = [pa.array(value, field.type) for value, field in zip(values, MANIFEST_SCHEMA_1, strict=True)]
    manifest = write_manifest(mirror, table, pa.Table.from_arrays(columns, schema=MANIFEST_SCHEMA_1), lsn)
    rows, size = sum(listed.stats.rows for listed in live), sum(listed.stats.size for listed in live)
    return TableRef(table.id, table.database, table.name, table.kind, lsn, manifest, len(live), rows, size)
