"""The appendable objects that are live at a snapshot, which a difference can lack (decision created-before-its-rows).

They are in the full list, which has a row for each object of the database. Where that is long, a second snapshot is
taken instead, after the first was flushed: what was flushed since is in the difference between the two.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client.errors import StatementFailed, UpstreamError
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.table_catalog import table_ids
from ccpr.matrixone.errors import Transient
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.object_rows import LISTED_SCHEMA, without_objects
from ccpr.pipeline.errors import BadObjectList
from ccpr.pipeline.object_list import NamedSequences, ask_list
from ccpr.pipeline.temporary_snapshots import TemporarySnapshots

SHORT_LIST = 2_000  # rows of a full list that is read in the time in which a snapshot is taken, read and dropped
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FullList:
    """How long the full list is, as far as it is known without asking.

    Attributes
    ----------
    rows : of the database's, those of tables out of scope included.
    known : how many objects each table had at the last point, by id.
    """

    rows: int = 0
    known: Mapping[int, int] = field(default_factory=dict)

    def is_long(self, tables: Iterable[int]) -> bool:
        """Whether it is longer, with these tables, than one that costs nothing."""
        return max(self.rows, sum(self.known.get(table_id, 0) for table_id in tables)) > SHORT_LIST

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of a full list, whose length is known at the end."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield batch
        self.rows = rows


@dataclass(frozen=True, slots=True)
class LaterSnapshot:
    """A second snapshot, taken when it is needed. The first one must be flushed by then.

    Attributes
    ----------
    temporary : takes it.
    full_list : says whether it is worth one.
    sequences : whose objects are noted, too.
    """

    temporary: TemporarySnapshots
    full_list: FullList
    sequences: NamedSequences

    def with_appendable(
        self,
        difference: pa.Table,
        ref: SnapshotRef,
        database: str,
        tables: Collection[int],
        subject: str,
        read_full: Callable[[], pa.Table],
    ) -> pa.Table:
        """A list of some tables of a database at `ref` against an earlier snapshot, with the appendable objects that
        it lacks. `read_full` reads those of the full list."""
        appendable = self._appendable(ref, database, tables, subject) if self.full_list.is_long(tables) else None
        if appendable is None:
            appendable = read_full()
        return pa.concat_tables([difference, without_objects(appendable, difference)])

    def _appendable(self, ref: SnapshotRef, database: str, tables: Collection[int], subject: str) -> pa.Table | None:
        """LISTED_SCHEMA: the appendable objects of some tables of a database that are live at `ref`, a snapshot of it,
        and were flushed after it. None if that cannot be said: one of the tables went away in between, or the upstream
        does not answer."""
        try:
            return self._listed(ref, database, tables, subject)
        except (UpstreamError, BadObjectList) as error:
            if isinstance(error, Transient) and not isinstance(error, StatementFailed):
                raise
            _logger.info("a full list takes the place of a second snapshot: %s", error)
            return None

    def _listed(self, ref: SnapshotRef, database: str, tables: Collection[int], subject: str) -> pa.Table | None:
        session, publication = self.temporary.session, self.temporary.subscription.publication
        later = self.temporary.later(database)
        if later.at <= ref.at:
            return None
        ids = table_ids(session, publication, database, later.at)
        if not set(tables) <= set(ids.values()):
            return None
        names: Mapping[str, Mapping[str, int | None]] = {
            database: {name: number if number in tables else None for name, number in ids.items()}
        }
        through = partial(self.sequences.note, appendable=True)
        rows = ask_list(session, publication, later.name, ref.name, names, subject, appendable=True, through=through)
        return live_at(rows, ref.at)


def live_at(rows: pa.Table, at: Timestamp) -> pa.Table:
    """The rows of a list of a later time that are of objects live at `at`, as a list of that time has them."""
    cut = cut_at(rows, at)
    return cut.filter(pc.is_null(cut.column("delete_physical")))


def cut_at(rows: pa.Table, at: Timestamp) -> pa.Table:
    """Rows of a list of a later time (LISTED_SCHEMA) as they were at a time: without what was created later; what was
    deleted later was live."""
    rows = rows.filter(not_after(rows, "create", at))
    deleted = pc.fill_null(not_after(rows, "delete", at), False)
    for name in ("delete_physical", "delete_logical"):
        times = pc.if_else(deleted, rows.column(name), pa.scalar(None, pa.int64()))
        rows = rows.set_column(LISTED_SCHEMA.get_field_index(name), name, times)
    return rows.cast(LISTED_SCHEMA)


def not_after(rows: pa.Table, what: str, at: Timestamp) -> pa.ChunkedArray:
    """For each row whether its `create` or `delete` is not later than a time; null if there was none."""
    physical, logical = rows.column(f"{what}_physical"), rows.column(f"{what}_logical")
    same = pc.and_(pc.equal(physical, at.physical), pc.less_equal(logical, at.logical))
    return pc.or_(pc.less(physical, at.physical), same)
