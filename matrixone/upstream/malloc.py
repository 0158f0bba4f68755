"""Keep the memory of large answers with the process: spark.md section 4.

The C library gives every block of some megabytes back to the kernel and asks for it anew, and the page faults of that
cost more than the copying: with these settings one connection reads two to four times as fast. The price is that freed
memory stays with the process; so what is as large as a whole wire packet, the parts of objects beyond 16 MB, is given
back after all: else the memory of a chunk of 100 MiB would stay.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # <malloc.h> of glibc
_TOP_PAD_BYTES = 128 << 20
_MMAP_BYTES = (1 << 24) - 1  # of a wire packet


def keep_large_blocks() -> None:
    """For processes that copy objects, once at their start. Does nothing where the C library has no mallopt (musl,
    macOS, Windows)."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)
