"""Syncs a target from its present location to the mirror's newest point, table by table; the points between are
skipped.

The steps and their order are those of `ccpr.targets.target_plan`, their rows those of `ccpr.targets.source_rows`. The
target stores each table's location in the transaction that writes its rows, so a sync that was interrupted anywhere is
simply repeated. A failure of one table is kept, and the others go on. A failure of the target is raised.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ccpr.base.errors import Failure
from ccpr.base.progress import SILENT, Progress
from ccpr.matrixone.errors import Terminal
from ccpr.matrixone.schema import DEFAULT_READING, Kind, Reading
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.row_sums import RowSum
from ccpr.schema.choices import DuplicateKeys
from ccpr.state.checkpoint.checkpoint_store import NOWHERE, Location
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.quarantine import Quarantine
from ccpr.state.targets import LaggingTargetTable
from ccpr.targets.base import Applied, MoreRowsThere, Registered, TableState, TargetTable
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import (
    PASSING_OF_A_TABLE,
    FileRequestRefused,
    TableBehindInMirror,
    TargetAhead,
    TargetChangeStuck,
    TargetDuplicateKeys,
    TargetTableUnknown,
)
from ccpr.targets.expected_tables import TargetRules
from ccpr.targets.source_rows import SourceRows
from ccpr.targets.target_plan import (
    Alter,
    Build,
    Drop,
    TableStep,
    TargetPlan,
    plan_target,
    renames,
    replaced,
    stuck_failure,
    wanted_table,
)


@dataclass(frozen=True, slots=True)
class SyncedTable:
    """What was done to one table.

    Attributes
    ----------
    action : ``created``, ``rebuilt``, ``altered``, ``changed`` (rows only) or ``dropped``.
    upserted, deleted : rows written, and keys that were to be deleted.
    missing : keys to be deleted that were not there: another user has written to the table.
    """

    table: str
    action: str
    upserted: int = 0
    deleted: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class SyncResult:
    """
    Attributes
    ----------
    lsn, snapshot_ts : the point.
    needed_lsn : the oldest point that one of the tables has to be synced from.
    remarks : `db.t` -> what differs in the target, for the tables that were created or altered.
    whole : ids of the tables that were loaded at the point, all rows in this sync and by this process.
    row_sums : of the tables that tasks have loaded so, by id.
    """

    lsn: int
    snapshot_ts: int
    needed_lsn: int
    tables: tuple[SyncedTable, ...]
    behind: tuple[LaggingTargetTable, ...]
    remarks: dict[str, tuple[str, ...]]
    whole: tuple[int, ...] = ()
    row_sums: Mapping[int, RowSum] = field(default_factory=dict)


class TargetSync:
    """One sync of one target to the newest point. The destination is open; one thread.

    Parameters
    ----------
    confirm : raises if the subscription is not ours any more; called before each table.
    progress, on_loaded : see `SourceRows`.
    """

    def __init__(
        self,
        destination: DatabaseTarget,
        mirror: Mirror,
        history: PointHistory,
        point: GlobalPoint,
        rules: TargetRules,
        *,
        confirm: Callable[[], None] = lambda: None,
        progress: Progress = SILENT,
        reading: Reading = DEFAULT_READING,
        on_loaded: Callable[[int, pa.Table, pa.Table], None] = lambda table_id, read, given: None,
    ) -> None:
        self._destination, self._history, self._rules, self._confirm = destination, history, rules, confirm
        self._whole, self._row_sums = list[int](), dict[int, RowSum]()
        self.location = Location(point.lsn, point.at.physical)
        self._tables = {
            table_id: table
            for table_id, table in history.tables(point.lsn).items()
            if table.table.kind is Kind.TABLE and rules.takes(table.table.database)
        }
        behind = Quarantine(history.engine, history.task_id).behind(point.lsn)
        self._behind = {table_id: table for table_id, table in behind.items() if rules.takes(table.database)}
        self._rows = SourceRows(
            mirror,
            history,
            point,
            self._tables,
            last_of_key=rules.duplicate_keys is DuplicateKeys.LAST,
            progress=progress,
            reading=reading,
            on_loaded=on_loaded,
        )
        self._done: list[SyncedTable] = []
        self._refused: dict[str, tuple[str, ...]] = {}
        self._failed: dict[int, LaggingTargetTable] = {}
        self._kept: dict[int, Failure] = {}

    def plan(self) -> TargetPlan:
        """What has to be done, without the rows. Nothing is changed."""
        return self._plan(self._destination.tables())

    def run(self) -> SyncResult:
        """Sync all tables. Raises TargetUnavailable, TargetOutcomeUnknown, TargetAhead, and other errors that concern
        the target as a whole."""
        self._begin()
        return self._sync_all()

    def rebuild(self, name: str) -> SyncResult:
        """Rebuild one table from the mirror, whether it is live, dropped or released, and sync the others. `name` is
        `t` or `db.t`.

        Readers see the old one until the new one is complete. The next call continues an interrupted load. Raises
        TargetTableUnknown, TargetTableForeign if an ordinary table has the name by now, TargetTableAltered, and what
        `run` raises.
        """
        self._begin()
        tables = [
            point.table for point in self._tables.values() if name in (point.table.name, point.table.qualified_name)
        ]
        if not tables or tables[0].id in self._behind:
            raise TargetTableUnknown(
                "the mirror's newest point shows no such table",
                subject=f"table {name}",
                remedy="See `ccpr tables` for those it shows.",
            )
        (table,) = tables
        earlier = {
            table_id: entry
            for table_id, entry in self._destination.tables().items()
            if entry.state is not TableState.LOADING and entry.table.source.logical_id == table.logical_id
        }
        if stuck := [text for table_id, text in self._destination.stuck().items() if table_id in earlier]:
            raise TargetChangeStuck(stuck[0], subject=f"table {table.qualified_name}")
        before = next((entry.table for entry in earlier.values() if entry.state is TableState.LIVE), None)
        self._confirm()
        self._build(Build(table, before=before, wanted=wanted_table(self._rules, table)), tuple(earlier), again=True)
        return self._sync_all()

    # ----

    def _begin(self) -> None:
        """Announce the sync to the target. Raises TargetAhead: a sync from an old copy of the state would revert
        definitions, and rely on rows that the target does not have.
        """
        reached = {*self._destination.points().values(), self._destination.global_point()} - {NOWHERE}
        times = self._times(min(reached, default=self.location).lsn)
        for location in sorted(reached):
            if not (self._is_dropped(location, times) or times.get(location.lsn) == location.snapshot_ts):
                raise TargetAhead(
                    f"it is at point {location.lsn} that this history does not have; "
                    f"the newest here is {self.location.lsn}",
                    subject="target",
                )
        self._destination.begin(self.location)

    def _is_dropped(self, location: Location, times: dict[int, int]) -> bool:
        """Whether a location is older than the oldest point that is kept. Whether it was a point of this history is
        not known, so no rows are synced from there. `times` are those from this location or an earlier one on."""
        return location.lsn < self._rows.oldest and location.snapshot_ts < times[self._rows.oldest]

    def _sync_all(self) -> SyncResult:
        registered, plan = self._renamed()
        live = {table_id: entry.table for table_id, entry in registered.items() if entry.state is TableState.LIVE}
        self._failed = {table_id: _lagging(step) for table_id, step in plan.behind.items()}
        for step in plan.of(Alter):
            with self._keeping_failure(step):
                self._alter(step)
        planned = {step.id for step in plan.steps}
        points = self._destination.points()
        for table_id, table in live.items():
            if (
                table_id not in planned
                and table_id in self._tables
                and points[table_id].lsn < max(self._rows.oldest, self._tables[table_id].lsn)
            ):
                with self._keeping_failure(TableStep(self._tables[table_id].table, before=table)):
                    applied = self._sync_rows(table_id, points[table_id])
                    if applied.upserted or applied.deleted:  # otherwise its objects were only merged
                        self._note(table, "changed", applied)
        to_drop = {step.id for step in plan.of(Drop)}
        for step in plan.of(Build):
            with self._keeping_failure(step):
                self._build(step, replaced(plan, step))
                to_drop.difference_update(replaced(plan, step))
        for step in plan.of(Drop):
            if step.id in to_drop:
                with self._keeping_failure(step):
                    self._destination.drop([step.id])
            if step.id not in self._failed:
                self._done.append(SyncedTable(step.table.qualified_name, "dropped"))
        self._clear(registered)
        here = self._destination.tables()
        self._destination.advance(self.location, [table_id for table_id in self._failed if table_id in here])
        return self._outcome(plan, here)

    def _times(self, first_lsn: int) -> dict[int, int]:
        """Snapshot times of the points from one on, by lsn."""
        return {point.lsn: point.at.physical for point in self._history.global_points(first_lsn - 1)}

    def _renamed(self) -> tuple[dict[int, Registered], TargetPlan]:
        """Rename all tables that have new names. Returns what is registered then, and the plan for the rest.

        The names change together. If that fails, these tables stay as they are; but if it has shown that one of them
        was dropped, the others are tried again without it.
        """
        while True:
            registered = self._destination.tables()
            plan = self._plan(registered)
            live = {table_id: entry.table for table_id, entry in registered.items() if entry.state is TableState.LIVE}
            moved, statements = renames(plan, live)
            if not statements:
                return registered, plan
            self._confirm()
            try:
                self._destination.alter(moved)
            except FileRequestRefused:
                raise
            except (Terminal, *PASSING_OF_A_TABLE) as error:
                states = {table_id: entry.state for table_id, entry in self._destination.tables().items()}
                if states == {table_id: entry.state for table_id, entry in registered.items()}:
                    self._kept |= {table.id: Failure.of(error) for table in moved}

    def _plan(self, registered: dict[int, Registered]) -> TargetPlan:
        stuck = {
            table_id: stuck_failure(registered[table_id].table, reason)
            for table_id, reason in self._destination.stuck().items()
        }
        kept = {**self._kept, **stuck}
        for table_id, entry in self._behind.items():
            error = TableBehindInMirror("the mirror's point does not show it", subject=f"table {entry.qualified_name}")
            kept[table_id] = Failure.of(error)
        done_lsn = self._destination.global_point().lsn
        return plan_target(
            self._rules,
            registered,
            (point.table for table_id, point in self._tables.items() if table_id not in self._behind),
            kept=kept,
            is_done=lambda table: self._tables[table.id].lsn <= done_lsn,
        )

    @contextmanager
    def _keeping_failure(self, step: TableStep) -> Iterator[None]:
        """A failure of this one table does not stop the others."""
        self._confirm()
        try:
            yield
        except FileRequestRefused:
            raise
        except (Terminal, *PASSING_OF_A_TABLE) as error:
            self._failed[step.id] = _lagging(replace(step, failure=Failure.of(error), statements=()))

    def _alter(self, step: Alter) -> None:
        assert step.between is not None
        assert step.wanted is not None
        self._destination.alter([step.between])
        applied = self._sync_rows(step.id, self._destination.points()[step.id])
        if step.last:
            self._destination.alter([step.wanted])
        self._note(step.wanted, "altered", applied)

    def _build(self, step: Build, replaces: Sequence[int], *, again: bool = False) -> None:
        assert step.wanted is not None
        location = self._loading(step.wanted)
        try:
            self._load(step, replaces, location, again=again)
        except TargetDuplicateKeys:
            if location == self.location:
                raise
            self._load(step, replaces, self.location, again=again)  # the newest point may not have such rows

    def _load(self, step: Build, replaces: Sequence[int], location: Location, *, again: bool) -> None:
        assert step.wanted is not None
        rows = self._rows.whole(step.wanted.id, location)
        with rows.naming_duplicates():
            loaded = self._destination.create(step.wanted, rows.to_load(), location, replaces=replaces, again=again)
        if location == self.location and not (loaded.skipped or loaded.parts_skipped or loaded.unseen):
            self._whole.append(step.wanted.id)
        if location == self.location and loaded.row_sum is not None:
            self._row_sums[step.wanted.id] = loaded.row_sum
        if loaded.unseen:
            self._rows.on_rows(loaded.upserted, rows.delta.bytes)
        self._refused[step.table.qualified_name] = loaded.remarks
        since = self._sync_rows(step.wanted.id, location)
        applied = replace(
            loaded, upserted=loaded.upserted + since.upserted, deleted=since.deleted, missing=since.missing
        )
        self._note(step.wanted, "created" if step.before is None else "rebuilt", applied)

    def _loading(self, table: TargetTable) -> Location:
        """The location to load: that of the point, or the earlier one of an interrupted load, which is continued."""
        entry = self._destination.tables().get(table.id)
        begun = entry.loading if entry is not None else None
        if begun is None or begun >= self.location or self._times(begun.lsn).get(begun.lsn) != begun.snapshot_ts:
            return self.location
        if entry is not None and entry.location is not None and entry.location > begun:  # it was synced since
            return self.location
        then = self._history.tables(begun.lsn).get(table.id)
        return begun if then is not None and then.ref is not None and then.table == table.source else self.location

    def _sync_rows(self, table_id: int, reached: Location) -> Applied:
        """Sync a table's rows from its location to the point. If no row has changed, only the location moves."""
        if reached >= self.location:
            return Applied(skipped=True)
        rows = self._rows.since(table_id, reached)
        with rows.naming_duplicates():
            try:
                return self._destination.apply(
                    table_id,
                    rows.parts(),
                    self.location,
                    keys_are_unique=self._rows.last_of_key,
                    rows=rows.for_tasks(),
                )
            except MoreRowsThere:
                rows.check_unique()
            # Another user wrote rows with these keys to the table.
            return self._destination.apply(
                table_id, rows.parts(), self.location, keys_are_unique=True, rows=rows.for_tasks()
            )

    def _clear(self, registered: dict[int, Registered]) -> None:
        """Remove unfinished loads that are not needed any more, and forget tables that were dropped both in the target
        and upstream."""
        logical = {point.table.logical_id for point in self._tables.values()}
        unfinished = [
            table_id
            for table_id, entry in registered.items()
            if entry.state is TableState.LOADING and table_id not in self._tables
        ]
        if unfinished:
            self._destination.drop(unfinished)
        forgotten = [
            table_id
            for table_id, entry in registered.items()
            if entry.state is TableState.DROPPED
            and entry.table.source.logical_id not in logical
            and table_id not in self._behind
        ]
        if forgotten:
            self._destination.forget(forgotten)

    def _note(self, table: TargetTable, action: str, applied: Applied) -> None:
        name = table.source.qualified_name
        self._done.append(SyncedTable(name, action, applied.upserted, applied.deleted, applied.missing))

    def _outcome(self, plan: TargetPlan, here: dict[int, Registered]) -> SyncResult:
        points = self._destination.points()
        waiting = [
            table_id for table_id in self._failed if table_id in here and here[table_id].state is TableState.LIVE
        ]
        loading = [here[table_id].loading for table_id in self._failed if table_id in here]
        needed = min(
            [
                self.location.lsn,
                *(points[table_id].lsn for table_id in waiting if table_id in points),
                *(location.lsn for location in loading if location is not None),
            ]
        )
        defined = {table.table for table in self._done if table.action != "changed"}
        return SyncResult(
            lsn=self.location.lsn,
            snapshot_ts=self.location.snapshot_ts,
            needed_lsn=needed,
            tables=tuple(self._done),
            behind=tuple(self._failed[table_id] for table_id in sorted(self._failed)),
            whole=tuple(self._whole),
            row_sums=self._row_sums,
            remarks={
                name: remarks
                for step in plan.steps
                if (name := step.table.qualified_name) in defined
                and (remarks := (*step.remarks, *self._refused.get(name, ())))
            },
        )


def _lagging(step: TableStep) -> LaggingTargetTable:
    assert step.failure is not None
    again = step.failure.code in {kind.code for kind in PASSING_OF_A_TABLE}
    return LaggingTargetTable(step.table.qualified_name, step.failure, step.statements, again)
