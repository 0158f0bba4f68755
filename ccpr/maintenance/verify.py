"""Verifies a mirror: compares every object with the ledger, and every file of its own with the digest that vouches for
it. Damaged objects are fetched again; head, identity and points are written again from the catalog database.
Source: docs/requirements.md B2, B3; decisions reads-prove-themselves, a-name-has-its-digest.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.maintenance.repair import Repair
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectUnsupported
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.stats import stats_columns
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.types import unreadable_columns
from ccpr.mirror.errors import MirrorDamaged, PointNotReached
from ccpr.mirror.layout import HEAD, IDENTITY, LEDGER_SCHEMA, object_path
from ccpr.mirror.manifests import Rows
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import TableRef
from ccpr.retention.sweeping import NamedFiles, find_orphans
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.history import GlobalPoint
from ccpr.state.lease import Lease
from ccpr.state.ledger import Ledger, LedgerEntry, due_time
from ccpr.state.log import CcprLog
from ccpr.state.point_rows import TablePoint
from ccpr.state.publishing import check_agreement, publish_pending, rewrite_damaged, rewrite_points

THREADS = 2
_PAGE = 64  # objects that are handed to the threads together


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not what was written.

    Attributes
    ----------
    path : in the mirror's store.
    reason : what is wrong, for people.
    repaired : it was fetched again, or written again, and is now what was written first.
    points : lsn -> tables that cannot be read there because of it; empty if repaired.
    origin : from where it was fetched; empty if it was not.
    read_in : the tables of an object without sums: targets and lakes may have taken its damage.
    """

    path: str
    reason: str
    repaired: bool = False
    points: dict[int, list[str]] = field(default_factory=dict)
    origin: str = ""
    read_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """How many objects and bytes of these, manifests and points were verified, and the damages found. `strays`: files
    that nothing names, which are recorded for deletion now; 0 while an iteration is open. `summed`: objects that got
    checksums for each read."""

    objects: int
    bytes: int
    manifests: int
    points: int
    strays: int
    damages: tuple[Damage, ...]
    summed: int = 0

    @property
    def sound(self) -> bool:
        """Whether everything is now what was written."""
        return all(damage.repaired for damage in self.damages)


def problem_of(mirror: Mirror, stored: LedgerEntry, *, deep: bool = False) -> str | None:
    """What is wrong with an object's file; None if nothing is. `deep` also decodes every column."""
    try:
        there = mirror.store.stored(object_path(stored.name))
        if there.size != stored.size:
            return f"{there.size} bytes instead of {stored.size}"
        if there.sha256 != stored.sha256:
            return "its checksum differs"
        if deep:
            mirror.open_object(stored.name, None).check(deep=True)
    except MirrorDamaged:
        return "it is missing"
    except ObjectUnsupported:  # that it is what was written is all that can be said
        return None
    except CcprError as error:
        return error.message
    return None


def unsound_objects(mirror: Mirror, ledger: Ledger, objects: pa.Table, *, checksums: bool) -> pa.Table:
    """Those of `objects` whose file is missing or has another size, or, with `checksums`, differs from the ledger.

    `objects` has at least the columns `name` and `size`.
    """
    names, sizes = (objects.column(name).to_pylist() for name in ("name", "size"))
    if checksums:
        known = ledger.look_up(names)
        unsound = [name not in known or problem_of(mirror, known[name]) is not None for name in names]
    else:
        unsound = [mirror.store.size(object_path(name)) != size for name, size in zip(names, sizes, strict=True)]
    return objects.filter(pa.array(unsound, pa.bool_()))


