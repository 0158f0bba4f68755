"""Steps 4 and 5: which tables move to the snapshot, what they are made of there, and their manifests.

In isolated mode a table that fails does not move: it stays at its point, and the point that is made does not show it
(docs/requirements.md B4).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow.compute as pc

from ccpr.base.errors import Failure
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectDamaged
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import ObjectDiff, rows_of, with_checksums
from ccpr.mirror.points import LaggingTable
from ccpr.pipeline.applying import holds_later_rows, with_found, write_table
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.changed_tables import MovedTables, with_changes
from ccpr.pipeline.committing import IterationResult, Last
from ccpr.pipeline.copying import CopyReport
from ccpr.pipeline.findings import is_measured
from ccpr.pipeline.results import Listed
from ccpr.pipeline.step_names import Step
from ccpr.pipeline.table_lists import TableFailures
from ccpr.schema.table_changes import ChangeKind
from ccpr.state.point_rows import TablePoint
from ccpr.state.subscription import Subscription

_TABLE_FAILURES = (MirrorDamaged, ObjectDamaged)  # of one table's files only
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PointBuilder:
    """One iteration's view.

    Attributes
    ----------
    catalog : at the snapshot, whose time is `at`.
    last : the last point.
    lsn, fence : of the iteration; they name the manifests.
    redefined : whether there are other views or sequences than at the last point, or a sequence has another value.
    """

    mirror: Mirror
    subscription: Subscription
    catalog: CatalogDiff
    last: Last
    lsn: int
    fence: int
    at: Timestamp
    enter: Callable[[Step], None]
    redefined: bool = False

    @property
    def kept(self) -> set[int]:
        """Ids of the tables whose objects the mirror keeps."""
        return self.catalog.copied(self.subscription)

    def result(self, listed: Listed, report: CopyReport) -> IterationResult:
        """What is to be committed; the manifests are written."""
        self.enter(Step.FILTER)
        failures: TableFailures = {}
        for name, failure in report.failures.items():
            named = listed.wanted.filter(pc.equal(listed.wanted.column("name"), name)).column("table_id").to_pylist()
            failures |= dict.fromkeys(named, failure)
        listed, points = listed.without(failures), None
        if not self.is_idle(listed, failures):
            listed = listed.without(failures)
            self.enter(Step.APPLY)
            written = self._write(listed, report, failures)
            listed = listed.without(failures)
            gone = [
                TablePoint(self.last.tables[table_id].table, None, self.lsn) for table_id in sorted(self._gone(listed))
            ]
            points = (*written, *gone)
        return self._result(points, listed, report)

    def idle_result(self, listed: Listed, report: CopyReport) -> IterationResult | None:
        """The result of an iteration in which nothing has changed; None for another."""
        failures: TableFailures = {}
        return self._result(None, listed, report) if self.is_idle(listed, failures) and not failures else None

    def is_idle(self, listed: Listed, failures: TableFailures) -> bool:
        """Has no row become visible since the last point, and no table or view changed? That no object changed is not
        enough. A table that failed again changes nothing; one that fails here is added to `failures`, and does.
        """
        if (
            self.last.point is None
            or self.redefined
            or self._gone(listed)
            or self._to_write(listed)
            or listed.reads
            or self._late(listed) != self.last.behind
        ):
            return False
        return next(self._moved_by_time(failures), None) is None

    def _moved_by_time(self, failures: TableFailures, besides: Collection[int] = ()) -> Iterator[int]:
        """Tables in which the time alone makes rows visible that the last point does not show; and those that fail."""
        last = self.last.point
        if last is None:
            return
        candidates = (self.last.tables.appendable.keys() & self.kept) - self.last.behind.keys()
        for table_id in sorted(candidates.difference(besides)):
            later = partial(holds_later_rows, self.mirror, self.last.tables.refs[table_id], last.at, self.at)
            if self._or_fail(table_id, failures, later) or table_id in failures:
                yield table_id

    def _result(self, points: tuple[TablePoint, ...] | None, listed: Listed, report: CopyReport) -> IterationResult:
        failed = {table_id: (self.catalog.tables[table_id], failure) for table_id, failure in listed.failures.items()}
        changed = 0
        if points is not None:
            redefined = {change.table.id for change in self.catalog.changes} | self.last.behind.keys()
            came, went = (
                set(pc.unique(rows.column("table_id")).to_pylist()) for rows in (listed.diff.added, listed.diff.removed)
            )
            since = None if self.last.point is None else self.last.point.at
            moved = MovedTables(redefined, came, went)
            points, changed = with_changes(self.mirror, points, self.last.tables, since, self.at, moved)
        return IterationResult(points, listed, report, failed, self._late(listed), self.kept, changed)

    def _write(self, listed: Listed, report: CopyReport, failures: TableFailures) -> list[TablePoint]:
        """The manifest of each table that has changed; one whose own files are damaged fails."""
        points, diff = [], ObjectDiff(with_checksums(listed.diff.added, report.rows), listed.diff.removed)
        found = report.found
        to_write = self._to_write(listed)
        to_write |= set(self._moved_by_time(failures, to_write)) - failures.keys()
        for table_id in sorted(to_write):
            before = None if table_id in listed.rebuilt else self.last.tables.get(table_id)
            written = self._or_fail(table_id, failures, partial(self._write_table, table_id, before, diff, found))
            if written is not None:
                points.append(written)
        return points

    def _write_table(
        self, table_id: int, before: TablePoint | None, diff: ObjectDiff, found: Mapping[str, str | None]
    ) -> TablePoint:
        table = self.catalog.tables[table_id]
        added, removed = (rows_of(rows, [table_id]) for rows in (diff.added, diff.removed))
        if self.subscription.copies(table):
            table = with_found(self.mirror, table, before, added, removed, found)
        return write_table(self.mirror, self.lsn, self.fence, table, before, added, removed)

    def _to_write(self, listed: Listed) -> set[int]:
        """Tables that differ from what the last point shows, tables that it does not show, those whose files this
        release has not looked at (`is_measured`), and those with other hidden tables; without those that failed."""
        if self.catalog.known is not None:  # what follows is only of tables that differ from the last point's
            return (listed.diff.table_ids | listed.repaired) - listed.failures.keys()
        changed = {change.table.id for change in self.catalog.changes if change.kind is not ChangeKind.DROPPED}
        behind = self.last.behind.keys() & self.catalog.tables.keys()
        unmeasured = {
            table_id
            for table_id in self.last.tables.keys() & self.kept - self.last.behind.keys()
            if not is_measured(self.last.tables[table_id].table)
        }
        indexed = {
            table_id
            for table_id in self.last.tables.keys() & self.catalog.tables.keys() - self.last.behind.keys()
            if self.last.tables[table_id].table.indexes != self.catalog.tables[table_id].indexes
        }
        found = listed.diff.table_ids | changed | listed.repaired | behind | unmeasured | indexed
        return found - listed.failures.keys()

    def _gone(self, listed: Listed) -> set[int]:
        """Tables that are gone. One whose successor failed stays, so that its rows can still be read."""
        return self.last.tables.keys() - self.catalog.tables.keys() - self._late(listed).keys()

    def _late(self, listed: Listed) -> dict[int, LaggingTable]:
        """The tables that a point made now would not show."""
        return tables_behind(
            self.catalog, listed.failures, self.last.tables, self.last.behind, self.last.point and self.last.point.lsn
        )

    def _or_fail(self, table_id: int, failures: TableFailures, action: Callable[[], T]) -> T | None:
        return or_fail(table_id, failures, _TABLE_FAILURES, action, isolated=self.subscription.settings.isolated)


def tables_behind(
    catalog: CatalogDiff,
    failed: Collection[int],
    before: Collection[int],
    were_behind: Mapping[int, LaggingTable],
    newest: int | None,
) -> dict[int, LaggingTable]:
    """What the coming point will not show, by the id under which the mirror knows the table.

    Where a table that was truncated or rewritten fails under its new id, the old one stays as it was: it is the same
    table to its users.

    Parameters
    ----------
    failed : ids of tables at the snapshot.
    before, were_behind, newest : ids of the last point's tables, those that it does not show, and its lsn.
    """
    changes = {change.table.id: change for change in catalog.changes}
    behind = {}
    for table_id in failed:
        change, table = changes.get(table_id), catalog.tables[table_id]
        known = table_id
        if change is not None and change.kind is ChangeKind.REPLACED and change.before is not None:
            known = change.before.id
        shown_last = newest if known in before else None
        behind[known] = LaggingTable(
            table.database, table.name, were_behind[known].lsn if known in were_behind else shown_last
        )
    return behind


def or_fail(
    table_id: int,
    failures: TableFailures,
    kinds: tuple[type[CcprError], ...],
    action: Callable[[], T],
    *,
    isolated: bool,
) -> T | None:
    """Do something for one table. In isolated mode an error of these kinds is that table's alone; then None."""
    try:
        return action()
    except kinds as error:
        fail_alone(table_id, failures, error, isolated=isolated)
        return None


def fail_alone(table_id: int, failures: TableFailures, error: CcprError, *, isolated: bool) -> None:
    """In isolated mode an error is that of one table; else it is raised."""
    if not isolated:
        raise error
    failures[table_id] = Failure.of(error)
