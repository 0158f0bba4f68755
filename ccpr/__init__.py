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

from ccpr.changes import Changes
from ccpr.mirror import Mirror, open_mirror
from ccpr.spark import read_changes, read_table, spark_session
from ccpr.table import Table
from ccpr.values import At, Location, Point, TableInfo
from matrixone.errors import CcprError
from matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ObjectUnsupported, ValueRefused
from replication.errors import (
    BadName,
    MirrorDamaged,
    PointGone,
    PointNotReached,
    StoreFailed,
    TableMissingInMirror,
)
from replication.mirror.errors import BadFilter, BadOption, ExtraMissing, KeyChanged, MirrorNotFound
from replication.mirror.filters import FilterTuple
from replication.mirror.points import LaggingTable
from replication.spark.tasks import StoreNotShared

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
