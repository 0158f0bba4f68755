"""Step 5 for the mirror: an object difference becomes manifests. Nothing names them until the commit
(docs/architecture.md, "One commit").
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats, are_appendable, stats_view
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import not_after
from ccpr.matrixone.schema import Table
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.object_rows import LISTED_SCHEMA, as_listed, as_manifest, named_in, not_named_in
from ccpr.mirror.points import TableRef
from ccpr.pipeline.findings import Findings, is_measured, with_findings
from ccpr.state.history import TablePoint


def known_objects(mirror: Mirror, point: TablePoint, listed: pa.Table | None = None) -> pa.Table:
    """The live objects of a table as its point has them (LISTED_SCHEMA): all, or those that a list of it names."""
    if point.ref is None:
        return LISTED_SCHEMA.empty_table()
    objects = mirror.manifest(point.ref).objects
    return as_listed(point.table.id, objects if listed is None else named_in(objects, listed))


def holds_later_rows(mirror: Mirror, ref: TableRef, last: Timestamp, now: Timestamp) -> bool:
    """Does a live appendable object of the table hold rows committed in (last, now]? No list shows them: the time
    alone makes them visible (docs/format/object-file.md 9.2). Reads the commit times of appendable objects; of these a
    table has few. Raises MirrorDamaged, ObjectDamaged.
    """
    with files_of(ref.qualified_name):
        appendable = mirror.manifest(ref).appendable.listed_objects()
        return any(may_have_commits(mirror, listed.stats, last, now) for listed in appendable)


def live_objects(mirror: Mirror, before: TablePoint | None, added: pa.Table, removed: pa.Table) -> pa.Table:
    """Step 4: the objects that make one table at the snapshot (MANIFEST_SCHEMA).

    Parameters
    ----------
    before : None for a table whose added objects are all that it has.
    added, removed : of this table since then (LISTED_SCHEMA, the added ones with CHECKSUM of `object_rows`).

    Raises MirrorDamaged.
    """
    new = as_manifest(added)
    if before is None or before.ref is None:
        return new
    kept = mirror.manifest(before.ref).objects.replace_schema_metadata(None)
    return pa.concat_tables([not_named_in(kept, removed), new])


def with_found(
    mirror: Mirror,
    table: Table,
    before: TablePoint | None,
    added: pa.Table,
    removed: pa.Table,
    objects: pa.Table,
    found: Mapping[str, str | None],
) -> Table:
    """The table with what its files say of its columns (`ccpr.matrixone.schema.Column`): how many digits decimals have,
    and which columns have a form that is not known.

    MatrixOne stores 100.00 in a decimal(4,2), so a column is as wide at a point as what is stored. It does not get
    narrower while the table keeps its id: who reads one point after the other would see the type come and go.

    Parameters
    ----------
    added, removed, objects : the objects that came and went since `before` (LISTED_SCHEMA), and all (MANIFEST_SCHEMA).
        All of them count where `before` was not measured by this release.
    found : JSON of `Findings` by object name, where the copying looked. Other objects are opened.
    """
    known = {} if before is None else {column.seqnum: column for column in before.table.columns}
    had_unread = any(column.unread for column in known.values())
    whole = before is None or before.ref is None or not is_measured(before.table)
    if before is not None and whole:
        known = {seqnum: replace(column, unread=None) for seqnum, column in known.items()}
        added = objects
    with files_of(table.qualified_name):
        files = (_found_in(mirror, stats, found, inflate=had_unread) for stats in _data_objects(added))
        gone = (_found_in(mirror, stats, {}, inflate=False) for stats in _data_objects(removed))
        return with_findings(table, known, files, removed=gone, whole=whole)


def _data_objects(rows: pa.Table) -> list[ObjectStats]:
    cells = rows.filter(pc.invert(rows.column("is_tombstone"))).column("stats").to_pylist()
    return [ObjectStats.parse(cell) for cell in cells]


def _found_in(mirror: Mirror, stats: ObjectStats, found: Mapping[str, str | None], *, inflate: bool) -> Findings:
    if stats.name in found:
        return Findings.from_text(found[stats.name])
    return Findings.of(mirror.store.open(object_path(stats.name)), stats, inflate=inflate)


def write_table(mirror: Mirror, lsn: int, fence: int, table: Table, objects: pa.Table) -> TablePoint:
    """Step 5: write the manifest of a table that changed; the point to commit. `objects` has the columns of
    MANIFEST_SCHEMA."""
    name = mirror.write_manifest(table, as_manifest(objects), lsn, fence)
    rows, size, appendable = _totals(objects)
    ref = TableRef(table.id, table.database, table.name, table.kind, lsn, name, objects.num_rows, rows, size)
    mirror.store.sync(name.rpartition("/")[0])
    return TablePoint(table, ref, lsn, appendable)


def may_have_commits(mirror: Mirror, stats: ObjectStats, last: Timestamp, now: Timestamp) -> bool:
    """What cannot be read may have them: to a release that can, a point that was skipped would lack rows."""
    try:
        return _commits_between(mirror.open_object(stats.name), last, now)
    except ObjectUnsupported:
        return True


def _commits_between(file: ObjectFile, last: Timestamp, now: Timestamp) -> bool:
    times = (file.commit_timestamps(block.number) for block in file.blocks)
    return any(t is not None and bool(np.any(not_after(t, now) & ~not_after(t, last))) for t in times)


def _totals(objects: pa.Table) -> tuple[int, int, int]:
    """Rows of the data objects, bytes of all, and how many are appendable."""
    rows = size = appendable = 0
    for batch in objects.select(["stats", "is_tombstone"]).to_batches():
        facts = stats_view(batch.column("stats"))
        is_data = ~batch.column("is_tombstone").to_numpy(zero_copy_only=False)
        rows += int(facts["rows"].sum(dtype=np.int64, where=is_data))
        size += int(facts["size"].sum(dtype=np.int64))
        appendable += pc.sum(are_appendable(batch.column("stats"))).as_py() or 0
    return rows, size, appendable
