"""The DuckDBs in which statements run: a few of a process, each for one statement at a time; and the time that a
statement has."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from ccpr.mirror.sql import PointTable
from ccpr.mysql.terms import MACROS

if TYPE_CHECKING:
    import duckdb

MEMORY_BYTES = 256 << 20  # of one statement
MOST_AT_ONCE = 4  # statements of all sessions; the others wait
_GROUPS_EARLY = "partial_aggregate_pushdown"


@dataclass(slots=True)
class StatementEngine:
    """`registered` are the tables that statements can name now."""

    connection: "duckdb.DuckDBPyConnection"
    registered: dict[str, object] = field(default_factory=dict)

    def register(self, tables: Mapping[str, object]) -> None:
        """These and no others."""
        for name in self.registered.keys() - tables.keys():
            self.connection.unregister(name)
            del self.registered[name]
        for name, table in tables.items():
            if self.registered.get(name) is not table:
                self.registered.pop(name, None)
                _register(self.connection, name, table)
                self.registered[name] = table


class Engines:
    """Thread-safe. Each is made when it is needed."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES, most: int = MOST_AT_ONCE) -> None:
        self._memory_bytes, self._most = memory_bytes, most
        self._places, self._lock = threading.Semaphore(most), threading.Lock()
        self._idle = list[StatementEngine]()  # the one that was used last at the end
        self._conditions: duckdb.DuckDBPyConnection | None = None
        self._closed = False
        self._changed, self._due = threading.Condition(), dict[int, tuple[float, Callable[[], object]]]()
        self._next, self._numbers, self._watching = float("inf"), count(), False

    def take(self, seconds: float) -> StatementEngine | None:
        """One that nobody else has, until it is given back; None if there was none for so long."""
        if not self._places.acquire(timeout=seconds):
            return None
        try:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            return found or StatementEngine(_connected(self._memory_bytes))
        except BaseException:
            self._places.release()
            raise

    def give(self, engine: StatementEngine) -> None:
        with self._lock:
            self._idle.append(engine)
            closed = self._closed
        self._places.release()
        if closed:
            self.close()

    def of_conditions(self) -> "duckdb.DuckDBPyConnection":
        """Another one, for the conditions of logins: to take cursors of."""
        with self._lock:
            if self._conditions is None:
                self._conditions = _connected(self._memory_bytes * self._most)
            return self._conditions

    def close(self) -> None:
        """Those that statements use end with these."""
        with self._lock:
            self._closed = True
            ended = [engine.connection for engine in self._idle]
            self._idle.clear()
            if self._conditions is not None:
                ended.append(self._conditions)
                self._conditions = None
        for connection in ended:
            connection.close()
        with self._changed:
            self._due.clear()
            self._changed.notify_all()

    # ---- deadlines

    def after(self, moment: float, act: Callable[[], object]) -> int:
        """Call `act` then, by the monotonic clock, unless the number is given to `forget` before. One thread does it:
        to start one for each statement would take as long as to find a row."""
        with self._changed:
            number = next(self._numbers)
            self._due[number] = moment, act
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="sql-deadlines", daemon=True).start()
            elif moment < self._next:
                self._changed.notify_all()
        return number

    def forget(self, number: int) -> None:
        with self._changed:
            self._due.pop(number, None)

    def _watch(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                late = [number for number, (moment, _) in self._due.items() if moment <= now]
                acts = [self._due.pop(number)[1] for number in late]
                if not acts:
                    if not self._due:
                        self._watching = False
                        return
                    self._next = min(moment for moment, _ in self._due.values())
                    self._changed.wait(self._next - now)
            for act in acts:
                act()


def _connected(memory_bytes: int) -> "duckdb.DuckDBPyConnection":
    """A DuckDB that reads nothing but what it is given, with MySQL's functions."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_bytes >> 20}MB",
        "threads": "2",
        "enable_external_access": "false",
        "python_enable_replacements": "false",
        "temp_directory": "",  # nothing is spilled, and no folder made for it
    }
    connection = duckdb.connect(config=config)
    connection.execute("SET TimeZone = 'UTC'")
    # It knows no counts of different values, and so groups whole tables before a join that needs few of their rows.
    if (_GROUPS_EARLY,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall():
        connection.execute(f"SET disabled_optimizers = '{_GROUPS_EARLY}'")
    for macro in MACROS:
        connection.execute(macro)
    return connection


def _register(connection: "duckdb.DuckDBPyConnection", name: str, table: object) -> None:
    """DuckDB orders joins by how many rows tables have, and asks no dataset of Arrow's, but what it wraps it in: that
    is not public, so another DuckDB than is known here joins without."""
    counted = _counted_source()
    if counted is None or not isinstance(table, PointTable):
        connection.register(name, table)
    else:
        connection._register_arrow_source(name, counted(table))


@cache
def _counted_source() -> Any:
    import duckdb

    try:
        from duckdb._sources.pyarrow import PyArrowDatasetSource
    except ImportError:
        return None
    if not hasattr(duckdb.DuckDBPyConnection, "_register_arrow_source"):
        return None

    class CountedSource(PyArrowDatasetSource):
        def rows(self) -> int:
            return self.obj.stored

    return CountedSource
