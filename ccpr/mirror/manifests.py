"""Manifests: the live objects of one table at a point, and its definition.

The manifest of a table with many objects is a file with what came and went since an earlier one, and names the files
before it, its *parts*: so a point of a large table writes what changed, and not a list of all objects. Files are merged
as in a log-structured merge tree: each part has more than MERGED_BELOW times the rows of the next, so there are few,
and an object is written again few times. Source: docs/format/mirror.md, "Manifests"; decision manifests-have-parts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.stats import ObjectStats, are_appendable, stats_columns
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject
from ccpr.matrixone.schema import Table, integer_of
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.files import MirrorFiles, arrow_file
from ccpr.mirror.layout import (
    CHANGES_SCHEMA,
    CHANGES_SCHEMA_2,
    FORMAT,
    MANIFEST_SCHEMA,
    MANIFEST_SCHEMA_1,
    MANIFEST_SCHEMA_2,
    digest_in,
    manifest_path,
)
from ccpr.mirror.object_rows import are_of
from ccpr.mirror.points import TableRef, parts_of

LONGEST_WHOLE = 2_048  # objects; up to so many the manifest is one file, of 180 KB,
_LARGEST_WHOLE = 1 << 20  # unless the file has more bytes, most of them sums of large objects
MERGED_BELOW = 4
_MOST_PARTS = 64  # with these factors a table would need more objects than there are bytes on earth
Rows = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One table as of the point that wrote the manifest: its schema and its live objects (MANIFEST_SCHEMA)."""

    table: Table
    objects: pa.Table

    @property
    def data_objects(self) -> pa.Table:
        """Those that hold rows, and not the names of deleted ones."""
        return self.objects.filter(pc.invert(self.objects.column("is_tombstone")))

    def only(self, names: Sequence[str] | pa.Array) -> "Manifest":
        """The table with some of its data objects; tombstones stay."""
        stored = stats_columns(self.objects.column("stats").combine_chunks()).column("name")
        wanted = pc.is_in(stored, names if isinstance(names, pa.Array) else pa.array(names, pa.string()))
        return Manifest(self.table, self.objects.filter(pc.or_(self.objects.column("is_tombstone"), wanted)))

    def listed_objects(self) -> list[ListedObject]:
        """The objects as values for the reader. A loop over objects, not rows; the largest table has as many as it has
        files."""
        columns = (self.objects.column(name) for name in (*MANIFEST_SCHEMA_1.names, "sums"))
        return [
            ListedObject(
                ObjectStats.parse(stats.as_py()),
                Timestamp(physical.as_py(), logical.as_py()),
                None,
                tombstone.as_py(),
                sums.as_py(),
            )
            for stats, physical, logical, tombstone, sums in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Part:
    """An earlier file that a manifest goes on from, and the number of its rows."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a manifest.

    Attributes
    ----------
    rows : how many it has.
    added, removed : of these the objects that came and went (MANIFEST_SCHEMA); or those that were chosen.
    objects : how many the table has with all parts.
    parts : the files that it goes on from, oldest first.
    """

    table: Table
    rows: int
    added: pa.Table
    removed: pa.Table
    objects: int
    parts: tuple[_Part, ...] = ()


def read_manifest(files: MirrorFiles, path: str, choose: Rows | None = None) -> Manifest:
    """The manifest that ends with this file, or those of its objects that `choose` leaves of each batch.

    `choose` has to leave all rows of an object, or none. With it, memory is bounded by a batch and what was chosen.
    Raises MirrorDamaged, StoreFailed.
    """
    newest = _read(files, path, choose)
    added, removed = [newest.added], newest.removed
    for part in reversed(newest.parts):
        file = _read(files, part.path, choose)
        if file.rows != part.rows:
            text = f"it has {file.rows} rows, and {path} was written when it had {part.rows}"
            raise MirrorDamaged(text, subject=files.subject(part.path))
        added.append(_without(file.added, removed))
        removed = pa.concat_tables([file.removed, removed])
    objects = added[0] if len(added) == 1 else pa.concat_tables(added[::-1])
    if choose is None and objects.num_rows != newest.objects:
        text = f"its files have {objects.num_rows} objects, and it was written with {newest.objects}"
        raise MirrorDamaged(text, subject=files.subject(path))
    return Manifest(newest.table, objects)


def write_whole(files: MirrorFiles, table: Table, objects: pa.Table, lsn: int, fence: int) -> str:
    """A manifest of one file; its path. `objects` is MANIFEST_SCHEMA."""
    return _write(files, table, objects.cast(MANIFEST_SCHEMA), lsn, fence, {})


def write_changes(
    files: MirrorFiles, table: Table, before: TableRef, added: pa.Table, removed: pa.Table, lsn: int, fence: int
) -> tuple[str, tuple[str, ...]]:
    """The manifest of a table that had another before: its path and those of its parts.

    Parameters
    ----------
    added : MANIFEST_SCHEMA; objects that the manifest before does not have.
    removed : MANIFEST_SCHEMA; of those that it has.

    Raises MirrorDamaged, StoreFailed.
    """
    objects = before.objects + added.num_rows - removed.num_rows
    small = objects <= LONGEST_WHOLE and sum(files.store.size(path) or 0 for path in before.files) <= _LARGEST_WHOLE
    if small or digest_in(before.manifest) is None:
        kept = _without(read_manifest(files, before.manifest).objects, removed)
        return write_whole(files, table, pa.concat_tables([kept, added]), lsn, fence), ()
    read = cache(partial(_read, files))
    parts = [_Part(before.manifest, before.objects)]
    if before.parts:
        newest = read(before.manifest)
        parts = [*newest.parts, _Part(before.manifest, newest.rows)]
    while parts and parts[-1].rows <= MERGED_BELOW * (added.num_rows + removed.num_rows):
        added, removed = _merged(read(parts.pop().path), added, removed)
    if not parts:
        return write_whole(files, table, added, lsn, fence), ()
    flagged = [
        rows.append_column(CHANGES_SCHEMA.field("is_removed"), pa.repeat(flag, rows.num_rows))
        for rows, flag in ((added, False), (removed, True))
    ]
    about = {"objects": objects, "parts": [[part.path, part.rows] for part in parts]}
    path = _write(files, table, pa.concat_tables(flagged).cast(CHANGES_SCHEMA), lsn, fence, about)
    return path, tuple(part.path for part in parts)


def appendable_only(batch: pa.RecordBatch) -> pa.RecordBatch:
    """For `read_manifest`."""
    return batch.filter(are_appendable(batch.column("stats")))


def _merged(file: _File, added: pa.Table, removed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """A file and what came and went after it, as one: what both add, and what they remove from the files before. An
    object that the file has added and that went after it is in neither."""
    together = pa.concat_tables([_without(file.added, removed), added])
    return together, pa.concat_tables([file.removed, _without(removed, file.added)])


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(are_of(rows, others))) if rows.num_rows and others.num_rows else rows


def _divided(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What a file adds and what it removes, as MANIFEST_SCHEMA."""
    rows = rows.replace_schema_metadata(None)
    for place, field in enumerate(MANIFEST_SCHEMA):
        if field.name not in rows.column_names:  # of 0.1.0, or of a release without sums
            rows = rows.add_column(place, field, pa.nulls(rows.num_rows, field.type))
    if "is_removed" not in rows.column_names:
        return rows, MANIFEST_SCHEMA.empty_table()
    gone, rows = rows.column("is_removed"), rows.drop_columns(["is_removed"])
    return rows.filter(pc.invert(gone)), rows.filter(gone)


def _read(files: MirrorFiles, path: str, choose: Rows | None = None) -> _File:
    later = (MANIFEST_SCHEMA, CHANGES_SCHEMA, MANIFEST_SCHEMA_2, CHANGES_SCHEMA_2)
    schemas = (MANIFEST_SCHEMA_1,) if digest_in(path) is None else later  # 0.1.0 wrote it, and the table is as it was
    count = 0

    def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal count
        count += batch.num_rows
        return batch if choose is None else choose(batch)

    rows = files.read_arrow(path, *schemas, through=counted)
    with files.understood(path):
        about = json.loads((rows.schema.metadata or {})[b"ccpr"])
        table = Table.from_json(about["table"])
        if "is_removed" not in rows.column_names:
            return _File(table, count, *_divided(rows), count)
        return _File(table, count, *_divided(rows), integer_of(about["objects"]), _parts(path, table, about["parts"]))


def _parts(path: str, table: Table, value: Any) -> tuple[_Part, ...]:
    """Raises ValueError or TypeError unless they are other files of the same table."""
    found = tuple(_Part(name, integer_of(rows)) for name, rows in value)
    paths = set(parts_of(table.id, [part.path for part in found]))
    if not 0 < len(paths) == len(found) <= _MOST_PARTS or path in paths:
        raise ValueError("it has no parts, too many, or one twice")
    return found


def _write(files: MirrorFiles, table: Table, rows: pa.Table, lsn: int, fence: int, about: Mapping[str, object]) -> str:
    text = json.dumps({"format": FORMAT, "table": table.to_json(), **about}, ensure_ascii=False)
    return files.write(
        partial(manifest_path, table.id, lsn, fence), arrow_file(rows.replace_schema_metadata({b"ccpr": text}))
    )
