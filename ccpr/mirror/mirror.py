"""The physical replica: object files byte for byte, a manifest for each changed table of a point, and points that name
manifests.

A reader needs this folder only, no state database. Everything that reads rows calls `Mirror.rows`: `Mirror.read`,
exports, the tasks of `ccpr.mirror.table_read`. Its files: docs/format/mirror.md, `ccpr.mirror.layout`. Source:
docs/architecture.md, "One commit"; decisions mirror-is-the-first-destination, identity-by-id.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property, partial

import pyarrow as pa

from ccpr.base.wording import first_names, meant
from ccpr.matrixone.definitions import Definitions, definitions_json, definitions_of
from ccpr.matrixone.objects.errors import ObjectChanged
from ccpr.matrixone.objects.object_layout import Block
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import arrow_schema, check_readable
from ccpr.matrixone.objects.visibility import ListedObject, VisibleRows, batch_of, in_runs, visible_blocks
from ccpr.matrixone.schema import Column, Table
from ccpr.mirror.errors import HoldMissing, MirrorDamaged, PointGone, PointNotReached, TableMissingInMirror
from ccpr.mirror.files import MirrorFiles, arrow_file, json_bytes
from ccpr.mirror.filters import ColumnCondition, Filter, conditions, mask_of
from ccpr.mirror.kept_points import KeptPoints
from ccpr.mirror.layout import (
    HEAD,
    IDENTITY,
    SUMS_SCHEMA,
    Head,
    Identity,
    definitions_path,
    digest_in,
    digest_of,
    kept_path,
    ledger_path,
    lsn_of_point,
    object_path,
    sums_path,
)
from ccpr.mirror.manifests import Manifest, Rows, read_manifest, write_changes, write_whole
from ccpr.mirror.point_files import PointFile, PointFiles, write_point
from ccpr.mirror.points import FIRST_INSTANT, Point, TableRef, instant_text, nanoseconds_of
from ccpr.mirror.pruning import prune, stats_tell_of
from ccpr.mirror.store import Store


class Mirror:
    """A mirror folder, to read from and, for the holder of the lease, to write to."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.files = MirrorFiles(store)

    # ---- reading

    def published_head(self) -> Head | None:
        """None before the first iteration has ended."""
        if self.store.size(HEAD) is None:
            return None
        value = self.files.read_json(HEAD)
        with self.files.understood(HEAD):
            return Head.from_json(value)

    def identity(self) -> Identity | None:
        """Whose mirror it is; None if nothing was written here."""
        if self.store.size(IDENTITY) is None:
            return None
        value = self.files.read_json(IDENTITY)
        with self.files.understood(IDENTITY):
            return Identity.from_json(value)

    def point_files(self) -> PointFiles:
        """The files of the points that can be read now."""
        return PointFiles(self.files, self.published_head() or Head(None, None, 0, 0))

    def lsns(self) -> list[int]:
        """The points that can be read, oldest first."""
        return [file.lsn for file in self.point_files().all()][::-1]

    def points(self) -> list[Point]:
        """All points that can be read, oldest first. Each file is read once."""
        files = self.point_files()
        return [files.load(file) for file in files.all()][::-1]

    def points_not_needed(self, oldest_lsn: int) -> list[str]:
        """Files of points before the chain, if this is its first point, that no point in it is read from."""
        needed = self.point_files().read_from(oldest_lsn)
        names = ((name, lsn_of_point(name)) for name in self.store.names("points"))
        return [name for name, lsn in names if lsn is not None and lsn < oldest_lsn and name not in needed]

    def kept(self) -> KeptPoints:
        """The points before the chain, and those that are held."""
        return self.point_files().kept

    def point(self, at: int | datetime | str | None = None) -> Point:
        """The point that shows `at`: an lsn (below FIRST_INSTANT), a time (nanoseconds, or a datetime, UTC without a
        zone), the name of a held point, None for the newest.

        An idle iteration makes no point: its lsn reads as the point before it. A datetime counts to the end of its
        microsecond, so that a point is found by its own time. What a point showed that has gone, no other is taken for.

        Raises PointNotReached, PointGone, HoldMissing.
        """
        files = PointFiles(self.files, self.head_with_point())
        return files.load(self.point_file(files, at))

    def head_with_point(self) -> Head:
        """Raises PointNotReached before the first point."""
        head = self.published_head()
        if head is None or head.newest_point is None:
            raise PointNotReached(
                "the mirror has no point yet",
                subject=self.store.url,
                remedy="Run the first iteration: `ccpr run NAME`.",
            )
        return head

    def point_file(self, files: PointFiles, at: int | datetime | str | None) -> PointFile:
        """The file of the point that `point` gives. The head of the files has a point."""
        head = files.head
        newest = f"; the newest is point {head.newest_point}, reached up to {instant_text(head.watermark)}"
        if at is None:
            at = head.newest_point or 0
        if isinstance(at, str):
            at = self._held(files, at)
        if isinstance(at, int) and at < FIRST_INSTANT:
            asked, late, reached = f"point {at}", partial(_has_lsn_after, at), at < head.iteration_lsn
        else:
            instant, slack = (at, 0) if isinstance(at, int) else (nanoseconds_of(at), 999)
            asked, reached = instant_text(instant), instant <= head.watermark
            late = partial(_is_after, instant + slack)
        if not reached:
            raise PointNotReached(f"{asked} is not reached{newest}", subject=self.store.url)
        found = files.find(late)
        if found is None:
            raise PointGone(_gone(asked, *files.around(late)), subject=self.store.url)
        return found

    def _held(self, files: PointFiles, name: str) -> int:
        """The lsn of a held point. Raises HoldMissing."""
        found = files.kept.hold(name)
        if found is None:
            known = first_names(hold.name for hold in files.kept.holds)
            message = f"no point is held by that name{f'; those held are {known}' if known else ''}"
            raise HoldMissing(message, subject=f"held point {name[:80]}")
        return found.lsn

    def manifest(self, ref: TableRef, choose: Rows | None = None) -> Manifest:
        """With `choose` some of its objects (`read_manifest`). Raises MirrorDamaged, which names the table."""
        with files_of(ref.qualified_name):
            return read_manifest(self.files, ref.manifest, choose)

    def definitions(self, point: Point) -> tuple[Definitions, ...]:
        """What each of the databases had besides tables, in order of name; empty if the point does not say. Raises
        MirrorDamaged."""
        return self.definitions_in(point.definitions)

    def definitions_in(self, path: str) -> tuple[Definitions, ...]:
        """The same, by the path of the file; empty without one."""
        if not path:
            return ()
        value = self.files.read_json(path)
        with self.files.understood(path):
            return definitions_of(value)

    def open_object(self, name: str, sums: bytes | None) -> ObjectFile:
        """What is read of it is compared with the sums; those of an object that is listed without are looked for where
        `ccpr verify --checksums` leaves them. Unless they are known nowhere."""
        sums = self.later_sums.get(name) if sums is None else sums
        return ObjectFile(self.store.open(object_path(name)), subject=f"object {name}", sums=sums)

    @cached_property
    def later_sums(self) -> Mapping[str, bytes]:
        """By name, of objects that an earlier release listed, without sums. Raises MirrorDamaged."""
        found: dict[str, bytes] = {}
        for file in self.store.names("sums"):
            rows = self.files.read_arrow(file, SUMS_SCHEMA)
            found |= zip(rows.column("name").to_pylist(), rows.column("sums").to_pylist(), strict=True)
        return found

    def read(
        self,
        point: Point,
        qualified_name: str,
        *,
        columns: Sequence[str] | None = None,
        filters: Sequence[Filter] = (),
        hidden: bool = False,
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a table at a point that satisfy all filters: the schema, and batches as of `rows`.

        Raises TableMissingInMirror for an unknown table or column, BadFilter; and while batches are taken what `rows`
        raises.
        """
        manifest = self.manifest(point.table(qualified_name))
        wanted = choose_columns(manifest.table, columns, hidden=hidden)
        return arrow_schema(wanted), self.rows(manifest, wanted, point.at, filters=filters)

    def rows(
        self,
        manifest: Manifest,
        columns: Sequence[Column],
        at: Timestamp,
        *,
        filters: Sequence[Filter] = (),
        names: Sequence[str] | pa.Array | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a table that are visible at a time and satisfy all filters; a batch is of a block, or of some
        together (`ccpr.matrixone.objects.visibility.in_runs`).

        The time is the point's, not that of the manifest: an appendable object that stayed live may hold rows that were
        committed in between. Objects and blocks without a row that is asked for are not read, as far as zone maps tell.

        Parameters
        ----------
        columns : what the batches hold, in this order.
        names : data objects to read; without them all of the manifest that the filters do not exclude.

        Raises
        ------
        BadFilter
            At once, as MirrorDamaged for an object that is opened for its sort key.
        MirrorDamaged, ObjectDamaged, ObjectMismatch, ObjectUnsupported, StoreFailed
            While batches are taken; MirrorDamaged names the table.
        """
        tests = conditions(filters, manifest.table)
        if names is not None:
            objects = manifest.only(names).listed_objects()
        else:
            with files_of(manifest.table.qualified_name):
                objects = self.objects_for(manifest, filters)
        return self._rows(manifest.table, objects, tuple(columns), at, tuple(filters), tests)

    def _rows(
        self,
        table: Table,
        objects: Sequence[ListedObject],
        columns: tuple[Column, ...],
        at: Timestamp,
        filters: tuple[Filter, ...],
        tests: tuple[ColumnCondition, ...],
    ) -> Iterator[pa.RecordBatch]:
        schema, read = arrow_schema(columns), [*columns, *(test.column for test in tests)]
        with files_of(table.qualified_name):
            pruning = prune(filters, table.columns)
            for run in self.runs(objects, read, len(table.columns), at, pruning.blocks):
                if all(pruning.covers(run.file, block) for block in run.blocks):
                    yield run.batch(columns, schema)
                elif (found := _satisfying(run, columns, schema, tests)) is not None:
                    yield found

    def runs(
        self,
        objects: Sequence[ListedObject],
        columns: Sequence[Column],
        stored: int,
        at: Timestamp,
        choose: Callable[[ObjectFile], Iterable[Block]],
    ) -> Iterator[VisibleRows]:
        """The visible rows of the blocks that are chosen, some blocks together. `columns` will be read of them, of so
        many that are `stored`."""
        return in_runs(visible_blocks(objects, self.open_object, at, choose=choose), columns)

    def objects_for(self, manifest: Manifest, filters: Sequence[Filter]) -> Sequence[ListedObject]:
        """The table's objects without those data objects that cannot hold a row that satisfies all filters.

        The object list has a zone map of one column, the one that the rows are sorted by. Which one that is, the
        smallest object says; nothing else is opened.
        """
        objects, columns = manifest.listed_objects(), manifest.table.columns
        live = [listed for listed in objects if not listed.tombstone]
        if not filters or not live:
            return objects
        smallest = min(live, key=lambda listed: listed.stats.size)
        key = self.open_object(smallest.stats.name, smallest.sums).sort_key
        if key is None or not stats_tell_of(key, columns):
            return objects
        tests = prune(filters, columns).on(key)
        return [one for one in objects if one.tombstone or not tests.excludes_zone(one.stats.sort_key_zonemap)]

    # ---- writing

    def write_manifest(self, table: Table, objects: pa.Table, lsn: int, fence: int) -> str:
        """Its path. `objects` is MANIFEST_SCHEMA."""
        return write_whole(self.files, table, objects, lsn, fence)

    def write_changes(
        self, table: Table, before: TableRef, added: pa.Table, removed: pa.Table, lsn: int, fence: int
    ) -> tuple[str, tuple[str, ...]]:
        """See `ccpr.mirror.manifests.write_changes`. Raises MirrorDamaged, which names the table."""
        with files_of(before.qualified_name):
            return write_changes(self.files, table, before, added, removed, lsn, fence)

    def write_ledger(self, copied: pa.Table, lsn: int, fence: int) -> str:
        """Its path. `copied` is LEDGER_SCHEMA."""
        return self.files.write(partial(ledger_path, lsn, fence), arrow_file(copied))

    def write_sums(self, sums: Mapping[str, bytes]) -> None:
        """Those of `later_sums`, in the place of what was there."""
        columns = [pa.array(list(sums), pa.string()), pa.array(list(sums.values()), pa.binary())]
        path = self.files.write(sums_path, arrow_file(pa.Table.from_arrays(columns, schema=SUMS_SCHEMA)))
        self.store.sync("sums")
        for former in list(self.store.names("sums")):
            if former != path:
                self.store.delete(former)
        self.__dict__.pop("later_sums", None)

    def write_definitions(self, found: Sequence[Definitions], lsn: int, fence: int, before: str = "") -> str:
        """Its path: that of `before`, an earlier point's file, if it says the same."""
        content = json_bytes(definitions_json(found))
        if before and digest_in(before) == digest_of(content):
            return before
        return self.files.write(partial(definitions_path, lsn, fence), content)

    def write_point(self, point: Point, changed: Mapping[int, TableRef | None], earlier: Sequence[PointFile]) -> str:
        """See `ccpr.mirror.point_files.write_point`."""
        return write_point(self.files, point, changed, earlier)

    def write_kept(self, kept: KeptPoints, revision: int) -> str:
        """Its path. It is not seen until a head names it."""
        path = self.files.write_json(partial(kept_path, revision), kept.to_json())
        self.store.sync("kept")
        return path

    def publish_head(self, head: Head) -> None:
        """Make committed points readable without a catalog."""
        self.files.write_sealed(HEAD, head.to_json())

    def write_identity(self, identity: Identity, *, new: bool = False) -> None:
        """Raises StoreConflict for a `new` one where another has just been written."""
        self.files.write_sealed(IDENTITY, identity.to_json(), new=new)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What `Mirror.point` said: for which head, what was asked for, which file it came from."""

    head: Head
    at: int | datetime | str | None
    path: str
    point: Point


class ReadMirror(Mirror):
    """A mirror from which many tables are read, one after another: to make out a point takes as long as it has tables.

    Keeps the points that were asked for last, two of them, as changes are between two. The head is read each time,
    so what it says is always the newest state; and a point's file is named after what it says, so a point that was made
    out once need not be again."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._answers: tuple[_Answer, ...] = ()

    def point(self, at: int | datetime | str | None = None) -> Point:
        head, answers = self.head_with_point(), self._answers
        for answer in answers:
            if (answer.head, answer.at) == (head, at):
                return answer.point
        files = PointFiles(self.files, head)
        file = self.point_file(files, at)
        known = (one.point for one in answers if one.path == file.path)
        point = next(known, None) or files.load(file)
        self._answers = (_Answer(head, at, file.path, point), *answers[:1])
        return point


def _has_lsn_after(lsn: int, file: PointFile) -> bool:
    return file.lsn > lsn


def _is_after(instant: int, file: PointFile) -> bool:
    return file.at > instant


def _gone(asked: str, before: PointFile | None, after: PointFile | None) -> str:
    """Why no point shows what was asked for, and which are next to it."""
    if before is None:
        oldest = "" if after is None else f", {after.lsn} of {instant_text(after.at)}"
        return f"{asked} is before the oldest point{oldest}"
    later = "" if after is None else f" and point {after.lsn} of {instant_text(after.at)}"
    return f"the point of {asked} was dropped; next to it are point {before.lsn} of {instant_text(before.at)}{later}"


@contextmanager
def files_of(qualified_name: str) -> Iterator[None]:
    """An error about a file of this table that is missing or damaged names the table, and how to get the file back."""
    try:
        yield
    except (MirrorDamaged, ObjectChanged) as error:
        remedy = (
            f"`ccpr resync NAME --table {qualified_name}` fetches what is missing or damaged, for the newest point; "
            "see `ccpr verify`. If older points alone have it, `ccpr points drop NAME --before LSN` gives them up."
        )
        if isinstance(error, ObjectChanged):
            remedy = "`ccpr verify NAME --repair` fetches it again, from the upstream or a second copy."
        subject = error.subject if error.subject.startswith("table ") else f"table {qualified_name}, {error.subject}"
        raise MirrorDamaged(error.message, subject=subject, remedy=remedy) from error


def _satisfying(
    run: VisibleRows, columns: Sequence[Column], schema: pa.Schema, tests: Sequence[ColumnCondition]
) -> pa.RecordBatch | None:
    """Those rows that satisfy all conditions; None if there is none. Columns without a condition are read for these
    rows only."""
    read, tested = cache(run.column), {test.column for test in tests}
    mask = mask_of(tests, read)
    chosen = run.where(mask.to_numpy(zero_copy_only=False)) if mask.true_count else None
    if chosen is None:
        return None
    arrays = [read(column).filter(mask) if column in tested else chosen.column(column) for column in columns]
    return batch_of(arrays, schema, chosen.count)


def choose_columns(table: Table, names: Sequence[str] | None, *, hidden: bool = False) -> tuple[Column, ...]:
    """The table's columns in declared order, or the named ones in the order given. Hidden ones on request or by name.
    Raises TableMissingInMirror; ObjectUnsupported if this release cannot read one of them."""
    if names is None:
        names = [column.name for column in (table.columns if hidden else table.user_columns)]
    by_name = {column.name: column for column in table.columns}
    missing = [name for name in names if name not in by_name]
    if missing:
        remedy = meant(missing[0], (column.name for column in table.user_columns), "columns")
        message = f"no column {', '.join(missing)}"
        raise TableMissingInMirror(message, subject=f"table {table.qualified_name}", remedy=remedy)
    chosen = tuple(by_name[name] for name in names)
    check_readable(table, chosen)
    return chosen
