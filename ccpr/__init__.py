"""Read a mirror of a MatrixOne database from Python.

    import ccpr

    mirror = ccpr.open_mirror(".ccpr/mirrors/shop")
    orders = mirror.table("shop.orders")
    rows = orders.to_arrow(at="2026-11-21T09:30", columns=["id", "total"], filters=[("id", ">=", 1000)])
    changes = orders.changes(since=3)

A mirror is a folder or a prefix of an object store; nothing else is needed, neither the state database nor the
upstream. This package is the public interface: what `__all__` lists here and in `ccpr.errors` stays, all else may
change. The reference with examples is docs/reference/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccpr import errors
    from ccpr.api.differences import Changes
    from ccpr.api.opening import Mirror, open_mirror
    from ccpr.api.scan import Scan
    from ccpr.api.spark import read_changes, read_table, spark_session
    from ccpr.api.table import Table
    from ccpr.api.values import At, Definition, Location, Point, PointChanges, TableInfo
    from ccpr.errors import *  # noqa: F403 # where the errors were before there was `ccpr.errors`
    from ccpr.matrixone.errors import CcprError
    from ccpr.mirror.filters import FilterTuple
    from ccpr.mirror.points import LaggingTable

    __version__: str

__all__ = [
    "At",
    "CcprError",
    "Changes",
    "Definition",
    "FilterTuple",
    "LaggingTable",
    "Location",
    "Mirror",
    "Point",
    "PointChanges",
    "Scan",
    "Table",
    "TableInfo",
    "__version__",
    "errors",
    "open_mirror",
    "read_changes",
    "read_table",
    "spark_session",
]

_HOMES = {
    "At": "ccpr.api.values",
    "CcprError": "ccpr.matrixone.errors",
    "Changes": "ccpr.api.differences",
    "Definition": "ccpr.api.values",
    "FilterTuple": "ccpr.mirror.filters",
    "LaggingTable": "ccpr.mirror.points",
    "Location": "ccpr.api.values",
    "Mirror": "ccpr.api.opening",
    "Point": "ccpr.api.values",
    "PointChanges": "ccpr.api.values",
    "Scan": "ccpr.api.scan",
    "Table": "ccpr.api.table",
    "TableInfo": "ccpr.api.values",
    "open_mirror": "ccpr.api.opening",
    "read_changes": "ccpr.api.spark",
    "read_table": "ccpr.api.spark",
    "spark_session": "ccpr.api.spark",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used: importing a command or a room needs none of them."""
    if name == "errors":
        return import_module("ccpr.errors")
    if name == "__version__":
        from importlib.metadata import version

        found = version("matrixone-ccpr")
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    elif name[:1].isupper() and name in import_module("ccpr.errors").__all__:  # where the errors were before
        found = getattr(import_module("ccpr.errors"), name)
    else:
        raise AttributeError(f"module 'ccpr' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
