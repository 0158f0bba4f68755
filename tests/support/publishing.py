"""Points as the commit of an iteration leaves them: their files, then the head that names the newest."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from ccpr.matrixone.schema import Table
from ccpr.mirror.layout import MANIFEST_SCHEMA, MANIFEST_SCHEMA_1, Head
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point, TableRef


def publish(
    mirror: Mirror, point: Point, changed: Mapping[int, TableRef | None] | None = None, *, oldest: int | None = None
) -> str:
    """Publish a point after those that are there, in which these tables changed (None: all of them); `oldest` becomes
    the oldest that can be read. Returns the path of the point's file."""
    if changed is None:
        before = mirror.published_head()
        gone = mirror.point().tables.keys() - point.tables.keys() if before and before.point else ()
        changed = {**point.tables, **dict.fromkeys(gone)}
    path = mirror.write_point(point, changed, list(mirror.point_files().all()))
    head = mirror.published_head() or Head(point.lsn, None, 0, 0)
    first = head.oldest_point if oldest is None else oldest
    mirror.publish_head(Head(first, point.lsn, point.lsn + 1, point.at.physical, path))
    return path


def publish_idle(mirror: Mirror, iteration_lsn: int, watermark: int) -> None:
    """Publish an iteration without a point."""
    head = mirror.published_head() or Head(None, None, 0, 0)
    mirror.publish_head(replace(head, iteration_lsn=iteration_lsn, watermark=watermark))


def write_manifest(mirror: Mirror, table: Table, objects: pa.Table, lsn: int) -> str:
    """Write a manifest without checksums; its path. `objects` is MANIFEST_SCHEMA_1, or MANIFEST_SCHEMA."""
    if objects.schema.equals(MANIFEST_SCHEMA_1):
        for field in list(MANIFEST_SCHEMA)[len(MANIFEST_SCHEMA_1) :]:
            objects = objects.append_column(field, pa.nulls(objects.num_rows, field.type))
    return mirror.write_manifest(table, objects, lsn, 1)
