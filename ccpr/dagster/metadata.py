"""What an asset shows: names of metadata, units in them, and the forms of what is not a plain number."""

import difflib
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import dagster as dg

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Table
from ccpr.matrixone.sql.quoting import printable
from ccpr.pipeline.committing import IterationOutcome
from ccpr.schema.table_changes import CatalogChange

HEALTH = "replication_health"  # the asset of all subscriptions, and the first part of the keys of each one's
SYNC_JOB = "ccpr_sync_job"  # the job that the sensor starts
APPROVE_JOB = "ccpr_approve_job"
LOG_SENSOR, HEALTH_SENSOR, RETENTION_SENSOR = "ccpr_log_sensor", "replica_health_sensor", "dagster_retention_sensor"

ITERATION_LSN = "iteration_lsn"
SNAPSHOT_NAME = "snapshot_name"
SNAPSHOT_TS = "snapshot_ts"  # the upstream's clock
SNAPSHOT_TS_NANOSECONDS = "snapshot_ts_nanoseconds"
REPLICA_BEHIND_SECONDS = "replica_behind_seconds"  # from the last iteration's snapshot to this one, upstream's clock
LAG_SECONDS = "lag_seconds"  # when it was evaluated, as `ccpr.pipeline.lag` computes it for all who show it
SNAPSHOT_TO_END_SECONDS = "snapshot_to_end_seconds"  # how old its state was when the iteration ended
CLOCK_SKEW_SECONDS = "clock_skew_seconds"  # our clock less the upstream's

STATE = "state"  # in a word
SAYS = "says"  # a sentence
IS_CURRENT = "is_current"  # 1 or 0, to plot
SUBSCRIPTIONS_TOTAL = "subscriptions_total"
SUBSCRIPTIONS_FAILING = "subscriptions_failing"
FAILING = "failing"
SUBSCRIPTIONS = "subscriptions"
PORTS = "ports"  # of the service: where they listen, and what they have counted
CURRENT_AS_OF = "current_as_of"  # when the state that is shown was the upstream's, by our clock
OBJECTIVE_SECONDS = "objective_seconds"  # how old it may be
ERROR_CODE = "last_error_code"
ERROR_MESSAGE = "last_error"
ERROR_SUBJECT = "last_error_about"
REMEDY = "what_to_do"
FAILED_ATTEMPTS = "failed_attempts"
FAILING_SINCE = "failing_since"
NEXT_ATTEMPT = "next_attempt"
TARGETS_BEHIND = "targets_behind"
CHANGED_LAST = "changed_last"  # tables, with what the newest point did to them
EXPLAINED = "explained_by"  # the command that explains the code
DOCUMENTATION = "documentation"  # a link, if it is known where the documentation is published
TABLES_WAITING = "tables_waiting"  # of a target
WAITING_STATEMENTS = "waiting_statements"

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
ADDED_MB = "added_mb"
BY_TABLE = "by_table"
READS = "rows_to_read"  # in logical mode, by table, and why all of one

OBJECTS_COPIED = "objects_copied"
OBJECTS_FOUND = "objects_found_in_store"
COPIED_MB = "copied_mb"
COPIED_ROWS, COPIED_DELETES = "copied_rows", "copied_deletes"  # in the objects that are new to the point
COPY_SECONDS = "copy_seconds"
COPY_MB_PER_SECOND = "copy_mb_per_second"

POINT_MADE = "point_made"
OLDEST_POINT = "oldest_point"  # lsn of the oldest that can be read
NEWEST_POINT = "newest_point"
SHOWN_POINT = "shown_point"  # of a follower
OBJECTS_TOTAL = "objects_total"
TOTAL_MB = "total_mb"
TABLES = "tables"
TARGETS = "targets"  # how each was synced
TARGET_STATES = "target_states"
VERIFIED_AT = "verified_at"  # when targets were asked where they are
DEFINITIONS = "definitions"  # views, sequences, functions, grants
ZERO_DATES = "zero_dates"  # 0000-00-00, by table and column

