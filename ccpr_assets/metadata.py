"""What an asset shows: names of metadata, units in them, and the forms of what is not a plain number."""

import difflib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import dagster as dg

from matrixone.objects.timestamp import Timestamp
from matrixone.schema import Table
from matrixone.sql.quoting import printable
from replication.iteration.iteration import Outcome
from replication.schema.table_changes import TableChange

ITERATION_LSN = "iteration_lsn"
SNAPSHOT_NAME = "snapshot_name"
SNAPSHOT_TS = "snapshot_ts"  # the upstream's clock
SNAPSHOT_TS_NANOSECONDS = "snapshot_ts_nanoseconds"
REPLICA_BEHIND_SECONDS = "replica_behind_seconds"  # from the last iteration's snapshot to this one, upstream's clock
LAG_SECONDS = "lag_seconds"  # as `replication.iteration.lag` computes it for all who show it
CLOCK_SKEW_SECONDS = "clock_skew_seconds"  # our clock less the upstream's

TABLES_TOTAL = "tables_total"
TABLES_CHANGED = "tables_changed"
TABLES_QUARANTINED = "tables_quarantined"  # they failed while the others went on
QUARANTINED = "quarantined"  # their names, a line each
CHANGES = "changes"
DDL_DIFF = "ddl_diff"
UNREPLICATED = "not_replicated"

OBJECTS_ADDED = "objects_added"
OBJECTS_REMOVED = "objects_removed"
TOMBSTONES_ADDED = "tombstones_added"
BYTES_ADDED = "bytes_added"
BY_TABLE = "by_table"

OBJECTS_COPIED = "objects_copied"
OBJECTS_FOUND = "objects_found_in_store"
BYTES_COPIED = "bytes_copied"
COPY_SECONDS = "copy_seconds"
COPY_MIB_PER_SECOND = "copy_mib_per_second"

POINT_MADE = "point_made"
OLDEST_POINT = "oldest_point"  # lsn of the oldest that can be read
NEWEST_POINT = "newest_point"
OBJECTS_TOTAL = "objects_total"
BYTES_TOTAL = "bytes_total"
TABLES = "tables"
TARGETS = "targets"

PARTITION_ROW_COUNT = "dagster/partition_row_count"  # a name of Dagster's own
LSN_TAG = "ccpr/iteration_lsn"
SUBSCRIPTION_TAG = "ccpr/subscription"
ATTEMPT_TAG = "ccpr/attempt"
ITERATION_TAG = "ccpr/iteration"  # subscription and lsn in one: a tick asks for the runs of all due iterations at once

SHOWN_ROWS = 50
SHOWN_LINES = 400


def result(
    lsn: int, at: Timestamp, metadata: Mapping[str, Any], check_results: Iterable[dg.AssetCheckResult] = ()
) -> dg.MaterializeResult:
    """A materialization by iteration `lsn` of the state that the upstream had at `at`."""
    return dg.MaterializeResult(
        metadata={ITERATION_LSN: lsn, SNAPSHOT_TS: clock(at), **metadata},
        check_results=list(check_results),
        data_version=dg.DataVersion(f"{lsn}:{at.physical}"),
        tags={LSN_TAG: str(lsn)},
    )


def clock(at: Timestamp) -> dg.TimestampMetadataValue:
    return dg.MetadataValue.timestamp(datetime.fromtimestamp(at.physical / 1e9, UTC))


def lag(outcome: Outcome) -> dict[str, float]:
    """How old the replica was when the iteration ended, and how far the clocks are apart."""
    skew = {} if outcome.clock_skew_seconds is None else {CLOCK_SKEW_SECONDS: round(outcome.clock_skew_seconds, 3)}
    return {LAG_SECONDS: round(outcome.lag_seconds, 3), **skew}


def table(rows: Iterable[Mapping[str, str | int | float | bool]], columns: Mapping[str, str]) -> dg.TableMetadataValue:
    """The first SHOWN_ROWS rows; how many there are is shown as a number. An empty table still shows its
    columns."""
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()])
    records = [{name: _shown(cell) for name, cell in row.items()} for row in islice(rows, SHOWN_ROWS)]
    return dg.MetadataValue.table([dg.TableRecord(record) for record in records], schema)


def _shown(cell: str | int | float | bool) -> str | int | float | bool:
    return printable(cell) if isinstance(cell, str) else cell


def ddl_diff(changes: Iterable[TableChange]) -> dg.MarkdownMetadataValue:
    """The statements of changed tables, old against new; index tables have none and are left out."""
    lines: list[str] = []
    for change in changes:
        before, after = _statement(change.before), _statement(change.after)
        if before or after:
            lines.append(f"@@ {change.describe()} @@")
            lines += list(difflib.unified_diff(before, after, n=100, lineterm=""))[3:]
    if not lines:
        return dg.MetadataValue.md("no statement changed")
    lines = [printable(line) for line in lines]
    more = [f"… {len(lines) - SHOWN_LINES} lines more"] if len(lines) > SHOWN_LINES else []
    fence = "`" * max(
        3, 1 + max(len(run) for line in lines for run in re.findall("`*", line))
    )  # no statement can end the block
    return dg.MetadataValue.md("\n".join([f"{fence}diff", *lines[:SHOWN_LINES], *more, fence]))


def _statement(table: Table | None) -> list[str]:
    return table.ddl.splitlines() if table is not None else []
