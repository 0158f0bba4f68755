"""The object lists of single tables, for a database whose list the upstream cannot give because a table in it is
partitioned (decision partitioned-tables).

Each table, and each partition instead of a partitioned table, gets a snapshot of its own, later than the database's and
later than its flush. Its list is cut at the time of the database's: what was created later is skipped, and what was
deleted later is live. So all tables are of one moment, and the result is what a list of the database would have been.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.errors import Failure
from ccpr.matrixone.client import upstream_snapshots, upstream_sql
from ccpr.matrixone.client.errors import ConnectionLost, DatabaseMissing, SnapshotGone, TableMissing
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.upstream_session import integer
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import INDEX_TABLE_PREFIX, Kind, Table
from ccpr.mirror.object_rows import LISTED_SCHEMA, rows_without
from ccpr.pipeline.appendable import LaterSnapshot, cut_at
from ccpr.pipeline.catalog_diff import DatabaseList
from ccpr.pipeline.errors import BadObjectList, TableChangedMeanwhile
from ccpr.pipeline.object_list import Batches, ask_list
from ccpr.pipeline.temporary_snapshots import TemporarySnapshots
from ccpr.state.settings import Settings

TableFailures = dict[int, Failure]  # by table id


@dataclass(frozen=True, slots=True)
class TableLists:
    """
    Attributes
    ----------
    temporary : takes a snapshot of one table after the open snapshot was flushed.
    taken : snapshots that were taken, by the table's id. They are dropped when the iteration ends.
    """

    temporary: TemporarySnapshots
    taken: dict[int, SnapshotRef] = field(default_factory=dict)

    def read(
        self,
        ref: SnapshotRef,
        base: SnapshotRef | None,
        tables: Collection[Table],
        relations: Collection[Table],
        failures: TableFailures,
    ) -> pa.Table:
        """LISTED_SCHEMA, as a list of the database at `ref` would be, against `base` or in full: rows of these tables
        and their index tables, those of a partition under the id of its table.

        In isolated mode a table that cannot be listed is skipped, with its failure; else it is an error, and where
        index tables are copied.

        Parameters
        ----------
        relations : all of the database at `ref`.

        Raises TableChangedMeanwhile, BadObjectList, and what a list raises.
        """
        names = {table.name: table.id for table in tables if table.kind is Kind.INDEX}
        parts = {relation.id: relation for relation in relations}
        found = []
        for table in tables:
            if table.kind is Kind.INDEX:
                continue  # it is in the list of its table
            listed = [parts[part.id] for part in table.partitions] or [table]
            try:
                found.append(_joined([self._listed(ref, base, one, table.id, names) for one in listed], table))
            except (TableChangedMeanwhile, BadObjectList) as error:
                _note(error, table, failures, self.temporary.subscription.settings)
        return rows_without(pa.concat_tables([LISTED_SCHEMA.empty_table(), *found]), failures)

    def _listed(
        self, ref: SnapshotRef, base: SnapshotRef | None, table: Table, owner: int, indexes: Mapping[str, int]
    ) -> pa.Table:
        later = self._later(ref, table)
        names: dict[str, int | None] = {**indexes, table.name: owner}
        # What was deleted after `ref` is in no full list of a later time, but in the difference from `ref`.
        asked = [base.marker] if base is not None else [None, ref.marker]
        return cut_at(pa.concat_tables([self._read(later, against, table, names) for against in asked]), ref.at)

    def _read(self, later: SnapshotRef, against: str | None, table: Table, names: Mapping[str, int | None]) -> pa.Table:
        session, publication = self.temporary.session, self.temporary.subscription.publication
        subject, known = f"snapshot {later.name} of table {table.qualified_name}", {table.database: names}
        through = partial(_without_other_indexes, names)
        return ask_list(session, publication, later.name, against, known, subject, through=through)

    def _later(self, ref: SnapshotRef, table: Table) -> SnapshotRef:
        """A snapshot of the table, which has the same name and id there as at `ref`."""
        if table.id not in self.taken:
            try:
                later = self.temporary.after_flush(table.database, table.name)
            except (TableMissing, DatabaseMissing) as error:
                raise _changed(table) from error
            if later.at <= ref.at:
                raise ConnectionLost(
                    f"snapshot {later.name} is of {later.at}, not later than {ref.name}",
                    subject=f"snapshot {later.name}",
                )
            publisher_id = self.temporary.subscription.publication.publisher_id
            query = upstream_sql.select_tables(publisher_id, table.database, later.at.physical, table.name)
            ids = [integer(number, "rel_id") for (number,) in self.temporary.session.read(query).select("rel_id")]
            if ids != [table.id]:
                raise _changed(table)
            self.taken[table.id] = later
        return self.taken[table.id]


def _without_other_indexes(names: Mapping[str, int | None], batches: Batches) -> Batches:
    """The rows of a list without those of index tables that are not known: made after the database's snapshot. (The
    name of an index table is never used again.)"""
    known = pa.array(list(names), pa.string())
    for batch in batches:
        table = batch.column("table")
        yield batch.filter(pc.or_(pc.is_in(table, known), pc.invert(pc.starts_with(table, INDEX_TABLE_PREFIX))))


def _joined(parts: list[pa.Table], table: Table) -> pa.Table:
    """The lists of a table's partitions as one. An object that two of them have cannot be: deleted in one, it would
    look deleted in the other."""
    if len(parts) > 1:
        names = pa.concat_arrays([pc.unique(part.column("name")).cast(pa.string()) for part in parts])
        counts = pc.value_counts(names)
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
        if twice:
            message = f"{', '.join(twice[:3])}: listed for several partitions"
            raise BadObjectList(message, subject=f"table {table.qualified_name}")
    return pa.concat_tables(parts)


def note_changed(table: Table, failures: TableFailures, settings: Settings) -> None:
    """A table changed between the snapshot and a later one: in isolated mode that is its failure alone, unless index
    tables are copied."""
    _note(_changed(table), table, failures, settings)


def _note(error: CcprError, table: Table, failures: TableFailures, settings: Settings) -> None:
    if not settings.isolated or settings.with_indexes:  # its index tables would be of another time
        raise error
    failures[table.id] = Failure.of(error)


def _changed(table: Table) -> TableChangedMeanwhile:
    return TableChangedMeanwhile(
        "it was dropped, renamed, altered or replaced before its objects were listed",
        subject=f"table {table.qualified_name}",
    )


# ---- the lists of several databases at one time (decision account-snapshots)
#
# Each database has a snapshot of its own, later than the account's. Its list is cut at the time of the account's:
# what was created later is skipped, and what was deleted later is live. So all databases are of one moment, and what
# was live then stays, since the account's snapshot protects it.


@dataclass(frozen=True, slots=True)
class DatabaseLists:
    """
    Attributes
    ----------
    lists : what the list of each database is made of; their snapshots are flushed.
    later : what a list is compared with instead of a long full list.
    by_table : lists the tables of a database for which the upstream has no list.
    """

    temporary: TemporarySnapshots
    lists: Mapping[str, DatabaseList]
    later: LaterSnapshot
    by_table: TableLists

    def read(
        self,
        ref: SnapshotRef,
        base: SnapshotRef | None,
        tables: Collection[Table],
        relations: Collection[Table],
        failures: TableFailures,
    ) -> pa.Table:
        """LISTED_SCHEMA: what a list of the account at `ref` would be, against `base` or in full. See
        `TableLists.read`. Raises SnapshotGone if one of the two is gone: what it protected may be in no list."""
        of_database: dict[str, list[Table]] = defaultdict(list)
        for table in tables:
            of_database[table.database].append(table)
        found = [LISTED_SCHEMA.empty_table()]
        for database, its in sorted(of_database.items()):
            if self.lists[database].is_partitioned:
                found.append(self.by_table.read(ref, base, its, relations, failures))
                self.later.sequences.not_listed(self.lists[database].ids)
            else:
                found.append(cut_at(self._read(ref, base, database, its, failures), ref.at))
        for database in self.lists.keys() - of_database.keys():
            self.later.sequences.not_listed(self.lists[database].ids)
        for one in (ref, base):  # after the lists, which name only the snapshots beside them
            if (
                one is not None
                and upstream_snapshots.account_snapshot_timestamp(self.temporary.session, one.name) != one.at
            ):
                raise SnapshotGone("another one has its name", subject=f"snapshot {one.name}")
        return pa.concat_tables(found)

    def _read(
        self,
        ref: SnapshotRef,
        base: SnapshotRef | None,
        database: str,
        tables: Collection[Table],
        failures: TableFailures,
    ) -> pa.Table:
        subscription, listed = self.temporary.subscription, self.lists[database]
        wanted = {table.id for table in tables} & set(listed.ids.values())
        for table in tables:
            if table.id not in wanted:
                note_changed(table, failures, subscription.settings)
        names = {database: {name: number if number in wanted else None for name, number in listed.ids.items()}}
        subject = f"snapshot {listed.ref.name} of database {database}"
        asked = self.temporary.session, subscription.publication, listed.ref.name

        def read_against(against: str | None, *, appendable: bool = False) -> pa.Table:
            through = partial(self.later.sequences.note, appendable=appendable)
            return ask_list(*asked, against, names, subject, appendable=appendable, through=through)

        if base is None:  # what was deleted between the two snapshots is in no full list of the later one
            return pa.concat_tables([read_against(None), read_against(ref.marker)])
        difference, read_full = read_against(base.marker), partial(read_against, None, appendable=True)
        return self.later.with_appendable(difference, listed.ref, database, wanted, subject, read_full)
