"""What has changed in a table between two points: rows to write and keys to delete."""

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from ccpr.api.values import At, plain_at
from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.as_asked import check_counted_keys
from ccpr.mirror.errors import BadOption
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.table_read import point_at

if TYPE_CHECKING:
    from ccpr.mirror.delta.between import TableChanges
    from ccpr.mirror.delta.split import DeltaPart


FIELD_ID = b"PARQUET:field_id"  # as Arrow calls it, and writes it to Parquet


class Changes:
    """The row delta of a table; made by `Table.changes`.

    A key is in one row only, either an upsert or a delete, so that the order in which they are applied does not matter.
    Rows that are the same at both points are not in it, whatever became of their files, unless the table was replaced.

    Attributes
    ----------
    table : `database.table`, as the table is called at `until`, or was last.
    since, until : lsns of the two points; `since` is None if there is none. `until` is what the next call takes as
        `since`.
    before, after : what the table is called at `since` and at `until`; None where it is not there.
    replaced : whether it has another id at `until`, since it was truncated, rewritten by an ALTER, or dropped and
        created again, or a name that it has means another column than at `since`. Then all its rows are upserts.
    key : the columns that name a row: those of the primary key, or the server's own `__mo_fake_pk_col` of a table
        without one.
    schema : of `to_batches` and `to_arrow`: `__ccpr_kind` and the columns of `upserts`, each with the upstream's number
        of it as `PARQUET:field_id` in its metadata. A column that is renamed in place keeps it.
    """

    def __init__(
        self,
        changes: "TableChanges",
        since: int | None,
        until: int,
        reading: Reading = DEFAULT_READING,
    ) -> None:
        before, after = changes.before, changes.after
        shape = changes.shape
        self._changes, self._reading = changes, reading
        self.table = shape.table
        self.since, self.until = since, until
        self.before = before and before.ref.qualified_name
        self.after = after and after.ref.qualified_name
        self.replaced = changes.replaced is not None
        self.key = tuple(column.name for column in shape.key.columns)

    def __repr__(self) -> str:
        return f"<ccpr.Changes of {self.table} from {self.since} to {self.until}>"

    @cached_property
    def schema(self) -> pa.Schema:
        from ccpr.mirror.delta.change_rows import change_schema

        kind, *fields = change_schema(self._changes.shape, self._reading)
        numbers = (str(column.seqnum).encode() for column in self._changes.shape.columns)
        return pa.schema([kind, *(one.with_metadata({FIELD_ID: n}) for one, n in zip(fields, numbers, strict=True))])

    def to_batches(self) -> pa.RecordBatchReader:
        """The changes as a stream of rows.

        Each has `__ccpr_kind`, ``upsert`` or ``delete``. An upsert is a whole row as it is at `until`; it may be there
        already. Of a delete only the columns of the key have values. Memory: some ten thousand rows, and the keys of
        what changed, of a million rows at a time; of a replaced table the keys of all rows.

        Raises
        ------
        MirrorDamaged, ObjectDamaged, ObjectMismatch, StoreFailed
            While batches are taken: a file is missing, is not what was written, or cannot be read.
        ValueRefused
            While batches are taken: a key is a value that the reading would change; see `Table.changes`.
        """
        from ccpr.mirror.delta.change_rows import change_batches

        found = change_batches(self._changes.shape, self._changes.parts(), self._reading)
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=self.schema) for batch in found)
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def to_arrow(self) -> pa.Table:
        """All changes in memory; see `to_batches`."""
        return self.to_batches().read_all()

    @property
    def upserts(self) -> pa.Table:
        """The rows to write, whole: the user's columns at `until`, then the hidden key of a table without one. Upserts
        and deletes are computed together, once, and kept."""
        return self._both.upserts

    @property
    def deletes(self) -> pa.Table:
        """The keys of the rows to delete, with the columns of `key`."""
        return self._both.deletes

    @cached_property
    def _both(self) -> "DeltaPart":
        from ccpr.mirror.delta.change_rows import part_of

        return part_of(self.to_arrow(), self._changes.shape)


def changes_of(mirror: Mirror, name: str, since: At, until: At, reading: Reading = DEFAULT_READING) -> Changes:
    """See `Table.changes`."""
    changes, since_lsn, until_lsn = plan_changes(mirror, name, since, until, reading)
    return Changes(changes, since_lsn, until_lsn, reading)


def plan_changes(
    mirror: Mirror, name: str, since: At, until: At, reading: Reading
) -> tuple["TableChanges", int | None, int]:
    """The changes, and the lsns of the two points; see `Table.changes`."""
    from ccpr.mirror.delta.between import changes_between  # brings the parser of DDL, which only deltas need

    later = point_at(mirror, plain_at(until))
    former = None if since is None else point_at(mirror, plain_at(since))
    if former is not None and former.lsn > later.lsn:
        message = f"since is point {former.lsn}, which is later than until, point {later.lsn}"
        raise BadOption(message, subject=f"table {name}", remedy="Exchange the two points.")
    changes = changes_between(mirror, name, former, later)
    for delta in (changes.delta, changes.replaced):
        if delta is not None:
            check_counted_keys(delta.shape.key.columns, reading, f"table {delta.shape.table}")
    return changes, former and former.lsn, later.lsn
