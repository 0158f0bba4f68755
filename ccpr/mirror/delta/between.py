"""The changes of a table that is named by its name, between two points of a mirror, whatever was done to the table in
between.

A table is the same at two points if it has the same id there, or the same logical id: a TRUNCATE and an ALTER that
copies give it another id, a RENAME another name. Where neither is found, the table that had the name is taken for its
predecessor. Source: decisions identity-by-id, seqnum-while-id-stays.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ccpr.base.wording import meant
from ccpr.matrixone.objects.identifiers import rowid_order
from ccpr.matrixone.objects.types import arrow_type
from ccpr.matrixone.objects.visibility import tombstones_of
from ccpr.matrixone.schema import Column, Kind, names_keep_meaning
from ccpr.mirror.delta.delta import SPLIT_ROWS, Delta, TableAt, in_shares, table_delta
from ccpr.mirror.delta.row_keys import comparable
from ccpr.mirror.delta.split import DeltaPart, DeltaShape, DeltaSplit
from ccpr.mirror.errors import KeyChanged, PointNotReached, TableMissingInMirror
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.points import Point, TableRef


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What leads the rows of a table from one point to another.

    Attributes
    ----------
    before, after : the table at the two points; None where it is not there.
    delta : the changes. All rows are upserts if the table is new or was replaced, and deletes if it is gone.
    replaced : of a table that was replaced by one with another id, or in which a name means another column, all rows
        as deletes. Keys that the new table has as well are not to be deleted.
    """

    before: TableAt | None
    after: TableAt | None
    delta: Delta
    replaced: Delta | None = None

    @property
    def shape(self) -> DeltaShape:
        return self.delta.shape

    def parts(self) -> Iterator[DeltaPart]:
        """The changes, computed here. A key is in one part only, and there either an upsert or a delete.

        Of a replaced table the keys of both points are held in memory. Raises what `run_split` raises.
        """
        if self.replaced is None:
            yield from self.delta.parts()
            return
        names = self.shape.delete_schema.names
        present = [self.shape.delete_schema.empty_table()]
        for part in self.delta.parts():
            present.append(part.upserts.select(names))
            yield part
        former = [part.deletes.select(names) for part in self.replaced.parts()]
        if former:
            lost = _without(pa.concat_tables(former), pa.concat_tables(present))
            if lost.num_rows:
                yield DeltaPart(self.shape.upsert_schema.empty_table(), lost.cast(self.shape.delete_schema))


def changes_between(
    mirror: Mirror, name: str, former: Point | None, later: Point, *, split_rows: int = SPLIT_ROWS
) -> TableChanges:
    """What leads the table `db.t` from one point to another. The name is the one at the later point, or, if no table
    has it there, the one at the former.

    Parameters
    ----------
    former : None = the time before the first point: all rows are upserts.

    Raises
    ------
    TableMissingInMirror
        Neither point shows a table of this name.
    PointNotReached
        The table lags at one of the points.
    KeyChanged
        The table was replaced by one with another key.
    TableWithoutKey, DdlUnreadable, MirrorDamaged, ObjectDamaged, ObjectMismatch
        As `table_delta`.
    """
    before, after = _both(mirror, name, former, later)
    if after is None and before is not None:
        return TableChanges(before, None, removal_delta(mirror, before, split_rows=split_rows))
    if after is None:
        remedy = meant(name, later.names(), "tables")
        subject = f"table {name} up to point {later.lsn}"
        raise TableMissingInMirror("no such table at either point", subject=subject, remedy=remedy)
    if before is None or (before.ref.table_id == after.ref.table_id and _names_stay(mirror, before, after)):
        return TableChanges(before, after, table_delta(mirror, before, after, split_rows=split_rows))
    delta = table_delta(mirror, None, after, split_rows=split_rows)
    replaced = removal_delta(mirror, before, split_rows=split_rows)
    _check_key(replaced.shape, delta.shape)
    return TableChanges(before, after, delta, replaced)


