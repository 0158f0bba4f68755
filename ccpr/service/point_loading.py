"""A kept point as tables of a MariaDB, MySQL or MatrixOne database: they are loaded as those of a target are, and then
released, so that nothing of ours is left. Neither the upstream nor the catalog database is asked for them.

Interrupted, the same command goes on where it stopped: what a database has of an attempt is known by a number that
follows from the mirror, the point and the database. Source: decision a-restore-is-tried.
"""

import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock

import pyarrow as pa

from ccpr.base.errors import Failure
from ccpr.base.progress import SILENT, Progress
from ccpr.base.wording import first_names
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.objects.types import arrow_schema
from ccpr.matrixone.schema import DEFAULT_READING, FAKE_KEY, Kind, Reading, Table
from ccpr.matrixone.sql.errors import DdlUnreadable
from ccpr.mirror.as_asked import as_asked
from ccpr.mirror.column_sums import ColumnSum
from ccpr.mirror.delta.change_rows import for_database
from ccpr.mirror.errors import PointNotReached, TableMissingInMirror
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point, TableRef
from ccpr.mirror.row_sums import RowSum, Summing
from ccpr.schema.choices import Dialect
from ccpr.schema.policy import DdlPolicy
from ccpr.schema.render import HIDDEN_KEY
from ccpr.schema.sync_mark import NotSyncable
from ccpr.schema.target_types import TargetUnfit
from ccpr.service.errors import RestoredDiffers, RestoreIncomplete
from ccpr.state.database import transaction
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.migrations import open_database
from ccpr.state.point_rows import TablePoint
from ccpr.state.tables import mo_ccpr_log
from ccpr.state.targets import LaggingTargetTable
from ccpr.targets.address import Address
from ccpr.targets.base import TableState
from ccpr.targets.database_server import DatabaseServer
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.encoding import LoadColumn, for_target, load_columns
from ccpr.targets.errors import TargetRefused, TargetTableForeign
from ccpr.targets.expected_tables import ExpectedTables, TargetRules
from ccpr.targets.sync import TargetSync
from ccpr.targets.target_plan import wanted_table

_NUMBERS = uuid.UUID("5a2f5a55-5d0e-4a3e-8f55-0a9b8c7d6e5f")  # of attempts
_ROWS = 1 << 14  # at once: what is made of them stays in the cache


class TableTally:
    """Counts one table while it is loaded, as the server can count it again (`ccpr.mirror.column_sums`). Any number of
    threads may share it.

    Parameters
    ----------
    columns : the user's; those that this release knows can be read.
    """

    def __init__(self, columns: Sequence[LoadColumn], dialect: Dialect, subject: str) -> None:
        sources = [column.source for column in columns if column.source is not None]
        self._summing, self._lock, self._subject = Summing(arrow_schema(sources)), Lock(), subject
        self._columns = [column for column in columns if column.source is not None]
        self._counts = [ColumnSum(column.name, column.target.type, dialect) for column in self._columns]
        self._sums = [(0,) * len(count.expressions) for count in self._counts]

    def add(self, read: pa.Table, given: pa.Table) -> None:
        """Rows as they were read, and as they are given to the server."""
        for start in range(0, given.num_rows, _ROWS):
            piece, source = given.slice(start, _ROWS), read.slice(start, _ROWS)
            values = (for_target(piece, column, self._subject) for column in self._columns)
            found = [count.of(given) for count, given in zip(self._counts, values, strict=True)]
            with self._lock:
                self._summing.add(source)
                pairs = zip(self._sums, found, strict=True)
                self._sums = [tuple(map(sum, zip(*pair, strict=True))) for pair in pairs]

    @property
    def row_sum(self) -> RowSum:
        return self._summing.row_sum()

    @property
    def expressions(self) -> list[str]:
        return ["COUNT(*)", *(text for count in self._counts for text in count.expressions)]

    @property
    def only_counted(self) -> list[str]:
        """The columns whose values are not compared."""
        return [count.name for count in self._counts if not count.is_summed]

    def differs(self, found: Sequence[object]) -> str:
        """How what the server counted differs, for people; empty if it does not. `found`: of `expressions`."""
        rows, *others = (int(str(value if value is not None else 0)) for value in found)
        if rows != self.row_sum.rows:
            return f"{rows:,} rows instead of {self.row_sum.rows:,}"
        for count, (expected, *total) in zip(self._counts, self._sums, strict=True):
            counted, *there = (others.pop(0) for _ in count.expressions)
            if counted != expected:
                return f"column {count.name}: {counted:,} values that are not null instead of {expected:,}"
            if there != total:
                return f"column {count.name}: as many values, and others"
        return ""


