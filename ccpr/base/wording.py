"""How long lists are said in a sentence."""

from collections.abc import Iterable


def first_names(names: Iterable[str], most: int = 5) -> str:
    """The first of them, for example `a, b and 7 more`."""
    found = list(names)
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
