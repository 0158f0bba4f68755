"""Step 5 for the mirror: an object difference becomes manifests. Nothing names them until the commit
(docs/architecture.md, "One commit").
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matrixone.objects.reader import ObjectFile
from matrixone.objects.stats import ObjectStats
from matrixone.objects.timestamp import Timestamp
from matrixone.objects.types import DECIMAL64, DECIMAL128
from matrixone.objects.visibility import not_after
from matrixone.schema import Column, Table
from replication.mirror.mirror import Mirror, files_of
from replication.mirror.object_rows import (
    CHECKSUM,
    LISTED_SCHEMA,
    ObjectDiff,
    as_listed,
    as_manifest,
    rows_of,
    without_objects,
)
from replication.mirror.points import TableRef
from replication.state.history import TablePoint


def known_objects(mirror: Mirror, points: Iterable[TablePoint]) -> pa.Table:
    """The live objects of some tables as the last point has them (LISTED_SCHEMA): reads the manifests of these tables
    only."""
    parts = [as_listed(point.table.id, mirror.manifest(point.ref).objects) for point in points if point.ref is not None]
    return pa.concat_tables(parts) if parts else LISTED_SCHEMA.empty_table()


def holds_later_rows(mirror: Mirror, point: TablePoint, last: Timestamp, now: Timestamp) -> bool:
    """Does a live appendable object of the table hold rows committed in (last, now]? No list shows them: the time
    alone makes them visible (docs/format/object-file.md 9.2). Reads the commit times of appendable objects, of which a
    table has few. Raises MirrorDamaged, ObjectDamaged.
    """
    if point.ref is None or not point.appendable:
        return False
    with files_of(point.ref.qualified_name):
        appendable = (listed.stats for listed in mirror.manifest(point.ref).listed_objects() if listed.stats.appendable)
        return any(_commits_between(mirror.open_object(stats.name), last, now) for stats in appendable)


def live_objects(mirror: Mirror, before: TablePoint | None, table_id: int, diff: ObjectDiff) -> pa.Table:
    """Step 4: the objects that make one table at the snapshot, with their checksums (LISTED_SCHEMA and CHECKSUM, as
    the added ones). `before` is None for a table whose added objects are all that it has. Raises MirrorDamaged.
    """
    added = rows_of(diff.added, [table_id])
    if before is None or before.ref is None:
        return added
    manifest = mirror.manifest(before.ref).objects
    kept = as_listed(table_id, manifest).append_column(CHECKSUM, manifest.column(CHECKSUM.name))
    return pa.concat_tables([without_objects(kept, rows_of(diff.removed, [table_id])), added])


def with_digits(mirror: Mirror, table: Table, before: TablePoint | None, added: pa.Table, objects: pa.Table) -> Table:
    """The table, its decimal columns with as many digits as their values in the files (`matrixone.schema.Column`).

    MatrixOne stores 100.00 in a decimal(4,2), so a column is as wide at a point as what is stored. It does not get
    narrower while the table keeps its id: who reads one point after the other would see the type come and go. Only
    metadata is decoded: of the objects that came since `before` (LISTED_SCHEMA), or of all where the digits are not
    known, as in what releases before 0.2 wrote.
    """
    known = {} if before is None else {column.seqnum: column.digits for column in before.table.columns}
    decimals = _decimals(table)
    if not decimals:
        return table
    digits = {column.seqnum: known.get(column.seqnum, 0) for column in decimals}
    rows = added if all(digits.values()) else objects
    digits = {seqnum: max(1, found) for seqnum, found in digits.items()}
    with files_of(table.qualified_name):
        for stats in rows.filter(pc.invert(rows.column("is_tombstone"))).column("stats").to_pylist():
            file = mirror.open_object(ObjectStats.parse(stats).name)
            for column in decimals:
                digits[column.seqnum] = max(digits[column.seqnum], file.digits(column))
    return replace(table, columns=tuple(replace(one, digits=digits.get(one.seqnum, 0)) for one in table.columns))


def lacks_digits(point: TablePoint) -> bool:
    """Whether a table point was made without `with_digits`, by a release before 0.2, though it has decimals."""
    return point.ref is not None and any(column.digits == 0 for column in _decimals(point.table))


def _decimals(table: Table) -> list[Column]:
    return [column for column in table.columns if column.type.oid in (DECIMAL64, DECIMAL128)]


def write_table(mirror: Mirror, lsn: int, fence: int, table: Table, objects: pa.Table) -> TablePoint:
    """Step 5: write the manifest of a table that changed; the point to commit."""
    name = mirror.write_manifest(table, as_manifest(objects), lsn, fence)
    numbers = (
        objects.num_rows,
        _total(objects.filter(pc.invert(objects.column("is_tombstone"))), "rows"),
        _total(objects, "size"),
    )
    ref = TableRef(table.id, table.database, table.name, table.kind, lsn, name, *numbers)
    mirror.store.sync(name.rpartition("/")[0])
    return TablePoint(table, ref, lsn, _total(objects, "appendable"))


def _commits_between(file: ObjectFile, last: Timestamp, now: Timestamp) -> bool:
    times = (file.commit_timestamps(block.number) for block in file.blocks)
    return any(t is not None and bool(np.any(not_after(t, now) & ~not_after(t, last))) for t in times)


def _total(objects: pa.Table, column: str) -> int:
    return pc.sum(objects.column(column)).as_py() or 0
