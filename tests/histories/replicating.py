"""A replica of a simulated upstream: subscribe, iterate with or without faults, compare the mirror with the engine's
rows."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pyarrow as pa

from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.retry import Retry
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.mirror.points import Point
from ccpr.pipeline import appendable
from ccpr.pipeline.committing import IterationOutcome
from ccpr.pipeline.errors import ScopeConflict, TableChangedMeanwhile
from ccpr.pipeline.options import IterationOptions, Timeouts
from ccpr.pipeline.temporary_snapshots import TemporarySnapshots
from ccpr.service import subscriptions
from ccpr.service.workspace import Workspace
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription
from ccpr_emulator.engine.transaction import CreateAt
from ccpr_emulator.serving.faults import (
    Crash,
    CutAnswer,
    CutObject,
    CutObjectList,
    CutStatement,
    DamagedByte,
    FailStatement,
    Fault,
    MissingObject,
    SnapshotCollected,
    StaleRead,
)
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.history import Choice, Circumstances, History
from tests.support import driving

NAME = "history"
ITERATIONS, STEPS = 4, 9
ORDINARY = Timeouts(flush=60.0)  # nothing here takes that long: a history that would wait for ever soon fails
AT_ONCE = Retry(attempts=2, first_pause=0.0, jitter=0.0)
TEST_TIMEOUTS = Timeouts(flush=1.0, retry=AT_ONCE, stale_read=AT_ONCE)
KINDS = (
    "create_snapshot",
    "get_snapshot_ts",
    "select_mo_database",
    "select_mo_tables",
    "select_mo_columns",
    "get_ddl",
    "check_snapshot_flushed",
    "mo_ctl",
    "object_list",
    "get_object",
    "drop_snapshot",
)
_SECOND_SNAPSHOT, _GOES_ON = (1, 3), 3  # seeds modulo 5
ReadTable = Callable[[Workspace, Point, str], pa.Table]


def subscribed(
    port: int,
    folder: Path,
    database: str,
    *,
    table: str | None = None,
    publisher: tuple[str, int] = ("sys", 0),
    settings: Settings | None = None,
    logical: bool = False,
) -> Workspace:
    """A state folder with one subscription, `NAME`, to the publication `p` of an account; or, in logical mode, by a
    login of that account."""
    workspace = Workspace(folder / "home")
    endpoint, _ = parse_uri(f"mysql://{f'{publisher[0]}#admin' if logical else 'sys#dump'}@127.0.0.1:{port}")
    publication = Publication("" if logical else "p", *publisher)
    subscription = Subscription.new(
        NAME, endpoint, "111", workspace.vault, publication, database, table, settings or Settings()
    )
    workspace.log.insert(subscription.to_row(datetime.now(UTC)))
    return workspace


def iterate(workspace: Workspace, *, allow_resync: bool = False, timeouts: Timeouts = ORDINARY) -> IterationOutcome:
    """One whole iteration, in this process."""
    return driving.iterate(workspace, NAME, IterationOptions(allow_resync=allow_resync, timeouts=timeouts))


def read_mirror(workspace: Workspace, point: Point, name: str) -> pa.Table:
    schema, batches = workspace.mirror(NAME).read(point, name)
    return pa.Table.from_batches(batches, schema)


@dataclass
class Replica:
    """A history and what replicates it."""

    history: History
    emulator: SimulatedUpstream
    workspace: Workspace
    kinds: ClassVar[tuple[str, ...]] = KINDS  # of statements, for faults

    def __post_init__(self) -> None:
        self.rng = random.Random(self.history.seed + 3)
        self.fault: Fault | None = None
        self.choices: dict[int, Choice] = {}  # by lsn
        self.owners = {self.history.account}  # of snapshots that faults strike

    def alter(self) -> None:
        """Perhaps other patterns."""
        history, rng = self.history, random.Random(self.history.seed + len(self.history.done))
        if history.circumstances.patterns and history.scope is None and rng.random() < 0.5:
            self._alter(rng)

    def _alter(self, rng: random.Random) -> None:
        excluded = rng.choice(("13579", "02468", "0123", ""))
        self.history.choice = replace(self.history.choice, excluded=excluded)
        patterns = {
            "tables": rng.choice(("", "t*,large", "T?*,L*")),
            "exclude_tables": excluded and f"y*,*[{excluded}]",
        }
        subscriptions.alter(self.workspace, NAME, subscriptions.SettingsChange(settings=patterns))
        self.history.note(f"  altered: {patterns}")

    def iterate(self) -> IterationOutcome | None:
        """Run the next iteration, and once more without faults if a fault struck it; returns the outcome. None if the
        one table of the subscription, or all tables that match, are missing, as they also are upstream.
        """
        history = self.history
        allow_resync = False
        if history.circumstances.faults and self.rng.random() < 0.5:
            try:
                self._strike()
                return iterate(self.workspace, timeouts=TEST_TIMEOUTS)
            except ScopeConflict:
                return self._without_table()
            except CcprError as error:
                history.done.append(f"  {error.code}: {error.message}")
                allow_resync = True
            finally:
                self._calm()
            if self.rng.random() < 0.3:  # meanwhile the upstream goes on
                history.step()
            self.alter()
        while True:
            try:
                return iterate(self.workspace, allow_resync=allow_resync)
            except ScopeConflict:
                return self._without_table()
            except TableChangedMeanwhile as error:  # the next attempt takes a new snapshot
                history.done.append(f"  {error.code}: {error.subject}")

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Meanwhile the upstream goes on between the flush of an iteration's snapshot and its second snapshot, or those
        of its tables."""
        take, rng = TemporarySnapshots.after_flush, random.Random(self.history.seed + 4)

        def take_after_flush(temporary: TemporarySnapshots, database: str, table: str | None = None) -> SnapshotRef:
            self.history.done.append(f"  before a second snapshot of {table or 'the database'}:")
            for _ in range(rng.randint(0, 4 if table is None else 1)):
                self.history.step()
            return take(temporary, database, table)

        with mock.patch.object(TemporarySnapshots, "after_flush", take_after_flush):
            yield

    def _without_table(self) -> None:
        history = self.history
        tables = history.storage.tables_at(history.storage.now, account=history.account)
        assert not any(history.replicates(definition, history.choice) for _, definition in tables)

    def _strike(self) -> None:
        rng, storage = self.rng, self.history.storage
        held = [name for (owner, name) in storage.snapshots if owner in self.owners]
        kind = rng.choice(self.kinds)
        self.fault = fault = rng.choice(
            (
                CutObject(rng.choice((0, 100, 2000))),
                CutObjectList(rng.choice((0, 1, 5))),
                CutStatement(kind, after_effect=rng.random() < 0.5, times=rng.choice((1, 3))),
                CutAnswer(rng.choice((0, 10, 300)), kind, times=3),
                FailStatement(kind, after_effect=rng.random() < 0.5),
                # A byte of the header: within values, nothing in the format shows the damage.
                DamagedByte(rng.choice((0, 12)), times=1),
                MissingObject("", times=1),
                StaleRead(),  # asked again
                SnapshotCollected(rng.choice(held)) if held else StaleRead(times=2),  # lost
                Crash(kind, after_effect=rng.random() < 0.5),
                None,
            )
        )
        if fault is not None:
            self.history.done.append(f"  fault: {fault}")
            self.emulator.inject(fault)
        elif held:
            self._lose(rng.choice(held))

    def _lose(self, name: str) -> None:
        """Somebody drops a snapshot, perhaps one of ours."""
        storage = self.history.storage
        for owner in self.owners:
            if (owner, name) in storage.snapshots:
                storage.drop_snapshot(name, account=owner)
        self.history.done.append(f"  {name} is dropped upstream, {storage.collect()} objects are collected")

    def _calm(self) -> None:
        """Clear the faults; the server runs again. The client may notice a crash before the server has stopped, so stop
        it in any case."""
        if isinstance(self.fault, Crash):
            self.emulator.stop()
            self.emulator.restart()
        self.emulator.clear_faults()

    def assert_equal(self, lsn: int, at: Timestamp, read: ReadTable = read_mirror) -> None:
        """The mirror at a point has the tables and rows that the upstream had at its time, and no others."""
        history = self.history
        storage, account = history.storage, history.account
        choice = self.choices.setdefault(lsn, history.choice)
        point = self.workspace.mirror(NAME).point(lsn)
        late = {entry.qualified_name for entry in point.behind.values()}
        assert history.circumstances.isolated or not late
        there = [
            (entry, definition)
            for entry, definition in storage.tables_at(at, account=account)
            if history.replicates(definition, choice)
        ]
        names = {f"{definition.database}.{definition.name}" for _, definition in there}
        shown = {ref.qualified_name for ref in point.tables.values() if ref.kind is Kind.TABLE}
        indexes = {f"{definition.database}.{index.table}" for _, definition in there for index in definition.indexes}
        assert shown | late - indexes == names
        if history.circumstances.with_indexes:
            shown |= {ref.qualified_name for ref in point.tables.values() if ref.kind is Kind.INDEX}
            assert shown | late == names | indexes
        for name in sorted(shown - late):
            found, expected = (
                read(self.workspace, point, name),
                storage.rows_at(*name.split(".", 1), at, account=account),
            )
            assert found.schema == expected.schema, name
            surplus, missing = Counter(rows(found)), Counter(rows(expected))
            assert surplus == missing, (
                f"{name}: read but not there {surplus - missing}, there but not read {missing - surplus}"
            )


