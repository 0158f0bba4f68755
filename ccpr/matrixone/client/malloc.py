"""Keep the memory of large answers in the process, and give it back where a process lives long.

The C library returns every block of some megabytes to the kernel and requests it again, and the page faults of that
cost more than copying the bytes: with these settings one connection reads two to four times as fast. The price is that
freed memory stays with the process. So blocks as large as a whole wire packet (16 MiB) are still returned; otherwise
the memory of a chunk of 100 MiB would stay.
"""

import ctypes
import sys
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8  # <malloc.h> of glibc
_PR_SET_THP_DISABLE = 41  # <linux/prctl.h>
_TOP_PAD_BYTES = 128 << 20
_MMAP_BYTES = (1 << 24) - 1  # of a wire packet


def keep_large_blocks() -> None:
    """Call it once at the start of a process that copies objects. Does nothing if the C library has no mallopt (musl,
    macOS, Windows)."""
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


def stay_small() -> None:
    """Call it at the start of a process with many threads that lives long. Does nothing but on Linux.

    Arrow's allocator asks for huge pages, and each 2 MB of it that a thread has touched once is then resident as a
    whole: they are refused, to children, too. The C library has an arena for each thread, and of what is freed at the
    end of one `return_free_memory` returns nothing, but of the first one's: there is to be no other.
    """
    prctl, mallopt = _of_libc("prctl"), _of_libc("mallopt")
    if prctl is not None:
        prctl(_PR_SET_THP_DISABLE, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def return_free_memory() -> None:
    """Return free pages to the kernel, in a few milliseconds: what `keep_large_blocks` keeps. Does nothing without
    glibc's malloc_trim."""
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _of_libc(name: str) -> Any:
    """A function of Linux's C library; None if it has no such one."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
