"""Step 5 for the mirror: an object difference becomes manifests. Nothing names them until the commit
(docs/architecture.md, "One commit").
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import not_after
from ccpr.matrixone.schema import Table
from ccpr.mirror.layout import object_path
from ccpr.mirror.manifests import appendable_only
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.object_rows import CHECKSUMS, LISTED_SCHEMA, as_listed, as_manifest, named_in, without_objects
from ccpr.mirror.points import TableRef
from ccpr.pipeline.findings import Findings, is_measured, with_findings
from ccpr.state.point_rows import TablePoint


def known_objects(mirror: Mirror, point: TablePoint, listed: pa.Table | None = None) -> pa.Table:
    """The live objects of a table as its point has them (LISTED_SCHEMA): all, or those that a list of it names."""
    if point.ref is None:
        return LISTED_SCHEMA.empty_table()
    choose = None if listed is None else named_in(listed)
    return as_listed(point.table.id, mirror.manifest(point.ref, choose).objects)


def holds_later_rows(mirror: Mirror, ref: TableRef, last: Timestamp, now: Timestamp) -> bool:
    """Does a live appendable object of the table hold rows committed in (last, now]? No list shows them: the time
    alone makes them visible (docs/format/object-file.md 9.2). Reads the commit times of appendable objects; of these a
    table has few. Raises MirrorDamaged, ObjectDamaged.
    """
    with files_of(ref.qualified_name):
        appendable = mirror.manifest(ref, appendable_only).listed_objects()
        return any(may_have_commits(mirror, listed.stats.name, listed.sums, last, now) for listed in appendable)


def with_found(
    mirror: Mirror,
    table: Table,
    before: TablePoint | None,
    added: pa.Table,
    removed: pa.Table,
    found: Mapping[str, str | None],
) -> Table:
    """The table with what its files say of its columns (`ccpr.matrixone.schema.Column`): how many digits decimals have,
    and which columns have a form that is not known.

    MatrixOne stores 100.00 in a decimal(4,2), so a column is as wide at a point as what is stored. It does not get
    narrower while the table keeps its id: who reads one point after the other would see the type come and go.

    Parameters
    ----------
    added, removed : the objects that came and went since `before` (LISTED_SCHEMA). All that the table has count where
        `before` was not measured by this release.
    found : JSON of `Findings` by object name, where the copying looked. Other objects are opened.
    """
    known = {} if before is None else {column.seqnum: column for column in before.table.columns}
    had_unread = any(column.unread for column in known.values())
    whole = before is None or before.ref is None or not is_measured(before.table)
    if before is not None and whole:
        known = {seqnum: replace(column, unread=None) for seqnum, column in known.items()}
        kept = without_objects(known_objects(mirror, before), removed)
        added = pa.concat_tables([kept, added.select(LISTED_SCHEMA.names)])
    with files_of(table.qualified_name):
        sums = cache(
            partial(_sums, mirror, before, pa.concat_tables([added.select(["stats"]), removed.select(["stats"])]))
        )
        files = (_found_in(mirror, stats, found, sums, inflate=had_unread) for stats in _data_objects(added))
        gone = (_found_in(mirror, stats, {}, sums, inflate=False) for stats in _data_objects(removed))
        return with_findings(table, known, files, removed=gone, whole=whole)


def _data_objects(rows: pa.Table) -> list[ObjectStats]:
    cells = rows.filter(pc.invert(rows.column("is_tombstone"))).column("stats").to_pylist()
    return [ObjectStats.parse(cell) for cell in cells]


def _sums(mirror: Mirror, before: TablePoint | None, listed: pa.Table) -> Mapping[str, bytes | None]:
    """Those that the point has of the objects that a list names."""
    if before is None or before.ref is None:
        return {}
    objects = mirror.manifest(before.ref, named_in(listed)).listed_objects()
    return {one.stats.name: one.sums for one in objects}


def _found_in(
    mirror: Mirror,
    stats: ObjectStats,
    found: Mapping[str, str | None],
    sums: Callable[[], Mapping[str, bytes | None]],
    *,
    inflate: bool,
) -> Findings:
    if stats.name in found:
        return Findings.from_text(found[stats.name])
    return Findings.of(mirror.store.open(object_path(stats.name)), stats, inflate=inflate, sums=sums().get(stats.name))


def write_table(
    mirror: Mirror, lsn: int, fence: int, table: Table, before: TablePoint | None, added: pa.Table, removed: pa.Table
) -> TablePoint:
    """Steps 4 and 5: write the manifest of a table that changed; the point to commit.

    Parameters
    ----------
    before : None for a table whose added objects are all that it has.
    added, removed : of this table since then (LISTED_SCHEMA, the added ones with CHECKSUMS of `object_rows`).

    Raises MirrorDamaged.
    """
    came, went = _totals(added), _totals(removed)
    if before is None or before.ref is None:
        name, parts = mirror.write_manifest(table, as_manifest(added), lsn, fence), ()
        then = (0, 0, 0, 0)
    else:
        for field in CHECKSUMS:
            removed = removed.append_column(field, pa.nulls(removed.num_rows, field.type))
        gone = as_manifest(removed)
        name, parts = mirror.write_changes(table, before.ref, as_manifest(added), gone, lsn, fence)
        then = (before.ref.objects, before.ref.rows, before.ref.bytes, before.appendable)
    *totals, appendable = (a + b - c for a, b, c in zip(then, came, went, strict=True))
    ref = TableRef(table.id, table.database, table.name, table.kind, lsn, name, *totals, parts=parts)
    mirror.store.sync(name.rpartition("/")[0])
    return TablePoint(table, ref, lsn, appendable)


def may_have_commits(mirror: Mirror, name: str, sums: bytes | None, last: Timestamp, now: Timestamp) -> bool:
    """What cannot be read may have them: to a release that can, a point that was skipped would lack rows."""
    try:
        return _commits_between(mirror.open_object(name, sums), last, now)
    except ObjectUnsupported:
        return True


def _commits_between(file: ObjectFile, last: Timestamp, now: Timestamp) -> bool:
    times = (file.commit_timestamps(block.number) for block in file.blocks)
    return any(t is not None and bool(np.any(not_after(t, now) & ~not_after(t, last))) for t in times)


def _totals(listed: pa.Table) -> tuple[int, int, int, int]:
    """The number of objects (LISTED_SCHEMA), rows of those with data, bytes of all, how many are appendable."""
    data = listed.filter(pc.invert(listed.column("is_tombstone")))
    sums = (data.column("rows"), listed.column("size"), listed.column("appendable"))
    rows, size, appendable = (pc.sum(column).as_py() or 0 for column in sums)
    return listed.num_rows, rows, size, appendable