def replicate(
    seed: int, folder: Path, reads: Iterable[ReadTable] = (read_mirror,), create_at: CreateAt = "commit"
) -> None:
    """Compare a history with its replica after each iteration, and all points once more at the end. Raises
    AssertionError or the product's own error, with the history as a note.

    In two of five histories a second snapshot takes the place of the full list, however short that is; in one of these
    the upstream goes on in between.
    """
    play(History(seed, Circumstances.of(seed), create_at), folder, reads)


def play(
    history: History,
    folder: Path,
    reads: Iterable[ReadTable] = (read_mirror,),
    *,
    replica_of: type[Replica] = Replica,
    databases: str = "",
    logical: bool = False,
) -> None:
    """`replicate` for a history that was made. `databases`: see `Settings`; `logical`: in that mode, of a MatrixOne
    4.2."""
    circumstances, seed = history.circumstances, history.seed
    settings = Settings(
        with_indexes=circumstances.with_indexes,
        consistency="isolated" if circumstances.isolated else "together",
        databases=databases,
    )
    publisher = (history.account, history.storage.accounts[history.account])
    whole, table = history.subscribed, history.scope
    try:
        with (
            SimulatedUpstream(history.storage) as emulator,
            closing(
                subscribed(
                    emulator.port,
                    folder,
                    whole,
                    table=table,
                    publisher=publisher,
                    settings=settings,
                    logical=logical,
                )
            ) as workspace,
            ExitStack() as stack,
        ):
            if logical:
                emulator.upgrade("4.2")
            replica = replica_of(history, emulator, workspace)
            if seed % 5 in _SECOND_SNAPSHOT:
                stack.enter_context(mock.patch.object(appendable, "SHORT_LIST", -1))
            if seed % 5 == _GOES_ON:
                stack.enter_context(replica.going_on())
            points: list[IterationOutcome] = []
            for _ in range(ITERATIONS):
                for _ in range(history.rng.randint(0, STEPS)):
                    history.step()
                replica.alter()
                outcome = replica.iterate()
                if outcome is None:
                    history.done.append("iteration: the table is not there")
                    continue
                history.done.append(
                    f"iteration {outcome.lsn}: point {outcome.point} at {outcome.at} {' '.join(outcome.quarantined)}"
                )
                if outcome.point:
                    points.append(outcome)
                replica.assert_equal(outcome.lsn, outcome.at)
            for read in reads:  # again, back in time, after merges and garbage collections upstream
                for outcome in points:
                    replica.assert_equal(outcome.lsn, outcome.at, read)
    except Exception as error:
        story = (f"history of seed {seed}, create_at={history.create_at}, {circumstances}:", *history.done)
        error.add_note("\n  ".join(story))
        raise


def rows(table: pa.Table) -> Iterator[str]:
    """A text for each row; Arrow's own values, so that nothing is rounded."""
    times = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us"))
    columns = [column.cast(pa.int64()) if column.type in times else column for column in table.columns]
    return (repr(row) for row in zip(*(column.to_pylist() for column in columns), strict=True))