ROW_COUNT = "dagster/row_count"  # names of Dagster's own
CHANGED_AT_LSN = "changed_at_lsn"
SYNCED_WITH_POINT = "synced_with_point"  # of a target's table, when it was synced
LAST_CHANGE = "last_change"  # the upstream's clock
STORED_ROWS = "stored_rows"  # versions that a tombstone hides, too
DDL = "ddl"
URI = "dagster/uri"  # of a lake's table, as an engine opens it
LAKE_VERSION = "lake_version"  # of that table, which shows the point
TABLE_NAME = "dagster/table_name"
OWN_KEY = "ccpr/key"  # what its key would be, without the prefix, of an asset that a translator gave another one
COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
LSN_TAG = "ccpr/iteration_lsn"  # of events
SUBSCRIPTION_TAG, WHY_TAG = "ccpr/subscription", "ccpr/why"  # of runs too: which, and why in words
# Of runs, hidden by Dagster. ITERATION_TAG is task and lsn in one: a tick asks for the runs of all due iterations at
# once.
ATTEMPT_TAG, ITERATION_TAG = ".dagster/ccpr_attempt", ".dagster/ccpr_iteration"

SHOWN_ROWS = 50
SHOWN_LINES = 400
_LONGEST_PART = 110  # of a key, as JSON; four of them fit, and a word


def clock(at: Timestamp) -> dg.TimestampMetadataValue:
    return dg.MetadataValue.timestamp(datetime.fromtimestamp(at.physical / 1e9, UTC))


def ages(outcome: IterationOutcome) -> dict[str, Any]:
    """When the state was the upstream's, by our clock; how old it was when the iteration ended; how far the clocks are
    apart. A lag would stand still here while it grows: `ccpr.dagster.health` has it."""
    skew = outcome.clock_skew_seconds
    taken_at = outcome.at.physical / 1e9 + (skew or 0.0)
    return {
        CURRENT_AS_OF: dg.MetadataValue.timestamp(datetime.fromtimestamp(taken_at, UTC)),
        SNAPSHOT_TO_END_SECONDS: round(outcome.lag_seconds, 3),
        **({} if skew is None else {CLOCK_SKEW_SECONDS: round(skew, 3)}),
    }


def megabytes(size: int) -> float:
    """Exact to the byte."""
    return round(size / 1e6, 6)


def asset_key(*parts: str) -> dg.AssetKey:
    """A key of foreign names: what would be read as another part, or moves the cursor, is written %XX; long ones are
    cut and keep a digest, because Dagster's storage has room for 512 characters."""
    return dg.AssetKey([_key_part(part) for part in parts])


def _key_part(name: str) -> str:
    text = re.sub(r"[^\w .$@:+,=()-]", _percent, name) if name.isprintable() else re.sub(r"\W", _percent, name)
    if len(json.dumps(text)) <= _LONGEST_PART:
        return text
    return f"{text[:12]}~{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode(errors="surrogatepass"))


def table(
    rows: Iterable[Mapping[str, str | int | float | bool]], columns: Mapping[str, str], *, lines: Collection[str] = ()
) -> dg.TableMetadataValue:
    """The first SHOWN_ROWS rows; how many there are is shown as a number. An empty table still shows its columns.
    `lines`: columns whose texts have several lines."""
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()])
    records = [
        {
            name: printable(cell, keep="\n" if name in lines else "") if isinstance(cell, str) else cell
            for name, cell in row.items()
        }
        for row in islice(rows, SHOWN_ROWS)
    ]
    return dg.MetadataValue.table([dg.TableRecord(record) for record in records], schema)


def ddl_diff(changes: Iterable[CatalogChange]) -> dg.MarkdownMetadataValue:
    """The statements of changed tables, old against new; index tables have none and are left out."""
    lines: list[str] = []
    for change in changes:
        before, after = _statement(change.before), _statement(change.after)
        if before or after:
            lines.append(f"@@ {change.describe()} @@")
            lines += list(difflib.unified_diff(before, after, n=100, lineterm=""))[3:]
    if not lines:
        return dg.MetadataValue.md("no statement changed")
    return dg.MetadataValue.md(_block("diff", lines))


def statement(text: str) -> dg.MarkdownMetadataValue:
    """A statement of the upstream, which cannot end the block that it is in."""
    return dg.MetadataValue.md(_block("sql", text.splitlines()))


def _block(language: str, lines: Sequence[str]) -> str:
    lines = [printable(line) for line in lines]
    more = [f"… {len(lines) - SHOWN_LINES} lines more"] if len(lines) > SHOWN_LINES else []
    fence = "`" * max(3, 1 + max((len(run) for line in lines for run in re.findall("`*", line)), default=0))
    return "\n".join([f"{fence}{language}", *lines[:SHOWN_LINES], *more, fence])


def _statement(table: Table | None) -> list[str]:
    return table.ddl.splitlines() if table is not None else []