def removal_delta(mirror: Mirror, table: TableAt, *, split_rows: int = SPLIT_ROWS) -> Delta:
    """All rows of a table at a point as deletes: what leads to a point at which the table is gone.

    `split_rows` is about how many rows a split looks at. Raises TableWithoutKey, DdlUnreadable, MirrorDamaged.
    """
    with files_of(table.ref.qualified_name):
        manifest = mirror.manifest(table.ref)
        shape = DeltaShape.of(manifest.table)
        listed = manifest.listed_objects()
        tombstones = [one for one in listed if one.tombstone]
        # Rows of one point have each key once, so objects can be shared out by any rule; in this order few tombstone
        # objects concern a share.
        data = sorted((one for one in listed if not one.tombstone), key=lambda one: rowid_order(one.stats.object_id))
        splits = [
            DeltaSplit(
                shape,
                table.at,
                table.at,
                removed=tuple(share),
                tombstones_before=tuple(tombstones_of(tombstones, [one.stats.object_id for one in share])),
            )
            for share in in_shares(data, lambda one: one.stats.rows, split_rows)
        ]
        return Delta(mirror, manifest.table, shape, splits)


def _names_stay(mirror: Mirror, before: TableAt, after: TableAt) -> bool:
    """Whether rows before and after can be compared by the names of columns."""
    then, now = (mirror.manifest(one.ref, lambda objects: objects.slice(0, 0)).table for one in (before, after))
    return names_keep_meaning(*({one.name: _meaning(one) for one in table.user_columns} for table in (then, now)))


def _meaning(column: Column) -> tuple[int, tuple[pa.DataType, tuple[str, ...]]]:
    """Not of how many digits values were found: a longer one is a new value of the same column."""
    return column.seqnum, (arrow_type(replace(column, digits=0)), column.labels)


def _check_key(former: DeltaShape, later: DeltaShape) -> None:
    """Raises KeyChanged unless both have a key of the same columns, by name and type."""
    old, new = ({column.name: arrow_type(column) for column in shape.key.columns} for shape in (former, later))
    if old != new:
        shown = [", ".join(f"{name} {kind}" for name, kind in key.items()) for key in (old, new)]
        message = f"it was replaced by a table with another key: {shown[0]} before, {shown[1]} after"
        raise KeyChanged(message, subject=f"table {later.table}")


# ---- the table at both points


def _both(mirror: Mirror, name: str, former: Point | None, later: Point) -> tuple[TableAt | None, TableAt | None]:
    after = _named(later, name)
    if former is None:
        return None, after and TableAt(after, later.at)
    if after is not None:
        _check_shown(former, after)
        before = former.tables.get(after.table_id) or _same_table(mirror, former, later, after) or _named(former, name)
    else:
        before = _named(former, name)
        if before is not None:
            _check_shown(later, before)
            after = later.tables.get(before.table_id) or _same_table(mirror, later, former, before)
    return before and TableAt(before, former.at), after and TableAt(after, later.at)


def _named(point: Point, name: str) -> TableRef | None:
    """The table of a name; None if the point has none. Raises PointNotReached for one that lags, TableMissingInMirror
    where two are written the same way."""
    return point.table(name) if point.knows(name) else None


def _check_shown(point: Point, table: TableRef) -> None:
    """Raises PointNotReached if a table lags at a point, under whatever name."""
    late = point.behind.get(table.table_id)
    if late is not None and table.table_id not in point.tables:
        where = "has no point yet" if late.lsn is None else f"is shown at point {late.lsn} last"
        remedy = "Take another point: Point.lagging and `ccpr points NAME` say which tables lag at which."
        message = f"the table lags and {where}"
        raise PointNotReached(message, subject=f"table {late.qualified_name} at point {point.lsn}", remedy=remedy)


def _same_table(mirror: Mirror, point: Point, other: Point, table: TableRef) -> TableRef | None:
    """The table of the same logical id among those of a point that the other point does not show by their id."""
    candidates = [ref for ref in point.tables.values() if ref.table_id not in other.tables and ref.kind is table.kind]
    if table.kind is not Kind.TABLE or not candidates:
        return None
    logical_id = mirror.manifest(table).table.logical_id
    return next((ref for ref in candidates if mirror.manifest(ref).table.logical_id == logical_id), None)


def _without(keys: pa.Table, others: pa.Table) -> pa.Table:
    """The rows of `keys` that the others do not have."""
    names = keys.column_names
    ours, theirs = (_joinable(table) for table in (keys, others))
    numbered = ours.append_column("__row", pa.array(np.arange(keys.num_rows)))
    rows = numbered.join(theirs, names, join_type="left anti").column("__row").combine_chunks()
    return keys.take(rows.sort())


def _joinable(keys: pa.Table) -> pa.Table:
    """Columns that a join compares as we do."""
    columns = [comparable(column.combine_chunks()) for column in keys.columns]
    return pa.table(columns, names=keys.column_names)
