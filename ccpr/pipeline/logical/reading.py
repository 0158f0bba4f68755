"""Step 3 of logical mode: the rows of the tables that have changed are read, and written as objects of our own: the new
ones as rows, the old ones as deletions of rows that the mirror has (decision logical-mode).

What came of a table is kept in the work folder, so that an iteration that is taken up reads it no second time. Nothing
is believed unproven: rows that went have to be there once, rows that came must not, and the number of rows has to be
the one that the upstream counts at the snapshot. A difference that fails is replaced by the whole table.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.carrying import Work, WorkKind, share_out
from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import BadAnswer
from ccpr.matrixone.client.retry import with_retry
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.table_rows import key_ranges, read_differences, read_rows
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch
from ccpr.matrixone.schema import FAKE_KEY, Column, Table
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.mirror.open_store import open_store
from ccpr.pipeline.applying import known_objects
from ccpr.pipeline.building import fail_alone
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.copying import COPY_OUTPUT, CopyJob, CopyReport, Pace
from ccpr.pipeline.errors import RowsDisagree
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.logical.located_rows import LocatedRows, locate
from ccpr.pipeline.logical.own_objects import (
    CHANGED_SCHEMA,
    StoredTable,
    commits_at,
    gone_rows,
    objects_of,
)
from ccpr.pipeline.logical.table_objects import TableObjects
from ccpr.pipeline.logical.table_reads import (
    NOT_GIVEN,
    OF_ROWS,
    changed_rows,
    count_at,
    given_up_if_it_hangs,
    in_sessions,
)
from ccpr.pipeline.results import Listed, RowRead, StepResults
from ccpr.pipeline.step_names import Step
from ccpr.pipeline.steps.copy import check_stored
from ccpr.pipeline.table_lists import TableFailures
from ccpr.state.point_rows import TablePoint

_MOST_RANGES = 64  # of a table
_DOUBTED = (*NOT_GIVEN, BadAnswer, MirrorDamaged, ObjectDamaged, ObjectMismatch, RowsDisagree)
_log = logging.getLogger(__name__)


def read_tables(
    iteration: Iteration, record: IterationRecord, catalog: CatalogDiff, listed: Listed
) -> tuple[Listed, CopyReport]:
    """The list with what came and went, and what was written. Raises what the upstream and the store raise, and what is
    wrong with rows, which in isolated mode is their table's failure."""
    iteration.enter(Step.COPY)
    record.results.note_writer(iteration.lease.claim.fence)
    failures: TableFailures = {}
    job = CopyJob.of(iteration.subscription, iteration.mirror.store.url, iteration.key_file)
    rows, todo = list[pa.Table](), list[TableReader]()
    for number, read in listed.reads.items():
        known = record.results.changed(str(number), CHANGED_SCHEMA)
        if known is not None:
            rows.append(known)
        elif number not in listed.failures:
            table, before = catalog.tables[number], iteration.last.tables.get(number)
            todo.append(TableReader(iteration, record, job, table, before, read))

    def read_one(session: Session, reader: TableReader) -> None:
        iteration.lease.check()
        try:
            found = reader.read(session)
            record.results.keep_changed(str(reader.table.id), found)
            rows.append(found)
        except OF_ROWS as error:
            fail_alone(reader.table.id, failures, error, isolated=iteration.subscription.settings.isolated)

    in_sessions(job, [one for one in todo if not one.how.is_large], read_one)
    for reader in todo:
        if reader.how.is_large:  # all sessions share it
            with job.connect() as session:
                read_one(session, reader)
    iteration.mirror.store.sync("objects")
    whole = pa.concat_tables([CHANGED_SCHEMA.empty_table(), *rows])
    came = whole.filter(pc.invert(whole.column("gone")))
    diff = ObjectDiff(came.select(LISTED_SCHEMA.names), whole.filter(whole.column("gone")).select(LISTED_SCHEMA.names))
    report = CopyReport(_as_copied(came))
    check_stored(iteration.mirror, report)
    done = replace(listed, diff=diff).without(failures)
    record.results.keep_listed(done)
    record.results.keep_copied(report)
    return done, report


def _as_copied(came: pa.Table) -> pa.Table:
    cells = {"fetched": True, "failure": None, "direct": False}
    arrays = [
        pa.repeat(pa.scalar(cells[field.name], field.type), came.num_rows)
        if field.name in cells
        else came.column(field.name).cast(field.type)
        for field in COPY_OUTPUT
    ]
    return pa.Table.from_arrays(arrays, schema=COPY_OUTPUT)


