"""Step 3 of logical mode: the rows of the tables that have changed are read, and written as objects of our own: the new
ones as rows, the old ones as deletions of rows that the mirror has (decision logical-mode).

What came of a table is kept in the work folder, so that an iteration that is taken up reads it no second time. Nothing
is believed unproven: rows that went have to be there once, rows that came must not, and the number of rows has to be
the one that the upstream counts at the snapshot. A difference that fails is replaced by the whole table.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client import upstream_sql
from ccpr.matrixone.client.errors import BadAnswer, StatementFailed
from ccpr.matrixone.client.table_rows import FLAG, read_differences, read_rows
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch
from ccpr.matrixone.schema import FAKE_KEY, Table
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.pipeline.applying import known_objects
from ccpr.pipeline.building import fail_alone
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.copying import COPY_OUTPUT, CopyJob, CopyReport, Pace
from ccpr.pipeline.errors import DifferenceHangs, RowsDisagree
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
from ccpr.pipeline.logical.table_reads import OF_ROWS, changed_rows, count_at, given_up_if_it_hangs, in_sessions
from ccpr.pipeline.results import Listed, RowRead
from ccpr.pipeline.step_names import Step
from ccpr.pipeline.steps.copy import check_stored
from ccpr.pipeline.table_lists import TableFailures
from ccpr.state.point_rows import TablePoint

_DOUBTED = (BadAnswer, DifferenceHangs, MirrorDamaged, ObjectDamaged, ObjectMismatch, RowsDisagree, StatementFailed)
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
        known = record.results.changed(number, CHANGED_SCHEMA)
        if known is not None:
            rows.append(known)
        elif number not in listed.failures:
            table, before = catalog.tables[number], iteration.last.tables.get(number)
            todo.append(TableReader(iteration, record, job, table, before, read))

    def read_one(session: Session, reader: TableReader) -> None:
        iteration.lease.check()
        try:
            found = reader.read(session)
            record.results.keep_changed(reader.table.id, found)
            rows.append(found)
        except OF_ROWS as error:
            fail_alone(reader.table.id, failures, error, isolated=iteration.subscription.settings.isolated)

    in_sessions(job, todo, read_one)
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
        except BaseException:
            objects.undo()
            raise
        gone = known.filter(pc.is_in(known.column("name"), pa.array(objects.gone, pa.string())))
        return pa.concat_tables([pa.Table.from_batches(objects.made.values(), CHANGED_SCHEMA), gone_rows(gone)])

    def _whole(self, session: Session, stored: StoredTable, objects: TableObjects) -> None:
        """All rows, in the place of all that there is."""
        objects.take_out(objects.live)
        ref, at = self.record.snapshot, self.record.snapshot.at
        columns = (*stored.columns, *(one for one in stored.table.columns if one.name == FAKE_KEY and one.hidden))
        names = [column.name for column in columns]
        statement = upstream_sql.select_rows(self.table.database, self.table.name, names, ref.name)
        pace = Pace(self.job.budget.mb_s * 1e6 / self.job.budget.sessions)
        batches = pace.slow_down(read_rows(session, statement, columns), lambda batch: batch.nbytes)
        count = 0
        for rows in objects_of(stored, batches):
            self.iteration.lease.check()
            count += rows.num_rows
            objects.put_rows(rows, commits_at(at, rows.num_rows))
        self._check_count(session, count)

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
            rows = self._in_memory(read_differences(session, statement, stored.columns))
        flags, rows = rows.column(FLAG), rows.remove_column(0)
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
