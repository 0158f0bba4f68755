"""What a target database stores about the tables that are ours: four tables in addition to `ccpr_checkpoints`.

    ccpr_registry     a row for each table that is, or was, synced: the statement that made it, and what was removed
                      from that (docs/requirements.md D5)
    ccpr_intents      changes of definitions that were begun (`ccpr.targets.intents`)
    ccpr_loads        shadow tables that are being loaded
    ccpr_load_parts   the pieces that these have, each written in the transaction of its rows

They have a MetaData of their own: the catalog database has none of them.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa

from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.schema import Table, integer_of, text_of
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.errors import StateUnreadable
from ccpr.state.tables import LONG_TEXT
from ccpr.targets.base import TableState, TargetTable

TARGET_METADATA = sa.MetaData()
MAX_TEXT = 64 << 20  # characters of one value; a definition is far shorter
_MAX_KEY = 64
_PLAIN = re.compile(r"[A-Za-z0-9_]*")  # words of a definition that are written without quotes
# Column -> type, collation, and whether it is in the primary key, as the server reports them.
ColumnFacts: TypeAlias = dict[str, list[str | None]]

registry = sa.Table(
    "ccpr_registry",
    TARGET_METADATA,
    sa.Column("task_id", sa.String(64), primary_key=True),
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("table_schema", sa.String(64), nullable=False),  # in the target
    sa.Column("table_name", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("source", LONG_TEXT, nullable=False),  # JSON: the table as the source had it
    sa.Column("create_text", LONG_TEXT, nullable=False),
    sa.Column("erased", LONG_TEXT, nullable=False),  # JSON: what was stripped
    sa.Column("suspended", LONG_TEXT, nullable=False),  # JSON: what was disabled
    sa.Column("columns_there", LONG_TEXT, nullable=False),  # JSON: ColumnFacts when the table was made
)
intents = sa.Table(
    "ccpr_intents",
    TARGET_METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("task_id", sa.String(64), nullable=False),
    sa.Column("change", LONG_TEXT, nullable=False),  # JSON of an Intent
    sa.Column("next_statement", sa.Integer, nullable=False),
    sa.Column("before", LONG_TEXT, nullable=False),  # digest of the definitions before the next statement
    sa.Column("problem", LONG_TEXT, nullable=False),  # why the next statement failed; empty if it has not
)
loads = sa.Table(
    "ccpr_loads",
    TARGET_METADATA,
    sa.Column("task_id", sa.String(64), primary_key=True),
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("lsn", sa.BigInteger, nullable=False),
    sa.Column("snapshot_ts", sa.BigInteger, nullable=False),
    sa.Column("definition", LONG_TEXT, nullable=False),  # JSON of the table as it is to be
    sa.Column("fence", sa.String(64), nullable=False),  # of the loading session
)
load_parts = sa.Table(
    "ccpr_load_parts",
    TARGET_METADATA,
    sa.Column("task_id", sa.String(64), primary_key=True),
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("part", sa.String(64), primary_key=True),
    sa.Column("row_count", sa.BigInteger, nullable=False),
)


def table_json(table: TargetTable) -> dict[str, Any]:
    return {
        "source": table.source.to_json(),
        "database": table.database,
        "name": table.name,
        "create": table.create,
        "erased": dict(table.stripped or {}),
        "suspended": dict(table.disabled or {}),
    }


def table_from_json(value: Mapping[str, Any]) -> TargetTable:
    """Raises ValueError, KeyError or TypeError for what `table_json` would not have written."""
    database, name, create = (text_of(value[key]) for key in ("database", "name", "create"))
    stripped, disabled = value["erased"], value["suspended"]
    if not isinstance(stripped, dict) or not isinstance(disabled, dict):
        raise TypeError("erased and suspended must be JSON objects")
    table = TargetTable(Table.from_json(value["source"]), database, name, create, stripped, disabled)
    _check_create(table)
    return table


def _check_create(table: TargetTable) -> None:
    """Raises ValueError for a definition that no synced table has: it is read again for the staging of its rows, and
    for its release."""
    try:
        create = parse_create_table(table.create)
    except DdlUnreadable as error:
        raise ValueError(error.message) from error
    if (create.database, create.name) != (table.database, table.name):
        raise ValueError("the definition is of another table than the row")
    acting = any(column.generated or column.auto_increment or column.on_update for column in create.columns)
    bare = [word for column in create.columns for word in (column.type.name, column.charset, column.collation)]
    options = dict(create.options)
    plain = all(_PLAIN.fullmatch(word) for word in (*bare, *options.values()))
    others = create.checks or create.foreign_keys or create.partition_by or create.properties or create.cluster_by
    if (
        acting
        or others
        or not plain
        or len(options) < len(create.options)
        or options.keys() - {"ENGINE", "DEFAULT CHARSET", "COLLATE"}
    ):
        raise ValueError("the definition has what a synced table does not have")
    if options.get("ENGINE", "InnoDB") != "InnoDB":
        raise ValueError("the definition has another storage engine")


def json_of(value: object) -> Any:
    """The JSON in a stored text. Raises ValueError, TypeError, RecursionError."""
    return json.loads(stored_text(value, MAX_TEXT))


def stored_text(value: object, most: int = _MAX_KEY) -> str:
    """Raises ValueError or TypeError for a value that is not text, or is longer than `most`."""
    text = text_of(value)
    if len(text) > most:
        raise ValueError(f"a text of {len(text)} characters")
    return text


def unreadable(subject: str, error: Exception) -> StateUnreadable:
    """The error for a row that this program would not have written."""
    return StateUnreadable(f"a row cannot be read: {error}", subject=subject, remedy="Restore the target's table.")


def registry_row(row: Mapping[Any, Any]) -> tuple[TargetTable, TableState]:
    """A row of `ccpr_registry`, which is foreign input. Raises StateUnreadable."""
    try:
        value = {"database": stored_text(row["table_schema"]), "name": stored_text(row["table_name"])}
        parts = {key: json_of(row[key]) for key in ("source", "erased", "suspended")}
        table = table_from_json({**value, "create": stored_text(row["create_text"], MAX_TEXT), **parts})
        if integer_of(row["table_id"]) != table.id:
            raise ValueError(f"its definition is of table id {table.id}")
        return table, TableState(row["state"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        name = f"{row['table_schema']!s:.80}.{row['table_name']!s:.80}"
        raise unreadable(f"table {name} in ccpr_registry", error) from error


def load_row(row: Mapping[Any, Any]) -> tuple[Location, TargetTable]:
    """A row of `ccpr_loads`, which is foreign input. Raises StateUnreadable."""
    try:
        table = table_from_json(json_of(row["definition"]))
        if integer_of(row["table_id"]) != table.id:
            raise ValueError(f"its definition is of table id {table.id}")
        return Location(integer_of(row["lsn"]), integer_of(row["snapshot_ts"])), table
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise unreadable(f"table {row['table_id']!s:.40} in ccpr_loads", error) from error


class Registry:
    """The rows of one subscription. The methods read and write on the given connection, in its transaction."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id

    def tables(self, connection: sa.Connection) -> dict[int, tuple[TargetTable, TableState]]:
        """Raises StateUnreadable."""
        found = {}
        for row in connection.execute(sa.select(registry).where(registry.c.task_id == self._task_id)):
            table, state = registry_row(row._mapping)
            found[table.id] = table, state
        return found

    def columns_made(self, connection: sa.Connection, table_id: int) -> ColumnFacts:
        """A table's columns as `put` stored them; empty for an unknown table. Raises StateUnreadable."""
        text = connection.scalar(sa.select(registry.c.columns_there).where(*self._of(registry, table_id)))
        try:
            found = json_of(text) if text is not None else {}
            return {
                text_of(name): [value if value is None else text_of(value) for value in values]
                for name, values in found.items()
            }
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise unreadable(f"table {table_id} in ccpr_registry", error) from error

    def put(
        self,
        connection: sa.Connection,
        tables: Sequence[TargetTable],
        state: TableState,
        columns_of: Callable[[TargetTable], ColumnFacts],
    ) -> None:
        """Register tables with the columns that the server reports now. A live table of another subscription with such
        a name is marked as dropped: otherwise the name would not have been free."""
        self.delete(connection, [table.id for table in tables])
        for table in tables:
            lost = registry.update().where(
                registry.c.task_id != self._task_id, registry.c.state == TableState.LIVE.value
            )
            named = (registry.c.table_schema == table.database, registry.c.table_name == table.name)
            connection.execute(lost.where(*named).values(state=TableState.DROPPED.value))
            value = table_json(table)
            connection.execute(
                registry.insert().values(
                    task_id=self._task_id,
                    table_id=table.id,
                    table_schema=table.database,
                    table_name=table.name,
                    state=state.value,
                    create_text=table.create,
                    columns_there=json.dumps(columns_of(table), ensure_ascii=False),
                    **{key: json.dumps(value[key], ensure_ascii=False) for key in ("source", "erased", "suspended")},
                )
            )

    def set_state(self, connection: sa.Connection, table_id: int, state: TableState) -> None:
        connection.execute(registry.update().where(*self._of(registry, table_id)).values(state=state.value))

    def delete(self, connection: sa.Connection, table_ids: Collection[int]) -> None:
        for table_id in table_ids:
            connection.execute(registry.delete().where(*self._of(registry, table_id)))

    # ---- loads

    def loads(self, connection: sa.Connection) -> dict[int, tuple[Location, TargetTable]]:
        """Loads that were begun, by table id. Raises StateUnreadable."""
        found = {}
        for row in connection.execute(sa.select(loads).where(loads.c.task_id == self._task_id)):
            location, table = load_row(row._mapping)
            found[table.id] = location, table
        return found

    def take_load(self, connection: sa.Connection, table_id: int, fence: str) -> None:
        """Continue a load. This waits for a piece that its former session is writing, and prevents all further ones."""
        connection.execute(loads.update().where(*self._of(loads, table_id)).values(fence=fence))

    def begin_load(self, connection: sa.Connection, table: TargetTable, location: Location, fence: str) -> None:
        self.end_load(connection, table.id)
        connection.execute(
            loads.insert().values(
                task_id=self._task_id,
                table_id=table.id,
                lsn=location.lsn,
                snapshot_ts=location.snapshot_ts,
                definition=json.dumps(table_json(table), ensure_ascii=False),
                fence=fence,
            )
        )

    def end_load(self, connection: sa.Connection, table_id: int) -> None:
        for place in (load_parts, loads):
            connection.execute(place.delete().where(*self._of(place, table_id)))

    def parts(self, connection: sa.Connection, table_id: int) -> set[str]:
        """Keys of the pieces that are stored. Raises StateUnreadable."""
        stored = connection.scalars(sa.select(load_parts.c.part).where(*self._of(load_parts, table_id)))
        try:
            return {stored_text(key) for key in stored}
        except (ValueError, TypeError) as error:
            raise unreadable(f"a piece of table {table_id} in ccpr_load_parts", error) from error

    def _of(self, place: sa.Table, table_id: int) -> tuple[sa.ColumnElement[bool], ...]:
        return place.c.task_id == self._task_id, place.c.table_id == table_id
