"""Work that a machine does once at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from ccpr.base.file_modes import make_folder, opener
from ccpr.state.errors import SubscriptionBusy


@contextmanager
def only_one(folder: Path, name: str, what: str) -> Iterator[None]:
    """One of this name at a time, for the time of the block, by a lock in a folder, which is made. The kernel frees it
    however the process ends. Raises SubscriptionBusy."""
    make_folder(folder)
    with FileIO(folder / f"{name}.lock", "a", opener=opener()) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            remedy = "Wait until it has ended."
            raise SubscriptionBusy(f"another {what} is under way", subject=name, remedy=remedy) from error
        yield
