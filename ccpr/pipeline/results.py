"""What the steps of an open iteration have found, kept in the mirror's work folder: a run that was interrupted goes on
from there, in whatever process takes it up (docs/architecture.md, "The way of the data").

    about.json       which snapshot the results are of, how they were asked for, what of single tables went wrong
    added.arrow      LISTED_SCHEMA, see `Listed`; likewise refetched.arrow and, as the last of step 2, removed.arrow
    copier.txt       who copies in step 3 and why, for people
    copied.arrow     COPY_OUTPUT, all of step 3
    read-<id>.arrow  CHANGED_SCHEMA, of one table in step 3 of logical mode; read-<id>-<n>.arrow of a range of its key
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from ccpr.base.errors import Failure
from ccpr.matrixone.client.errors import DatabaseMissing, HistoryUnreadable
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.client.table_rows import RANGE_ROWS
from ccpr.matrixone.schema import integer_of, text_of
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.files import arrow_file
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, ObjectDiff, rows_without
from ccpr.pipeline.copying import COPY_OUTPUT, CopyReport
from ccpr.pipeline.findings import Findings
from ccpr.pipeline.options import Resync
from ccpr.pipeline.step_names import COPIED, COPIER, LISTED

_FORMAT, _ROW_BYTES = 1, 64
# The upstream does not reach back to the base: the one database, whose catalog at the snapshot was just read, is
# "missing" there too.
PAST_UNREAD = (HistoryUnreadable, DatabaseMissing)
_ABOUT = "about.json"
_WRITER = "writer-"
_WITHOUT_SUMS = 7  # columns of COPY_OUTPUT in files of 0.2.0 that its earlier commits wrote


@dataclass(frozen=True, slots=True)
class RowRead:
    """How the rows of a table are read in logical mode.

    Attributes
    ----------
    whole : why all of them are; empty if only those that differ from the last point's.
    rows : how many that are, as the upstream counts them.
    """

    whole: str
    rows: int

    @property
    def is_large(self) -> bool:
        """Whether the table is read as a whole, by ranges of its key if it can be."""
        return bool(self.whole) and self.rows >= 2 * RANGE_ROWS

    @property
    def size(self) -> int:
        """What is taken for the stored bytes, which nobody knows before: a range is worth a task."""
        return self.rows * _ROW_BYTES


@dataclass(frozen=True, slots=True)
class Listed:
    """What step 2 found.

    Attributes
    ----------
    diff : what leads from the tables' points to the snapshot, without those that failed.
    refetched : LISTED_SCHEMA, objects that stay live and whose file is missing or is not what was written; found by a
        resync only.
    rebuilt : ids of tables whose manifest is lost: `diff.added` has all of their objects. By a resync only.
    failures : by table id, in isolated mode.
    base_lost : the upstream no longer had the snapshot of the last point, or could not read back to it, so all of it
        is from a full list; the reason with the code of the error behind it, else empty.
    sequences : names, without databases, of those whose value may be another one.
    reads : in logical mode, by table id, how tables are read that have changed; `diff` is known when that is done.
    """

    diff: ObjectDiff
    refetched: pa.Table = field(default_factory=LISTED_SCHEMA.empty_table)
    rebuilt: frozenset[int] = frozenset()
    failures: Mapping[int, Failure] = field(default_factory=dict)
    base_lost: str = ""
    sequences: frozenset[str] = frozenset()
    reads: Mapping[int, RowRead] = field(default_factory=dict)

    @property
    def base_is_there(self) -> bool:
        """Whether the lost snapshot is not gone, but of a past that the upstream could not read: that may pass."""
        return self.base_lost.endswith(tuple(f"({kind.code})" for kind in PAST_UNREAD))

    @property
    def wanted(self) -> pa.Table:
        """The objects that have to be there before the point can be made (LISTED_SCHEMA)."""
        return pa.concat_tables([self.diff.added, self.refetched])

    @property
    def repaired(self) -> set[int]:
        """Tables whose manifest is written though the list may show no change of theirs."""
        return set(self.rebuilt) | set(self.refetched.column("table_id").to_pylist())

    def without(self, failures: Mapping[int, Failure]) -> "Listed":
        """Less the tables that failed in a later step."""
        rest = frozenset(self.rebuilt - failures.keys())
        return Listed(
            self.diff.without(failures),
            rows_without(self.refetched, failures),
            rest,
            {**self.failures, **failures},
            self.base_lost,
            self.sequences,
            self.reads,
        )


class StepResults:
    """The results of one open iteration, derived from one snapshot."""

    def __init__(self, mirror: Mirror, ref: SnapshotRef, resync: Resync | None, chosen: tuple[str, ...] = ()) -> None:
        self._mirror, self._ref, self._resync, self._chosen = mirror, ref, resync, chosen
        self._is_there: Listed | None = None  # what was read from there, or kept

    def listed(self) -> Listed | None:
        """None if step 2 has to be done: it has not been, or was asked for otherwise, or is of another snapshot of
        that number."""
        if self._mirror.store.size(self._path(LISTED)) is None:
            return None
        subject = f"{self._mirror.store.url}/{self._path(_ABOUT)}"
        try:
            about = json.loads(self._mirror.store.read(self._path(_ABOUT)).to_pybytes())
            if about["is_of"] != self._is_of():
                return None
            failures = {
                int(table_id): Failure.from_text(text_of(failure)) for table_id, failure in about["failures"].items()
            }
            rebuilt, base_lost = frozenset(map(integer_of, about["rebuilt"])), text_of(about["base_lost"])
            sequences = frozenset(
                map(text_of, about.get("sequences", ()))
            )  # of before: a point follows, for which all are read
            reads = {
                int(number): RowRead(text_of(why), integer_of(rows))
                for number, (why, rows) in about.get("reads", {}).items()
            }
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            message = f"results of an open iteration cannot be read: {error!s:.200}"
            raise MirrorDamaged(message, subject=subject) from error
        added, refetched, removed = (self._read(name) for name in ("added.arrow", "refetched.arrow", LISTED))
        diff = ObjectDiff(added, removed)
        self._is_there = Listed(diff, refetched, rebuilt, failures, base_lost, sequences, reads)
        return self._is_there

    def keep_listed(self, listed: Listed) -> None:
        """What was copied for another list is void. The one that was read from here is there already."""
        if listed is self._is_there:
            return
        store = self._mirror.store
        for name in (COPIED, LISTED):
            store.delete(self._path(name))
        about = {
            "is_of": self._is_of(),
            "failures": {str(table_id): failure.to_text() for table_id, failure in sorted(listed.failures.items())},
            "rebuilt": sorted(listed.rebuilt),
            "base_lost": listed.base_lost,
            "sequences": sorted(listed.sequences),
            **(
                {"reads": {str(key): [read.whole, read.rows] for key, read in listed.reads.items()}}
                if listed.reads
                else {}
            ),
        }
        store.replace(self._path(_ABOUT), json.dumps(about, ensure_ascii=False).encode())
        store.replace(self._path("added.arrow"), arrow_file(listed.diff.added))
        store.replace(self._path("refetched.arrow"), arrow_file(listed.refetched))
        store.sync(self._ref.work)  # what it stands for is there whenever it is; if it is lost, the step is done again
        store.replace(self._path(LISTED), arrow_file(listed.diff.removed))  # last: it says that the step is done
        self._is_there = listed

    def is_listed(self) -> bool:
        return self._mirror.store.size(self._path(LISTED)) is not None

    def copied(self) -> CopyReport | None:
        """None if step 3 has not been done."""
        name = self._path(COPIED)
        if self._mirror.store.size(name) is None:
            return None
        try:
            report = CopyReport.of(self._read_copied(name))
            # A file that is not as it was written becomes an error with its name here.
            _ = report.failures, [Findings.from_text(text) for text in report.found.values()]
            return report
        except ValueError as error:
            message = f"a failure in it cannot be read: {error}"
            raise MirrorDamaged(message, subject=f"{self._mirror.store.url}/{name}") from error

    def _read_copied(self, name: str) -> pa.Table:
        """What an earlier release wrote lacks the last columns: objects are opened for `found`."""
        rows = self._mirror.files.read_arrow(name, COPY_OUTPUT, pa.schema(list(COPY_OUTPUT)[:_WITHOUT_SUMS]))
        for column in list(COPY_OUTPUT)[rows.num_columns :]:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        return rows

    def keep_copier(self, text: str) -> None:
        self._mirror.store.replace(self._path(COPIER), text.encode())

    def keep_copied(self, report: CopyReport) -> None:
        self._mirror.store.replace(self._path(COPIED), arrow_file(pa.concat_tables([report.rows, report.failed])))

    def note_writer(self, fence: int) -> None:
        """Who holds the lease by this fence, or a task by any number, is about to write objects in logical mode."""
        self._mirror.store.replace(self._path(f"{_WRITER}{fence}"), b"")

    @property
    def had_writers(self) -> bool:
        """Whether several did: one that was killed may have left objects that nothing names."""
        names = self._mirror.store.names(self._ref.work)
        return sum(name.rpartition("/")[2].startswith(_WRITER) for name in names) > 1

    def changed(self, read: str, schema: pa.Schema) -> pa.Table | None:
        """What `keep_changed` has kept of a table, by its id, or of a range of it."""
        name = self._path(f"read-{read}.arrow")
        return None if self._mirror.store.size(name) is None else self._mirror.files.read_arrow(name, schema)

    def keep_changed(self, read: str, rows: pa.Table) -> None:
        self._mirror.store.replace(self._path(f"read-{read}.arrow"), arrow_file(rows))

    def drop_ranges(self, table_id: int, schema: pa.Schema) -> list[pa.Table]:
        """What was kept of ranges of a table, and is void now."""
        names = self._mirror.store.names(self._ref.work)
        mine = [name for name in names if name.rpartition("/")[2].startswith(f"read-{table_id}-")]
        found = [self._mirror.files.read_arrow(name, schema) for name in mine]
        for name in mine:
            self._mirror.store.delete(name)
        return found

    def clear(self) -> None:
        self._is_there = None
        self._mirror.store.delete_folder(self._ref.work)

    def _read(self, name: str) -> pa.Table:
        return self._mirror.files.read_arrow(self._path(name), LISTED_SCHEMA)

    def _path(self, name: str) -> str:
        return f"{self._ref.work}/{name}"

    def _is_of(self) -> list[object]:
        asked = "" if self._resync is None else self._resync.table or "*"
        of = [_FORMAT, self._ref.name, self._ref.at.physical, asked]
        return [*of, *self._chosen] if any(self._chosen) else of


def sweep_results(mirror: Mirror, ref: SnapshotRef) -> None:
    """Remove results of iterations before this one. Later ones can only be a successor's, of an executor that was
    superseded."""
    for folder in {name.rpartition("/")[0] for name in mirror.store.names("work")}:
        lsn, attempt = [*folder.rpartition("/")[2].split("-"), "", ""][:2]
        made_before = lsn.isdecimal() and attempt.isdecimal() and (int(lsn), int(attempt)) <= (ref.lsn, ref.attempt)
        if made_before and folder != ref.work:
            mirror.store.delete_folder(folder)
