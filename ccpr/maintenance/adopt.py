"""Makes the catalog database's rows of a subscription again from its mirror: after a restore of either from an older
copy, or when another catalog database had taken the mirror over.

The mirror is right in all that it shows: points, tables, objects with their checksums. What only the catalog database
knows (settings, login, targets) stays. The mirror gets a new epoch, so that a process with a former catalog database
is refused. Source: docs/reliability.md; decision the-mirror-says-whose-it-is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from ccpr.base.clock import wall_clock
from ccpr.maintenance.second_copy import forget_later
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.objects.stats import stats_columns
from ccpr.matrixone.schema import Table
from ccpr.mirror.kept_points import KeptPoints
from ccpr.mirror.layout import LEDGER_SCHEMA, Head, Identity, object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.point_files import PointFile
from ccpr.mirror.points import Point, TableRef
from ccpr.state import tables as catalog
from ccpr.state.checkpoint.checkpoint_store import (
    NOWHERE,
    CheckpointStore,
    GlobalCheckpoint,
    Location,
    TableCheckpoint,
    json_text,
)
from ccpr.state.context import Context
from ccpr.state.errors import MirrorMissing
from ccpr.state.history import GlobalPoint
from ccpr.state.kept_records import KeptRecords, KeptState
from ccpr.state.lease import Lease
from ccpr.state.ledger import LedgerEntry, Reference
from ccpr.state.point_rows import TablePoint
from ccpr.state.publishing import check_owner, mirror_url, new_epoch, publish_pending
from ccpr.state.states import IDLE

_ADOPTED = (
    catalog.points,
    catalog.point_definitions,
    catalog.table_points,
    catalog.objects,
    catalog.references,
    catalog.garbage,
    catalog.quarantine,
    catalog.behind_tables,
    catalog.holds,
    catalog.kept,
    catalog.kept_points,
    catalog.figures,
)


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was taken over.

    Attributes
    ----------
    points : number of points.
    newest_point : lsn of the newest; None if there are none.
    newest_before : that of the catalog database until now.
    iteration_lsn : of the next iteration: greater than any that the mirror or the catalog database has used.
    """

    points: int
    newest_point: int | None
    newest_before: int | None
    iteration_lsn: int


def adopt(lease: Lease, mirror: Mirror, values: Mapping[str, str] | None = None) -> Adopted:
    """Replace what the catalog database knows of the points by what the mirror has, with other values of the
    subscription's row. All of it or nothing is written; killed in between, it is done by running it again.

    Raises MirrorMissing, MirrorForeign for the mirror of another subscription, MirrorDamaged if a point or a manifest
    cannot be read, LeaseLost.
    """
    log, claim = lease.log, lease.claim
    head, identity = mirror.published_head(), mirror.identity()
    if head is None and identity is None:
        raise MirrorMissing("there is no mirror at this place", subject=mirror.store.url)
    head = head or Head(None, None, 0, 0)  # it is as it was before the first point
    if identity is not None:
        check_owner(identity, claim.task_id, mirror)
    rows = _read(mirror, head)
    history = log.of(claim.task_id).history
    before, newest = history.newest(), rows.points[-1] if rows.points else None
    lsn = max(claim.row.iteration_lsn, head.iteration_lsn)
    recorded = Context.from_text(claim.row.context)
    snapshots = [*(head.snapshots or ([] if newest is None else [_snapshot(newest)])), None, None]
    kept = Context(current=snapshots[0], previous=snapshots[1])
    due = tuple(name for name in recorded.recorded() if name not in kept.recorded())
    identity = Identity(claim.task_id, claim.name, new_epoch(), guarded=identity is not None and identity.guarded)
    row = {
        "iteration_lsn": lsn,
        "watermark": head.watermark,
        "context": replace(kept, to_drop=due).to_text(),
        "state": IDLE.state,
        "iteration_state": IDLE.iteration,
        "error_message": None,
        "epoch": identity.epoch,
        "mirror_url": mirror_url(mirror),
        **(values or {}),
    }
    lease.confirm()
    forget_later(mirror, head)
    log.overwrite(claim, row, lambda connection: _write(connection, lease, rows, head))
    mirror.write_identity(identity)
    publish_pending(log, claim.name, mirror, claim)
    return Adopted(len(rows.points), head.newest_point, before and before.lsn, lsn)


# ---- what the mirror has


@dataclass(frozen=True, slots=True)
class _MirrorRows:
    """Rows to be written. `points` and `changes` are in the order of the points."""

    kept: KeptPoints
    points: list[Point] = field(default_factory=list)
    files: list[PointFile] = field(default_factory=list)
    changes: list[list[TablePoint]] = field(default_factory=list)
    ledgers: list[pa.Table] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    objects: dict[str, LedgerEntry] = field(default_factory=dict)


def _read(mirror: Mirror, head: Head) -> _MirrorRows:
    files = mirror.point_files()
    rows, tables = _MirrorRows(files.kept), _Shown(mirror)
    for file in reversed(list(files.all())):
        point = files.load(file)
        rows.points.append(point)
        rows.files.append(file)
        rows.changes.append(tables.move_to(point))
        empty = LEDGER_SCHEMA.empty_table()
        rows.ledgers.append(mirror.files.read_arrow(point.ledger, LEDGER_SCHEMA) if point.ledger else empty)
    rows.references.extend(tables.references())
    rows.objects.update(tables.objects(rows.ledgers))
    return rows


