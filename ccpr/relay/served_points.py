"""A point of a mirror with the definitions of its tables, and how its objects differ from those of another point: also
by when the rows of appendable ones were committed, as the time alone makes these visible (docs/format/object-file.md
9.2)."""

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.newest import Newest
from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.objects.reader import NEVER
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, first_and_last
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.points import Point, TableRef
from ccpr.pipeline.applying import may_have_commits

_ID_BYTES = 18  # of the object's id, with which its stats begin
_FLAGS, _APPENDABLE = 153, 1  # where the flags are in the stats; the bit that says so (docs/upstream.md 6.1)


@dataclass(frozen=True, slots=True)
class _Span:
    """The first and the last commit of an object."""

    first: Timestamp
    last: Timestamp


_UNKNOWN = _Span(Timestamp(0), Timestamp(NEVER))


class CommitTimes:
    """Of the objects of a mirror, whose files do not change: those that were asked for last stay in memory.
    Thread-safe. Raises as `Mirror.open_object`."""

    def __init__(self, mirror: Mirror, *, most: int = 100_000) -> None:
        self._mirror, self._spans = mirror, Newest[bytes, _Span](most)

    def has_rows(self, listed: ListedObject, at: Timestamp) -> bool:
        """Whether a row of it exists at a time, deleted or not. Of an object that cannot be read it is not known that
        none does."""
        return self._span(listed).first <= at

    def gains_rows(self, listed: ListedObject, since: Timestamp, until: Timestamp) -> bool:
        """Whether a row of it was committed between two times."""
        span = self._span(listed)
        return (
            span.first <= until
            and since < span.last
            and may_have_commits(self._mirror, listed.stats.name, listed.sums, since, until)
        )

    def _span(self, listed: ListedObject) -> _Span:
        known = self._spans.get(listed.stats.object_id)
        if known is None:
            known = self._read(listed)
            self._spans.put(listed.stats.object_id, known)
        return known

    def _read(self, listed: ListedObject) -> _Span:
        try:
            file = self._mirror.open_object(listed.stats.name, listed.sums)
            blocks = [file.commit_timestamps(block.number) for block in file.blocks]
        except ObjectUnsupported:
            return _UNKNOWN
        times = [times for times in blocks if times is not None and len(times)]
        if not times:
            return _UNKNOWN
        return _Span(*first_and_last(np.concatenate(times)))


@dataclass(frozen=True, slots=True)
class ServedPoint:
    """A point with its tables, by id.

    `parents` has the table of each hidden index table, as far as the mirror knows it.
    """

    point: Point
    tables: dict[int, Table]
    parents: dict[int, int]

    def ref(self, table_id: int) -> TableRef:
        return self.point.tables[table_id]

    def replica_id(self, table_id: int) -> int:
        """The id under which a MatrixOne is shown the table: another one whenever it has another id, name or text.

        A MatrixOne takes a table with another id for another table, and loads it whole. It could not follow a RENAME,
        and not each ALTER in place (docs/upstream.md, "A MatrixOne behind the relay"). An index table goes with its
        table, which is created again with new hidden tables.
        """
        table, parent = self.tables[table_id], self.parents.get(table_id)
        above = None if parent is None else self.replica_id(parent)
        name = None if table.kind is Kind.INDEX else table.name
        text = json.dumps([table.id, name, table.ddl, above]).encode()
        return 1 + int.from_bytes(hashlib.sha256(text).digest()[:8]) % (2**62)