@dataclass(frozen=True, slots=True)
class PointSource:
    """What is loaded: tables of one database as of a point. `database`: as it is called in the mirror. `tables`: names
    without the database; empty for all."""

    mirror: Mirror
    point: Point
    database: str
    tables: tuple[str, ...] = ()

    def chosen(self) -> dict[int, Table]:
        """By id. Raises TableMissingInMirror, PointNotReached for one that the point does not show, MirrorDamaged."""
        point = self.point
        late = [
            entry.qualified_name
            for entry in point.behind.values()
            if entry.database == self.database and (not self.tables or entry.name in self.tables)
        ]
        if late:
            remedy = "Choose a point that is consistent: `ccpr points NAME`; or other tables with --table."
            text = f"it does not show {first_names(sorted(late))}, which lag"
            raise PointNotReached(text, subject=f"point {point.lsn}", remedy=remedy)
        refs = [ref for ref in point.tables.values() if ref.kind is Kind.TABLE and ref.database == self.database]
        missing = set(self.tables) - {ref.name for ref in refs}
        if missing:
            text = f"point {point.lsn} has no table {first_names(sorted(missing))}"
            raise TableMissingInMirror(text, subject=f"database {self.database}")
        wanted = [ref for ref in refs if not self.tables or ref.name in self.tables]
        return {ref.table_id: self.mirror.manifest(ref).table for ref in wanted}

    def refs(self) -> list[TableRef]:
        """Of those tables. Raises what `chosen` raises."""
        return [self.point.tables[table_id] for table_id in self.chosen()]


@dataclass(frozen=True, slots=True)
class LoadedPoint:
    """What was loaded.

    Attributes
    ----------
    tables, rows : that the database has now.
    row_sums : of each table, by its id.
    left_out : by table, what of its definition the server has not.
    there : tables that it had before, with the same rows.
    behind : tables that it has not, or not with these rows, and why.
    """

    database: str
    lsn: int
    at: int
    tables: int
    rows: int
    bytes: int
    seconds: float
    row_sums: dict[int, RowSum] = field(default_factory=dict)
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict)
    there: tuple[str, ...] = ()
    behind: tuple[LaggingTargetTable, ...] = ()


