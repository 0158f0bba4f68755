"""Packages that only some need. They come with an extra of this program (`pyproject.toml`, docs/dependencies.md), and
what needs one asks here before it imports it. Nothing is imported here.
"""

from importlib.util import find_spec

from ccpr.base.errors import ExtraMissing


def require(extra: str, *packages: str, otherwise: str = "") -> None:
    """Raises ExtraMissing, which names the extra, unless all these packages of it can be imported. `otherwise` is a
    sentence about how to do without it."""
    if missing := absent(*packages):
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        raise missing_extra(extra, what, otherwise)


def missing_extra(extra: str, what: str, otherwise: str = "") -> ExtraMissing:
    """The error that names the extra: `what` is missing."""
    remedy = f"pip install 'matrixone-ccpr[{extra}]'"
    return ExtraMissing(what, subject=f"extra {extra}", remedy=f"{remedy}. {otherwise}" if otherwise else remedy)


def absent(*packages: str) -> list[str]:
    """Those of some top-level packages that are not installed."""
    return [package for package in packages if find_spec(package) is None]
