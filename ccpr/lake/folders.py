"""The folder of each table in a lake: `<database>.<table>`, as the table was called when it came.

A rename keeps the folder. A table that is created takes the folder of its name if no table that is there has it, also
where a dropped one had it before. In names everything but letters, digits, `_` and `-` is written as `=` and the bytes
in hex. Source: decision lake-folders.
"""

import hashlib
import re
from collections.abc import Collection

POINTS = "ccpr.points"  # the table of points; a database of that name is given way to
_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_LONGEST = 200  # bytes; file systems allow 255


def new_folder(database: str, name: str, table_id: int, taken: Collection[str]) -> str:
    """For a table that has none yet; `taken` are the folders of tables that are there."""
    wanted = f"{_escaped(database)}.{_escaped(name)}"
    if len(wanted) > _LONGEST:
        wanted = f"{wanted[: _LONGEST - 33]}.{hashlib.sha256(wanted.encode()).hexdigest()[:32]}"
    given = {folder.lower() for folder in (*taken, POINTS)}  # a file system may not tell letter case apart
    return f"{wanted}.{table_id}" if wanted.lower() in given else wanted


def _escaped(name: str) -> str:
    return "".join(
        letter if _PLAIN.fullmatch(letter) else "".join(f"={byte:02X}" for byte in letter.encode()) for letter in name
    )
