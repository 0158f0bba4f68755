"""What a Dagster project is made of to replicate: resources, sensors, checks, and what is shown of subscriptions.

It needs the extra `dagster`, which is without pyspark. A run that copies by a Spark session of its own needs
`dagster-spark`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ccpr.base.errors import require

if TYPE_CHECKING:
    from ccpr.dagster.component import CcprComponent, MirrorTranslator
    from ccpr.dagster.mirror_io import MirrorIOManager

__all__ = ["CcprComponent", "MirrorIOManager", "MirrorTranslator"]

_HOMES = {
    "CcprComponent": "ccpr.dagster.component",
    "MirrorIOManager": "ccpr.dagster.mirror_io",
    "MirrorTranslator": "ccpr.dagster.component",
}

require("dagster", "dagster", "pandera", "polars")


def __getattr__(name: str) -> object:
    """What a project asks for is imported then: runs and the service need less."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """`dg` looks for components by it."""
    return sorted([*globals(), *__all__])
