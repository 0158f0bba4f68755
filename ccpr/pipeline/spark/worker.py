"""Avoids needless work and waiting of Spark's Python workers in every task. Runs inside workers, and does not import
Spark.

Before each task a worker invalidates the caches of its importers. Importers of archives then read the archive's
directory again: pyspark.zip once for each package of pyspark, and Spark's jar with some 27,000 entries. That takes
0.08 s of CPU time per task (decoding 300,000 rows takes 0.04 s). After each task a worker collects garbage among
everything that was ever imported: 0.03 s.

And the JVM sends a task's rows in several small pieces: it waits with the second until the first was acknowledged,
and Linux acknowledges what is not answered after 0.04 s.
"""

import gc
import os
import socket
import sys
import zipimport
from contextlib import suppress
from itertools import count
from pathlib import Path

_FREEZES = 2  # before the first task, and before the second one: the first imports what it needs
_tasks = count()  # of this worker


def configure_worker() -> None:
    """To be called within a task. `sys.path_importer_cache` is only a cache: an importer that is missing is created
    again when something is imported."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    _acknowledge_at_once()
    if next(_tasks) < _FREEZES:
        gc.collect()
        gc.freeze()  # modules are never garbage


def _acknowledge_at_once() -> None:
    """What has arrived on this process's TCP connections (one of them is the JVM's), and what comes next. Lasts for
    some packets only, so it is done in every task. Only Linux has it."""
    descriptors = Path("/proc/self/fd")
    if not hasattr(socket, "TCP_QUICKACK") or not descriptors.exists():
        return
    for path in descriptors.iterdir():
        with suppress(OSError):  # it is closed by now
            descriptor = os.dup(int(path.name))
            try:
                connection = socket.socket(fileno=descriptor)
            except OSError:  # not a socket
                os.close(descriptor)
                continue
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
