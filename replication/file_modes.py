"""Rights of the files and folders that this program makes: its user's alone (600, 700), or, where they are *shared*,
what the umask leaves (decision private-files).

A mode is given when a file or folder is created and never changed afterwards, so there is no moment at which others
could open it. What is there already keeps its mode.
"""

import os
from collections.abc import Callable
from pathlib import Path

OTHERS = 0o077  # the bits of the group and of all others


def opener(*, shared: bool = False) -> Callable[[str, int], int]:
    """An `opener` for `open` and `FileIO`; it sets the mode of a file that is created."""
    return lambda path, flags: os.open(path, flags, 0o666 if shared else 0o600)


def make_folder(path: Path, *, shared: bool = False) -> None:
    """Make a folder and those above it that are missing. Raises OSError."""
    try:
        path.mkdir(0o777 if shared else 0o700)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folder(path.parent, shared=shared)
        path.mkdir(0o777 if shared else 0o700, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise
