"""The DDL of partitions: ADD, DROP and TRUNCATE. (MatrixOne has no EXCHANGE, REORGANIZE or COALESCE PARTITION.)

A partitioned table's rows are in its partitions, hidden tables with ids and objects of their own, as the hidden table
of an index has its rows. The table itself keeps them too, to be read by SQL, but never in objects.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ccpr.matrixone.server.answers import StatementError
from ccpr_emulator.engine.databases import SYS
from ccpr_emulator.engine.definitions import Definition
from ccpr_emulator.engine.entries import NO_ROW, TableEntry
from ccpr_emulator.engine.partitioning import Part, Partitioning
from ccpr_emulator.engine.tables import Tables


class PartitionedTables(Tables):
    """Tables, some of them partitioned. All methods raise 20301 for a table without partitions, or without one of
    these."""

    def add_partitions(self, database: str, table: str, parts: Sequence[Part], *, account: str = SYS) -> None:
        with self.lock:
            entry, partitioning = self._partitioned(database, table, account)
            if partitioning.method == "hash":
                raise StatementError(20105, "not supported: add partition is not supported for hash partitioned table")
            new = partitioning.added(tuple(parts))
            names = [part.name for part in new.parts]
            bounds = [part.values[0] if part.values else None for part in new.parts]
            rising = [bound for bound in bounds[:-1] if bound is not None]
            ordered = len(rising) == len(bounds) - 1 and rising == sorted(set(rising))
            beyond = bounds[-1] is None or not rising or rising[-1] < bounds[-1]
            if len(set(names)) < len(names) or (partitioning.method == "range" and not (ordered and beyond)):
                raise StatementError(20301, "invalid input: partitions overlap")
            self._repartition(entry, new)
            for part in parts:
                self.new_partition(entry, part.name, self.clock.last)

    def drop_partitions(self, database: str, table: str, names: Sequence[str], *, account: str = SYS) -> None:
        """Their rows are gone."""
        with self.lock:
            entry, partitioning = self._partitioned(database, table, account, names)
            if partitioning.method == "hash":
                raise StatementError(
                    20105, "not supported: drop partition is not supported for hash/key partitioned table"
                )
            if len(set(names)) == len(partitioning.parts):
                raise StatementError(20301, "invalid input: a table needs a partition")
            self._repartition(entry, partitioning.without(tuple(names)))
            for name in names:
                self._empty(entry, name)
                entry.partitions.pop(name).dropped = self.clock.last
                entry.partition_rows.pop(name, None)

    def truncate_partitions(self, database: str, table: str, names: Sequence[str], *, account: str = SYS) -> None:
        """Their rows are gone, and their ids are new; without names, of all of them."""
        with self.lock:
            entry, partitioning = self._partitioned(database, table, account, names)
            self._repartition(entry, partitioning)
            for name in names or [part.name for part in partitioning.parts]:
                self._empty(entry, name)
                old = entry.partitions.pop(name)
                old.dropped = self.clock.last
                entry.partition_rows.pop(name, None)
                self.new_partition(entry, name, self.clock.last, truncated=old)

    def _partitioned(
        self, database: str, table: str, account: str, names: Sequence[str] = ()
    ) -> tuple[TableEntry, Partitioning]:
        entry = self.table(database, table, account=account)
        partitioning = entry.definition.partitioning
        if partitioning is None:
            raise StatementError(20301, f"invalid input: table {table} is not partitioned")
        missing = [name for name in names if name not in entry.partitions]
        if missing:
            raise StatementError(20301, f"invalid input: partition {missing[0]} not found")
        return entry, partitioning

    def _repartition(self, entry: TableEntry, partitioning: Partitioning) -> None:
        def change(old: Definition) -> Definition:
            return replace(old, partitioning=partitioning)

        self._redefine(entry, change)

    def _empty(self, entry: TableEntry, name: str) -> None:
        """The rows of a partition are dead from the last tick on; those of its hidden table go with that."""
        theirs = np.flatnonzero(entry.partition_rows.get(name, np.empty(0, np.int64)) != NO_ROW)
        alive = theirs[entry.stored.is_alive(theirs)]
        if len(alive):
            entry.forget_keys(alive)
            entry.last_delete = self.clock.last
            entry.lost = np.union1d(entry.lost, alive)
            entry.stored.delete(entry.definition, alive, self.clock.last, by_cn=False)
