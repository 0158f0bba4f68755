"""One served upstream with its options, which the modules that answer statements share, and what is counted of it:
statements, sessions, fetched objects."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ccpr.matrixone.server.backing import Backing

CHUNK_BYTES = 104_857_600
# The releases whose statements can be answered: 3.0 lacks the replication interface, 4.2 knows zero dates.
Release: TypeAlias = Literal["3.0", "4.1", "4.2"]
MOST_KINDS = 1000  # a kind may have a table's name in it, which is a client's word
MOST_DISTINCT = 1_000_000  # of what is counted once each: a relay serves for months


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The counters at one moment.

    Attributes
    ----------
    statements : how many of each kind arrived, including refused ones, e.g. ``{"object_list": 2, "get_object": 8,
        "create_snapshot": 1, "select_mo_tables": 3}``.
    errors : how many statements were answered with an error.
    sessions_opened, sessions_open : all logins, and those that are still open.
    sessions_that_fetched : logins that fetched data of an object (chunk 1 or later); not counted beyond a million.
    objects_fetched : distinct objects whose data was fetched; likewise.
    object_bytes : bytes of object data that were fetched.
    """

    statements: dict[str, int]
    errors: int
    sessions_opened: int
    sessions_open: int
    sessions_that_fetched: int
    objects_fetched: int
    object_bytes: int


class ServerCounters:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statements: Counter[str] = Counter()
        self._errors = 0
        self._opened = 0
        self._open = 0
        self._fetchers: set[int] = set()
        self._objects: set[str] = set()
        self._bytes = 0

    def session_opened(self) -> None:
        with self._lock:
            self._opened += 1
            self._open += 1

    def session_closed(self) -> None:
        with self._lock:
            self._open -= 1

    def statement(self, kind: str) -> None:
        with self._lock:
            known = kind in self._statements or len(self._statements) < MOST_KINDS
            self._statements[kind if known else "other"] += 1

    def error(self) -> None:
        with self._lock:
            self._errors += 1

    def object_served(self, session: int, name: str, size: int) -> None:
        with self._lock:
            if len(self._fetchers) < MOST_DISTINCT:
                self._fetchers.add(session)
            if len(self._objects) < MOST_DISTINCT:
                self._objects.add(name)
            self._bytes += size

    def reading(self) -> ServerStatus:
        with self._lock:
            return ServerStatus(
                dict(self._statements),
                self._errors,
                self._opened,
                self._open,
                len(self._fetchers),
                len(self._objects),
                self._bytes,
            )


@dataclass(eq=False)
class Upstream:
    """An upstream that is served.

    Attributes
    ----------
    chunk_bytes : of get_object; 100 MiB in MatrixOne.
    may_flush : whether mo_ctl is permitted.
    release : which MatrixOne's statements it answers; may change between two statements, as by an upgrade in place.
    counters : of all its sessions.
    name : what the server calls itself in its messages.
    """

    backing: Backing
    chunk_bytes: int = CHUNK_BYTES
    may_flush: bool = True
    release: Release = "4.1"
    counters: ServerCounters = field(default_factory=ServerCounters)
    name: str = "emulator"