class Verifier:
    """Verifies one subscription's mirror.

    Parameters
    ----------
    log, name : the catalog database and the subscription in it.
    lease : makes the subscription one's own, where points are to be written again.
    sources : where damaged files are fetched again; None = repair nothing.
    deep : also decode every column of every object.
    checksums : give sums to the sound objects that earlier releases listed without.
    on_progress : is called with the size in bytes of each object that was read.
    """

    def __init__(
        self,
        mirror: Mirror,
        log: CcprLog,
        name: str,
        lease: Callable[[str], AbstractContextManager[Lease]],
        sources: Repair | None,
        *,
        deep: bool = False,
        checksums: bool = False,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._checksums, self._summed = checksums, dict[str, set[str]]()
        self._mirror, self._log, self._name = mirror, log, name
        self._lease, self._sources, self._deep, self._on_progress = lease, sources, deep, on_progress
        records = log.of(log.row(name).task_id)
        self._history, self._ledger = records.history, records.ledger
        self._behind = records.quarantine.behind_by_point()

    def small_files(self) -> list[Damage]:
        """Verify everything but the objects. Raises what `run` raises."""
        return self._small_files(self._history.global_points(), self._states)

    def objects(self, after: str, most_bytes: int) -> tuple[str, list[Damage]]:
        """Verify objects behind one by name, until so many bytes were read. Returns the name of the last, empty if
        there are no more. Raises what `run` raises."""
        points, damages, size = self._history.global_points(), list[Damage](), 0
        for stored in self._ledger.stored_objects(after):
            problem = self._problem(stored)
            if problem is not None and self._ledger.look_up([stored.name]):  # else a sweep has deleted it meanwhile
                damages.append(self._repair(stored, problem, points))
            size += stored.size
            self._on_progress(stored.size)
            if size >= most_bytes:
                return stored.name, damages
        return "", damages

    def _small_files(self, points: list[GlobalPoint], states: list[TablePoint]) -> list[Damage]:
        damages = self._head()
        return [
            *damages,
            *self._points(),
            *self._ledgers(points),
            *self._definitions(),
            *self._manifests(states, points),
        ]

    def run(self) -> Verified:
        """Verify everything. Raises StoreFailed, StateUnavailable, StateUnreadable, and MirrorDisagrees, as a mirror
        that is another one cannot be compared."""
        points = self._history.global_points()
        states = self._states
        damages = self._small_files(points, states)
        if self._deep:
            damages += self._unreadable(points, {damage.path for damage in damages})
        objects = size = 0
        refs = {state.ref.manifest: state.ref for state in states if state.ref is not None and self._checksums}
        lacking = set[str]().union(*(self._names_in(ref, _unsummed) for ref in refs.values()))
        sums = dict[str, bytes]()
        with ThreadPoolExecutor(THREADS) as pool:
            for stored, problem in _ordered(pool, self._problem, self._ledger.stored_objects()):
                objects, size = objects + 1, size + stored.size
                self._on_progress(stored.size)
                if problem is not None and self._ledger.look_up([stored.name]):  # else a sweep has deleted it meanwhile
                    damages.append(self._repair(stored, problem, points))
                    problem = None if damages[-1].repaired else problem
                if problem is None and stored.name in lacking and (found := _sums_of(self._mirror, stored)):
                    sums[stored.name] = found
        if self._checksums:
            self._mirror.write_sums(sums)
        return Verified(objects, size, len(states), len(points), self._orphans(), tuple(damages), len(sums))

    def _names_in(self, ref: TableRef, choose: Rows) -> set[str]:
        """Of the objects that it leaves of a manifest."""
        with suppress(MirrorDamaged):  # reported already
            objects = self._mirror.manifest(ref, choose).objects
            return set(stats_columns(objects.column("stats").combine_chunks()).column("name").to_pylist())
        return set()

    def _problem(self, stored: LedgerEntry) -> str | None:
        return problem_of(self._mirror, stored, deep=self._deep)

    def _repair(self, stored: LedgerEntry, problem: str, points: list[GlobalPoint]) -> Damage:
        """Fetch a damaged object again, or find the points and tables that cannot be read without it."""
        path = object_path(stored.name)
        origin = "" if self._sources is None else self._sources.fetch_object(stored)
        read_in = () if self._is_proven(stored.name) else self._tables_of(stored.name)
        if origin:
            return Damage(path, problem, repaired=True, origin=origin, read_in=read_in)
        spoiled: dict[int, list[str]] = {}
        for reference in self._ledger.references_to(stored.name):
            for point in points:
                if reference.names_at(point.lsn) and reference.table_id not in self._behind.get(point.lsn, {}):
                    spoiled.setdefault(point.lsn, []).append(self._table_name(point.lsn, reference.table_id))
        return Damage(path, problem, points=spoiled, read_in=read_in)

    def _is_proven(self, name: str) -> bool:
        """Whether the object has sums: then no reader has ever taken a damage of it."""
        for reference in () if name in self._mirror.later_sums else self._ledger.references_to(name):
            for state in self._states:
                if state.ref is None or state.table.id != reference.table_id or not reference.names_at(state.lsn):
                    continue
                if state.ref.manifest not in self._summed:
                    self._summed[state.ref.manifest] = self._names_in(state.ref, _summed)
                if name in self._summed[state.ref.manifest]:
                    return True
        return name in self._mirror.later_sums

    @cached_property
    def _states(self) -> list[TablePoint]:
        return list(self._history.states())

    def _tables_of(self, name: str) -> tuple[str, ...]:
        """Of the newest point."""
        newest = self._history.newest()
        shown = {} if newest is None else self._history.tables(newest.lsn)
        ids = {one.table_id for one in self._ledger.references_to(name)}
        return tuple(sorted(shown[number].table.qualified_name for number in ids & shown.keys()))

    def _head(self) -> list[Damage]:
        """Head and identity."""
        damages = []
        for path, read in ((IDENTITY, self._mirror.identity), (HEAD, self._mirror.published_head)):
            try:
                read()
            except MirrorDamaged as error:
                if self._sources is None:
                    return [*damages, Damage(path, error.message, points=self._shown())]
                damages.append(Damage(path, error.message, repaired=True))
        if damages:
            rewrite_damaged(self._log, self._name, self._mirror, [damage.path for damage in damages])
        check_agreement(self._log, self._log.row(self._name), self._mirror)
        return damages

    def _orphans(self) -> int:
        row = self._log.row(self._name)
        if self._log.is_held(row) or Context.from_text(row.context).open is not None:
            return 0
        pages = find_orphans(self._history, self._ledger, self._mirror)
        return sum(len(page) if self._sources is None else self._record_orphans(page) for page in pages)

    def _record_orphans(self, found: list[str]) -> int:
        """Record for deletion those that are orphans still: an iteration may have begun since, and may have committed
        them. Returns how many."""
        with self._lease(self._name):
            row = self._log.row(self._name)
            if Context.from_text(row.context).open is not None:
                return 0
            lacking = NamedFiles(self._history, self._ledger).lacking(found)
            with transaction(self._log.engine) as connection:
                self._ledger.schedule_deletion(connection, lacking, due_time(row.watermark))
            return len(lacking)

    def _points(self) -> Iterator[Damage]:
        paths = [file.path for file in self._history.files()[::-1]]
        paths += [path for path in (self._history.head().kept,) if path]
        problems = {path: problem for path in paths if (problem := self._problem_of_json(path)) is not None}
        repaired = bool(problems) and self._sources is not None
        if repaired:
            with self._lease(self._name) as lease:
                for path in problems:
                    self._mirror.store.delete(path)
                rewrite_points(self._log, lease.claim, self._history, self._mirror)
                publish_pending(self._log, self._name, self._mirror, lease.claim)
        for path, problem in problems.items():
            yield Damage(path, problem, repaired, {} if repaired else self._shown())

    def _problem_of_json(self, path: str) -> str | None:
        return _problem_in(partial(self._mirror.files.read_json, path))

    def _shown(self) -> dict[int, list[str]]:
        """The points that cannot be read, with all of their tables."""
        unreadable = {}
        for point in self._history.global_points():
            try:
                self._mirror.point(point.lsn)
            except (MirrorDamaged, PointNotReached):
                tables = self._history.tables(point.lsn).values()
                unreadable[point.lsn] = sorted(state.table.qualified_name for state in tables)
        return unreadable

    def _ledgers(self, points: list[GlobalPoint]) -> Iterator[Damage]:
        for point in points:
            read = partial(self._mirror.files.read_arrow, point.ledger, LEDGER_SCHEMA)
            if point.ledger and (problem := _problem_in(read)) is not None:
                yield self._fetched(point.ledger, problem)

    def _definitions(self) -> Iterator[Damage]:
        for file in sorted(set(self._history.definitions().values())):
            if (problem := self._problem_of_json(file)) is not None:
                yield self._fetched(file, problem)

    def _manifests(self, states: list[TablePoint], points: list[GlobalPoint]) -> Iterable[Damage]:
        """One for each damaged file, which the manifests of several points may go on from."""
        damages: dict[str, Damage] = {}
        for state in states:
            assert state.ref is not None
            for path, problem in self._problems_of_manifest(state.ref):
                damage = damages.get(path) or self._fetched(path, problem)
                if not damage.repaired:
                    spoiled = {lsn: list(names) for lsn, names in damage.points.items()}
                    for point in points:
                        if self._shows(point, state):
                            spoiled.setdefault(point.lsn, []).append(state.table.qualified_name)
                    damage = replace(damage, points=spoiled)
                damages[path] = damage
        return damages.values()

    def _problems_of_manifest(self, ref: TableRef) -> list[tuple[str, str]]:
        """The damaged ones of its files, and what is wrong with each."""
        try:
            manifest = self._mirror.manifest(ref)
        except MirrorDamaged as error:
            read = [(path, _problem_in(partial(self._mirror.files.read, path))) for path in ref.files]
            return [(path, problem) for path, problem in read if problem] or [(ref.manifest, error.message)]
        same = manifest.objects.num_rows == ref.objects
        return [] if same else [(ref.manifest, "it has another number of objects")]

    def _fetched(self, path: str, problem: str) -> Damage:
        """A damaged small file, after it was looked for in second copies."""
        origin = "" if self._sources is None else self._sources.fetch_file(path)
        return Damage(path, problem, repaired=bool(origin), origin=origin)

    def _unreadable(self, points: list[GlobalPoint], bad: set[str]) -> Iterator[Damage]:
        """Tables whose files are sound and whose rows cannot be read all the same, with the types that they have."""
        shown_at: dict[str, list[GlobalPoint]] = {}
        refs: dict[str, TableRef] = {}
        kept = self._ledger.kept_tables()
        for point in points:
            behind = self._behind.get(point.lsn, {})
            for state in self._history.tables(point.lsn).values():
                readable = state.table.id in kept and state.table.id not in behind
                if state.ref is not None and readable and not bad.intersection(state.ref.files):
                    shown_at.setdefault(state.ref.manifest, []).append(point)
                    refs[state.ref.manifest] = state.ref
        read = DecodedObjects(self._mirror)
        for manifest, at in reversed(shown_at.items()):
            problem = read.problem_of(refs[manifest], at[-1].at)
            if problem is not None:
                yield Damage(manifest, problem, points={one.lsn: [refs[manifest].qualified_name] for one in at})

    def _shows(self, point: GlobalPoint, state: TablePoint) -> bool:
        """Whether the point shows the table by this very table point."""
        if state.table.id in self._behind.get(point.lsn, {}):
            return False
        shown = self._history.tables(point.lsn).get(state.table.id)
        return shown is not None and shown.lsn == state.lsn

    def _table_name(self, lsn: int, table_id: int) -> str:
        state = self._history.tables(lsn).get(table_id)
        return state.table.qualified_name if state else f"table {table_id}"


def _unsummed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """For `Mirror.manifest`. A file without the column has none."""
    return batch.filter(pc.is_null(batch.column("sums"))) if "sums" in batch.schema.names else batch


def _summed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """For `Mirror.manifest`."""
    return batch.filter(pc.is_valid(batch.column("sums"))) if "sums" in batch.schema.names else batch.slice(0, 0)


def _sums_of(mirror: Mirror, stored: LedgerEntry) -> bytes | None:
    """Of an object; None if the form of its file is not known, or it is not what the ledger says at the end."""
    try:
        sums = ObjectFile(mirror.store.open(object_path(stored.name))).sums()
    except (ObjectUnsupported, ObjectDamaged):
        return None
    return sums if problem_of(mirror, stored) is None else None


def _problem_in(read: Callable[[], object]) -> str | None:
    """What is wrong with a file of the mirror's own, by reading it."""
    try:
        read()
    except MirrorDamaged as error:
        return error.message
    return None


def _ordered(
    pool: ThreadPoolExecutor, work: Callable[[LedgerEntry], str | None], items: Iterator[LedgerEntry]
) -> Iterator[tuple[LedgerEntry, str | None]]:
    """Each item with its result, in order. A bounded number of items is in memory."""
    while page := list(islice(items, _PAGE)):
        yield from zip(page, pool.map(work, page), strict=True)


class DecodedObjects:
    """Reads tables and throws the rows away; each object once, as long as the columns of its table stay the same.
    Columns of types that this release does not know are skipped."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._seen: dict[tuple[int, str], set[str]] = {}

    def problem_of(self, ref: TableRef, at: Timestamp) -> str | None:
        """Why the rows that a table has at a time cannot be read; None if they can. Memory: one block."""
        unknown = {}
        try:
            manifest = self._mirror.manifest(ref)
            table = manifest.table
            unknown = unreadable_columns(table.columns)
            columns = [column for column in table.columns if column.name not in unknown]
            seen = self._seen.setdefault((table.id, str([column.to_json() for column in table.columns])), set())
            names = [one.stats.name for one in manifest.listed_objects() if not one.tombstone]
            names = [name for name in names if name not in seen]
            for _ in self._mirror.rows(manifest, columns, at, names=names):
                pass
            seen.update(names)
        except CcprError as error:
            if isinstance(error, ObjectUnsupported) and unknown:  # which is reported as such, and is no damage
                return None
            return f"its rows cannot be read: {error.message} ({error.subject})"
        return None