class _Shown:
    """The tables as the points show them, one point after the other."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._tables: dict[int, tuple[TableRef, Table]] = {}
        self._live: dict[int, dict[str, int]] = {}  # by table: object -> since which lsn
        self._ended: list[Reference] = []
        self._objects: dict[str, tuple[int, bytes | None]] = {}

    def move_to(self, point: Point) -> list[TablePoint]:
        """What changed with it."""
        changed = []
        for table_id, ref in sorted(point.tables.items()):
            if table_id not in self._tables or self._tables[table_id][0] != ref:
                changed.append(self._show(ref))
        for table_id in sorted(self._tables.keys() - point.tables.keys() - point.behind.keys()):
            changed.append(TablePoint(self._tables.pop(table_id)[1], None, point.lsn))
            self._end(table_id, set(), point.lsn)
        return changed

    def _show(self, ref: TableRef) -> TablePoint:
        manifest = self._mirror.manifest(ref)
        stats = stats_columns(manifest.objects.column("stats").combine_chunks())
        names = stats.column("name").to_pylist()
        sums = manifest.objects.column("sha256").to_pylist()
        for name, size, checksum in zip(names, stats.column("size").to_pylist(), sums, strict=True):
            self._objects[name] = (size, checksum or self._objects.get(name, (0, None))[1])
        self._end(ref.table_id, set(names), ref.lsn)
        live = self._live.setdefault(ref.table_id, {})
        live.update({name: ref.lsn for name in names if name not in live})
        self._tables[ref.table_id] = ref, manifest.table
        return TablePoint(manifest.table, ref, ref.lsn, pc.sum(stats.column("appendable")).as_py() or 0)

    def _end(self, table_id: int, still: set[str], lsn: int) -> None:
        live = self._live.get(table_id, {})
        for name in live.keys() - still:
            self._ended.append(Reference(name, table_id, live.pop(name), lsn))

    def references(self) -> list[Reference]:
        live = [
            Reference(name, table_id, lsn, None)
            for table_id, names in self._live.items()
            for name, lsn in names.items()
        ]
        return [one for one in self._ended + live if self._is_kept(one.name)]

    def objects(self, ledgers: list[pa.Table]) -> Mapping[str, LedgerEntry]:
        """The objects whose files the mirror keeps. Where neither manifest nor ledger has a checksum (of 0.1.0), the
        file is read."""
        listed = {
            name: checksum
            for ledger in ledgers
            for name, checksum in zip(
                ledger.column("name").to_pylist(), ledger.column("sha256").to_pylist(), strict=True
            )
        }
        return {
            name: LedgerEntry(name, size, checksum or listed.get(name) or self._hash(name))
            for name, (size, checksum) in self._objects.items()
            if self._is_kept(name)
        }

    def _is_kept(self, name: str) -> bool:
        """An index table's objects are listed, and mostly not copied."""
        return self._objects[name][1] is not None or self._mirror.store.size(object_path(name)) is not None

    def _hash(self, name: str) -> bytes:
        return self._mirror.store.stored(object_path(name)).sha256


def _snapshot(point: Point) -> SnapshotRef:
    return SnapshotRef(point.snapshot, point.lsn, 0, point.at.physical)


# ---- what is written


def _write(connection: sa.Connection, lease: Lease, found: _MirrorRows, head: Head) -> None:
    task_id = lease.claim.task_id
    for table in _ADOPTED:
        connection.execute(table.delete().where(table.c.task_id == task_id))
    records = lease.log.of(task_id)
    for point, file, changes, copied in zip(found.points, found.files, found.changes, found.ledgers, strict=True):
        size = pc.sum(copied.column("size")).as_py() or 0
        numbers = (len(changes), copied.num_rows, size)
        listed = GlobalPoint(point.lsn, point.at, point.snapshot, point.committed_at, point.ledger, *numbers, file.path)
        records.history.write(connection, listed, changes, point.definitions)
        records.quarantine.write_behind(connection, point.lsn, point.behind)
    records.ledger.write(connection, found.objects.values(), found.references)
    if head.kept:
        _write_kept(connection, records.kept, found, head)
    _write_checkpoint(connection, lease, found, head)


def _write_kept(connection: sa.Connection, records: KeptRecords, found: _MirrorRows, head: Head) -> None:
    chain_from = head.oldest_point or 0
    records.write(connection, KeptState(), KeptState(head.kept_revision, head.kept, chain_from, found.kept.holds))
    records.write_nexts(connection, {one.lsn: (one.next_lsn, one.next_at) for one in found.kept.points})


def _write_checkpoint(connection: sa.Connection, lease: Lease, found: _MirrorRows, head: Head) -> None:
    """Every table has reached the newest point, but for those that lag: the global point waits for these."""
    store = CheckpointStore(lease.log.engine, lease.claim.task_id, wall_clock)
    store.clear(connection)
    if not found.points:
        return
    newest = found.points[-1]
    reached = {point.lsn: Location(point.lsn, point.at.physical) for point in found.points}
    described = {change.table.id: change.table for changes in found.changes for change in changes}
    tables = {
        table_id: TableCheckpoint(reached[newest.lsn], ref.database, ref.name, json_text(described[table_id].to_json()))
        for table_id, ref in newest.tables.items()
    }
    late = {
        table_id: TableCheckpoint(reached.get(entry.lsn or -1, NOWHERE), entry.database, entry.name)
        for table_id, entry in newest.behind.items()
    }
    store.write_tables(connection, tables | late, late.keys())
    here = Location(head.iteration_lsn - 1, head.watermark)
    store.write_global(connection, GlobalCheckpoint(min([here, *(entry.location for entry in late.values())])))