def load_point(
    source: PointSource,
    address: Address,
    password: str,
    *,
    progress: Progress = SILENT,
    reading: Reading = DEFAULT_READING,
) -> LoadedPoint:
    """Load tables into a database, which is made if there is none, and compare what the server has with what was read.
    Tables that are there already are never touched, and count if they have the same rows. A table that the server
    cannot have does not stop the others.

    Raises RestoreIncomplete if it would go on when tried again, or if there is no table in the end; RestoredDiffers,
    PointNotReached, TableMissingInMirror, MirrorDamaged, errors of targets.
    """
    started, tables = time.monotonic(), source.chosen()
    number = str(uuid.uuid5(_NUMBERS, _text_of(source, address)))
    tallies: dict[int, TableTally] = {}
    ids = {table.qualified_name: table_id for table_id, table in tables.items()}
    with DatabaseServer(address.endpoint, password) as server:
        server.create(address.database)
    with history_of(source, tables, number) as history, _opened(history, address, password, number) as destination:
        point = history.newest()
        assert point is not None
        place = (destination.dialect, address.database)
        rules = TargetRules(*place, DdlPolicy.FULL, task_id=number, source_database=source.database)
        destination.forget_missing()
        new_tally = partial(_tally, rules)
        tallies |= {table_id: made for table_id, table in tables.items() if (made := new_tally(table)) is not None}
        sync = TargetSync(
            destination,
            source.mirror,
            history,
            point,
            rules,
            progress=progress,
            reading=reading,
            on_loaded=lambda table_id, read, given: tallies[table_id].add(read, given),
        )
        done = sync.run()
        behind = {ids[one.table]: one for one in done.behind}
        if any(one.again for one in behind.values()):
            raise _incomplete(list(behind.values()))
        taken = {table_id for table_id, one in behind.items() if one.failure.code == TargetTableForeign.code}
        asked = {table_id: table for table_id, table in tables.items() if table_id in taken or table_id not in behind}
        again = {table_id: table for table_id, table in asked.items() if table_id not in done.whole}
        tallies |= _read_again(source, again, new_tally, reading)
        differences = _check(address, password, asked, tallies, taken, [one.table for one in behind.values()])
        for table_id, problem in differences.items():
            error = TargetTableForeign(
                f"the database has another table of this name: {problem}",
                subject=f"table {tables[table_id].qualified_name}",
            )
            behind[table_id] = replace(behind[table_id], failure=Failure.of(error))
        there = {table_id: behind.pop(table_id).table for table_id in sorted(taken - differences.keys())}
        left_out = _release(destination)
        destination.leave()
    loaded = {table_id: table for table_id, table in tables.items() if table_id not in behind}
    if behind and not loaded:
        raise _incomplete(list(behind.values()))
    for table_id in there:
        left_out[tables[table_id].qualified_name] = wanted_table(rules, tables[table_id]).remarks
    for table_id, table in loaded.items():
        counted = (
            f"column {name}: its values are only counted, not compared" for name in tallies[table_id].only_counted
        )
        left_out[table.qualified_name] = (*left_out.get(table.qualified_name, ()), *counted)
    row_sums = {table_id: tallies[table_id].row_sum for table_id in loaded}
    return LoadedPoint(
        address.database,
        source.point.lsn,
        source.point.at.physical,
        len(loaded),
        sum(one.rows for one in row_sums.values()),
        sum(source.point.tables[table_id].bytes for table_id in loaded),
        time.monotonic() - started,
        row_sums,
        {name: lost for name, lost in sorted(left_out.items()) if lost},
        tuple(there.values()),
        tuple(behind.values()),
    )


def _incomplete(behind: Sequence[LaggingTargetTable]) -> RestoreIncomplete:
    """The error; one reason that all of them have is said once."""
    reasons = dict.fromkeys(str(one.failure) for one in behind)
    return RestoreIncomplete(first_names(reasons, most=3), subject=", ".join(one.table for one in behind))


def _text_of(source: PointSource, address: Address) -> str:
    identity = source.mirror.identity()
    whose = source.mirror.store.url if identity is None else identity.task_id
    return "\0".join((whose, str(source.point.lsn), source.database, address.database, *sorted(source.tables)))


def _tally(rules: TargetRules, table: Table) -> TableTally | None:
    """None for a table that the server cannot have."""
    try:
        create = parse_create_table(wanted_table(rules, table).create)
    except (DdlUnreadable, TargetUnfit, NotSyncable):
        return None
    columns = load_columns(table, create.columns, HIDDEN_KEY[rules.dialect], FAKE_KEY)
    return TableTally(columns, rules.dialect, f"table {table.qualified_name}")


@contextmanager
def _opened(history: PointHistory, address: Address, password: str, number: str) -> Iterator[DatabaseTarget]:
    expected = ExpectedTables(history.known_definitions, ())
    with DatabaseTarget(address, password, number, own=expected) as destination:
        yield destination


