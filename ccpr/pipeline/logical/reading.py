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
from ccpr.matrixone.client.errors import BadAnswer, ConnectionLost, StatementFailed
from ccpr.matrixone.client.table_rows import FLAG, read_differences, read_rows
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch
from ccpr.matrixone.objects.writing.writer import WrittenObject
from ccpr.matrixone.schema import FAKE_KEY, Table
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff
from ccpr.mirror.visible_rows import count_rows
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
    put_object,
)
from ccpr.pipeline.logical.table_reads import OF_ROWS, changed_rows, count_at, in_sessions
from ccpr.pipeline.results import Listed, RowRead
from ccpr.pipeline.step_names import Step
from ccpr.pipeline.steps.copy import check_stored
from ccpr.pipeline.table_lists import TableFailures
from ccpr.state.point_rows import TablePoint

_DOUBTED = (BadAnswer, ConnectionLost, MirrorDamaged, ObjectDamaged, ObjectMismatch, RowsDisagree, StatementFailed)
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
        stored = StoredTable.of(self.table)
        made = list[pa.RecordBatch]()
        try:
            gone = None
            if not self.how.whole:
                gone = self._difference(session, stored, made)
            if gone is None:
                gone = self._whole(session, stored, made)
        except BaseException:  # nothing names what was written
            for batch in made:
                self._mirror.store.delete(object_path(batch.column("name")[0].as_py()))
            raise
        return pa.concat_tables([pa.Table.from_batches(made, CHANGED_SCHEMA), gone_rows(gone)])

    def _whole(self, session: Session, stored: StoredTable, made: list[pa.RecordBatch]) -> pa.Table:
        """Write all rows; the objects whose place they take (LISTED_SCHEMA)."""
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
            made.append(self._put(stored.data(rows, commits_at(at, rows.num_rows), at)))
        self._check_count(session, count)
        return LISTED_SCHEMA.empty_table() if self.before is None else known_objects(self._mirror, self.before)

    def _difference(self, session: Session, stored: StoredTable, made: list[pa.RecordBatch]) -> pa.Table | None:
        """Write what differs; as `_whole`. None, and nothing is written, if it is not believed."""
        try:
            rows, came, located = self._proven(session, stored)
        except _DOUBTED as error:
            _log.warning("%s: its difference is not believed, all of it is read: %s", self._subject, error)
            return None
        at = self.record.snapshot.at
        if count := len(located.rowids):
            deleted = stored.tombstones(located.rowids, located.keys, commits_at(at, count), at)
            made.append(self._put(deleted, tombstone=True))
        parts = objects_of(stored, [rows.filter(pa.array(came))], at.physical)
        made.extend(self._put(stored.data(part, commits_at(at, part.num_rows), at)) for part in parts)
        return LISTED_SCHEMA.empty_table()

    def _proven(self, session: Session, stored: StoredTable) -> tuple[pa.RecordBatch, np.ndarray, LocatedRows]:
        """The rows that differ, which of them are there now, and where those lie that are not any more."""
        before, base, last = self.before, self.iteration.memory.context.current, self.iteration.last.point
        assert before is not None
        assert before.ref is not None
        assert base is not None
        assert last is not None
        statement = changed_rows(self.table, before, self.record.snapshot.name, base.name)
        rows = self._in_memory(read_differences(session, statement, stored.columns))
        flags, rows = rows.column(FLAG), rows.remove_column(0)
        came, went = (pc.not_equal(flags, flag).to_numpy(zero_copy_only=False) for flag in ("DELETE", "INSERT"))
        if rows.num_rows != self.how.rows:
            self._doubt(f"{rows.num_rows} rows differ, and {self.how.rows} were counted")
        if stored.key.hidden and (came & went).any():
            self._doubt("rows without a key were updated, and their former values are not told")
        manifest = self._mirror.manifest(before.ref)
        sought, located = locate(self._mirror, manifest.listed_objects(), last.at, stored, rows)
        expected = np.bincount(sought[went], minlength=len(sought))
        if stored.key.hidden:
            located = located.first_of_each(expected)
        elif len(sought) and np.bincount(sought).max() > 1:
            self._doubt("a key occurs twice in what differs")
        wrong = int((np.bincount(located.which, minlength=len(expected)) != expected).sum())
        if wrong:
            self._doubt(f"{wrong} of the rows are not in the mirror, or should not be there")
        self._check_count(session, count_rows(self._mirror, manifest, last.at) + int(came.sum()) - int(went.sum()))
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

    def _put(self, made: WrittenObject, *, tombstone: bool = False) -> pa.RecordBatch:
        return put_object(self._mirror.store, self.table.id, made, self.record.snapshot.at, tombstone=tombstone)
