"""The key of a piece of an initial load in a target's `ccpr_load_parts`: a digest of all that decides which rows the
piece has.

The encoding is written out field by field and has a version, so that renaming anything in the code changes no stored
key. Version 1 is what 0.1.0 stored: a digest of the `repr` of its classes as they were then. It is only computed for a
load that 0.1.0 left unfinished, whose pieces then get their new keys.
"""

import hashlib
import json
from collections.abc import Iterable

from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject
from ccpr.matrixone.schema import Column
from ccpr.mirror.delta.split import DeltaSplit

_VERSION = "2-"


def part_key(split: DeltaSplit) -> str:
    """At one location the same key always means the same rows. At most 64 characters."""
    shape = split.shape
    value = {
        "table": shape.table,
        "columns": [column.to_json() for column in shape.columns],
        "key": [column.name for column in shape.key.columns],
        "match": shape.key.match.name,
        "dated": shape.dated,
        "times": [_time(split.before), _time(split.after)],
        "objects": [_objects(objects) for objects in (split.removed, split.added, split.kept)],
        "tombstones": [_objects(objects) for objects in (split.tombstones_before, split.tombstones_after)],
        "range": [_bound(split.keys.low), _bound(split.keys.high)],
    }
    if split.left_out_after:
        value["left out"] = sorted([key.hex(), rows.tolist()] for key, rows in split.left_out_after.items())
    return _VERSION + _digest(json.dumps(value, ensure_ascii=False, sort_keys=True))


def part_key_of_version_1(split: DeltaSplit) -> str:
    """The key that 0.1.0 gave to the same piece. Its text is the `repr` of dataclasses with the names of that
    version."""
    shape, keys = split.shape, split.keys
    key = f"RowKey(columns={_tuple(map(_column, shape.key.columns))}, match={_column(shape.key.match)})"
    columns = _tuple(map(_column, shape.columns))
    listed = (
        _tuple(map(_listed, objects))
        for objects in (split.removed, split.added, split.kept, split.tombstones_before, split.tombstones_after)
    )
    gone, came, stayed, tombstones_before, tombstones_after = listed
    text = (
        f"DeltaWork(shape=DeltaShape(table={shape.table!r}, columns={columns}, key={key}, dated={shape.dated}), "
        f"before={_timestamp(split.before)}, after={_timestamp(split.after)}, "
        f"gone={gone}, came={came}, stayed={stayed}, "
        f"tombstones_before={tombstones_before}, tombstones_after={tombstones_after}, "
        f"keys=KeyRange(low={keys.low!r}, high={keys.high!r}))"
    )
    return _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _time(at: Timestamp) -> list[int]:
    return [at.physical, at.logical]


def _objects(objects: Iterable[ListedObject]) -> list[list[object]]:
    return [
        [one.stats.raw.hex(), _time(one.created), None if one.deleted is None else _time(one.deleted), one.tombstone]
        for one in objects
    ]


def _bound(value: int | bytes | None) -> object:
    """Numbers and bytes are distinguished, whatever digits the bytes are."""
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def _tuple(texts: Iterable[str]) -> str:
    items = list(texts)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _timestamp(at: Timestamp) -> str:
    return f"Timestamp(physical={at.physical}, logical={at.logical})"


def _column(column: Column) -> str:
    kind = f"SqlType(oid={column.type.oid}, width={column.type.width}, scale={column.type.scale})"
    return (
        f"Column(name={column.name!r}, seqnum={column.seqnum}, type={kind}, hidden={column.hidden}, "
        f"labels={column.labels!r}, nullable={column.nullable})"
    )


def _listed(one: ListedObject) -> str:
    deleted = "None" if one.deleted is None else _timestamp(one.deleted)
    return (
        f"ListedObject(stats={_stats(one.stats)}, created={_timestamp(one.created)}, deleted={deleted}, "
        f"tombstone={one.tombstone})"
    )


def _stats(stats: ObjectStats) -> str:
    extent = stats.meta
    meta = (
        f"Extent(algorithm={extent.algorithm}, offset={extent.offset}, length={extent.length}, origin={extent.origin})"
    )
    return (
        f"ObjectStats(raw={stats.raw!r}, object_id={stats.object_id!r}, name={stats.name!r}, meta={meta}, "
        f"rows={stats.rows}, blocks={stats.blocks}, sort_key_zonemap={stats.sort_key_zonemap!r}, size={stats.size}, "
        f"origin_size={stats.origin_size}, appendable={stats.appendable}, sorted={stats.sorted}, "
        f"created_by_cn={stats.created_by_cn}, level={stats.level})"
    )
