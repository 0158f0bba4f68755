"""The object lists of several databases at one time (decision account-snapshots).

Each database has a snapshot of its own, later than the account's. Its list is cut at the time of the account's: what
was created later is skipped, and what was deleted later is live. So all databases are of one moment, and what was live
then stays, since the account's snapshot protects it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from ccpr.base.snapshot_ref import SnapshotRef
from ccpr.matrixone.client import upstream_snapshots
from ccpr.matrixone.client.errors import SnapshotGone
from ccpr.matrixone.schema import Table
from ccpr.mirror.object_rows import LISTED_SCHEMA
from ccpr.pipeline.appendable import LaterSnapshot, cut_at
from ccpr.pipeline.catalog_diff import DatabaseList
from ccpr.pipeline.object_list import ask_list
from ccpr.pipeline.table_lists import TableFailures, TableLists, note_changed
from ccpr.pipeline.temporary_snapshots import TemporarySnapshots


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
