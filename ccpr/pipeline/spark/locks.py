"""Locks of the operating system on files. The kernel frees them however a process ends; a process id in a file may be
another program's after a reboot."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_held(path: Path) -> bool:
    """Whether a process holds a file's lock alone. Several may ask at a time."""
    return _refused(path, fcntl.LOCK_SH)


def is_shared(path: Path) -> bool:
    """Whether any process holds a file's lock, alone or with others."""
    return _refused(path, fcntl.LOCK_EX)


@contextmanager
def held(path: Path) -> Iterator[int | None]:
    """The descriptor of a file with its lock held; None if another process holds it. A program that inherits the
    descriptor holds the lock, too, until it ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a file's lock with others. `is_shared` holds it alone for a moment, which is waited for."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _refused(path: Path, kind: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
