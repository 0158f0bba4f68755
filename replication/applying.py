"""Step 5 for the mirror: an object difference becomes manifests. Nothing names them until the commit (architecture, "One commit")."""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matrixone.objects.reader import ObjectFile
from matrixone.objects.timestamp import Timestamp
from matrixone.schema import Table
from replication.catalog_diff import ChangeKind, TableChange
from replication.mirror import Mirror, TableRef, manifest_path
from replication.object_diff import LISTED_SCHEMA, ObjectDiff, as_listed, as_manifest
from replication.points import TablePoint


def known_objects(mirror: Mirror, points: Iterable[TablePoint]) -> pa.Table:
    """The live objects of some tables as the last point has them (LISTED_SCHEMA): reads the manifests of these tables only."""
    parts = [as_listed(point.table.id, mirror.manifest(point.ref).objects) for point in points if point.ref is not None]
    return pa.concat_tables(parts) if parts else LISTED_SCHEMA.empty_table()


def holds_later_rows(mirror: Mirror, points: Iterable[TablePoint], last: Timestamp, now: Timestamp) -> bool:
    """Does a live appendable object hold rows committed in (last, now]? No list shows them: the time alone makes them visible
    (object-format.md 9.2). Reads the commit times of appendable objects, of which a table has few.
    """
    for point in points:
        if point.ref is not None and point.appendable:
            for listed in mirror.manifest(point.ref).listed_objects():
                if listed.stats.appendable and _commits_between(mirror.open_object(listed.stats.name), last, now):
                    return True
    return False


def apply_to_mirror(
    mirror: Mirror,
    lsn: int,
    fence: int,
    tables: Mapping[int, Table],
    before: Mapping[int, TablePoint],
    changes: Iterable[TableChange],
    diff: ObjectDiff,
) -> list[TablePoint]:
    """Write the manifest of each changed table; the points to commit, those of tables that went included.

    Parameters
    ----------
    tables : the tables at the snapshot that the mirror records, by id.
    before : the tables of the last point, by id.
    """
    changed = diff.table_ids | {change.table.id for change in changes if change.kind is not ChangeKind.DROPPED}
    points = []
    for table_id in sorted(changed):
        objects = _live_objects(mirror, before.get(table_id), table_id, diff)
        name = manifest_path(table_id, lsn, fence)
        table = tables[table_id]
        mirror.write_manifest(table, as_manifest(objects), name)
        numbers = (objects.num_rows, _total(objects.filter(pc.invert(objects.column("is_tombstone"))), "rows"), _total(objects, "size"))
        ref = TableRef(table_id, table.database, table.name, table.kind, lsn, name, *numbers)
        points.append(TablePoint(table, ref, lsn, _total(objects, "appendable")))
        mirror.store.sync(name.rpartition("/")[0])
    gone = [table_id for table_id in before if table_id not in tables]
    return points + [TablePoint(before[table_id].table, None, lsn) for table_id in sorted(gone)]


def _commits_between(file: ObjectFile, last: Timestamp, now: Timestamp) -> bool:
    times = [file.commit_timestamps(block.number) for block in file.blocks]
    return any(t is not None and bool(np.any((t["physical"] > last.physical) & (t["physical"] <= now.physical))) for t in times)


def _live_objects(mirror: Mirror, before: TablePoint | None, table_id: int, diff: ObjectDiff) -> pa.Table:
    added = diff.added.filter(pc.equal(diff.added.column("table_id"), table_id))
    if before is None or before.ref is None:
        return added
    removed = diff.removed.filter(pc.equal(diff.removed.column("table_id"), table_id))
    kept = as_listed(table_id, mirror.manifest(before.ref).objects)
    kept = kept.filter(pc.invert(pc.is_in(kept.column("name"), removed.column("name").combine_chunks())))
    return pa.concat_tables([kept, added])


def _total(objects: pa.Table, column: str) -> int:
    return pc.sum(objects.column(column)).as_py() or 0
