"""What `applied_tables` shows: figures of the outcome, the points and the tables."""

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg

from ccpr.dagster import metadata
from ccpr.matrixone.definitions import Definitions, Unreadable, Written
from ccpr.matrixone.sql.quoting import printable
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef
from ccpr.pipeline.committing import IterationOutcome

_LONGEST_STATEMENT = 2000  # in Dagster's event log; `ccpr tables --ddl` shows all


def applied_metadata(outcome: IterationOutcome, mirror: Mirror) -> dict[str, Any]:
    """Of an iteration that made a point."""
    point = mirror.point()
    return {
        **_numbers(outcome),
        **_points(mirror),
        metadata.TABLES: tables_shown(point.tables.values()),
        **definitions_metadata(mirror.definitions(point)),
        **zero_dates_metadata(outcome),
    }


def idle_metadata(outcome: IterationOutcome) -> dict[str, Any]:
    """Of an iteration that found nothing new: the same figures. The tables are left out, as none has changed."""
    return _numbers(outcome)


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
