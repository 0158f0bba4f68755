"""Which rows a commit changes: proof that some files hold the rows of others, and files of the changes.

Source: decisions lake-data-change, lake-change-data.
"""

import re

_CHANGES = re.compile(r"_change_data/([0-9]{20})\.parquet")


def changes_path(version: int) -> str:
    """Of the changes of a version, below the table."""
    return f"_change_data/{version:020}.parquet"


def changes_version(path: str) -> int | None:
    """None for the path of another file."""
    found = _CHANGES.fullmatch(path)
    return None if found is None else int(found[1])
