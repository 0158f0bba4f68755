"""Figures of tables at points, as rows of the catalog database: what was read when a point was made, by a target, or
by a drill. They are apart from the mirror that they vouch for (decision a-restore-is-tried)."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import sqlalchemy as sa

from ccpr.matrixone.schema import integer_of, text_of
from ccpr.state.database import batches, repeatable, transaction, understood
from ccpr.state.records import Records
from ccpr.state.tables import figures

if TYPE_CHECKING:  # it imports numpy
    from ccpr.mirror.row_sums import RowSum

_ROWS = 400  # of one statement
_AT = sa.select(figures).where(figures.c.task_id == sa.bindparam("task"), figures.c.lsn == sa.bindparam("of"))


class MadeBy(StrEnum):
    COMMIT = "commit"
    TARGET = "target"
    DRILL = "drill"
    VERIFY = "verify"


class RowSumRecords(Records):
    """The figures of one subscription's tables."""

    def at(self, lsn: int) -> "dict[int, RowSum]":
        """By table id, what was recorded of a point. Raises StateUnreadable."""
        from ccpr.mirror.row_sums import RowSum

        rows = self._rows(_AT, of=lsn)
        with understood("recorded figures cannot be read", f"task {self.task_id}, point {lsn}"):
            return {
                integer_of(row.table_id): RowSum(integer_of(row.row_count), text_of(row.row_sum), text_of(row.basis))
                for row in rows
            }

    def write(
        self, connection: sa.Connection, lsn: int, found: "Mapping[int, RowSum]", made_by: MadeBy, now: datetime
    ) -> None:
        """In the caller's transaction; what was recorded of these tables before is replaced."""
        mine = self._mine(figures, lsn=lsn)
        rows = [
            {
                "task_id": self.task_id,
                "table_id": table_id,
                "lsn": lsn,
                "row_count": one.rows,
                "row_sum": one.total,
                "basis": one.basis,
                "made_by": made_by.value,
                "made_at": now,
            }
            for table_id, one in sorted(found.items())
        ]
        for batch in batches(rows, _ROWS):
            ids = [row["table_id"] for row in batch]
            connection.execute(figures.delete().where(mine, figures.c.table_id.in_(ids)))
            connection.execute(figures.insert(), batch)

    @repeatable
    def complete(self, lsn: int, found: "Mapping[int, RowSum]", made_by: MadeBy, now: datetime) -> None:
        """Record the sums of tables that have none yet; those that are there stay."""
        known = self.at(lsn)
        new = {
            table_id: one
            for table_id, one in found.items()
            if table_id not in known or (not known[table_id].total and known[table_id].rows == one.rows)
        }
        if new:
            with transaction(self.engine) as connection:
                self.write(connection, lsn, new, made_by, now)
