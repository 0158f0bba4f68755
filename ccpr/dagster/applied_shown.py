"""What `applied_tables` shows: figures of the outcome, the points, the tables, and how targets were synced."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from ccpr.dagster import metadata
from ccpr.matrixone.definitions import Definitions, Unreadable, Written
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.pipeline.committing import Outcome
from ccpr.service.target_sync import TargetOutcome

_LONGEST_STATEMENT = 2000  # in Dagster's event log; `ccpr schema` shows all


def applied_metadata(outcome: Outcome, mirror: Mirror, targets: Sequence[TargetOutcome]) -> dict[str, Any]:
    """Of an iteration that made a point."""
    point = mirror.point()
    return {
        **_numbers(outcome),
        **_points(mirror),
        metadata.TABLES: _tables(point),
        **definitions_metadata(mirror.definitions(point)),
        **zero_dates_metadata(outcome),
        **targets_metadata(targets),
    }


def idle_metadata(outcome: Outcome) -> dict[str, Any]:
    """Of one that found nothing new: the same figures, without the tables, of which none has changed."""
    return _numbers(outcome)


def _numbers(outcome: Outcome) -> dict[str, Any]:
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


def _points(mirror: Mirror) -> dict[str, int]:
    """From which point on the replica can be read."""
    head = mirror.published_head()
    return {} if head is None or head.oldest_point is None else {metadata.OLDEST_POINT: head.oldest_point}


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
    return {metadata.DEFINITIONS: metadata.table(records, dict.fromkeys(records[0], "string"))} if records else {}


def zero_dates_metadata(outcome: Outcome) -> dict[str, dg.TableMetadataValue]:
    """How often columns have the zero date; nothing where none has. Stored values, as stored rows are."""
    rows = [
        {"table": table, "column": column, "values": count}
        for table, columns in outcome.zero_dates.items()
        for column, count in columns.items()
    ]
    kinds = {"table": "string", "column": "string", "values": "int"}
    return {metadata.ZERO_DATES: metadata.table(rows, kinds)} if rows else {}


def targets_metadata(outcomes: Sequence[TargetOutcome]) -> dict[str, dg.TableMetadataValue]:
    """How each target was synced; nothing where there is none."""
    if not outcomes:
        return {}
    rows = []
    for outcome in outcomes:
        result = outcome.result
        tables, behind = (result.tables, result.behind) if result is not None else ((), ())
        failures = (
            [str(outcome.failure)]
            if outcome.failure is not None
            else [f"{table.table}: {table.failure}" for table in behind]
        )
        rows.append(
            {
                "target": outcome.target,
                "tables_changed": len(tables),
                "rows_written": sum(table.upserted for table in tables),
                "rows_deleted": sum(table.deleted for table in tables),
                "seconds": round(outcome.seconds, 3),
                "tables_behind": len(behind),
                "failures": "\n".join(failures),
            }
        )
    numbers = dict.fromkeys(("tables_changed", "rows_written", "rows_deleted"), "int")
    kinds = {"target": "string", **numbers, "seconds": "float", "tables_behind": "int", "failures": "string"}
    return {metadata.TARGETS: metadata.table(rows, kinds)}


def _tables(point: Point) -> dg.TableMetadataValue:
    """The tables of a point, those that changed last first. Stored rows count versions that a tombstone hides."""
    refs = sorted(point.tables.values(), key=lambda ref: (-ref.lsn, ref.qualified_name))
    return metadata.table(
        (
            {
                "table": ref.qualified_name,
                "kind": ref.kind.value,
                "changed_at_lsn": ref.lsn,
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
