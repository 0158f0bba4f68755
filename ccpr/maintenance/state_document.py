"""The document with the state of a subscription, as it is read: each cell of its column's type, each table one that
there is, and all of one subscription. `ccpr.maintenance.state_file` says what it consists of.

A document is read as hostile input. What its values mean together is `ccpr.maintenance.state_file`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from ccpr.maintenance.errors import StateFileNewer
from ccpr.matrixone.client.endpoint import format_uri, parse_uri
from ccpr.state import tables as catalog
from ccpr.state.log_rows import LogRow
from ccpr.state.migrations import SCHEMA_VERSION
from ccpr.state.subscription import Subscription
from ccpr.state.tables import METADATA, UtcTime, mo_ccpr_log

FORMAT = "ccpr-state"
VERSION = 1
# Columns of the log's row: the present owner, the password (in `upstream_conn`), and what only dropped ones have.
NOT_EXPORTED = {"cn_uuid", "lease_expires_at", "upstream_conn", "drop_at"}
_INTEGERS = {sa.SmallInteger: 2**15, sa.Integer: 2**31, sa.BigInteger: 2**63}
_Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """Everything that a catalog database has about one subscription.

    Attributes
    ----------
    row : its row of the log, without owner, lease and password.
    sealed_password : as stored; the key file of the exporting catalog opens it.
    tables : rows by table name.
    """

    row: LogRow
    sealed_password: str
    tables: Mapping[str, _Rows]

    @property
    def subscription(self) -> Subscription:
        return Subscription.from_row(self.row)

    def with_mirror(self, url: str) -> "SubscriptionState":
        """The same, with the mirror at another place than the settings say."""
        settings = replace(self.subscription.settings, mirror=url)
        return replace(self, row=replace(self.row, sync_config=settings.to_text()))

    def of(self, table: sa.Table) -> _Rows:
        """The rows of one table."""
        return list(self.tables.get(table.name, []))


def owner_columns() -> dict[str, sa.Column[Any]]:
    """By name each table with rows of subscriptions, except for the log: the column that has the task id."""
    found = {
        table.name: table.c.task_id
        for table in METADATA.tables.values()
        if "task_id" in table.c and table is not mo_ccpr_log
    }
    return found | {catalog.checkpoints.name: catalog.checkpoints.c.id}


def parse_state(document: Any) -> SubscriptionState:
    """Raises StateFileNewer; ValueError, TypeError, KeyError, and errors of ours for what cannot be one."""
    document = _an_object(document, "the document")
    if document["format"] != FORMAT:
        raise ValueError("it was not exported by this program")
    for key, known in (("version", VERSION), ("catalog_version", SCHEMA_VERSION)):
        if _integer(document[key], 2**31) > known:
            raise StateFileNewer(
                f"its {key} is {document[key]}, this program knows versions up to {known}", subject="state file"
            )
    row = _log_row(_an_object(document["subscription"], "subscription"))
    sealed = document["sealed_password"]
    if not isinstance(sealed, str) or len(sealed) > 10_000 or not re.fullmatch("[A-Za-z0-9_=-]*", sealed):
        raise TypeError("sealed_password is not a sealed password")
    columns = owner_columns()
    tables = {}
    for name, value in _an_object(document["tables"], "tables").items():
        if name not in columns:
            raise ValueError(f"table {name!r:.80} is not a table with rows of subscriptions")
        tables[name] = _rows(METADATA.tables[name], columns[name].name, row.task_id, _an_object(value, name))
    return SubscriptionState(row, sealed, tables)


def _log_row(value: Mapping[str, Any]) -> LogRow:
    value = dict(value)
    endpoint, password = parse_uri(_a_text(value.pop("upstream"), None))
    if password is not None:
        raise ValueError("the upstream's URI holds a password")
    wanted = {field.name for field in fields(LogRow)} - NOT_EXPORTED
    value.setdefault("epoch", None)  # 0.1.0 did not have it, nor the next
    value.setdefault("mirror_url", None)
    if set(value) != wanted:
        raise ValueError(f"the subscription's fields differ: {', '.join(sorted(wanted ^ set(value)))}")
    cells = {name: _cell(mo_ccpr_log.c[name], cell) for name, cell in value.items()}
    return LogRow(**cells, upstream_conn=format_uri(endpoint), cn_uuid=None, lease_expires_at=0, drop_at=None)


def _rows(table: sa.Table, owner: str, task_id: str, value: Mapping[str, Any]) -> _Rows:
    """The rows of one table: each cell of its column's type, each key once, all of this subscription."""
    names = value["columns"]
    if not isinstance(names, list) or len(set(map(str, names))) != len(names) or not set(names) <= set(table.c.keys()):
        raise ValueError(f"columns of {table.name} are unknown or named twice")
    absent = [column for column in table.columns if column.name not in names]
    if any(not column.nullable for column in absent):
        raise ValueError(f"{table.name} lacks {', '.join(column.name for column in absent)}")
    columns = [table.c[name] for name in names]
    rows: _Rows = []
    for cells in _a_list(value["rows"], table.name):
        if len(_a_list(cells, table.name)) != len(columns):
            raise ValueError(f"a row of {table.name} does not have {len(columns)} cells")
        row = {column.name: _cell(column, cell) for column, cell in zip(columns, cells, strict=True)}
        rows.append(row | dict.fromkeys((column.name for column in absent), None))
    if any(row[owner] != task_id for row in rows):
        raise ValueError(f"a row of {table.name} is of another subscription")
    if len({tuple(row[column.name] for column in table.primary_key.columns) for row in rows}) != len(rows):
        raise ValueError(f"a key of {table.name} comes twice")
    return rows


def _cell(column: sa.Column[Any], value: Any) -> Any:
    """The value as the column stores it. Raises ValueError or TypeError for a value that the column cannot have."""
    kind = column.type
    if value is None:
        if not column.nullable:
            raise ValueError(f"{column.name} is empty")
        return None
    if isinstance(kind, sa.Boolean):
        if not isinstance(value, bool):
            raise TypeError(f"{column.name} is neither true nor false")
        return value
    if isinstance(kind, sa.Integer):
        return _integer(value, next(bound for known, bound in _INTEGERS.items() if type(kind) is known))
    if isinstance(kind, sa.Float):
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _refuse(column)
    text = _a_text(value, kind.length if isinstance(kind, sa.String) else None)
    if isinstance(kind, UtcTime):
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else _refuse(column)
    if isinstance(kind, sa.LargeBinary):
        found = bytes.fromhex(text)
        return found if kind.length is None or len(found) <= kind.length else _refuse(column)
    return text


def _refuse(column: sa.Column[Any]) -> Any:
    raise ValueError(f"{column.name} is not of its type")


def _integer(value: Any, bound: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -bound <= value < bound:
        raise TypeError(f"{value!r:.40} is not a whole number in its range")
    return value


def _a_text(value: Any, length: int | None) -> str:
    if not isinstance(value, str) or (length is not None and len(value) > length):
        raise TypeError(f"{value!r:.40} is not a text, or too long")
    value.encode()  # raises ValueError for half a surrogate pair, which JSON can express and no database can store
    return value


def _an_object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{what:.80} is not a JSON object")
    return value


def _a_list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TypeError(f"rows of {what:.80} are not a list")
    return value
