"""What a subscription has now, for a Dagster that has not seen how it came: it ran before there was a UI, `ccpr run`
runs it, or an iteration that a run did not end was ended elsewhere."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import dagster as dg
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from ccpr.dagster import metadata
from ccpr.dagster.events import (
    APPLIED_TABLES,
    CATALOG_DDL,
    COPIED_OBJECTS,
    MIRROR,
    OBJECT_DIFFS,
    STEPS,
    UPSTREAM_SNAPSHOTS,
    StepEvent,
    by_table,
    changes_shown,
    tables_shown,
)
from ccpr.dagster.health import utc
from ccpr.dagster.keys import Runless, prefix_of, prefixed
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.matrixone.schema import Kind
from ccpr.schema.table_changes import diff_catalogs
from ccpr.service.status import ReadRow
from ccpr.service.workspace import Workspace
from ccpr.state.log import SubscriptionRecords
from ccpr.state.log_rows import LogRow
from ccpr.state.point_rows import TablePoint


def lacking_assets(instance: dg.DagsterInstance, names: Iterable[str]) -> Mapping[str, set[str]]:
    """Of subscriptions, the assets whose partition Dagster shows as failed, or as never materialized."""
    found, wanted, prefix = defaultdict[str, set[str]](set), set(names), prefix_of(instance)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        for asset in (*STEPS, MIRROR):
            key = prefixed(dg.AssetKey(asset), prefix)
            status = get_and_update_asset_status_cache_value(instance, key, SUBSCRIPTIONS)
            lacking = wanted
            if status is not None:
                there = status.deserialize_materialized_partition_subsets(SUBSCRIPTIONS).get_partition_keys()
                failed = status.deserialize_failed_partition_subsets(SUBSCRIPTIONS).get_partition_keys()
                lacking = wanted.difference(there) | wanted.intersection(failed)
            for name in lacking:
                found[name].add(asset)
    return found


def present_events(workspace: Workspace, row: LogRow, only: Iterable[str] = (*STEPS, MIRROR)) -> Iterator[Runless]:
    """The steps of the iteration that made the newest point, by the catalog database; nothing before the first. What
    it changed is left out if the point before it has gone. `only`: of these assets. Raises StateUnreadable,
    StateUnavailable."""
    history = workspace.of(row).history
    newest, current = history.newest(), ReadRow.of(row).context.current
    if newest is None:
        return
    tables = history.tables(newest.lsn)
    refs = [point.ref for point in tables.values() if point.ref is not None]
    total = {metadata.TABLES_TOTAL: sum(ref.kind is not Kind.INDEX for ref in refs)}
    copied = {
        metadata.OBJECTS_COPIED: newest.objects_copied,
        metadata.COPIED_MB: metadata.megabytes(newest.bytes_copied),
    }
    shown = {
        metadata.NEWEST_POINT: newest.lsn,
        **total,
        metadata.OBJECTS_TOTAL: sum(ref.objects for ref in refs),
        metadata.TOTAL_MB: metadata.megabytes(sum(ref.bytes for ref in refs)),
    }
    if current is not None and current.taken_at is not None:
        shown[metadata.CURRENT_AS_OF] = dg.MetadataValue.timestamp(utc(current.taken_at))
    taken = {metadata.SNAPSHOT_NAME: newest.snapshot, metadata.SNAPSHOT_TS_NANOSECONDS: newest.at.physical}
    catalog, objects = dict[str, Any](), dict[str, Any]()
    if newest.lsn == 0 or history.head().oldest_point != newest.lsn:
        catalog, objects = _changes(workspace.of(row), newest.lsn, tables)
    changed = {metadata.POINT_MADE: True, metadata.TABLES_CHANGED: newest.tables_changed}
    for asset, found in (
        (UPSTREAM_SNAPSHOTS, taken),
        (CATALOG_DDL, {**total, **catalog}),
        (OBJECT_DIFFS, objects),
        (COPIED_OBJECTS, copied),
        (APPLIED_TABLES, {**shown, **changed, **copied, metadata.TABLES: tables_shown(refs)}),
        (MIRROR, shown),
    ):
        if asset in only:
            yield from StepEvent(asset, newest.lsn, newest.at, found).runless(row.subscription_name)


def _changes(
    records: SubscriptionRecords, lsn: int, tables: Mapping[int, TablePoint]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a point changed in the catalog, and which objects of the tables that it has came and went with it."""
    changed = records.history.changed(lsn)
    before = records.history.tables(lsn - 1, only=list(changed))
    changes = diff_catalogs(
        (point.table for point in before.values()), (point.table for point in changed.values() if point.ref is not None)
    )
    added, removed = records.ledger.changes(lsn)
    objects = {
        metadata.OBJECTS_ADDED: sum(count for count, _ in added.values()),
        metadata.OBJECTS_REMOVED: sum(count for count, _ in removed.values()),
        metadata.ADDED_MB: metadata.megabytes(sum(size for _, size in added.values())),
        metadata.BY_TABLE: by_table(added, removed, {number: point.table for number, point in tables.items()}),
    }
    return changes_shown(changes), objects


def changed_last(workspace: Workspace, row: LogRow) -> dict[str, Any]:
    """What the newest point did to which tables, by the catalog database; nothing before the first. Raises
    StateUnreadable, StateUnavailable."""
    history = workspace.of(row).history
    newest = history.newest()
    if newest is None:
        return {}
    changed = {
        number: point for number, point in history.changed(newest.lsn).items() if point.table.kind is not Kind.INDEX
    }
    before = history.tables(newest.lsn - 1, only=list(islice(changed, metadata.SHOWN_ROWS)))
    rows = (
        {
            "table": point.table.qualified_name,
            "stored_rows": 0 if point.ref is None else point.ref.rows,
            "stored_rows_before": 0 if (old := before.get(number)) is None or old.ref is None else old.ref.rows,
        }
        for number, point in changed.items()
    )
    kinds = {"table": "string", "stored_rows": "int", "stored_rows_before": "int"}
    return {
        metadata.CHANGED_LAST: metadata.table(rows, kinds),
        metadata.LAST_CHANGE: metadata.clock(newest.at),
        metadata.TABLES_CHANGED: newest.tables_changed,
        metadata.OBJECTS_COPIED: newest.objects_copied,
        metadata.COPIED_MB: metadata.megabytes(newest.bytes_copied),
    }
