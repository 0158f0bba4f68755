"""Each table as an asset, `<subscription>/<database>/<table>`, made from the points at run time: its columns, visible
rows, size, statement, last change, and from which columns upstream its columns come.

Of a point that changes many tables, or of a first one, not all are reported at once: those that changed last come
first, and each later iteration goes on with the others (`TABLES_AT_ONCE`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._serdes import serialize_value

from ccpr.dagster import metadata
from ccpr.dagster.reporting import report
from ccpr.matrixone.ddl.definition import ColumnDefinition, ColumnType
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import unreadable_columns
from ccpr.matrixone.schema import Column, Kind, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef
from ccpr.mirror.table_read import count_visible
from ccpr.schema.table_changes import diff_catalogs
from ccpr.service.workspace import Workspace
from ccpr.state.history import PointHistory
from ccpr.state.point_rows import TablePoint
from ccpr.state.subscription import Subscription
from ccpr.state.targets import Target
from ccpr.targets.address import address_of

TABLES_AT_ONCE = 50  # an event takes 10 to 50 ms in SQLite
UPSTREAM = "upstream"
TARGETS = "targets"
# Keys in Dagster's own key-value table: lsn and id of the last table that was reported, in the order of
# `PointHistory.after`, and the point whose changes were reported before their turn.
_POSITION = "ccpr/tables/"
_BEGINNING = [-1, -1, -1]
# In MySQL an event has room for 64 kB. What a table with thousands of columns has too much of is left out, in this
# order; its definition has the columns all the same.
_LONGEST_EVENT = 50_000
_LEFT_OUT_FIRST = (metadata.COLUMN_LINEAGE, metadata.DDL_DIFF, metadata.COLUMN_SCHEMA, metadata.DDL)


def table_key(subscription: str, database: str, table: str) -> dg.AssetKey:
    return metadata.asset_key(subscription, database, table)


def upstream_key(subscription: str, database: str, table: str) -> dg.AssetKey:
    """The table that it is a replica of."""
    return metadata.asset_key(UPSTREAM, subscription, database, table)


def target_key(subscription: str, target: str, database: str, table: str) -> dg.AssetKey:
    """The table of a target that is fed from it."""
    return metadata.asset_key(subscription, TARGETS, target, database, table)


def copy_database(target: Target, database: str) -> str:
    """The database of the copy of a table; `database` is the table's upstream."""
    return database if target.lake is not None else address_of(target).database


def has_copy(target: Target, table: Table | TableRef) -> bool:
    """Whether the target takes the table."""
    if target.lake is None or not target.takes(table.database):
        return target.takes(table.database)
    from ccpr.lake.lake_options import LakeOptions

    return LakeOptions.from_text(target.lake).patterns.match(table.name)


def newest_reported(instance: dg.DagsterInstance, tasks: Iterable[str]) -> dict[str, int]:
    """Lsn of the newest point of each subscription whose changes were reported, by task id."""
    keys = {_POSITION + task: task for task in tasks}
    found = instance.daemon_cursor_storage.get_cursor_values(set(keys))
    return {keys[key]: _parsed(text, 2**63 - 1)[2] for key, text in found.items()}


def report_tables(instance: dg.DagsterInstance, workspace: Workspace, subscription: str) -> int:
    """Report the tables that changed with the newest point, and go on with those that were not reported yet. Returns
    how many. Raises SubscriptionMissing, and errors of the catalog database."""
    row = workspace.log.row(subscription)
    history, storage = workspace.of(row).history, instance.daemon_cursor_storage
    newest = history.newest()
    if newest is None:
        return 0
    key = _POSITION + row.task_id
    *position, seen = _parsed(storage.get_cursor_values({key}).get(key), newest.lsn)
    end = [newest.lsn, 2**63 - 1]
    if position == end:
        return 0
    points = history.changed(newest.lsn).values() if newest.lsn != seen else ()
    changed = [one for one in points if one.table.kind is not Kind.INDEX and one.changed_lsn == newest.lsn]
    fresh = sorted(changed, key=lambda point: point.table.id)[:TABLES_AT_ONCE]
    left = TABLES_AT_ONCE - len(fresh)
    backlog = history.after(position[0], position[1], left) if left else []
    if left:
        position = end if len(backlog) < left else [backlog[-1].changed_lsn, backlog[-1].table.id]
    known = {point.table.id for point in fresh}
    others = [point for point in backlog if point.table.id not in known and point.table.kind is not Kind.INDEX]
    times = {point.lsn: point.at for point in history.global_points()} if others else {newest.lsn: newest.at}
    reported = _Reported(row.subscription_name, workspace.mirror_of(Subscription.from_row(row)), newest.at, times)
    before = _before(history, newest.lsn, changed)
    alive = {point.table.logical_id for point in changed if point.ref is not None}
    for point in fresh:
        if point.ref is not None or point.table.logical_id not in alive:  # else it lives on under another id
            report(instance, reported.changed(point, before.get(point.table.logical_id)))
    for point in others:
        report(instance, [reported.event(point)])
    storage.set_cursor_values({key: ":".join(map(str, [*position, newest.lsn]))})
    return len(fresh) + len(others)


def _parsed(text: str | None, newest: int) -> list[int]:
    parts = (text or "").split(":")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return _BEGINNING
    if max(int(parts[0]), int(parts[2])) > newest:  # an older state is back
        return _BEGINNING
    return [int(part) for part in parts]


def _before(history: PointHistory, lsn: int, changed: Iterable[TablePoint]) -> Mapping[int, Table]:
    """The tables as they were before a point changed them, by logical id."""
    points = history.tables(lsn - 1, only=[point.table.id for point in changed])
    return {point.table.logical_id: point.table for point in points.values()}


