"""Where the newest metadata of each Iceberg table of a lake is. All tables of a point move in one transaction: whoever
reads two of them reads one point. Source: decision lake-catalog."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from ccpr.state.database import fetch, repeatable, transaction
from ccpr.state.records import Records, RowForm, converted
from ccpr.state.tables import iceberg_tables, targets


@dataclass(frozen=True, slots=True)
class TablePointer:
    """
    Attributes
    ----------
    database, name : as the table is called now.
    metadata : its file, below the lake.
    at : time of the newest point that changed it, nanoseconds by the upstream's clock; None while it has no snapshot.
    gone : it was dropped; a point before that may still show it.
    version : of the lake's own log that it shows; None if the publisher has to look.
    """

    uuid: str
    database: str
    name: str
    metadata: str
    at: int | None = None
    gone: bool = False
    version: int | None = None

    @property
    def folder(self) -> str:
        """Of the table, below the lake."""
        return self.metadata.partition("/")[0]


@dataclass(frozen=True, slots=True)
class PointerMove:
    """A table's pointer, and what takes its place. Without `before` the table is new, without `after` it goes."""

    before: TablePointer | None
    after: TablePointer | None


_FORM = RowForm(
    iceberg_tables,
    TablePointer,
    "its row cannot be read",
    {
        "uuid": "table_uuid",
        "database": "database_name",
        "name": "table_name",
        "metadata": "metadata_file",
        "at": "snapshot_ts",
        "gone": converted("gone", bool, bool),
        "version": "log_version",
    },
    lambda row: f"Iceberg table {row['database_name']}.{row['table_name']} of task {row['task_id']}",
)


class TablePointers(Records):
    """Those of one lake."""

    def __init__(self, engine: sa.Engine, task_id: str, lake: str) -> None:
        super().__init__(engine, task_id)
        self.lake = lake
        self._all = sa.select(iceberg_tables).where(self._mine(iceberg_tables, target_name=lake))

    def all(self) -> list[TablePointer]:
        """At one moment, those of dropped tables too. Raises StateUnavailable, StateUnreadable."""
        return _FORM.values(self._rows(self._all))

    def shown(self) -> dict[str, int]:
        """Of each table that is not gone the version that it shows, by its folder. Raises as `all`."""
        return {one.folder: one.version for one in self.all() if one.version is not None and not one.gone}

    @repeatable
    def move(self, moves: Sequence[PointerMove]) -> bool:
        """All of them, or none where one is not as it was `before` or a name would be that of two tables; says which.
        What is done already, by an attempt whose end is not known, counts as done. Raises StateUnavailable,
        StateUnreadable."""
        with transaction(self.engine) as connection:
            lock = sa.select(targets.c.target_name).where(self._mine(targets, target_name=self.lake)).with_for_update()
            connection.execute(lock)  # in SQLite the transaction is alone
            found = {one.uuid: one for one in _FORM.values(fetch(connection, self._all))}
            if all(found.get(_uuid(one)) == one.after for one in moves):
                return True
            if any(found.get(_uuid(one)) != one.before for one in moves):
                return False
            after = {**found, **{_uuid(one): one.after for one in moves}}
            names = [(one.database, one.name) for one in after.values() if one is not None and not one.gone]
            if len(set(names)) < len(names):
                return False
            self._replace(connection, moves)
            return True

    def _replace(self, connection: sa.Connection, moves: Iterable[PointerMove]) -> None:
        mine = {"task_id": self.task_id, "target_name": self.lake}
        for one in moves:
            row = self._mine(iceberg_tables, target_name=self.lake, table_uuid=_uuid(one))
            connection.execute(iceberg_tables.delete().where(row))
            if one.after is not None:
                connection.execute(iceberg_tables.insert().values({**mine, **_FORM.cells(one.after)}))


def _uuid(move: PointerMove) -> str:
    one = move.after or move.before
    assert one is not None
    return one.uuid
