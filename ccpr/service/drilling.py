"""Drills: a kept point is restored for real into a scratch place, and compared with the figures that were recorded of
it when it was made. What was made for it is dropped again, that of a killed drill by the next one.

Into Parquet each table is written and read again; into a server each is loaded as `ccpr restore` does, and counted and
summed up there. Source: decision a-restore-is-tried.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ccpr.base.errors import Failure
from ccpr.base.file_modes import make_folder
from ccpr.base.loops import unexpected
from ccpr.base.progress import SILENT, Progress
from ccpr.maintenance.claims import Worker, claimed
from ccpr.maintenance.verify import unsound_objects
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.matrixone.client.errors import BadUri
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.stats import stats_columns
from ccpr.matrixone.objects.types import arrow_schema, unreadable_columns
from ccpr.matrixone.schema import Kind, Table
from ccpr.mirror.as_asked import as_asked, read_schema
from ccpr.mirror.errors import MirrorDamaged, PointNotReached, StoreFailed
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import folder_of
from ccpr.mirror.points import Point
from ccpr.mirror.row_sums import RowSum, Summing
from ccpr.retention.pinning import end_left, pinned
from ccpr.service import estimates
from ccpr.service.copies import worker_of
from ccpr.service.errors import ScratchTaken
from ccpr.service.point_loading import PointSource, load_point
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import Drill, MadeBy
from ccpr.state.errors import BadSetting
from ccpr.state.subscription import Subscription
from ccpr.targets.address import Address
from ccpr.targets.database_server import DatabaseServer

FOLDER = "drills"  # of the state folder: scratch folders where no other place is named
_PREFIX, _PIN = "ccpr_drill_", "ccpr_drill_"


@dataclass(frozen=True, slots=True)
class DrillTo:
    """Where a drill restores to: a folder in which it makes one, or a server on which it makes databases. `server`:
    with the login; its database is not looked at."""

    folder: Path | None = None
    server: Address | None = None
    password: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        return str(self.folder) if self.server is None else self.server.endpoint.masked()

    @property
    def kind(self) -> str:
        """For rates."""
        return "parquet" if self.server is None else "rows"


def drill(
    workspace: Workspace,
    name: str,
    place: DrillTo,
    *,
    at: int | datetime | str | None = None,
    tables: Sequence[str] = (),
    copy: Mirror | None = None,
    progress: Progress = SILENT,
    announce: Callable[[Point, int, int], None] = lambda point, rows, size: None,
) -> Drill:
    """Restore a point, a random one of those that are kept if none is named, and record what came of it. An error of
    the restore is recorded and not raised. `copy`: a second copy to restore from, in the mirror's place. `announce`:
    gets the point, its rows at most, and the bytes of its objects, before it begins. Raises SubscriptionMissing,
    SubscriptionBusy if another drill of it is running, PointNotReached before the first point, PointGone, errors of the
    catalog database."""
    row = workspace.log.row(name)
    subscription = Subscription.from_row(row)
    own, records, worker = workspace.mirror(name), workspace.of(row), worker_of(workspace)
    mirror, shown = (own, place.shown) if copy is None else (copy, f"{place.shown}, from {copy.store.url}")
    no_point_goes = nullcontext() if copy is None else claimed(copy.store, "copy", worker)
    with _claimed(own, worker) as is_alone, no_point_goes:
        if is_alone:
            end_left(records.pins, _PIN)  # of a drill that was killed
        point = mirror.point(_choose(workspace, row.task_id, mirror.lsns()) if at is None else at)
        chosen = _tables(mirror, point, tables)
        refs = [point.tables[table_id] for table_id in chosen]
        size = sum(ref.bytes for ref in refs)
        announce(point, sum(ref.rows for ref in refs), size)
        done = Drill(workspace.now(), workspace.now(), point.lsn, point.at.physical, shown, bytes=size)
        found = dict[int, RowSum]()
        try:
            with unexpected(), pinned(records.pins, point, workspace.clock, _PIN):
                work = _Work(workspace, subscription, mirror, point, chosen, progress, is_alone)
                work.check_unproven()
                differences = work.into_server(place, found) if place.server else work.into_folder(place, found)
                known = records.row_sums.at(point.lsn)
                differences |= _compared(chosen, found, known)
            compared = sum(1 for table_id in found if table_id in known)
            rows = sum(one.rows for one in found.values())
            done = replace(done, tables=len(found), rows=rows, compared=compared, differences=differences)
        except CcprError as error:
            done = replace(done, tables=len(found), failure=Failure.of(error))
        done = replace(done, ended_at=workspace.now())
        records.drills.add(done)
    if done.good:
        records.row_sums.complete(point.lsn, found, MadeBy.DRILL, workspace.now())
        estimates.record(workspace.home, place.kind, size, done.seconds)
    return done


def place_of(workspace: Workspace, text: str) -> DrillTo:
    """What the setting `drill_into` says: a folder, or `mysql://user:env:NAME@host:port`, whose password is in the
    environment. Without it the state folder. Raises BadName, BadUri, BadSetting."""
    if not text.startswith("mysql://"):
        return DrillTo(folder_of(text) if text else workspace.home / FOLDER)
    endpoint, password = parse_uri(text)
    if password is None or not password.startswith("env:"):
        raise BadSetting("the password must be env:NAME", subject="drill_into")
    variable = password.removeprefix("env:")
    if variable not in os.environ:
        text = "the environment variable of the password is not set"
        raise BadUri(text, subject=f"env:{variable}", remedy=f"export {variable}=…")
    return DrillTo(server=Address(endpoint, ""), password=os.environ[variable])


@contextmanager
def _claimed(mirror: Mirror, worker: Worker) -> Iterator[bool]:
    """Whether this drill is the only one of the mirror, so that what a killed one has left can go. A mirror that cannot
    be written cannot be claimed: it is tried nevertheless, and what others may need stays. Raises SubscriptionBusy."""
    with ExitStack() as held:
        try:
            held.enter_context(claimed(mirror.store, "drill", worker))
        except StoreFailed:
            yield False
        else:
            yield True


def _choose(workspace: Workspace, task_id: str, there: Collection[int]) -> int:
    """A random point of those that are `there` and show all tables, or of all if none does. Raises PointNotReached."""
    history = workspace.log.of(task_id).history.global_points()
    points = [point.lsn for point in history if point.lsn in there]
    late = workspace.log.of(task_id).quarantine.behind_by_point()
    whole = [lsn for lsn in points if lsn not in late]
    if not points:
        raise PointNotReached("there is no point yet", subject=f"task {task_id}", remedy="Run `ccpr run NAME` first.")
    return secrets.choice(whole or points)


def _tables(mirror: Mirror, point: Point, names: Sequence[str]) -> dict[int, Table]:
    """By id. Raises BadSetting for a name that the point does not have."""
    refs = [ref for ref in point.tables.values() if ref.kind is Kind.TABLE]
    missing = set(names) - {known for ref in refs for known in (ref.name, ref.qualified_name)}
    if missing:
        raise BadSetting(f"point {point.lsn} has no table {', '.join(sorted(missing))}", subject="--table")
    chosen = [ref for ref in refs if not names or {ref.name, ref.qualified_name} & set(names)]
    return {ref.table_id: mirror.manifest(ref).table for ref in chosen}


def _compared(tables: Mapping[int, Table], found: Mapping[int, RowSum], known: Mapping[int, RowSum]) -> dict[str, str]:
    differences = {}
    for table_id, one in found.items():
        how = one.differs(known[table_id]) if table_id in known else ""
        if how:
            differences[tables[table_id].qualified_name] = how
    return differences


@dataclass(frozen=True, slots=True)
class _Work:
    workspace: Workspace
    subscription: Subscription
    mirror: Mirror
    point: Point
    tables: Mapping[int, Table]
    progress: Progress
    is_alone: bool

    def check_unproven(self) -> None:
        """Compare the objects whose reads are not compared with checksums as whole files, so that what is found is
        known to be what was copied. Raises MirrorDamaged."""
        ledger = self.workspace.of(self.subscription).ledger
        for table_id, table in self.tables.items():
            objects = self.mirror.manifest(self.point.tables[table_id]).objects
            bare = stats_columns(objects.filter(pc.is_null(objects.column("sums"))).column("stats").combine_chunks())
            known = pa.array(list(self.mirror.later_sums) if bare.num_rows else [], pa.string())
            bare = pa.Table.from_batches([bare]).filter(pc.invert(pc.is_in(bare.column("name"), known)))
            for name in unsound_objects(self.mirror, ledger, bare, checksums=True).column("name").to_pylist():
                raise MirrorDamaged(
                    "the file is not what was copied: its SHA-256 differs",
                    subject=f"table {table.qualified_name}, object {name}",
                    remedy="`ccpr verify NAME --repair` fetches it again, from the upstream or a second copy.",
                )

    # ---- into a folder

    def into_folder(self, place: DrillTo, found: dict[int, RowSum]) -> dict[str, str]:
        """Fills in the figures of what was read, by table. Returns how what was written differs from that."""
        assert place.folder is not None
        mine = f"{_PREFIX}{self.subscription.uid}_"
        differences: dict[str, str] = {}
        try:
            make_folder(place.folder)
            for left in place.folder.glob(f"{mine}*") if self.is_alone else ():  # of a drill that was killed
                shutil.rmtree(left)
            folder = place.folder / f"{mine}{secrets.token_hex(4)}"
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise ScratchTaken(f"no folder can be made in it: {error.strerror}", subject=str(place.folder)) from error
        try:
            for table_id, table in self.tables.items():
                found[table_id], how = self._through_parquet(table, folder / f"{table_id}.parquet")
                if how:
                    differences[table.qualified_name] = how
        except OSError as error:
            remedy = "Free space there, or name another place: --into, `ccpr alter NAME --drill-into`."
            text = f"could not be written or read again: {error.strerror or error}"
            raise StoreFailed(text, subject=str(folder), remedy=remedy) from error
        finally:
            with suppress(OSError):
                shutil.rmtree(folder)
        return differences

    def _through_parquet(self, table: Table, file: Path) -> tuple[RowSum, str]:
        """The figures of a table as it was read, and how the file that was written differs."""
        reading, unknown = self.subscription.settings.reading, unreadable_columns(table.user_columns)
        columns = [column for column in table.user_columns if column.name not in unknown]
        manifest = self.mirror.manifest(self.point.tables[table.id])
        schema = read_schema(arrow_schema(columns), columns, reading)
        read, written, there = Summing(arrow_schema(columns)), Summing(schema), Summing(schema)
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in self.mirror.rows(manifest, columns, self.point.at):
                read.add(batch)
                (given,) = as_asked(iter([batch]), columns, reading, f"table {table.qualified_name}")
                written.add(given)
                writer.write_batch(given)
                self.progress.on_rows(batch.num_rows, batch.nbytes)
        with pq.ParquetFile(file) as again:
            for batch in again.iter_batches():
                there.add(batch)
        file.unlink()
        return read.row_sum(), there.row_sum().differs(written.row_sum())

    # ---- into a server

    def into_server(self, place: DrillTo, found: dict[int, RowSum]) -> dict[str, str]:
        """The same; a table that the server cannot have differs. What is otherwise there than was read is raised as
        RestoredDiffers."""
        assert place.server is not None
        endpoint, mine = place.server.endpoint, f"{_PREFIX}{self.subscription.uid}_"
        differences: dict[str, str] = {}
        with DatabaseServer(endpoint, place.password) as server:
            for left in server.databases(mine) if self.is_alone else ():  # of a drill that was killed
                server.drop(left)
        for number, database in enumerate(sorted({table.database for table in self.tables.values()})):
            names = tuple(table.name for table in self.tables.values() if table.database == database)
            scratch = Address(endpoint, f"{mine}{number}_{secrets.token_hex(4)}")
            source = PointSource(self.mirror, self.point, database, names)
            with self._scratch(scratch, place.password):
                done = load_point(
                    source, scratch, place.password, progress=self.progress, reading=self.subscription.settings.reading
                )
            found.update(done.row_sums)
            differences |= {one.table: str(one.failure) for one in done.behind}
        return differences

    @contextmanager
    def _scratch(self, scratch: Address, password: str) -> Iterator[None]:
        with DatabaseServer(scratch.endpoint, password) as server:
            if not server.create(scratch.database):
                raise ScratchTaken("there is a database of that name", subject=scratch.masked())
        try:
            yield
        finally:
            with DatabaseServer(scratch.endpoint, password) as server:
                server.drop(scratch.database)
