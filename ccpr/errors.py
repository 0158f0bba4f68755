"""The errors of the Python interface: what opening and reading a mirror raises, by name.

    try:
        rows = mirror.table("shop.orders").to_arrow(at=3)
    except ccpr.errors.PointGone as error:
        print(error.code, error.message, error.subject, error.remedy)

All are a `CcprError`. A `Transient` one may go away by itself, a `Terminal` one does not. docs/reference/errors.md has
all codes of the program.
"""

from ccpr.base.errors import ExtraMissing
from ccpr.matrixone.errors import CcprError, Terminal, Transient
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ObjectUnsupported, ValueRefused
from ccpr.mirror.errors import (
    BadFilter,
    BadName,
    BadOption,
    HoldMissing,
    KeyChanged,
    KeysNotBytes,
    KeysNotUnique,
    KeyUnusable,
    KeyWrong,
    MirrorDamaged,
    MirrorEncrypted,
    MirrorNotEncrypted,
    MirrorNotFound,
    PointGone,
    PointNotReached,
    QueryFailed,
    StoreFailed,
    TableMissingInMirror,
    TableWithoutKey,
)
from ccpr.pipeline.spark.errors import JavaMissing, SparkUnavailable, StoreNotShared

__all__ = [
    "BadFilter",
    "BadName",
    "BadOption",
    "CcprError",
    "ExtraMissing",
    "HoldMissing",
    "JavaMissing",
    "KeyChanged",
    "KeyUnusable",
    "KeyWrong",
    "KeysNotBytes",
    "KeysNotUnique",
    "MirrorDamaged",
    "MirrorEncrypted",
    "MirrorNotEncrypted",
    "MirrorNotFound",
    "ObjectDamaged",
    "ObjectMismatch",
    "ObjectUnsupported",
    "PointGone",
    "PointNotReached",
    "QueryFailed",
    "SparkUnavailable",
    "StoreFailed",
    "StoreNotShared",
    "TableMissingInMirror",
    "TableWithoutKey",
    "Terminal",
    "Transient",
    "ValueRefused",
]