class ServedPoints:
    """The states of one mirror; the newest that were asked for stay in memory. Thread-safe.

    What is `native`, for a MatrixOne, has no object without a row up to the point. Since 4.2 an upstream lists what is
    created before its commit; a MatrixOne that is shown such an object writes nothing in its place, and its server ends
    with a nil pointer (docs/upstream.md, "A MatrixOne behind the relay").
    """

    def __init__(self, mirror: Mirror, *, most_tables: int = 20_000, most_points: int = 4) -> None:
        self.mirror = mirror
        self._tables = Newest[str, Table](most_tables)
        self._points = Newest[int, ServedPoint](most_points)
        self._commits = CommitTimes(mirror)

    def at(self, lsn: int | None) -> ServedPoint:
        """The state at a point; None is the newest. Raises PointNotReached, PointGone, MirrorDamaged."""
        known = None if lsn is None else self._points.get(lsn)
        return known or self.of(self.mirror.point(lsn))

    def of(self, point: Point) -> ServedPoint:
        known = self._points.get(point.lsn)
        if known is not None and known.point == point:
            return known
        tables = {table_id: self._table(ref) for table_id, ref in point.tables.items()}
        ids = {table.name: table_id for table_id, table in tables.items() if table.kind is Kind.INDEX}
        parents = {
            ids[hidden]: table_id
            for table_id, table in tables.items()
            for _, _, hidden in table.indexes or ()
            if hidden in ids
        }
        state = ServedPoint(point, tables, parents)
        self._points.put(point.lsn, state)
        return state

    def _table(self, ref: TableRef) -> Table:
        table = self._tables.get(ref.manifest)
        if table is None:
            table = self.mirror.manifest(ref).table
            self._tables.put(ref.manifest, table)
        return table

    def objects(self, state: ServedPoint, table_id: int, *, native: bool = False) -> pa.Table:
        """The live objects of a table: MANIFEST_SCHEMA, with `number` (the object's id) and `appendable`."""
        listed = self._listed(state, table_id)
        return self._with_rows(listed, state, table_id) if native else listed

    def has_abort_column(self, state: ServedPoint) -> bool:
        """Whether an object of the point says which rows are of aborted transactions, as after 4.2.0."""
        for table_id in state.tables:
            objects = self._listed(state, table_id)
            with files_of(state.tables[table_id].qualified_name):
                appendable = Manifest(state.tables[table_id], objects.filter(_held_appendable(objects)))
                for one in appendable.listed_objects():
                    if self.mirror.open_object(one.stats.name, one.sums).has_abort_column:
                        return True
        return False

    def _listed(self, state: ServedPoint, table_id: int) -> pa.Table:
        objects = self.mirror.manifest(state.ref(table_id)).objects
        stats = objects.column("stats").combine_chunks()
        raw = stats.cast(pa.binary())
        flags, marked = pc.binary_slice(raw, _FLAGS, _FLAGS + 1), (bytes((flag,)) for flag in range(256))
        appendable = pc.is_in(flags, pa.array([flag for flag in marked if flag[0] & _APPENDABLE], pa.binary()))
        numbered = objects.append_column("number", pc.binary_slice(raw, 0, _ID_BYTES))
        return numbered.append_column("appendable", appendable)

    def _with_rows(self, listed: pa.Table, state: ServedPoint, table_id: int) -> pa.Table:
        """The objects that have a row by then."""
        keep = np.ones(listed.num_rows, bool)
        places = np.flatnonzero(_held_appendable(listed))
        with files_of(state.tables[table_id].qualified_name):
            objects = Manifest(state.tables[table_id], listed.take(places)).listed_objects()
            for place, one in zip(places, objects, strict=True):
                keep[place] = self._commits.has_rows(one, state.point.at)
        return listed if keep.all() else listed.filter(pa.array(keep))

    def difference(
        self, base: ServedPoint, target: ServedPoint, table_id: int, *, native: bool = False
    ) -> "Difference":
        """How the objects of a table differ that has one id at both points."""
        after = self.objects(target, table_id, native=native)
        if base.ref(table_id).manifest == target.ref(table_id).manifest:
            before = self._with_rows(after, base, table_id) if native else after
            if before.num_rows == after.num_rows:
                return Difference(after.slice(0, 0), after.slice(0, 0), after)
        else:
            before = self.objects(base, table_id, native=native)
        here, there = (pa.chunked_array([_marked(one)]) for one in (before, after))
        gone = before.filter(pc.invert(pc.is_in(here, there.combine_chunks())))
        is_kept = pc.is_in(there, here.combine_chunks())
        return Difference(after.filter(pc.invert(is_kept)), gone, after.filter(is_kept))

    def came_to_light(self, base: ServedPoint, target: ServedPoint, table_id: int, kept: pa.Table) -> pa.Table:
        """Those of the kept objects that are appendable, and hold rows of commits between the two points. No list shows
        these, the time alone makes them visible (docs/format/object-file.md 9.2)."""
        held = kept.filter(_held_appendable(kept))
        with files_of(target.tables[table_id].qualified_name):
            chosen = [
                self._commits.gains_rows(one, base.point.at, target.point.at)
                for one in Manifest(target.tables[table_id], held).listed_objects()
            ]
        return held.filter(pa.array(chosen, pa.bool_()))


@dataclass(frozen=True, slots=True)
class Difference:
    """Objects of one table at two points: MANIFEST_SCHEMA and what `ServedPoints.objects` adds."""

    came: pa.Table
    gone: pa.Table
    kept: pa.Table


def _held_appendable(objects: pa.Table) -> pa.ChunkedArray:
    """Which of them are appendable, and kept by the mirror."""
    return pc.and_(objects.column("appendable"), pc.is_valid(objects.column("sha256")))


def _marked(objects: pa.Table) -> pa.Array:
    """The id of each object, tombstones apart from data."""
    marks = pc.if_else(objects.column("is_tombstone"), b"t", b"d").combine_chunks().cast(pa.binary())
    return pc.binary_join_element_wise(marks, objects.column("number").combine_chunks(), b"")


def bearable(states: ServedPoints, base: ServedPoint, target: ServedPoint) -> bool:
    """Whether a MatrixOne that has `base` can go on to `target`.

    It keeps a table of the appendable objects that it has, by which it finds its own copies of them, with the name of
    the table. So one must not come again under another table; and one that stayed must have no new rows, and no new
    tombstones, whose row numbers it could not translate any more. A MatrixOne upstream never shows that, since a flush
    replaces what it has written; a mirror of two snapshots before one flush could.
    """
    known = {base.replica_id(table_id): table_id for table_id in base.tables}
    fresh: list[int] = []
    for table_id in target.tables:
        if known.get(target.replica_id(table_id)) != table_id:
            fresh.append(table_id)
            continue
        found = states.difference(base, target, table_id, native=True)
        if not pc.any(found.kept.column("appendable")).as_py():
            continue
        if pc.any(found.came.column("is_tombstone")).as_py():
            return False
        if states.came_to_light(base, target, table_id, found.kept).num_rows:
            return False
    numbers = set(_appendable(states, target, fresh))
    return not numbers or numbers.isdisjoint(_appendable(states, base, base.tables))


def _appendable(states: ServedPoints, state: ServedPoint, table_ids: Collection[int]) -> Iterator[bytes]:
    for table_id in table_ids:
        objects = states.objects(state, table_id, native=True)
        yield from objects.filter(objects.column("appendable")).column("number").to_pylist()