def _paced(job: CopyJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """At the rate that one of the sessions may have."""
    pace = Pace(job.budget.mb_s * 1e6 / job.budget.sessions)
    return pace.slow_down(batches, lambda batch: batch.nbytes)


@dataclass(frozen=True, slots=True)
class WholeTable:
    """A table that is read by ranges of its key, each a name and a condition; can be pickled."""

    job: CopyJob
    stored: StoredTable
    ref: SnapshotRef

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the user, and the number of a row without a key."""
        hidden = (one for one in self.stored.table.columns if one.name == FAKE_KEY and one.hidden)
        return (*self.stored.columns, *hidden)

    def read_in_task(self, pieces: Sequence[Sequence[tuple[str, str]]]) -> Iterator[pa.Table]:
        """In a task: some ranges, in a session of its own. What another attempt has kept is not read again."""
        mirror = Mirror(open_store(self.job.store_url, shared=self.job.shared))
        results = StepResults(mirror, self.ref, None)
        results.note_writer(uuid.uuid4().int)
        with self.job.connect() as session:
            for one in chain(*pieces):
                yield self.read(mirror, results, lambda: None, session, one)
        mirror.store.sync("objects")

    def read(
        self, mirror: Mirror, results: StepResults, check: Callable[[], None], session: Session, one: tuple[str, str]
    ) -> pa.Table:
        """What came of a range (CHANGED_SCHEMA); it is kept by its name, if it has one. `check` is called before each
        object."""
        (name, where), columns, table = one, self.columns, self.stored.table
        asked = [column.name for column in columns]
        statement = upstream_sql.select_rows(table.database, table.name, asked, self.ref.name, where)

        def attempt() -> pa.Table:
            known = results.changed(name, CHANGED_SCHEMA) if name else None
            if known is not None:
                return known
            objects = TableObjects(mirror, self.stored, self.ref.at, [])
            try:
                for rows in objects_of(self.stored, _paced(self.job, read_rows(session, statement, columns))):
                    check()
                    objects.put_rows(rows, commits_at(objects.at, rows.num_rows))
            except BaseException:
                objects.undo()
                raise
            made = objects.rows_of(objects.live)
            if name:
                results.keep_changed(name, made)
            return made

        return with_retry(attempt, session.retry)


@dataclass(frozen=True, slots=True)
class TableReader:
    """One table to be read.

    Attributes
    ----------
    before : as the last point has it; None if it does not.
    """

    iteration: Iteration
    record: IterationRecord
    job: CopyJob
    table: Table
    before: TablePoint | None
    how: RowRead

    @property
    def _mirror(self) -> Mirror:
        return self.iteration.mirror

    @property
    def _subject(self) -> str:
        return f"table {self.table.qualified_name}"

    def read(self, session: Session) -> pa.Table:
        """What became of the table's objects (CHANGED_SCHEMA)."""
        stored, known = StoredTable.of(self.table), LISTED_SCHEMA.empty_table()
        objects = TableObjects(self._mirror, stored, self.record.snapshot.at, [])
        if self.before is not None and self.before.ref is not None:
            known = known_objects(self._mirror, self.before)
            objects.live = self._mirror.manifest(self.before.ref).listed_objects()
        try:
            if self.how.whole or not self._difference(session, stored, objects):
                self._whole(session, stored, objects)
            self.iteration.lease.check()
        except BaseException as error:
            if not self.how.is_large or isinstance(error, OF_ROWS):  # else finished ranges stay for the next attempt
                for rows in self.record.results.drop_ranges(self.table.id, CHANGED_SCHEMA):
                    objects.take_up(rows)
                objects.undo()
            raise
        gone = known.filter(pc.is_in(known.column("name"), pa.array(objects.gone, pa.string())))
        return pa.concat_tables([pa.Table.from_batches(objects.made.values(), CHANGED_SCHEMA), gone_rows(gone)])

    def _whole(self, session: Session, stored: StoredTable, objects: TableObjects) -> None:
        """All rows, in the place of all that there is. Tasks share the sessions that the subscription may have."""
        objects.take_out(objects.live)
        whole = WholeTable(self.job, stored, self.record.snapshot)
        number, ref = whole.columns[-1] if stored.key.hidden else stored.key.columns[0], self.record.snapshot
        found = key_ranges(session, self.table, number, ref.name, self.how.rows, _MOST_RANGES)
        ranges = [(f"{self.table.id}-{place}" if len(found) > 1 else "", where) for place, where in enumerate(found)]
        read = partial(whole.read, self._mirror, self.record.results, self.iteration.lease.check)

        def here() -> list[pa.Table]:
            return in_sessions(self.job, ranges, read) if self.how.is_large else [read(session, one) for one in ranges]

        sessions, url = self.job.budget.sessions, self._mirror.store.url
        shares = [ranges[first::sessions] for first in range(min(sessions, len(ranges)))]
        sizes = [len(share) * self.how.size // len(ranges) for share in shares]
        tasks = replace(whole, job=self.job.for_workers())
        work = Work(WorkKind.READ, self.job.source, (url,), tasks.read_in_task, shares, sizes)
        done = share_out(self.iteration.carry, work, here, self.iteration.lease.check)
        self._check_count(session, sum(map(objects.take_up, done)))

    def _difference(self, session: Session, stored: StoredTable, objects: TableObjects) -> bool:
        """What differs. False, and nothing is changed, if it is not believed."""
        at, last = self.record.snapshot.at, self.iteration.last.point
        assert last is not None
        former = list(objects.live)
        try:
            objects.settle(last.at)
            rows, came, located = self._proven(session, stored, objects)
        except _DOUBTED as error:
            _log.warning("%s: its difference is not believed, all of it is read: %s", self._subject, error)
            objects.undo()
            objects.live, objects.gone = former, set()
            return False
        if count := len(located.rowids):
            objects.put(stored.tombstones(located.rowids, located.keys, commits_at(at, count), at), tombstone=True)
        for part in objects_of(stored, [rows.filter(pa.array(came))], at.physical):
            objects.put_rows(part, commits_at(at, part.num_rows))
        objects.merge()
        return True

    def _proven(
        self, session: Session, stored: StoredTable, objects: TableObjects
    ) -> tuple[pa.RecordBatch, np.ndarray, LocatedRows]:
        """The rows that differ, which of them are there now, and where those lie that are not any more."""
        base = self.iteration.memory.context.current
        assert self.before is not None
        assert base is not None
        statement = changed_rows(self.table, self.before, self.record.snapshot.name, base.name)
        with given_up_if_it_hangs():
            rows = self._in_memory(_paced(self.job, read_differences(session, statement, stored.columns)))
        flags, rows = rows.column(0), rows.remove_column(0)
        came, went = (pc.not_equal(flags, flag).to_numpy(zero_copy_only=False) for flag in ("DELETE", "INSERT"))
        if rows.num_rows != self.how.rows:
            self._doubt(f"{rows.num_rows} rows differ, and {self.how.rows} were counted")
        if stored.key.hidden and (came & went).any():
            self._doubt("rows without a key were updated, and their former values are not told")
        sought, located = locate(self._mirror, objects.live, objects.at, stored, rows)
        expected = np.bincount(sought[went], minlength=len(sought))
        if stored.key.hidden:
            located = located.first_of_each(expected)
        elif len(sought) and np.bincount(sought).max() > 1:
            self._doubt("a key occurs twice in what differs")
        wrong = int((np.bincount(located.which, minlength=len(expected)) != expected).sum())
        if wrong:
            self._doubt(f"{wrong} of the rows are not in the mirror, or should not be there")
        self._check_count(session, objects.rows() + int(came.sum()) - int(went.sum()))
        return rows, came, located

    def _in_memory(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        rows = pa.Table.from_batches(list(batches))
        found = rows.combine_chunks().to_batches()
        if len(found) > 1:
            self._doubt("the values that differ are more than 2 GB")
        arrays = [pa.array([], field.type) for field in rows.schema]
        return found[0] if found else pa.RecordBatch.from_arrays(arrays, schema=rows.schema)

    def _check_count(self, session: Session, rows: int) -> None:
        if (counted := count_at(session, self.table, self.record.snapshot.name)) != rows:
            self._doubt(f"it has {rows} rows, and the upstream counts {counted} at {self.record.snapshot.name}")

    def _doubt(self, text: str) -> NoReturn:
        raise RowsDisagree(text, subject=self._subject)
