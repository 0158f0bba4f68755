"""Counts what a local store reads and writes, and the most memory that this process has had."""

import resource
from collections import Counter
from pathlib import Path

from ccpr.mirror.local_store import LocalStore

COUNTS: Counter[str] = Counter()
_READ, _BEGIN, _PUT_TOGETHER = LocalStore.read, LocalStore.begin, LocalStore.put_together


def count_files() -> Counter[str]:
    """A counter of all stores' reads and writes from now on."""
    LocalStore.read, LocalStore.begin = _read, _begin  # pyright: ignore[reportAttributeAccessIssue]
    LocalStore.put_together = _put_together  # pyright: ignore[reportAttributeAccessIssue]
    COUNTS.clear()
    COUNTS.update(files_read=0, files_written=0, bytes_read=0, bytes_written=0)
    return COUNTS


def peak_mb() -> float:
    """The most memory that this process has had. (`getrusage` begins with that of the process which started it.)"""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1000


def _read(self: LocalStore, name: str):
    content = _READ(self, name)
    COUNTS.update(files_read=1, bytes_read=content.size)
    return content


def _begin(self: LocalStore, name: str, chunks, **options):
    end = _BEGIN(self, name, chunks, **options)

    def counted():
        stored = end()
        COUNTS.update(files_written=1, bytes_written=stored.size)
        return stored

    return counted


def _put_together(self: LocalStore, contents):
    stored = _PUT_TOGETHER(self, contents)
    COUNTS.update(files_written=len(stored), bytes_written=sum(file.size for file in stored))
    return stored
