"""Links from Dagster's pages to the documentation, if `CCPR_DOCS_URL` says where it is published. Without it the place
of a page in the repository is shown."""

import os
import re

import dagster as dg

from ccpr.dagster.events import TARGET_DATABASES
from ccpr.dagster.metadata import HEALTH

VARIABLE = "CCPR_DOCS_URL"
GUIDE, FOLLOWERS, ERRORS = "how-to/run-with-dagster", "how-to/feed-a-matrixone", "reference/errors"
_SECTIONS = {  # by the beginning of a group, or of the key
    HEALTH: (GUIDE, "where-to-look"),
    "followers": (FOLLOWERS, "let-a-cluster-follow"),
    "tables": (GUIDE, "tables"),
    "upstream": (GUIDE, "tables"),
    "targets": (GUIDE, "a-target-that-is-away-or-waits"),
}
_PUBLISHED = re.compile(r"https?://[^\s<>\"]+")


def link(page: str, section: str) -> dg.MetadataValue:
    """To a section of a page."""
    base = os.environ.get(VARIABLE, "").rstrip("/")
    if _PUBLISHED.fullmatch(base):
        return dg.MetadataValue.url(f"{base}/{page}.html#{section}")
    return dg.MetadataValue.text(f"docs/{page}.md#{section}")


def of_code(code: str) -> dg.MetadataValue:
    """To what `ccpr explain` says of an error."""
    return link(ERRORS, code.lower())


def of_asset(spec: dg.AssetSpec) -> dg.MetadataValue:
    """To what the documentation says of an asset."""
    if spec.key.path[-1] == TARGET_DATABASES:
        return of_group("targets")
    return of_group(HEALTH if HEALTH in spec.key.path else (spec.group_name or "").partition("_")[0])


def of_group(name: str) -> dg.MetadataValue:
    """To what it says of the assets of a group, by the first word of its name."""
    return link(*_SECTIONS.get(name, (GUIDE, "what-is-there")))