@dataclass(frozen=True, slots=True)
class _Reported:
    """Makes the events of one point's tables. `at`: of the point. `times`: of the points that changed the tables, by
    lsn."""

    subscription: str
    mirror: Mirror
    at: Timestamp
    times: Mapping[int, Timestamp]

    def changed(self, point: TablePoint, before: Table | None) -> Iterator[dg.AssetMaterialization]:
        """Of a table that the point has changed; `before` is None for a new one. What was renamed has two pages."""
        after = None if point.ref is None else point.table
        diff = metadata.ddl_diff(diff_catalogs([before] if before else [], [after] if after else []))
        yield self.event(point, {metadata.DDL_DIFF: diff})
        if before is not None and after is not None and before.qualified_name != after.qualified_name:
            renamed = {metadata.STATE: f"renamed to {printable(after.qualified_name)}", metadata.DDL_DIFF: diff}
            yield self._materialization(before, point.lsn, renamed)

    def event(self, point: TablePoint, more: Mapping[str, Any] | None = None) -> dg.AssetMaterialization:
        table, ref = point.table, point.ref
        if ref is None:
            return self._materialization(table, point.lsn, {metadata.STATE: "dropped upstream", **(more or {})})
        rows = visible_rows(self.mirror, ref, self.at)
        shown = {
            metadata.STATE: "replicated",
            **({} if rows is None else {metadata.ROW_COUNT: rows}),
            metadata.STORED_ROWS: ref.rows,
            metadata.OBJECTS_TOTAL: ref.objects,
            metadata.TOTAL_MB: metadata.megabytes(ref.bytes),
            metadata.COLUMN_SCHEMA: column_schema(shown_columns(table)),
            metadata.COLUMN_LINEAGE: column_lineage(table, upstream_key(self.subscription, table.database, table.name)),
            **(more or {}),
            metadata.DDL: metadata.statement(table.ddl),
        }
        return self._materialization(table, point.changed_lsn, shown)

    def _materialization(self, table: Table, lsn: int, shown: Mapping[str, Any]) -> dg.AssetMaterialization:
        changed_at = self.times.get(lsn)
        when = {} if changed_at is None else {metadata.LAST_CHANGE: metadata.clock(changed_at)}
        tags = {metadata.SUBSCRIPTION_TAG: self.subscription, metadata.LSN_TAG: str(lsn)}
        tags["dagster/data_version"] = str(lsn)
        shown = {metadata.CHANGED_AT_LSN: lsn, metadata.TABLE_NAME: table.qualified_name, **when, **shown}
        return short_enough(table_key(self.subscription, table.database, table.name), shown, tags)


def short_enough(key: dg.AssetKey, shown: Mapping[str, Any], tags: Mapping[str, str]) -> dg.AssetMaterialization:
    """A materialization that Dagster's storage has room for."""
    found = dict(shown)
    event = dg.AssetMaterialization(key, metadata=found, tags=tags)
    for name in _LEFT_OUT_FIRST:
        if len(serialize_value(event).encode()) <= _LONGEST_EVENT:
            break
        found.pop(name, None)
        event = dg.AssetMaterialization(key, metadata=found, tags=tags)
    return event


def visible_rows(mirror: Mirror, ref: TableRef, at: Timestamp) -> int | None:
    """None where it would take too long, and in a bucket, where each object would be downloaded."""
    if mirror.store.folder is None:
        return None
    try:
        return count_visible(mirror, mirror.manifest(ref), at)
    except CcprError:
        return None  # damaged, or expired meanwhile: its readers and `ccpr verify` say so


@dataclass(frozen=True, slots=True)
class DescribedColumn:
    """A column as pages show it. `says`: its comment, and what cannot be read; empty if there is neither."""

    name: str
    type: str
    says: str
    nullable: bool


def shown_columns(table: Table) -> tuple[DescribedColumn, ...]:
    """Types and comments of the user's columns as the statement declares them, and what cannot be read."""
    types = {column.name: _type_of(column) for column in table.user_columns}
    statement = table.ddl.upper()
    # Reading a statement takes a third of a millisecond, and most say nothing of columns that the catalog does not.
    is_read = None in types.values() or any(word in statement for word in ("COMMENT", "SRID"))
    declared, unread = _declared(table) if is_read else {}, unreadable_columns(table.user_columns)
    columns = []
    for column in table.user_columns:
        found, kind = declared.get(column.name), types[column.name]
        says = ". ".join(filter(None, (found.comment if found else "", unread.get(column.name))))
        kind = str(found.type) if found else kind or "?"
        columns.append(DescribedColumn(printable(column.name), printable(kind), printable(says), column.nullable))
    return tuple(columns)


def column_schema(columns: Iterable[DescribedColumn]) -> dg.TableSchema:
    return dg.TableSchema(
        [
            dg.TableColumn(
                one.name,
                one.type,
                description=one.says or None,
                constraints=dg.TableColumnConstraints(nullable=one.nullable),
            )
            for one in columns
        ]
    )


def column_lineage(table: Table, source: dg.AssetKey) -> dg.TableColumnLineage:
    """Each column comes from the one of the same name."""
    names = [printable(column.name) for column in table.user_columns]
    return dg.TableColumnLineage({name: [dg.TableColumnDep(source, name)] for name in names})


def _declared(table: Table) -> dict[str, ColumnDefinition]:
    """The columns as the statement has them."""
    try:
        columns = parse_create_table(table.ddl, subject=f"table {table.qualified_name}").columns
    except DdlUnreadable:
        return {}
    return {column.name: column for column in columns}


def _type_of(column: Column) -> str | None:
    """As the catalog has it; None for a type that it has no name for."""
    try:
        return str(ColumnType.of(column))
    except ValueError:
        return None
