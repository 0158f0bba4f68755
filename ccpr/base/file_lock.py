"""A lock file: whoever holds it has a lock of the operating system, which ends with the process, however that ends."""

import fcntl
import time
from io import FileIO
from pathlib import Path

from ccpr.base.file_modes import make_folder, opener

_LOOKS, _LOOK_SECONDS = 10, 0.05


def lock_file(path: Path, *, shared: bool = False) -> FileIO:
    """The file, empty, made with its folder if need be, and locked until it is closed. Raises BlockingIOError where
    another one holds it, OSError."""
    make_folder(path.parent)
    file = FileIO(path, "w", opener=opener(shared=shared))
    for left in reversed(range(_LOOKS)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:  # perhaps somebody who looks, and has it for a moment
            if not left:
                file.close()
                raise
            time.sleep(_LOOK_SECONDS)
    return file


def is_locked(path: Path) -> bool:
    """Whether somebody holds the file. Nothing is written. Raises OSError."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
