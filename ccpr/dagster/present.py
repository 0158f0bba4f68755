"""What a subscription has now, for a Dagster that has not seen how it came: one that ran before there was a UI, or that
`ccpr run` runs."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import dagster as dg

from ccpr.dagster import metadata
from ccpr.dagster.applied_shown import tables_shown
from ccpr.dagster.events import APPLIED_TABLES, MIRROR, StepEvent
from ccpr.dagster.health import utc
from ccpr.dagster.keys import Runless
from ccpr.matrixone.schema import Kind
from ccpr.service.status import ReadRow
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow


def present_events(workspace: Workspace, row: LogRow) -> Iterator[Runless]:
    """`applied_tables` and `mirror` as the newest point has them; nothing before the first. Raises StateUnreadable,
    StateUnavailable."""
    history = workspace.of(row).history
    newest, current = history.newest(), ReadRow.of(row).context.current
    if newest is None:
        return
    refs = [point.ref for point in history.tables(newest.lsn).values() if point.ref is not None]
    shown = {
        metadata.NEWEST_POINT: newest.lsn,
        metadata.TABLES_TOTAL: sum(ref.kind is not Kind.INDEX for ref in refs),
        metadata.OBJECTS_TOTAL: sum(ref.objects for ref in refs),
        metadata.TOTAL_MB: metadata.megabytes(sum(ref.bytes for ref in refs)),
    }
    if current is not None and current.taken_at is not None:
        shown[metadata.CURRENT_AS_OF] = dg.MetadataValue.timestamp(utc(current.taken_at))
    for asset, more in ((APPLIED_TABLES, {metadata.TABLES: tables_shown(refs)}), (MIRROR, {})):
        event = StepEvent(asset, newest.lsn, newest.at, {**shown, **more})
        yield from event.runless(row.subscription_name)


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
