"""The tables of targets as assets, `<subscription>/targets/<target>/<database>/<table>`: a materialization for each
that the target has got with a point, and an observation for one that is behind, with the reason.

What a materialization says stays true: Dagster's overview of a table shows it also when a later observation says that
the table is behind.

As many at once as of the replica's own tables (`ccpr.dagster.tables`); each later report goes on.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import dagster as dg

from ccpr.base.wording import filled
from ccpr.dagster import metadata, tables
from ccpr.dagster.reporting import report
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, integer_of, text_of
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.mirror import Mirror
from ccpr.service.workspace import Workspace
from ccpr.state.history import PointHistory
from ccpr.state.point_rows import TablePoint
from ccpr.state.subscription import Subscription
from ccpr.state.targets import LaggingTargetTable, Target, TargetState

_END = 2**63 - 1  # after every table of its point
_POSITION = "ccpr/target-tables/"  # a key in Dagster's own key-value table, see `_Position`


@dataclass(frozen=True, slots=True)
class _Position:
    """What was reported of a target. `lsn`, `table_id`: of the last table, in the order of `PointHistory.after`.
    `behind`: names of the tables that were behind."""

    lsn: int = -1
    table_id: int = -1
    behind: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str | None, newest: int) -> "_Position":
        """The beginning where it cannot be read, or is later than the target is: an older state is back."""
        with suppress(ValueError, KeyError, TypeError):
            value = json.loads(text or "")
            found = cls(integer_of(value["lsn"]), integer_of(value["table"]), tuple(map(text_of, value["behind"])))
            if found.lsn <= newest:
                return found
        return cls()

    def to_text(self) -> str:
        return json.dumps({"lsn": self.lsn, "table": self.table_id, "behind": self.behind})


def report_target_tables(instance: dg.DagsterInstance, workspace: Workspace, subscription: str) -> int:
    """Report what the targets have got since the last report. Returns how many tables. Raises SubscriptionMissing, and
    errors of the catalog database."""
    row = workspace.log.row(subscription)
    records = workspace.of(row)
    targets = [one for one in records.targets.all() if one.state is TargetState.ACTIVE]
    there = partial(_in_lake, workspace, subscription)
    mirror = workspace.mirror_of(Subscription.from_row(row))
    reached = [one for one in targets if one.lsn is not None]
    return sum(_report(instance, records.history, subscription, one, there, mirror) for one in reached)


def _in_lake(workspace: Workspace, subscription: str, target: Target) -> dict[str, dict[str, Any]]:
    """Of a lake's tables by name, where they are: the lake is read. Nothing where it cannot be, or of a database."""
    if target.lake is None:
        return {}
    from ccpr.service.lakes import shown

    with suppress(CcprError):  # its failure is shown where it is synced
        return {
            table.table: {
                metadata.URI: table.uri,
                metadata.LAKE_VERSION: table.version,
                metadata.ROW_COUNT: table.rows,
            }
            for table in shown(target, workspace, subscription).tables
        }
    return {}


def _report(
    instance: dg.DagsterInstance,
    history: PointHistory,
    subscription: str,
    target: Target,
    in_lake: Callable[[Target], dict[str, dict[str, Any]]],
    mirror: Mirror,
) -> int:
    assert target.lsn is not None
    assert target.snapshot_ts is not None
    storage, key = instance.daemon_cursor_storage, f"{_POSITION}{target.task_id}/{target.name}"
    before = _Position.of(storage.get_cursor_values({key}).get(key), target.lsn)
    behind = {one.table: one for one in target.behind[: tables.TABLES_AT_ONCE]}
    if before.lsn == target.lsn and before.table_id == _END and before.behind == tuple(sorted(behind)):
        return 0
    found = history.after(before.lsn, before.table_id, tables.TABLES_AT_ONCE)
    reached = [point for point in found if point.changed_lsn <= target.lsn]
    is_last = len(found) < tables.TABLES_AT_ONCE or len(reached) < len(found)
    position = (target.lsn, _END) if is_last else (found[-1].changed_lsn, found[-1].table.id)
    # One that has caught up was passed over when its point was reported.
    caught_up = set(before.behind) - behind.keys()
    reached += _named(history, target.lsn, caught_up - {point.table.qualified_name for point in reached})
    times = {point.lsn: point.at for point in history.global_points()}
    places = in_lake(target) if reached else {}
    counted = _Counted(mirror, Timestamp(target.snapshot_ts), times)
    events = list(_events(subscription, target, reached, behind, times, places, counted))
    report(instance, events)
    storage.set_cursor_values({key: _Position(*position, tuple(sorted(behind))).to_text()})
    return len(events)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Rows of the replica's tables at the point of a target: those that the target has."""

    mirror: Mirror
    at: Timestamp
    times: Mapping[int, Timestamp]

    def rows(self, point: TablePoint) -> dict[str, int]:
        """Nothing where counting would take too long."""
        # The files may be of a later point that has the same rows.
        at = max(self.at, self.times.get(point.lsn, self.at))
        found = None if point.ref is None else tables.visible_rows(self.mirror, point.ref, at)
        return {} if found is None else {metadata.ROW_COUNT: found}


def _named(history: PointHistory, lsn: int, names: set[str]) -> list[TablePoint]:
    return [point for point in history.tables(lsn).values() if point.table.qualified_name in names] if names else []


def _events(
    subscription: str,
    target: Target,
    points: list[TablePoint],
    behind: Mapping[str, LaggingTargetTable],
    times: Mapping[int, Timestamp],
    places: Mapping[str, Mapping[str, Any]],
    counted: "_Counted",
) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    tags = {metadata.SUBSCRIPTION_TAG: subscription, metadata.LSN_TAG: str(target.lsn)}
    for point in points:
        table = point.table
        if table.kind is Kind.INDEX or table.qualified_name in behind or not tables.has_copy(target, table):
            continue
        at = times.get(point.changed_lsn)
        shown = {
            metadata.SYNCED_WITH_POINT: target.lsn,
            metadata.CHANGED_AT_LSN: point.changed_lsn,
            **({} if at is None else {metadata.LAST_CHANGE: metadata.clock(at)}),
            **counted.rows(point),
            **places.get(table.qualified_name, {}),
            metadata.COLUMN_SCHEMA: tables.column_schema(tables.shown_columns(table)),
            metadata.COLUMN_LINEAGE: tables.column_lineage(
                table, tables.table_key(subscription, table.database, table.name)
            ),
        }
        key = tables.target_key(subscription, target.name, tables.copy_database(target, table.database), table.name)
        yield tables.short_enough(key, shown, {**tags, "dagster/data_version": str(point.changed_lsn)})
    names = {"NAME": subscription, "TARGET": target.name, "LAKE": target.name}
    for name, late in sorted(behind.items()):
        shown = {
            metadata.STATE: "behind",
            metadata.ERROR_CODE: late.failure.code,
            metadata.ERROR_MESSAGE: printable(late.failure.message),
            metadata.REMEDY: printable(filled(late.failure.remedy, names | {"TABLE": name})),
        }
        database, _, table_name = name.partition(".")
        key = tables.target_key(subscription, target.name, tables.copy_database(target, database), table_name)
        yield dg.AssetObservation(key, metadata=shown, tags=tags)
