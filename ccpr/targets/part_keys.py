"""The key of a piece of an initial load in a target's `ccpr_load_parts`: a digest of all that decides which rows the
piece has.

The encoding is written out field by field and has a version, so that renaming anything in the code changes no stored
key.
"""

import hashlib
import json
from collections.abc import Iterable

from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject
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
