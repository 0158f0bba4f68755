"""Read a mirror of a MatrixOne database from Python.

    import ccpr

    mirror = ccpr.open_mirror(".ccpr/mirrors/shop")
    orders = mirror.table("shop.orders")
    rows = orders.to_arrow(at="2026-11-21T09:30", columns=["id", "total"], filters=[("id", ">=", 1000)])
    changes = orders.changes(since=3)

A mirror is a folder or a prefix of an object store; nothing else is needed, neither the state database nor the
upstream. This package is the public interface: what is listed here stays, all other packages may change. The reference
with examples is docs/reference/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccpr.api.changes import Changes
    from ccpr.api.mirror import Mirror, open_mirror
    from ccpr.api.spark import read_changes, read_table, spark_session
    from ccpr.api.table import Table
    from ccpr.api.values import At, Location, Point, TableInfo
    from ccpr.base.errors import ExtraMissing
    from ccpr.matrixone.errors import CcprError
    from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ObjectUnsupported, ValueRefused
    from ccpr.mirror.errors import (
        BadFilter,
        BadName,
        BadOption,
        KeyChanged,
        MirrorDamaged,
        MirrorNotFound,
        PointGone,
        PointNotReached,
        StoreFailed,
        TableMissingInMirror,
    )
    from ccpr.mirror.filters import FilterTuple
    from ccpr.mirror.points import LaggingTable
    from ccpr.pipeline.spark.tasks import StoreNotShared

__all__ = [
    "At",
    "BadFilter",
    "BadName",
    "BadOption",
    "CcprError",
    "Changes",
    "ExtraMissing",
    "FilterTuple",
    "KeyChanged",
    "LaggingTable",
    "Location",
    "Mirror",
    "MirrorDamaged",
    "MirrorNotFound",
    "ObjectDamaged",
    "ObjectMismatch",
    "ObjectUnsupported",
    "Point",
    "PointGone",
    "PointNotReached",
    "StoreFailed",
    "StoreNotShared",
    "Table",
    "TableInfo",
    "TableMissingInMirror",
    "ValueRefused",
    "open_mirror",
    "read_changes",
    "read_table",
    "spark_session",
]

_HOMES = {
    "At": "ccpr.api.values",
    "BadFilter": "ccpr.mirror.errors",
    "BadName": "ccpr.mirror.errors",
    "BadOption": "ccpr.mirror.errors",
    "CcprError": "ccpr.matrixone.errors",
    "Changes": "ccpr.api.changes",
    "ExtraMissing": "ccpr.base.errors",
    "FilterTuple": "ccpr.mirror.filters",
    "KeyChanged": "ccpr.mirror.errors",
    "LaggingTable": "ccpr.mirror.points",
    "Location": "ccpr.api.values",
    "Mirror": "ccpr.api.mirror",
    "MirrorDamaged": "ccpr.mirror.errors",
    "MirrorNotFound": "ccpr.mirror.errors",
    "ObjectDamaged": "ccpr.matrixone.objects.errors",
    "ObjectMismatch": "ccpr.matrixone.objects.errors",
    "ObjectUnsupported": "ccpr.matrixone.objects.errors",
    "Point": "ccpr.api.values",
    "PointGone": "ccpr.mirror.errors",
    "PointNotReached": "ccpr.mirror.errors",
    "StoreFailed": "ccpr.mirror.errors",
    "StoreNotShared": "ccpr.pipeline.spark.tasks",
    "Table": "ccpr.api.table",
    "TableInfo": "ccpr.api.values",
    "TableMissingInMirror": "ccpr.mirror.errors",
    "ValueRefused": "ccpr.matrixone.objects.errors",
    "open_mirror": "ccpr.api.mirror",
    "read_changes": "ccpr.api.spark",
    "read_table": "ccpr.api.spark",
    "spark_session": "ccpr.api.spark",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used: importing a command or a room needs none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ccpr' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
