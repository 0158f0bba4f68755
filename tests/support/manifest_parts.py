"""Manifests that have parts, also of tables with few objects."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from ccpr.mirror import manifests


def divided(longest_whole: int = 0, merged_below: int = 0) -> AbstractContextManager[Any]:
    """Within it, manifests are written whole up to so many objects, and parts merged up to so many times the change."""
    return patch.multiple(manifests, LONGEST_WHOLE=longest_whole, MERGED_BELOW=merged_below)
