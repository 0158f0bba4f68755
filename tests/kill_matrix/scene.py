"""The scene of a cell of the kill matrix: a simulated upstream, a state folder, a subscription at its second point and
a target; with methods to try the third iteration and to check what is left.
"""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.compute as pc
import typer.testing

import ccpr
from ccpr.base.progress import SILENT, Progress
from ccpr.cli.interrupts import BEHIND
from ccpr.cli.main import app
from ccpr.matrixone.client.retry import NO_RETRY
from ccpr.matrixone.client.upstream_snapshots import create_snapshot
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.pipeline.driver import drive
from ccpr.pipeline.options import IterationOptions, Timeouts
from ccpr.pipeline.write_queue import SMALL_BYTES
from ccpr.service.target_sync import sync_targets
from ccpr.service.workspace import Workspace
from ccpr.state.context import Context
from ccpr.state.database import transaction
from ccpr.state.log_rows import LogRow
from ccpr.state.states import IterationState, State
from ccpr.state.subscription import Subscription
from ccpr.state.tables import mo_ccpr_log
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.engine.stored_table import ALIVE
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.kill_matrix.places import Place, Reach
from tests.support.mariadb import MariaDb
from tests.support.shop import DATABASE, NAME, TARGET, Shop
from tests.targets.target_database import Place as TargetPlace
from tests.targets.target_database import new_database

# So that a fault shows its effect at once; the re-run has the usual timeouts and retries.
SHORT_TIMEOUTS = Timeouts(connect=5.0, read=10.0, retry=NO_RETRY)
CHUNK_BYTES = SMALL_BYTES // 2  # a large object, which is written while it arrives, comes in several chunks
LARGE, SMALL = ("large", "larger"), ("a", "b", "c")  # tables; b has no key
LARGE_ROWS = 1_500
MERGED = ("larger", "a")  # their objects of before are gone with each change
# What stays of three points, of which two are HISTORY_AGE old: the last; the second, too, as it was the newest of then.
NEWEST, LAST_HOUR = ("--retain", "1"), ("--retain-for", "1h")
HISTORY_AGE = 2 * 3600.0  # seconds ago, by both clocks, the earlier points were made: the garbage of then is due now


