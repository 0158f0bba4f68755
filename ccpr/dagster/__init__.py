"""What a Dagster project is made of to replicate: resources, sensors, checks, and what is shown of subscriptions.

It needs the extra `dagster`, which is without pyspark. A run that copies by a Spark session of its own needs
`dagster-spark`.
"""

from typing import TYPE_CHECKING

from ccpr.base.extras import require

if TYPE_CHECKING:
    from ccpr.dagster.component import CcprComponent

__all__ = ["CcprComponent"]

require("dagster", "dagster", "pandera", "polars")


def __getattr__(name: str) -> object:
    """The component is imported when a project asks for it: runs and the service do not."""
    if name == "CcprComponent":
        from ccpr.dagster.component import CcprComponent

        return CcprComponent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """`dg` looks for components by it."""
    return sorted([*globals(), *__all__])
