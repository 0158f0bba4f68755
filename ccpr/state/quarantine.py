"""Tables that fail while the others go on, with the setting `consistency = isolated`.

`ccpr_quarantine` has a row for each table that failed in the last iteration. Each iteration tries the table again; the
commit that moves it to a newer point deletes the row. `ccpr_behind` has the tables that a point does not show: what is
known of such a table is its state at an older point, so it cannot be read at this one (`PointNotReached`). Both are
written in the transaction of the commit. Source: docs/requirements.md B4; decision lagging-tables-left-out.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from datetime import datetime

import sqlalchemy as sa

from ccpr.base.errors import Failure
from ccpr.matrixone.schema import Table
from ccpr.mirror.points import LaggingTable
from ccpr.state.database import fetch
from ccpr.state.records import Records, RowForm, StoredField
from ccpr.state.tables import behind_tables, quarantine

_TASK = sa.bindparam("task")
_QUARANTINE = sa.select(quarantine).where(quarantine.c.task_id == _TASK).order_by(quarantine.c.table_id)
_BEHIND = sa.select(behind_tables).where(behind_tables.c.task_id == _TASK).order_by(behind_tables.c.lsn)
_BEHIND_AT = _BEHIND.where(behind_tables.c.lsn == sa.bindparam("of"))


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A table in quarantine.

    Attributes
    ----------
    since_lsn : the first iteration that failed to move it.
    first_failed_at, last_failed_at : on our clock, UTC.
    attempts : how many iterations failed to move it.
    failure : the last one.
    """

    table_id: int
    database: str
    name: str
    since_lsn: int
    first_failed_at: datetime
    last_failed_at: datetime
    attempts: int
    failure: Failure

    @property
    def qualified_name(self) -> str:
        return f"{self.database}.{self.name}"


_FORM = RowForm(
    quarantine,
    QuarantineEntry,
    "a table in quarantine cannot be read",
    {
        "database": "database_name",
        "name": "table_name",
        "failure": StoredField(("code", "message", "subject", "remedy"), Failure, astuple),
    },
)


class Quarantine(Records):
    """The rows of one subscription in both tables."""

    def entries(self) -> list[QuarantineEntry]:
        """The tables that are in quarantine now, by id. Raises StateUnreadable."""
        return _FORM.values(self._rows(_QUARANTINE))

    def behind(self, lsn: int) -> dict[int, LaggingTable]:
        """By id the tables that a point does not show."""
        return self._behind(_BEHIND_AT, of=lsn).get(lsn, {})

    def behind_by_point(self) -> dict[int, dict[int, LaggingTable]]:
        """By point and id, for all points that do not show all tables."""
        return self._behind(_BEHIND)

    def write(
        self, connection: sa.Connection, lsn: int, now: datetime, failed: Mapping[int, tuple[Table, Failure]]
    ) -> None:
        """Replace the quarantine by the tables that failed in iteration `lsn`, in the caller's transaction."""
        before = {entry.table_id: entry for entry in _FORM.values(fetch(connection, _QUARANTINE, task=self.task_id))}
        if before:
            connection.execute(quarantine.delete().where(self._mine(quarantine)))
        entries = [
            QuarantineEntry(
                table_id,
                table.database,
                table.name,
                before[table_id].since_lsn if table_id in before else lsn,
                before[table_id].first_failed_at if table_id in before else now,
                now,
                before[table_id].attempts + 1 if table_id in before else 1,
                failure,
            )
            for table_id, (table, failure) in sorted(failed.items())
        ]
        self._insert(connection, quarantine, map(_FORM.cells, entries))

    def write_behind(self, connection: sa.Connection, lsn: int, behind: Mapping[int, LaggingTable]) -> None:
        """Record the tables that point `lsn` does not show, in the caller's transaction."""
        rows = [
            {
                "lsn": lsn,
                "table_id": table_id,
                "database_name": entry.database,
                "table_name": entry.name,
                "stands_at": entry.lsn,
            }
            for table_id, entry in sorted(behind.items())
        ]
        self._insert(connection, behind_tables, rows)

    def drop_between(self, connection: sa.Connection, until: int, after: int = -1) -> None:
        """Delete what was recorded of points between two, in the caller's transaction."""
        between = (behind_tables.c.lsn > after, behind_tables.c.lsn < until)
        connection.execute(behind_tables.delete().where(self._mine(behind_tables), *between))

    def _behind(self, query: sa.Select, **parameters: object) -> dict[int, dict[int, LaggingTable]]:
        found: dict[int, dict[int, LaggingTable]] = {}
        for row in self._rows(query, **parameters):
            lagging = LaggingTable(row.database_name, row.table_name, row.stands_at)
            found.setdefault(row.lsn, {})[row.table_id] = lagging
        return found