@dataclass
class Scene:
    """One subscription with two points and a target at the second; its next iteration brings small and large objects
    of several tables, and drops one snapshot upstream.

    Attributes
    ----------
    retain : NEWEST, LAST_HOUR or (), with which all points stay.
    new_place : makes an empty database for a target.
    catalog : the server with the catalog database; None = SQLite.
    first, second : the objects that only the first point, and the second but not the third, are made of.
    arrived : the objects in the mirror at a kill between objects.
    lost_snapshots : those that existed upstream when a copy was restored, which may know none of them.
    first_database, first_mirror : copies of what was there at the first point; of the database only if it is SQLite.
    """

    shop: Shop
    upstream: SimulatedUpstream
    folder: Path
    retain: tuple[str, ...]
    catalog: MariaDb | None
    rng: Random
    new_place: Callable[[], TargetPlace]
    before: frozenset[str] = frozenset()
    first: frozenset[str] = frozenset()
    second: frozenset[str] = frozenset()
    arrived: frozenset[str] | None = None
    lost_snapshots: frozenset[str] = frozenset()
    first_database: Path | None = None
    first_mirror: Path | None = None

    @property
    def storage(self) -> Storage:
        return self.shop.storage

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def mirror(self) -> Path:
        return self.home / "mirrors" / NAME

    @contextmanager
    def workspace(self, clock: Callable[[], float] | None = None) -> Iterator[Workspace]:
        with closing(Workspace(clock=clock) if clock else Workspace()) as workspace:
            yield workspace

    def row(self) -> LogRow:
        with self.workspace() as workspace:
            return workspace.log.row(NAME)

    def objects(self) -> frozenset[str]:
        """Names of the object files in the mirror."""
        return frozenset(path.name for path in self.mirror.glob("objects/*"))

    def objects_of(self, lsn: int | None) -> frozenset[str]:
        """Names of the objects of a point; None = the newest."""
        mirror = Mirror(open_store(str(self.mirror)))
        manifests = (mirror.manifest(ref) for ref in mirror.point(lsn).tables.values())
        return frozenset(listed.stats.name for manifest in manifests for listed in manifest.listed_objects())

    def snapshots(self) -> frozenset[str]:
        """The names of the snapshots upstream."""
        return frozenset(name for _, name in self.storage.snapshots)

    def objects_to_come(self) -> Mapping[str, bytes]:
        """The statistics of objects upstream that are flushed already, and not in the mirror, by name."""
        present = self.objects()
        return {
            stored.written.name: stored.written.stats
            for entry in self.storage.tables
            for stored in entry.stored.objects
            if stored.written.name not in present
        }

    def change_rows(self, number: int) -> None:
        """Insert and delete rows of all tables, so that each gets new objects."""
        rng = np.random.default_rng(number)
        for name in LARGE + SMALL:
            count = LARGE_ROWS if name in LARGE else 20
            numbers = np.arange(number * count, (number + 1) * count)
            with self.storage.begin() as begun:
                if number:
                    begun.delete(DATABASE, name, pc.field("n") < (number - 1) * count + count // 5)
                begun.insert(DATABASE, name, {"n": numbers, "v": [rng.bytes(60).hex() for _ in range(count)]})
            if name == "c":  # its rows are flushed when the iteration asks for it
                continue
            self.storage.flush(DATABASE, name)
            if name in MERGED:
                self.storage.merge(DATABASE, name)

    def attempt(self, place: Place, reach: Reach, clock: Callable[[], float] | None = None) -> str:
        """Try the next iteration, and the sync of the target, in this process. Returns `done`, or the code of the
        error that ended it. The cell fails if the place was never reached: then the fault has not struck."""
        try:
            with self.workspace(clock) as workspace, place.watched(reach) as progress:
                outcome = iterate(workspace, progress)
        except CcprError as error:
            outcome = error.code
        assert reach, f"{place.label} was never reached: {outcome}"
        return outcome

    def run(self) -> str | None:
        """`ccpr run`, once, without any option. Returns the code of its error, or of the target's, or of a table's of
        the target that is behind; None if there is none."""
        exit_code, document = invoke("run", NAME)
        if "error" in document:
            return document["error"]["code"]
        (target,) = document["targets"]
        errors = [target["error"]] if target["error"] else [table["failure"] for table in target["behind"]]
        assert exit_code == (0 if not errors else 1 if target["error"] else BEHIND), document
        return errors[0]["code"] if errors else None

    # ---- copies of the state, and their return

    def copy_database(self) -> Path | None:
        if self.catalog is not None:
            return None
        copy = self.folder / f"catalog-{time.monotonic_ns()}.db"
        with closing(sqlite3.connect(self.home / "catalog.db")) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return copy

    def restore_database(self, copy: Path | None) -> None:
        """As it is found later: the lease of then has expired."""
        assert copy is not None
        self.lost_snapshots = self.snapshots()
        for path in self.home.glob("catalog.db*"):
            path.unlink()
        shutil.copy(copy, self.home / "catalog.db")
        with closing(sqlite3.connect(self.home / "catalog.db")) as connection, connection:
            connection.execute("UPDATE mo_ccpr_log SET lease_expires_at = 1 WHERE lease_expires_at > 0")

    def copy_mirror(self) -> Path:
        copy = self.folder / f"mirror-{time.monotonic_ns()}"
        shutil.copytree(self.mirror, copy, ignore=shutil.ignore_patterns(".unfinished"))
        return copy

    def restore_mirror(self, copy: Path | None) -> None:
        assert copy is not None
        self.lost_snapshots = self.snapshots()
        shutil.rmtree(self.mirror)
        shutil.copytree(copy, self.mirror)

    def replace_target(self) -> None:
        """Another database in place of the target, which is of a history that is lost."""
        invoke("target", "remove", NAME, TARGET, "--force")
        self.shop = replace(self.shop, place=self.new_place())
        self.shop.add()

    # ---- what has to be true in the end

    def assert_whole(self) -> None:
        """Every point equals the source, row by row, and so does the target; nothing is left upstream, in the mirror
        or in the log."""
        self._assert_points_equal()
        self.shop.assert_equal()
        row = self.row()
        assert (row.state, row.iteration_state, row.lease_expires_at) == (State.RUNNING, IterationState.COMPLETE, 0)
        context = Context.from_text(row.context)
        recorded = {ref.name for ref in (context.current, context.previous) if ref is not None}
        assert self.snapshots() <= recorded | self.lost_snapshots
        assert (context.open, tuple(context.to_drop)) == (None, ())
        assert [path for folder in ("work", ".unfinished") for path in self.mirror.glob(f"{folder}/*")] == []
        exit_code, found = invoke("verify", NAME, "--deep")
        assert (exit_code, found["damages"]) == (0, []), found
        if self.arrived is not None:
            assert self.before < self.arrived, "no object had arrived"
            assert self.objects_of(None) - self.arrived, "all objects had arrived"
        if self.retain:
            self._assert_retained()

    def _assert_points_equal(self) -> None:
        mirror = ccpr.open_mirror(self.mirror)
        _, points = invoke("points", NAME)
        assert [point["lsn"] for point in points] == [point.lsn for point in mirror.points()]
        assert self.retain or len(points) >= 2, points
        for point in points:
            lsn, at = point["lsn"], Timestamp(point["snapshot_ts"])
            names = {table.name for table in mirror.tables(at=lsn)}
            assert names == {f"{DATABASE}.{name}" for name in LARGE + SMALL}
            for name in names:
                rows, true = (
                    mirror.table(name).to_arrow(at=lsn),
                    self.storage.rows_at(DATABASE, name.partition(".")[2], at),
                )
                assert rows.cast(true.schema).sort_by("n") == true.sort_by("n"), f"{name} at lsn {lsn}"
        newest = Timestamp(points[-1]["snapshot_ts"])
        for name in LARGE + SMALL:
            of_now = self.storage.rows_at(DATABASE, name, self.storage.now)
            assert self.storage.rows_at(DATABASE, name, newest) == of_now, f"{name}: the last changes are missing"

    def _assert_retained(self) -> None:
        """The points that need not stay are gone. Files of a point are deleted if it expired two hours ago, and there
        if that was just now."""
        for _ in range(2):  # the target needs the point before until it is synced; what was in memory is flushed now
            assert self.run() is None
        _, points = invoke("points", NAME)
        assert self.first
        assert self.second
        if self.retain == NEWEST:
            assert len(points) == 1, points
            assert not self.first & self.objects(), "files of a point that expired two hours ago"
        else:
            assert points[0]["lsn"] == 1, points
            assert self.first <= self.objects(), "readers of a point that has just expired have an hour"
        assert self.second <= self.objects(), "readers of a point that is there, or has just expired"


def invoke(*words: str) -> tuple[int, Any]:
    """The exit code of a command of `ccpr`, and the document that it printed."""
    result = typer.testing.CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


def iterate(workspace: Workspace, progress: Progress = SILENT) -> str:
    """One iteration, copied by this process, and the sync of the target. Returns `done`, or the code of the target's
    error."""
    options = IterationOptions(timeouts=SHORT_TIMEOUTS, progress=progress)
    with workspace.iteration(NAME, options) as iteration:
        drive(iteration)
        outcomes = sync_targets(workspace, iteration, progress=progress)
    failures = [outcome.failure.code for outcome in outcomes if outcome.failure is not None]
    failures += [late.failure.code for outcome in outcomes if outcome.result for late in outcome.result.behind]
    return failures[0] if failures else "done"


@contextmanager
def scene(
    folder: Path, server: MariaDb, rng: Random, *, retain: tuple[str, ...] = (), catalog: bool = False
) -> Iterator[Scene]:
    """A new scene below `folder`, with a target at `server`. Its catalog database is SQLite, or a new one there."""
    environment = {
        "CCPR_HOME": str(folder / "home"),
        "UPSTREAM_PASSWORD": "111",
        "TARGET_PASSWORD": server.password,
    }
    if catalog:
        name = f"ccpr_{os.urandom(6).hex()}"
        server.create_database(name)
        environment["CCPR_CATALOG"] = server.url(name)
    history = [HISTORY_AGE]
    storage = Storage(now=lambda: time.time_ns() - round(history[0] * 1e9))
    storage.create_database(DATABASE)
    storage.create_publication("p", DATABASE)
    for table in LARGE + SMALL:
        columns = {"n": "int not null", "v": "varchar(200)"}
        storage.create_table(DATABASE, table, columns, primary_key=[] if table == "b" else ["n"])
    with (
        patch.dict(os.environ, environment),
        SimulatedUpstream(storage, chunk_bytes=CHUNK_BYTES) as upstream,
        ExitStack() as places,
    ):

        def new_place() -> TargetPlace:
            return places.enter_context(new_database(server))

        shop = Shop(storage, upstream.port, new_place())
        made = Scene(shop, upstream, folder, retain, server if catalog else None, rng, new_place)
        made.change_rows(0)
        shop.subscribe()
        shop.command("alter", NAME, "--resync-limit", "1000000000", *retain)
        shop.add()
        _take_points(made)
        history[0] = 0.0
        _prepare_iteration(made)
        yield made


def _take_points(scene: Scene) -> None:
    with scene.workspace(lambda: time.time() - HISTORY_AGE) as workspace:
        assert iterate(workspace) == "done"
        scene.first = scene.objects_of(0)
        scene.first_database, scene.first_mirror = scene.copy_database(), scene.copy_mirror()
        scene.change_rows(1)
        for _ in range(3 if scene.retain == NEWEST else 1):  # until the target does not need the first point any more
            assert iterate(workspace) == "done"
    scene.first -= scene.objects_of(None)


def _prepare_iteration(scene: Scene) -> None:
    second = scene.objects_of(None)
    scene.change_rows(2)
    deleted = _deleted_objects(scene)
    scene.second, scene.before = second & deleted, scene.objects()
    sizes = [ObjectStats.parse(stats).size for stats in scene.objects_to_come().values()]
    assert max(sizes) > CHUNK_BYTES * 2 > SMALL_BYTES / 2 > min(sizes), sizes
    leave_snapshot_to_drop()


def _deleted_objects(scene: Scene) -> frozenset[str]:
    return frozenset(
        stored.written.name
        for entry in scene.storage.tables
        for stored in entry.stored.objects
        if stored.deleted != ALIVE
    )


def leave_snapshot_to_drop() -> None:
    """A recorded snapshot as a failed attempt leaves it that could not drop it: step RELEASE then has one to drop."""
    with closing(Workspace()) as workspace:
        row = workspace.log.row(NAME)
        subscription = Subscription.from_row(row)
        opened = Context.from_text(row.context).opened(subscription.uid, row.iteration_lsn)
        assert opened.open is not None
        with workspace.connect(subscription) as session:
            create_snapshot(session, opened.open.name, subscription.publication, subscription.database)
        with transaction(workspace.log.engine) as connection:
            connection.execute(mo_ccpr_log.update().values(context=opened.abandoned(0.0).to_text()))
