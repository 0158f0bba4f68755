"""What a Delta table says of itself: protocol and metadata. Features are declared only as they are needed.

Source: the protocol of Delta Lake; decisions lake-protocol, lake-columns.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from ccpr.lake.errors import LakeChanged
from ccpr.lake.lake_columns import LakeColumns, delta_schema
from ccpr.lake.lake_options import Mapped, TableRules
from ccpr.matrixone.schema import Reading, Table

COLUMNS, FORMAT = "ccpr.columns", "ccpr.format"
NEWEST = "2"  # FORMAT: vectors in files, bounds that exclude nothing. The files of a table without it are named anew
VECTORS = "deletionVectors"
_ENGINE = "matrixone-ccpr"
_FEATURES = frozenset((VECTORS, "columnMapping", "timestampNtz", "inCommitTimestamp", "changeDataFeed"))
_KEPT = "interval 100000 weeks"  # files and log entries leave by the retention of points, and by nothing else
_TABLES = uuid.UUID("0d6f5a1e-9f3c-4f0e-8f39-0a6f1f3f9c55")


def protocol(schema: Mapping[str, Any], rules: TableRules, *, vectors: bool) -> dict[str, Any]:
    """`protocol` of a table with this schema. `vectors`: whether a file has a deletion vector."""
    readers = []
    if vectors:
        readers.append(VECTORS)
    if rules.mapped is Mapped.NAME:
        readers.append("columnMapping")
    if "timestamp_ntz" in _types(schema):
        readers.append("timestampNtz")
    writers = [*readers, "inCommitTimestamp", *(["changeDataFeed"] if rules.change_data else [])]
    if not readers:
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writers}
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": writers}


def joined(before: Mapping[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """The protocol, with what an earlier version needs: features do not go as long as its files are there."""
    if before is None:
        return now
    found = {"minReaderVersion": max(before["minReaderVersion"], now["minReaderVersion"]), "minWriterVersion": 7}
    for key in ("readerFeatures", "writerFeatures"):
        both = dict.fromkeys((*before.get(key, ()), *now.get(key, ())))
        if both:
            found[key] = list(both)
    return found


def metadata(
    table: Table,
    columns: LakeColumns,
    reading: Reading,
    rules: TableRules,
    folder: str,
    task: str,
    created_ms: int,
    *,
    vectors: bool,
) -> dict[str, Any]:
    """`metaData` of a version. The id stays with the folder. `vectors`: whether the protocol has deletion vectors."""
    configuration = {
        "delta.enableInCommitTimestamps": "true",
        "delta.deletedFileRetentionDuration": _KEPT,
        "delta.logRetentionDuration": _KEPT,
        "ccpr.task": task,
        "ccpr.table": table.qualified_name,
        FORMAT: NEWEST,
        COLUMNS: json.dumps(columns.to_json(), ensure_ascii=False),
    }
    if vectors:
        configuration["delta.enableDeletionVectors"] = "true"
    if rules.change_data:
        configuration["delta.enableChangeDataFeed"] = "true"
    if rules.mapped is Mapped.NAME:
        configuration["delta.columnMapping.mode"] = "name"
        configuration["delta.columnMapping.maxColumnId"] = str(columns.top)
    return {
        "id": str(uuid.uuid5(_TABLES, f"{task}/{folder}")),
        "name": table.name,
        **({"description": table.comment} if table.comment else {}),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(delta_schema(table, columns, reading, rules.mapped), ensure_ascii=False),
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": created_ms,
    }


def check_features(found: Mapping[str, Any] | None, subject: str) -> None:
    """Raises LakeChanged if another writer has given the table a feature that ccpr does not write."""
    features = set((found or {}).get("writerFeatures", ())) | set((found or {}).get("readerFeatures", ()))
    if foreign := sorted(features - _FEATURES):
        remedy = (
            "Delete the table's folder; `ccpr target rebuild NAME TARGET TABLE` publishes it from its first version."
        )
        message = f"another program has given it the features {', '.join(foreign)}"
        raise LakeChanged(message, subject=subject, remedy=remedy)


def columns_of(found: Mapping[str, Any] | None) -> LakeColumns | None:
    """Those of a `metaData`; None before the first version. Raises ValueError, KeyError or TypeError."""
    return None if found is None else LakeColumns.from_json(json.loads(found["configuration"][COLUMNS]))


def commit_info(operation: str, timestamp: int, lsn: int, snapshot: str, mark: Mapping[str, Any]) -> dict[str, Any]:
    """`commitInfo`, which is a commit's first action. `timestamp`: in-commit, milliseconds."""
    return {
        "inCommitTimestamp": timestamp,
        "timestamp": timestamp,
        "operation": operation,
        "operationParameters": {"point": str(lsn), "snapshot": snapshot},
        "engineInfo": _ENGINE,
        "ccpr": dict(mark),
    }


def _types(schema: Mapping[str, Any]) -> set[str]:
    return {field["type"] for field in schema["fields"] if isinstance(field["type"], str)}
