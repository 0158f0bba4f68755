"""A database that speaks the MySQL protocol as a destination: MariaDB, MySQL 8 or MatrixOne. It keeps the promises of
`ccpr.targets.base`.

A table's rows, its checkpoint row and, if needed, the global one are written in one transaction: delete by staged keys,
insert from staging, checkpoint last. So after a kill there is nothing to repair, and a repetition works like a first
attempt: every new value is a delete and an insert, and a delete of a missing row is not an error. Safe mode
(docs/requirements.md C7) requires just that. What is left of it here: in safe mode missing rows are not counted as a
sign that another user wrote. It protects if the server loses what it has acknowledged (a power cut with
`innodb_flush_log_at_trx_commit` 0 or 2 loses whole transactions, the checkpoint with them), or if a user changed the
table's engine to one without transactions.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pymysql
import sqlalchemy as sa
from sqlalchemy import exc

from ccpr.base.carrying import Carry, Work, WorkKind, carry_here, share_out
from ccpr.matrixone.ddl.definition import CreateTable
from ccpr.matrixone.ddl.parser import parse_create_table
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import FAKE_KEY
from ccpr.mirror.delta.split import DeltaPart
from ccpr.mirror.row_sums import RowSum, joined_sum
from ccpr.schema.alterations import drop_table, show_loaded
from ccpr.schema.choices import Dialect
from ccpr.schema.render import HIDDEN_KEY, TRIED_LATER
from ccpr.schema.sync_mark import Release, release
from ccpr.state.checkpoint.checkpoint import Checkpoint
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.errors import CheckpointUnknown, PointTooOld
from ccpr.state.tables import checkpoints, set_mysql_options
from ccpr.targets.address import Address
from ccpr.targets.base import Applied, LoadPart, Registered, SplitRows, TableState, TargetTable
from ccpr.targets.encoding import LoadColumn, load_columns
from ccpr.targets.errors import (
    TargetChangeStuck,
    TargetOutcomeUnknown,
    TargetTableDropped,
    TargetTableUnknown,
    TargetUnavailable,
)
from ccpr.targets.expected_tables import ExpectedTables
from ccpr.targets.initial_load import InitialLoad, LoadedTable, ShadowTables
from ccpr.targets.intent_statements import RederivedIntent, change_statements
from ccpr.targets.intents import ChangeOf, Intent, Intents, all_names
from ccpr.targets.ownership import Ownership, name_of, names_of
from ccpr.targets.registry import TARGET_METADATA, Registry
from ccpr.targets.staging import Staged, StagedTable, Staging
from ccpr.targets.target_session import TargetSession, TaskLogin

_LOCK_SECONDS = 10.0
_CONNECTIONS = 2


class DatabaseTarget:
    """A session with a subscription's tables in one database of one server. One thread at a time.

    Parameters
    ----------
    task_id : the subscription's, to which registry, points and lock belong.
    own : our own definitions of the tables. Without them nothing that the registry has is trusted.
    connections : how many an initial load uses.
    lock_seconds : how long `open` waits for another session to end.
    carry : who loads, and stages changes: this process, unless a carrier of tasks is given, and with it
        `sealed_password` for them.
    """

    def __init__(
        self,
        address: Address,
        password: str | None,
        task_id: str,
        *,
        own: ExpectedTables | None = None,
        connections: int = _CONNECTIONS,
        lock_seconds: float = _LOCK_SECONDS,
        carry: Carry = carry_here,
        sealed_password: str = "",
    ) -> None:
        self.address, self.task_id = address, task_id
        self._session = TargetSession(address, password, task_id)
        self._registry = Registry(task_id)
        self._shadows = ShadowTables(self._session, self._registry, task_id)
        self._ownership = Ownership(self._session, self._registry, self._note_dropped)
        self._own = own if own is not None else ExpectedTables()
        self._intents = Intents(self._session, task_id, self._finish, self._statements)
        self._connections, self._lock_seconds = connections, lock_seconds
        self._carry, self._sealed = carry, sealed_password
        self._checkpoint: Checkpoint | None = None
        self._tables: dict[int, tuple[TargetTable, TableState]] = {}
        self._safe_until: Location | None = None

    # ---- session

    def open(self) -> None:
        """Connect, become the one writer, and complete what an interrupted session has left: changes of definitions are
        continued, and those that cannot be are in `stuck`. Raises TargetUnavailable, TargetDenied, TargetBusy,
        TargetUnsupported.
        """
        self._own.prepare()
        self._session.open(self._lock_seconds)
        try:
            with self._session.typed(self._session.subject):
                self._make_tables()
                self._session.drop_stages(self._session.stages_of_all)
                self._shadows.fence = uuid4().hex
                self._checkpoint = Checkpoint(self._session.connection, self.task_id)
                self._checkpoint.load()
                self._safe_until = self._checkpoint.safe_mode_exit_point()
                self._reload()
                self._intents.recover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session. What was not committed is undone. May be called twice, and after any error."""
        self._session.close()
        self._checkpoint = None

    def __enter__(self) -> "DatabaseTarget":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dialect(self) -> Dialect:
        """The server's; known once the target is open."""
        return self._session.dialect

    # ---- what is known

    def tables(self) -> dict[int, Registered]:
        """The registry, by table id."""
        with self._session.typed(self._session.subject), self._session.transaction() as connection:
            loading = self._registry.loads(connection)
        found = {
            table_id: Registered(table, TableState.LOADING, None, location)
            for table_id, (location, table) in loading.items()
        }
        for table_id, (table, state) in self._tables.items():
            location = loading[table_id][0] if table_id in loading else None
            found[table_id] = Registered(table, state, self._points.reached(table_id), location)
        return found

    def points(self) -> dict[int, Location]:
        """The location of each live table, by table id."""
        return {
            table_id: self._points.reached(table_id)
            for table_id, (_, state) in self._tables.items()
            if state is TableState.LIVE
        }

    def global_point(self) -> Location:
        """The location that all tables have reached; `NOWHERE` before the first."""
        return self._points.flushed_global_point()

    def stuck(self) -> dict[int, str]:
        """Tables whose change of definition cannot be continued, by id, with the reason. Rows for them are refused
        (TargetChangeStuck)."""
        return dict(self._intents.stuck)

    def safe_mode_until(self) -> Location | None:
        """After an unclean stop: the location up to which safe mode lasts (C7)."""
        return self._safe_until

    # ---- points

    def begin(self, location: Location) -> None:
        """Announce that all tables are going to be synced to a location. If the session ends before `advance` has
        reached it, the next one is in safe mode up to that location (C7).
        """
        with self._session.typed(self._session.subject):
            self._points.save_safe_mode_exit_point(max(location, self._safe_until) if self._safe_until else location)
            try:
                self._points.flush_safe_mode_exit_point()
            except CheckpointUnknown as error:
                raise TargetUnavailable(
                    "the connection was lost before anything was applied", subject=self._session.subject
                ) from error

    def advance(self, location: Location, behind: Sequence[int] = ()) -> Location:
        """All tables but those `behind` have reached the location: move the global point, as far as the ones behind
        allow. Returns it."""
        points = self._points
        try:
            with self._session.typed(self._session.subject):
                points.save_global_point(location)
                for table_id in behind:
                    table = self._tables.get(table_id)
                    schema, name = (
                        (table[0].database, table[0].name) if table else (self.address.database, str(table_id))
                    )
                    points.save_table_point(table_id, location, schema=schema, name=name)
                reached = points.flush(points.snapshot(forced=True) or 0, (), [_no_rows])
        except CheckpointUnknown as error:
            raise TargetOutcomeUnknown("the connection was lost at COMMIT", subject=self._session.subject) from error
        except BaseException:
            self._forget_saved()
            raise
        if self._safe_until is not None and self._safe_until <= reached:
            self._safe_until = None
        return reached

    # ---- rows

    def apply(
        self,
        table_id: int,
        parts: Iterable[DeltaPart],
        location: Location,
        *,
        keys_are_unique: bool = False,
        rows: Sequence[SplitRows] = (),
    ) -> Applied:
        """Sync a live table to a location: new values replace old ones, and deleted keys are removed. All of it or
        nothing. `rows` are those of `parts` for other processes. Raises MoreRowsThere, unless the caller knows that the
        source's keys are unique.

        Columns are matched by name with the definition in the registry. If the definition has changed, `alter` comes
        first.
        """
        table = self._live(table_id)
        subject = f"table {table.qualified_name}"
        if self._has_reached(table_id, location, subject):
            return Applied(skipped=True)
        with self._session.typed(subject):
            self._ownership.check_ours([table])
            create = parse_create_table(table.create)
            columns = self._columns(table, create)
            staging = Staging(self._session, create, columns, table_id, subject)
            try:
                change = StagedTable(self._login, create, columns, table_id, subject)
                staged: list[Staged] = list(
                    self._carried(WorkKind.CHANGE, change.stage, rows, rows, lambda: [staging.fill(parts)])
                )
                counts: list[int] = []
                self._commit(
                    [(table, location)],
                    lambda _: counts.append(staging.merge(*staged, keys_are_unique=keys_are_unique)),
                )
            finally:
                with suppress(CcprError, exc.SQLAlchemyError, pymysql.err.MySQLError):
                    staging.drop()
                    if len(rows) > 1:  # tasks may have staged, also some that nobody waits for any more
                        self._session.drop_stages(self._session.stages_of_tasks)
        upserted, deleted = (sum(getattr(one, name) for one in staged) for name in ("upserts", "deletes"))
        is_safe = self._safe_until is not None and location <= self._safe_until
        missing = 0 if is_safe or not counts else deleted - counts[-1]
        return Applied(upserted=upserted, deleted=deleted, missing=missing)

    def create(
        self,
        table: TargetTable,
        parts: Sequence[LoadPart],
        location: Location,
        *,
        replaces: Sequence[int] = (),
        again: bool = False,
    ) -> Applied:
        """Make a table with all its rows at a location. It becomes visible when it is complete.

        `replaces` are ids of tables that are dropped in the step that shows it: the one whose name it takes, as after a
        TRUNCATE, or one that is rebuilt under the same id. Until then the rows are loaded into a shadow table. An
        interrupted attempt is continued if location and definition are the same, and otherwise starts again. `again`:
        even if the table is at the location, because an operator says that its rows are wrong. A default that the
        target refuses is skipped.
        """
        subject = f"table {table.qualified_name}"
        known = self._tables.get(table.id)
        if known and table.id not in replaces:
            if known[1] is not TableState.LIVE:
                raise TargetTableUnknown(f"the table is {known[1]} in the registry", subject=subject)
            if self._has_reached(table.id, location, subject):
                return Applied(skipped=True)
        if not again and known and known[0].create == table.create and self._points.reached(table.id) == location:
            return Applied(skipped=True)
        replaced = [self._tables[table_id][0] for table_id in replaces if self._state(table_id) is TableState.LIVE]
        wanted = table
        with self._session.typed(subject):
            self._check_names(replaced)
            self._ownership.check_free([table], replaced)
            self._ownership.check_ours(replaced, may_be_missing=True)
            table, done = self._shadows.begin(table, location, parts)
            shadow = self._shadows.of(table)
            waiting = [part for part in parts if part.key not in done]
            columns = self._columns(table, parse_create_table(table.create))
            place = self.task_id, table.id, self._shadows.fence
            loaded = LoadedTable(*place, shadow.quoted_name, columns, subject, self._login)
            load = InitialLoad(self._session, loaded)
            pieces = [(part.key, part.rows) for part in waiting if part.rows is not None]
            sums: list[RowSum] = list(
                self._carried(
                    WorkKind.LOAD,
                    loaded.load_in_task,
                    pieces if len(pieces) == len(waiting) else (),
                    [rows for _, rows in pieces],
                    lambda: [RowSum(load.run(waiting, self._connections) if waiting else 0)],
                )
            )
            self._show(table, shadow, location, replaced, [table_id for table_id in replaces if table_id != table.id])
        remarks = table.remarks[len(wanted.remarks) :]
        return Applied(
            upserted=sum(one.rows for one in sums),
            parts=len(waiting),
            parts_skipped=len(parts) - len(waiting),
            unseen=load.pieces < len(waiting),
            row_sum=joined_sum(sums) if len(waiting) == len(parts) else None,
            remarks=remarks,
        )

    # ---- definitions

    def alter(self, tables: Sequence[TargetTable]) -> None:
        """Change the live tables with these ids into what is given here: new names for any number of tables, or a new
        definition for one. Locations do not move.

        Before a statement runs, the destination stores what it is and how to find out whether it has run. So after a
        kill the next `open` runs what is missing, and nothing twice. `tables` are all tables whose definition or name
        changes.
        """
        before = [self._live(table.id) for table in tables]
        subject = ", ".join(f"table {table.qualified_name}" for table in before[:2])
        with self._session.typed(subject):
            self._ownership.check_ours(before)
            self._ownership.check_free(tables, before)
            names = all_names(names_of(before), names_of(tables))
            self._intents.run(
                Intent(ChangeOf.ALTER, change_statements(before, tables, self.dialect), names, tuple(tables))
            )

    def drop(self, table_ids: Sequence[int]) -> None:
        """Drop tables that are gone upstream, with their points."""
        with self._session.typed(self._session.subject):
            with self._session.transaction() as connection:
                loading = self._registry.loads(connection)
            live = [self._tables[table_id][0] for table_id in table_ids if self._state(table_id) is TableState.LIVE]
            self._check_names(live)
            self._ownership.check_ours(live, may_be_missing=True)
            names = [
                *names_of(live),
                *((self.address.database, self._shadows.name("load", one)) for one in table_ids if one in loading),
            ]
            self._intents.run(
                Intent(
                    ChangeOf.DROP,
                    tuple(map(drop_table, names)),
                    tuple(names),
                    gone=tuple(table_ids),
                    loaded=tuple(table_ids),
                )
            )

    def forget(self, table_ids: Sequence[int]) -> None:
        """Remove tables that another user dropped, or that were released, from the registry with their points: they
        may be created again."""
        for table_id in table_ids:
            if self._state(table_id) is TableState.LIVE:
                raise TargetTableUnknown(
                    "the table is live: it can be dropped or released", subject=f"table id {table_id}"
                )
        with self._session.typed(self._session.subject):
            self._finish(Intent(ChangeOf.DROP, (), (), gone=tuple(table_ids)), _no_rows)

    def release(self, table_id: int) -> tuple[str, ...]:
        """Make the table an ordinary one (D5), and do not touch it from now on. Returns what of it differs from the
        source, and descriptions of what could not be brought back."""
        table = self._live(table_id)
        with self._session.typed(f"table {table.qualified_name}"):
            self._ownership.check_ours([table])
            made = self._release_of(table)
            names, optional = (name_of(table),), tuple(made.optional)
            refused = self._intents.run(
                Intent(ChangeOf.RELEASE, made.statements, names, (table,), TableState.RELEASED, optional=optional)
            )
        problems = (f"{made.optional[number]} ({problem})" for number, problem in refused.items())
        return (*self.remarks(table_id), *made.left_out, *problems)

    def remarks(self, table_id: int) -> tuple[str, ...]:
        """What differs from the source in a table that is or was ours, but for what `release` could not bring back."""
        table, _ = self._tables[table_id]
        known = self._own.expected(table, self.dialect).remarks
        return tuple(remark for remark in known if not remark.endswith(TRIED_LATER))

    def forget_missing(self) -> None:
        """Forget tables that another user dropped, whatever their state is: they may be created again."""
        with self._session.typed(self._session.subject):
            missing = [table_id for table_id, (table, _) in self._tables.items() if not self._ownership.exists(table)]
            if missing:
                self._finish(Intent(ChangeOf.DROP, (), (), gone=tuple(missing)), _no_rows)

    def leave(self) -> None:
        """Forget everything about this subscription here, once its tables are released or dropped. Tables of ours that
        no other subscription has rows in are dropped."""
        tables = (*TARGET_METADATA.sorted_tables, checkpoints)
        with self._session.typed(self._session.subject):
            with self._session.transaction() as connection:
                for table in tables:
                    owner = table.c.get("task_id", table.c.get("id"))
                    connection.execute(table.delete().where(owner == self.task_id))
                rows = [connection.execute(sa.select(table).limit(1)).first() for table in tables]
            if not any(rows):
                for table in tables:
                    self._session.define(drop_table((self.address.database, table.name)))
        self._session.leave()
        self.close()

    # ----

    @property
    def _points(self) -> Checkpoint:
        if self._checkpoint is None:
            raise TargetUnavailable("the target is not open", subject=self._session.subject)
        return self._checkpoint

    @property
    def _login(self) -> TaskLogin:
        return TaskLogin(self.address, self._sealed, self.dialect, self._session.stages_of_tasks)

    def _carried(
        self,
        kind: WorkKind,
        function: Callable[[Sequence[Any]], Iterable[Any]],
        pieces: Sequence[Any],
        rows: Sequence[SplitRows],
        here: Callable[[], Iterable[Any]],
    ) -> Iterable[Any]:
        sizes, stores = [one.size for one in rows], tuple({one.store_url for one in rows})
        work = Work(kind, self.address.endpoint.address, stores, function, pieces, sizes)
        return share_out(self._carry, work, here, self._session.beat)

    def _make_tables(self) -> None:
        """Those that are missing. Another subscription may be making them at the same time."""
        with self._session.transaction() as connection:
            existing = {name for (name,) in self._session.rows("SHOW TABLES LIKE 'ccpr\\_%'")}
            tables = (*TARGET_METADATA.sorted_tables, checkpoints)
            set_mysql_options(tables)
            for table in tables:
                if table.name not in existing:
                    connection.execute(sa.schema.CreateTable(table, if_not_exists=True))

    def _reload(self) -> None:
        with self._session.transaction() as connection:
            self._tables = self._registry.tables(connection)

    def _state(self, table_id: int) -> TableState | None:
        known = self._tables.get(table_id)
        return known[1] if known else None

    def _live(self, table_id: int) -> TargetTable:
        """Raises TargetTableUnknown, TargetTableDropped, TargetChangeStuck."""
        known = self._tables.get(table_id)
        if known is None:
            raise TargetTableUnknown("the registry has no such table", subject=f"table id {table_id}")
        table, state = known
        subject = f"table {table.qualified_name}"
        if state is TableState.DROPPED:
            raise TargetTableDropped("the table was dropped in the target", subject=subject)
        if state is not TableState.LIVE:
            raise TargetTableUnknown(f"the table is {state}", subject=subject)
        if table_id in self._intents.stuck:
            raise TargetChangeStuck(self._intents.stuck[table_id], subject=subject)
        self._check_names([table])
        return table

    def _check_names(self, tables: Iterable[TargetTable]) -> None:
        """Raises TargetRegistryEdited if the registry names a table that is not one of this subscription's."""
        for table in tables:
            self._own.check_name(table, self.address.database)

    def _release_of(self, table: TargetTable) -> Release:
        """What ends the sync of a table. Expressions come from our own definition of it, never from the registry."""
        own = self._own.expected(table, self.dialect)
        return release(own.create, own.stripped or {}, own.disabled or {}, self.dialect)

    def _statements(self, intent: Intent) -> tuple[str, ...]:
        """Those of an intent that an earlier session has stored. Raises TargetRegistryEdited."""
        with self._session.transaction() as connection:
            loading = self._registry.loads(connection)
        place = self.address.database, self.dialect, self.task_id
        return RederivedIntent(intent, *place, self._own, self._tables, loading).statements()

    def _has_reached(self, table_id: int, location: Location, subject: str) -> bool:
        reached = self._points.reached(table_id)
        if location < reached:
            raise PointTooOld(f"{location} is before {reached}", subject=subject)
        return location == reached

    def _columns(self, table: TargetTable, create: CreateTable) -> tuple[LoadColumn, ...]:
        return load_columns(table.source, create.columns, HIDDEN_KEY[self.dialect], FAKE_KEY)

    def _note_dropped(self, table: TargetTable) -> None:
        with self._session.transaction() as connection:
            self._registry.set_state(connection, table.id, TableState.DROPPED)
        self._tables[table.id] = table, TableState.DROPPED

    def _show(
        self,
        table: TargetTable,
        shadow: CreateTable,
        location: Location,
        replaced: Sequence[TargetTable],
        gone: Sequence[int],
    ) -> None:
        """Make the indexes, rename all tables in one step, drop what was replaced."""
        database = self.address.database
        retired = {old.id: self._shadows.name("old", old.id) for old in replaced}
        outgoing = [(name_of(old), retired[old.id]) for old in replaced if self._ownership.exists(old)]
        statements = show_loaded(parse_create_table(table.create), shadow.name, outgoing, self.dialect)
        names = all_names(
            [(database, shadow.name), name_of(table)],
            names_of(replaced),
            [(database, name) for name in retired.values()],
        )
        points = ((table.id, location),)
        self._intents.run(
            Intent(ChangeOf.SHOW, statements, names, (table,), points=points, gone=tuple(gone), loaded=(table.id,))
        )

    def _finish(self, intent: Intent, forget: Callable[[sa.Connection], None]) -> None:
        """Register what an intent's statements have led to, in one transaction (`Intents`)."""
        located = dict(intent.points)

        def register(connection: sa.Connection) -> None:
            self._registry.delete(connection, intent.gone)
            self._registry.put(connection, intent.tables, intent.state, self._ownership.columns)
            for table_id in intent.loaded:
                self._registry.end_load(connection, table_id)
            forget(connection)

        points = self._points
        try:
            for table in intent.tables:
                self._save(table, located.get(table.id, points.reached(table.id)))
            gone = set(intent.gone) - {table.id for table in intent.tables}
            points.flush(
                points.snapshot(forced=True) or 0, [table.id for table in intent.tables], [register], gone=gone
            )
        except CheckpointUnknown as error:  # the next session finds the intent, or that it is done
            raise TargetUnavailable("the connection was lost at COMMIT", subject=intent.subject) from error
        except BaseException:
            self._forget_saved()
            raise
        self._intents.stuck = {key: why for key, why in self._intents.stuck.items() if key not in intent.table_ids}
        for table_id in intent.gone:
            self._tables.pop(table_id, None)
        self._tables |= {table.id: (replace(table, remarks=()), intent.state) for table in intent.tables}

    def _commit(self, tables: Sequence[tuple[TargetTable, Location]], work: Callable[[sa.Connection], None]) -> None:
        """Write rows and points in one transaction; an unknown outcome is looked up (docs/requirements.md B10). Raises
        TargetOutcomeUnknown if it cannot be."""
        points = self._points
        try:
            for table, location in tables:
                self._save(table, location)
            points.flush(points.snapshot(forced=True) or 0, [table.id for table, _ in tables], [work])
        except CheckpointUnknown as error:
            subject = ", ".join(f"table {table.qualified_name}" for table, _ in tables)
            try:
                self.close()
                self.open()
            except CcprError as away:
                raise TargetOutcomeUnknown(
                    f"the connection was lost at COMMIT; {away.message}", subject=subject
                ) from error
            if not all(self._points.reached(table.id) >= location for table, location in tables):
                raise TargetUnavailable(
                    "the connection was lost at COMMIT, and the target has not committed", subject=subject
                ) from error
        except BaseException:
            self._forget_saved()
            raise

    def _save(self, table: TargetTable, location: Location) -> None:
        self._points.save_table_point(
            table.id, location, schema=table.database, name=table.name, info=table.source.to_json()
        )

    def _forget_saved(self) -> None:
        if self._checkpoint is not None:
            with suppress(CcprError):
                self._checkpoint.rollback()


def _no_rows(_: sa.Connection) -> None:
    pass
