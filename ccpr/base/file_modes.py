"""Rights of the files and folders that this program makes: its user's alone (600, 700), or, where they are *shared*,
what the umask leaves (decision sealed-secrets).

A mode is given when a file or folder is created and never changed afterwards, so there is no moment at which others
could open it. What is there already keeps its mode. Whoever holds a lock file has a lock of the operating system, which
ends with the process, however that ends.
"""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

_CLASSES = (0o010, 0o001)  # the bits by which the group, and all others, may enter a folder


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


def create_file(path: Path) -> None:
    """Make an empty private file, unless there is one. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def sync_file(path: Path) -> None:
    """A file, or the names in a folder, are on disk afterwards. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str) -> None:
    """Write a private file, whole or not at all: readers see the old one or this. Raises OSError."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    with open(temporary, "w", encoding="utf-8", opener=opener()) as file:
        file.write(text)
    temporary.replace(path)


def is_open_to_others(path: Path) -> bool:
    """Whether the group or all others may read a file, or what is in a folder, as far as modes say. Raises OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    needed = (lambda enter: enter) if path.is_dir() else (lambda enter: enter << 2)
    return any(mode & needed(enter) and _closed_folder(path, enter) is None for enter in _CLASSES)


def closed_folder(path: Path) -> Path | None:
    """The folder on the way to a path that all others may not enter; None if there is none. Raises OSError."""
    return _closed_folder(path, _CLASSES[-1])


def _closed_folder(path: Path, enter: int) -> Path | None:
    return next((folder for folder in path.parents if not folder.stat().st_mode & enter), None)


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
