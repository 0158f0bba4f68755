"""A SELECT of one session, run by DuckDB over the tables of its points, within limits: of time, memory, rows, and of
how many run at once."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.types import ZERO_DATE_TYPES
from ccpr.matrixone.schema import InvalidText, Reading, Table, ZeroDates
from ccpr.matrixone.server.answers import FramedRows, StatementError
from ccpr.mirror.errors import QueryFailed
from ccpr.mirror.sql import PointTable
from ccpr.mysql.engines import MOST_AT_ONCE, Engines, StatementEngine
from ccpr.mysql.login_limits import ConditionedRows
from ccpr.mysql.select_scope import ShownColumn
from ccpr.mysql.wire_values import PIECE_BYTES, described, framed

ReadTables: TypeAlias = dict[str, PointTable | ConditionedRows | pa.Table]  # by their names in a statement
MOST_ROWS = 10_000_000  # of one result
BATCH_ROWS = 2048
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """
    Attributes
    ----------
    seconds : of a statement, from its arrival until its last row is sent.
    engines : for the statements that run at once.
    """

    seconds: float = 300.0
    rows: int = MOST_ROWS
    engines: Engines = field(default_factory=Engines)


def exact_reading(table: Table) -> Reading:
    """No value is shown as another one: what is no text, and a zero date, is an error. Where a table is known to have
    no zero date, filters on dates leave out blocks."""
    dates = [column for column in table.user_columns if column.type.oid in ZERO_DATE_TYPES]
    none = all(column.zero_dates == 0 for column in dates)
    return Reading(InvalidText.ERROR, ZeroDates.NULL if none else ZeroDates.ERROR)


class QueryRunner:
    """Of one session, on its thread; `interrupt` may be called by any."""

    def __init__(self, limits: QueryLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._engine: StatementEngine | None = None  # while a statement runs
        self._tables: ReadTables = {}
        self._stopped: StatementError | None = None
        self._held = ExitStack()  # of the last statement: what it has if its rows were never asked for

    def interrupt(self, why: StatementError) -> bool:
        """End the statement that runs. Whether one did."""
        with self._lock:
            if self._engine is None:
                return False
            self._stopped = why
            for table in self._tables.values():
                if isinstance(table, ConditionedRows):
                    table.interrupt()
            self._engine.connection.interrupt()
            return True

    def close(self) -> None:
        self._held.close()

    def rows_of(
        self,
        sql: str,
        columns_of: Callable[[pa.Schema], Sequence[ShownColumn]],
        tables: ReadTables,
        held: ExitStack,
        *,
        binary: bool,
        most: int | None = None,
        seconds: float | None = None,
    ) -> FramedRows:
        """The answer, which is computed while it is sent; then, or when it fails, `held` is closed. `most` rows are
        given, if it is not None."""
        self._held.close()
        self._held = held
        until = time.monotonic() + (seconds or self._limits.seconds)
        try:
            reader = self._start(sql, tables, held, until, seconds or self._limits.seconds)
            shown = columns_of(reader.schema)
            columns = tuple(map(described, shown))
        except BaseException:
            held.close()
            raise

        def frames(sequence: int) -> Iterator[tuple[memoryview, int]]:
            with held:
                sent = 0
                for batch in self._batches(reader):
                    if most is not None:
                        batch = batch.slice(0, max(0, most - sent))
                    sent += batch.num_rows
                    if sent > self._limits.rows:
                        text = f"the result has more than {self._limits.rows} rows: ask for fewer with LIMIT"
                        raise StatementError(1104, text, "42000")
                    for piece in _pieces(batch):
                        found, sequence = framed(piece, shown, sequence, binary=binary)
                        yield found, sequence
                    if sent == most:
                        return

        return FramedRows(columns, frames, max(1.0, until - time.monotonic()) + 1.0)

    def _start(
        self,
        sql: str,
        tables: ReadTables,
        held: ExitStack,
        until: float,
        seconds: float,
    ) -> pa.RecordBatchReader:
        import duckdb

        engines, self._stopped = self._limits.engines, None
        engine = engines.take(max(0.0, until - time.monotonic()))
        if engine is None:
            raise StatementError(1040, f"{MOST_AT_ONCE} statements run, and none ended in {seconds:.0f} s", "08004")
        held.callback(engines.give, engine)
        late = StatementError(3024, f"Query execution was interrupted: it took more than {seconds:.0f} s", "HY000")
        self._tables = tables
        with self._lock:
            self._engine = engine
        held.callback(self._ended)
        held.callback(engines.forget, engines.after(until, lambda: self.interrupt(late)))
        try:
            engine.register(tables)
            reader = engine.connection.sql(sql).to_arrow_reader(BATCH_ROWS)
        except duckdb.Error as error:
            raise self._failure(error) from error
        held.callback(reader.close)
        return reader

    def _ended(self) -> None:
        with self._lock:
            self._engine = None

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        import duckdb

        try:
            yield from reader
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        """As what it is: the end of a statement, an error of a file, one of MySQL's, else one by the words of
        DuckDB."""
        if self._stopped is not None:
            return self._stopped
        for table in self._tables.values():
            if isinstance(table, PointTable | ConditionedRows) and table.error is not None:
                found, table.error = table.error, None
                return found
        text = " ".join(str(error).partition("LINE ")[0].split())
        for words, number, state, message in _WORDS:
            if words in text:
                return StatementError(number, f"{message} ({text[:200]})" if message else text[:300], state)
        _log.info("a statement failed: %s", text)
        return QueryFailed(text[:300], subject="a statement of a MySQL client")


# What DuckDB says, and what MySQL would say.
_WORDS: Sequence[tuple[str, int, str, str]] = (
    ("Out of Memory", 1038, "HY001", "it needs more memory than a statement may have"),
    ("could not allocate", 1038, "HY001", "it needs more memory than a statement may have"),
    ("must appear in the GROUP BY", 1055, "42000", "an expression of SELECT is not in GROUP BY"),
    ("must appear in the ORDER BY", 1055, "42000", "an expression of SELECT is not in GROUP BY"),
    ("More than one row returned by a subquery", 1242, "21000", "Subquery returns more than 1 row"),
    ("out of range", 1690, "22003", "a number is out of range"),
    ("Overflow", 1690, "22003", "a number is out of range"),
    ("overflow", 1690, "22003", "a number is out of range"),
)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def told(error: CcprError) -> StatementError:
    """An error of ours as a client reads it: our code, and what to do."""
    number = 1235 if error.code == "STATEMENT_REFUSED" else 20101
    remedy = f" {error.remedy}" if error.remedy else ""
    return StatementError(number, f"{error.code}: {error.subject}: {error.message}.{remedy}")
