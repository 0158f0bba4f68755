"""What other users of the machine see meanwhile: the arguments of processes, looked at again and again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SECONDS = 0.02  # between two looks: a launcher of Java's runs for half a second


@contextmanager
def process_list() -> Iterator[set[str]]:
    """The command lines of all processes that ran during the block, once it has ended."""
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        known: set[tuple[str, int]] = set()
        while not ended.wait(_SECONDS):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    arguments = path.read_bytes()
                    if (key := (path.parent.name, hash(arguments))) not in known:  # a process has others after exec
                        known.add(key)
                        seen.add(arguments.replace(b"\0", b" ").decode(errors="replace"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
