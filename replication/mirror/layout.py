"""The path of each file of a mirror, and the schemas of the Arrow files. docs/format/mirror.md describes all of them.
Names and schemas are persisted and never change."""

import pyarrow as pa

from matrixone.objects.stats import STATS_SIZE

FORMAT = 1
COMPLETE_EVERY = 16  # a reader of a point reads at most this many files of points
HEAD = "head.json"
MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("stats", pa.binary(STATS_SIZE), nullable=False),
        pa.field("create_physical", pa.int64(), nullable=False),
        pa.field("create_logical", pa.int64(), nullable=False),
        pa.field("is_tombstone", pa.bool_(), nullable=False),
    ]
)
LEDGER_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("sha256", pa.binary(32), nullable=False),
    ]
)


def object_path(name: str) -> str:
    return f"objects/{name}"


def manifest_path(table_id: int, lsn: int, fence: int) -> str:
    return f"manifests/{table_id}/{lsn}-{fence}.arrow"


def ledger_path(lsn: int, fence: int) -> str:
    return f"ledger/{lsn}-{fence}.arrow"


def point_path(lsn: int) -> str:
    return f"points/{lsn:012}.json"