def _read_again(
    source: PointSource, tables: dict[int, Table], new_tally: Callable[[Table], TableTally | None], reading: Reading
) -> dict[int, TableTally]:
    """Count tables that were there, or have rows of an earlier, interrupted attempt."""
    found = {}
    for table_id, table in tables.items():
        tally, columns = new_tally(table), table.user_columns
        assert tally is not None
        found[table_id] = tally
        manifest = source.mirror.manifest(source.point.tables[table_id])
        for batch in source.mirror.rows(manifest, columns, source.point.at):
            (given,) = as_asked(iter([batch]), columns, for_database(reading), f"table {table.qualified_name}")
            tally.add(pa.Table.from_batches([batch]), pa.Table.from_batches([given]))
    return found


def _check(
    address: Address,
    password: str,
    tables: dict[int, Table],
    tallies: dict[int, TableTally],
    taken: Collection[int],
    left_out: Sequence[str],
) -> dict[int, str]:
    """How the tables of others (`taken`) differ from what was read. Raises RestoredDiffers, which names all that differ
    and those that were left out, unless the server has of each of ours what was read."""
    differences, ours = {}, {}
    with DatabaseServer(address.endpoint, password) as server:
        for table_id, table in tables.items():
            tally = tallies[table_id]
            try:
                problem = tally.differs(server.figures(address.database, table.name, tally.expressions))
            except TargetRefused as error:
                if table_id not in taken:
                    raise
                problem = error.message  # it has other columns
            if problem and table_id not in taken:
                ours[f"{address.database}.{table.name}"] = problem
            elif problem:
                differences[table_id] = problem
    if ours:
        rest = f"; left out: {', '.join(left_out)}" if left_out else ""
        raise RestoredDiffers(next(iter(ours.values())) + rest, subject=f"table {', '.join(ours)}")
    return differences


def _release(destination: DatabaseTarget) -> dict[str, tuple[str, ...]]:
    """Make ordinary tables of those that were loaded, and drop what was loaded of others."""
    left_out = {}
    for table_id, entry in sorted(destination.tables().items()):
        if entry.state is TableState.LOADING:
            destination.drop([table_id])
            continue
        is_live = entry.state is TableState.LIVE  # otherwise an interrupted attempt has released it
        lost = destination.release(table_id) if is_live else destination.remarks(table_id)
        left_out[entry.table.source.qualified_name] = lost
    return left_out


@contextmanager
def history_of(source: PointSource, tables: dict[int, Table], number: str) -> Iterator[PointHistory]:
    """A catalog database for the time of the block, that knows this point and no other."""
    point = source.point
    with tempfile.TemporaryDirectory(prefix="ccpr-") as folder:
        engine = open_database(f"sqlite:///{Path(folder) / 'catalog.db'}")
        history = PointHistory(engine, number)
        changes = [TablePoint(table, point.tables[table_id], point.lsn) for table_id, table in tables.items()]
        numbers = (len(changes), 0, 0)
        with transaction(engine) as connection:
            connection.execute(mo_ccpr_log.insert().values(**_row(source, number)))
            listed = GlobalPoint(point.lsn, point.at, point.snapshot, point.committed_at, point.ledger, *numbers)
            history.write(connection, listed, changes)
        try:
            yield history
        finally:
            engine.dispose()


def _row(source: PointSource, number: str) -> dict[str, object]:
    """A row of the log, as `TargetSync` asks for how far the history goes."""
    made = source.point.committed_at
    texts = ("subscription_name", "subscription_account_name", "db_name", "table_name", "upstream_conn", "sync_config")
    zeros = ("account_id", "state", "iteration_state", "fence", "lease_expires_at")
    return {
        **dict.fromkeys(texts, ""),
        **dict.fromkeys(zeros, 0),
        "task_id": number,
        "sync_level": "database",
        "iteration_lsn": source.point.lsn + 1,
        "watermark": source.point.at.physical,
        "created_at": made,
        "updated_at": made,
        "publication_name": "",
    }
