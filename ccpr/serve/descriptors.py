"""How many descriptors, which are open files and connections, this process may have and has.

A process without a free one can neither open a file of its mirrors nor answer a client. So a service takes as many as
the system gives, strangers get a part of them only, and health says when there are few left.
"""

import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOST: Final = 65_536  # more are of no use here
FEW: Final = 32
_FOLDERS = ("/proc/self/fd", "/dev/fd")


def raise_limit() -> int:
    """Take as many as the system gives, up to MOST. Returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the system gives fewer than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return _most()


def for_strangers(wanted: int) -> int:
    """How many of `wanted` connections others may have at once: at most half of all descriptors, at least one."""
    return max(1, min(wanted, _most() // 2))


@dataclass(frozen=True, slots=True)
class Descriptors:
    """How many are open, and how many there may be."""

    open: int
    most: int

    @classmethod
    def now(cls) -> "Descriptors":
        """Where the system does not show them, none are open; where there is none left to look with, all are."""
        most = _most()
        for folder in _FOLDERS:
            try:
                return cls(sum(1 for _ in Path(folder).iterdir()) - 1, most)
            except FileNotFoundError:
                continue
            except OSError:
                return cls(most, most)
        return cls(0, most)

    @property
    def are_few(self) -> bool:
        """Whether the next thing to open may be refused."""
        return self.most - self.open < FEW


def _most() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft
