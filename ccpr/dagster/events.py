"""What an iteration shows in Dagster, step by step: one place for the run that materializes an asset, for the sensor's
tick and for `ccpr serve`, which reports the same without a run.

A `StepEvent` is what one stage (`ccpr.pipeline.step_names.Stage`) shows. A run returns it as the result of an asset,
the others report it to the instance.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow.compute as pc

from ccpr.dagster import checks, metadata
from ccpr.dagster.keys import Runless
from ccpr.matrixone.definitions import Definitions, Unreadable, Written
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef
from ccpr.pipeline.committing import IterationOutcome
from ccpr.pipeline.iteration import IterationRecord
from ccpr.pipeline.plan import sums_by_table
from ccpr.schema.table_changes import CatalogChange, ChangeKind

STEPS = UPSTREAM_SNAPSHOTS, CATALOG_DDL, OBJECT_DIFFS, COPIED_OBJECTS, APPLIED_TABLES, TARGET_DATABASES = (
    "upstream_snapshots",
    "catalog_ddl",
    "object_diffs",
    "copied_objects",
    "applied_tables",
    "target_databases",
)
MIRROR = "mirror"
_LONGEST_STATEMENT = 2000  # in Dagster's event log; `ccpr tables --ddl` shows all


@dataclass(frozen=True, slots=True)
class StepEvent:
    """What one step of an iteration shows. `asset`: the asset's key. `lsn`, `at`: the iteration, and the time of its
    snapshot; None of what belongs to none. `data`: lsn and time (the upstream's, nanoseconds) of the point with the
    data, if it is not this iteration's."""

    asset: str
    lsn: int | None
    at: Timestamp | None
    metadata: Mapping[str, Any]
    checks: Sequence[dg.AssetCheckResult] = ()
    data: tuple[int, int] | None = None

    def result(self) -> dg.MaterializeResult:
        """For the run that materializes the asset."""
        return dg.MaterializeResult(
            metadata=self._metadata(),
            check_results=list(self.checks),
            data_version=dg.DataVersion(self._data_version()),
            tags=self._tags(),
        )

    def runless(self, subscription: str) -> Iterator[Runless]:
        """For `DagsterInstance.report_runless_asset_event`. Without the checks, which have passed: of a partition
        Dagster stores one evaluation without a run, and no second one."""
        key, tags = dg.AssetKey(self.asset), {metadata.SUBSCRIPTION_TAG: subscription, **self._tags()}
        if self.lsn is not None:
            tags["dagster/data_version"] = self._data_version()
        yield dg.AssetMaterialization(key, partition=subscription, metadata=self._metadata(), tags=tags)

    def _metadata(self) -> dict[str, Any]:
        if self.at is None:
            return dict(self.metadata)
        return {metadata.ITERATION_LSN: self.lsn, metadata.SNAPSHOT_TS: metadata.clock(self.at), **self.metadata}

    def _tags(self) -> dict[str, str]:
        return {} if self.lsn is None else {metadata.LSN_TAG: str(self.lsn)}

    def _data_version(self) -> str:
        lsn, nanoseconds = self.data or (self.lsn, self.at and self.at.physical)
        return f"{lsn}:{nanoseconds}"


def events_of(record: IterationRecord, mirror: Mirror) -> list[StepEvent]:
    """All that an iteration shows, in the order of its steps, down to mirror and targets; one event if it was idle."""
    if record.copied is None:
        return [idle(record.ended)]
    return [
        snapshot_taken(record),
        catalog_read(record),
        objects_listed(record),
        objects_copied(record),
        applied(record.ended, mirror),
        *mirror_made(record.ended),
    ]


def snapshot_taken(record: IterationRecord) -> StepEvent:
    snapshot = record.snapshot
    shown: dict[str, Any] = {
        metadata.SNAPSHOT_NAME: snapshot.name,
        metadata.SNAPSHOT_TS_NANOSECONDS: snapshot.at.physical,
    }
    if record.watermark:
        shown[metadata.REPLICA_BEHIND_SECONDS] = round((snapshot.at.physical - record.watermark) / 1e9, 3)
    return StepEvent(UPSTREAM_SNAPSHOTS, snapshot.lsn, snapshot.at, shown)


def catalog_read(record: IterationRecord) -> StepEvent:
    snapshot, diff = record.snapshot, record.catalog
    assert diff is not None
    shown = {
        metadata.TABLES_TOTAL: sum(table.kind is not Kind.INDEX for table in diff.tables.values()),
        **changes_shown(diff.changes),
        metadata.UNREPLICATED: metadata.table(
            ({"name": name, "relkind": kind} for name, kind in diff.unreplicated),
            {"name": "string", "relkind": "string"},
        ),
    }
    return StepEvent(CATALOG_DDL, snapshot.lsn, snapshot.at, shown)


def changes_shown(changes: Sequence[CatalogChange]) -> dict[str, Any]:
    kinds = [change.kind for change in changes]
    return {
        **{f"tables_{kind.value}": kinds.count(kind) for kind in ChangeKind},
        metadata.DDL_DIFF: metadata.ddl_diff(changes),
        metadata.CHANGES: metadata.table(
            ({"table": change.table.qualified_name, "change": change.kind.value} for change in changes),
            {"table": "string", "change": "string"},
        ),
    }


def objects_listed(record: IterationRecord) -> StepEvent:
    assert record.listed is not None
    assert record.catalog is not None
    snapshot, diff = record.snapshot, record.listed.diff
    tombstones = diff.added.filter(diff.added.column("is_tombstone"))
    shown = {
        metadata.OBJECTS_ADDED: diff.added.num_rows,
        metadata.OBJECTS_REMOVED: diff.removed.num_rows,
        metadata.TOMBSTONES_ADDED: tombstones.num_rows,
        metadata.ADDED_MB: metadata.megabytes(pc.sum(diff.added.column("size")).as_py() or 0),
        **_rows(record),
        metadata.BY_TABLE: by_table(sums_by_table(diff.added), sums_by_table(diff.removed), record.catalog.tables),
    }
    if reads := record.listed.reads:
        names = {number: record.catalog.named[number].qualified_name for number in reads}
        rows = [{"table": names[number], "rows": one.rows, "whole": one.whole} for number, one in reads.items()]
        shown[metadata.READS] = metadata.table(rows, {"table": "string", "rows": "int", "whole": "string"})
    return StepEvent(OBJECT_DIFFS, snapshot.lsn, snapshot.at, shown, [checks.object_list_accepted(diff)])


def objects_copied(record: IterationRecord) -> StepEvent:
    snapshot, report, seconds = record.snapshot, record.copied, record.copy_seconds
    assert report is not None
    shown = {
        metadata.OBJECTS_COPIED: report.objects_fetched,
        metadata.OBJECTS_FOUND: report.rows.num_rows - report.objects_fetched,
        metadata.COPIED_MB: metadata.megabytes(report.bytes_fetched),
        **_rows(record),
        metadata.COPY_SECONDS: round(seconds, 3),
        metadata.COPY_MB_PER_SECOND: round(report.bytes_fetched / 1e6 / seconds, 3) if seconds else 0.0,
    }
    return StepEvent(COPIED_OBJECTS, snapshot.lsn, snapshot.at, shown, [checks.objects_stored(report)])


def applied(outcome: IterationOutcome, mirror: Mirror) -> StepEvent:
    point, head = mirror.point(), mirror.published_head()
    shown = {
        **_numbers(outcome),
        **({} if head is None or head.oldest_point is None else {metadata.OLDEST_POINT: head.oldest_point}),
        metadata.TABLES: tables_shown(point.tables.values()),
        **definitions_metadata(mirror.definitions(point)),
        **zero_dates_metadata(outcome),
    }
    return StepEvent(APPLIED_TABLES, outcome.lsn, outcome.at, shown)


def mirror_made(outcome: IterationOutcome) -> list[StepEvent]:
    """The mirror, if there is a new point in it."""
    if not outcome.point:
        return []
    shown = {
        **metadata.ages(outcome),
        metadata.NEWEST_POINT: outcome.lsn,
        metadata.TABLES_TOTAL: outcome.tables,
        metadata.OBJECTS_TOTAL: outcome.objects_total,
        metadata.TOTAL_MB: metadata.megabytes(outcome.bytes_total),
    }
    return [StepEvent(MIRROR, outcome.lsn, outcome.at, shown)]


def idle(outcome: IterationOutcome) -> StepEvent:
    """An iteration that found nothing new: the tables are those of the upstream at a later time. It is a
    materialization of the same data version: what is observed would be mixed with the figures of another iteration, and
    would not count as fresh. The tables are left out, as none has changed."""
    data = None
    if outcome.newest_point is not None and outcome.newest_point_ts is not None:
        data = outcome.newest_point, outcome.newest_point_ts
    return StepEvent(APPLIED_TABLES, outcome.lsn, outcome.at, _numbers(outcome), data=data)


def _rows(record: IterationRecord) -> dict[str, int]:
    """Of the objects that are new to the point: their rows, and the deletes in their tombstones."""
    if record.listed is None:  # taken up by a run that copied already
        return {}
    added = record.listed.diff.added
    rows = pc.sum(added.column("rows")).as_py() or 0
    deletes = pc.sum(added.filter(added.column("is_tombstone")).column("rows")).as_py() or 0
    return {metadata.COPIED_ROWS: rows - deletes, metadata.COPIED_DELETES: deletes}


def by_table(
    added: Mapping[int, tuple[int, int]], removed: Mapping[int, tuple[int, int]], tables: Mapping[int, Table]
) -> dg.TableMetadataValue:
    """`added`, `removed`: objects and their bytes, by table id."""
    rows = (
        {
            "table": tables[table_id].qualified_name if table_id in tables else f"dropped table {table_id}",
            "added": added.get(table_id, (0, 0))[0],
            "removed": removed.get(table_id, (0, 0))[0],
            "added_mb": metadata.megabytes(added.get(table_id, (0, 0))[1]),
        }
        for table_id in sorted(added.keys() | removed.keys())
    )
    return metadata.table(rows, {"table": "string", "added": "int", "removed": "int", "added_mb": "float"})


def _numbers(outcome: IterationOutcome) -> dict[str, Any]:
    return {
        **metadata.ages(outcome),
        metadata.POINT_MADE: outcome.point,
        **({} if outcome.newest_point is None else {metadata.NEWEST_POINT: outcome.newest_point}),
        metadata.TABLES_TOTAL: outcome.tables,
        metadata.TABLES_CHANGED: outcome.tables_changed,
        metadata.TABLES_QUARANTINED: len(outcome.quarantined),
        **({metadata.QUARANTINED: "\n".join(map(printable, outcome.quarantined))} if outcome.quarantined else {}),
        metadata.OBJECTS_COPIED: outcome.objects_copied,
        metadata.COPIED_MB: metadata.megabytes(outcome.bytes_copied),
        metadata.OBJECTS_TOTAL: outcome.objects_total,
        metadata.TOTAL_MB: metadata.megabytes(outcome.bytes_total),
    }


def definitions_metadata(found: Sequence[Definitions]) -> dict[str, dg.TableMetadataValue]:
    """What the point has besides tables, and what of it could not be read; nothing where there is nothing."""

    def record(database: str, one: Written | Unreadable, statement: str = "", problem: str = "") -> dict[str, str]:
        place = {"database": database} if len(found) > 1 else {}
        return {**place, "kind": one.kind, "name": one.name, "statement": statement, "problem": problem}

    def statement(database: str, one: Written) -> str:
        return ";\n".join(one.statements(database))[:_LONGEST_STATEMENT]

    records = [
        *(record(each.database, one, statement(each.database, one)) for each in found for one in each.all()),
        *(record(each.database, one, problem=one.reason) for each in found for one in each.unreadable),
    ]
    if not records:
        return {}
    columns = dict.fromkeys(records[0], "string")
    return {metadata.DEFINITIONS: metadata.table(records, columns, lines=["statement"])}


def zero_dates_metadata(outcome: IterationOutcome) -> dict[str, dg.TableMetadataValue]:
    """How often columns have the zero date; nothing where none has. Stored values, as stored rows are."""
    rows = [
        {"table": table, "column": column, "values": count}
        for table, columns in outcome.zero_dates.items()
        for column, count in columns.items()
    ]
    kinds = {"table": "string", "column": "string", "values": "int"}
    return {metadata.ZERO_DATES: metadata.table(rows, kinds)} if rows else {}


def tables_shown(tables: Iterable[TableRef]) -> dg.TableMetadataValue:
    """The tables of a point, those that changed last first. Stored rows count versions that a tombstone hides."""
    refs = sorted(tables, key=lambda ref: (-ref.changed_lsn, ref.qualified_name))
    return metadata.table(
        (
            {
                "table": ref.qualified_name,
                "kind": ref.kind.value,
                "changed_at_lsn": ref.changed_lsn,
                "objects": ref.objects,
                "stored_rows": ref.rows,
                "mb": metadata.megabytes(ref.bytes),
            }
            for ref in refs
        ),
        {
            "table": "string",
            "kind": "string",
            "changed_at_lsn": "int",
            "objects": "int",
            "stored_rows": "int",
            "mb": "float",
        },
    )
