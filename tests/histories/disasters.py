"""A state machine of what befalls a replica: two executors, iterations that bring something, nothing, or are killed at
any step, copies of the catalog database and of the mirror that are restored later, lost mirrors, and a target.

After every step each read equals the source at its point, or ends with an error that says what to do. What the errors
say is done, too: it has to lead back to a replica that goes on.
"""

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ccpr.maintenance.adopt import adopt
from ccpr.matrixone.client.errors import SnapshotGone, StaleRead
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline import appendable
from ccpr.pipeline.driver import drive, take
from ccpr.pipeline.errors import BaseSnapshotLost, TableChangedMeanwhile
from ccpr.pipeline.iteration import Iteration
from ccpr.pipeline.options import IterationOptions
from ccpr.pipeline.step_names import Stage
from ccpr.schema.policy import DdlPolicy
from ccpr.service.target_sync import TargetOutcome, sync_targets
from ccpr.service.targets import add
from ccpr.service.workspace import Workspace
from ccpr.state.errors import MirrorAhead, MirrorBehind, MirrorDisagrees, MirrorForeign, MirrorMissing
from ccpr.state.settings import Settings, TargetSettings
from ccpr.state.subscription import Subscription
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.history import History
from tests.histories.replicating import NAME, ORDINARY, Replica, read_mirror, subscribed
from tests.histories.several import SeveralHistory
from tests.histories.target_histories import assert_target_equal
from tests.support.mariadb import MariaDb
from tests.targets.target_database import new_database

STAGES = tuple(Stage)
# Where the last stage is killed: before the commit, between commit and head, after the head.
BEFORE_COMMIT, BEFORE_HEAD, AFTER_HEAD = "commit_row", "publish_head", "sweep"
WAYS_OUT = {MirrorAhead: "adopt", MirrorBehind: "adopt", MirrorForeign: "adopt", MirrorMissing: "--mirror"}


class Killed(BaseException):
    """Nobody catches it."""


class Overtaken(Exception):
    """Its lease is another's now."""


class Disasters(RuleBasedStateMachine):
    """One history, replicated into a folder of its own."""

    keep = ""  # the rules of the subscription

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="disasters-"))
        self.databases: list[Path] = []
        self.mirrors: list[Path] = []
        self.disagreement: MirrorDisagrees | None = None
        self.cleared = ExitStack()

    @initialize(seed=st.integers(1, 10**6))
    def begin(self, seed: int) -> None:
        """Half of the upstreams are of MatrixOne 4.2; in half of the histories a second snapshot takes the place of the
        full list."""
        self.history = self.history_of(seed)
        if seed % 4 in (1, 2):
            self.cleared.enter_context(patch.object(appendable, "SHORT_LIST", -1))
        self.emulator = SimulatedUpstream(self.history.storage)
        self.emulator.start()
        publisher = (self.history.account, self.history.storage.accounts[self.history.account])
        whole = self.history.subscribed
        settings = Settings(keep=self.keep)
        made = subscribed(self.emulator.port, self.folder, whole, publisher=publisher, settings=settings)
        with closing(made) as workspace:
            self.prepare(workspace)
        self.place = self.folder / "home" / "mirrors" / NAME

    def history_of(self, seed: int) -> History:
        return History(seed, create_at="prepare" if seed % 2 else "commit")

    def prepare(self, workspace: Workspace) -> None:
        """What else belongs to the subscription."""

    def teardown(self) -> None:
        if hasattr(self, "emulator"):
            self.emulator.stop()
        self.cleared.close()
        shutil.rmtree(self.folder)

    # ---- what the upstream does

    @rule(count=st.integers(1, 9))
    def write(self, count: int) -> None:
        for _ in range(count):
            self.history.step()

    # ---- iterations

    @rule()
    def iterate(self) -> None:
        """A whole one, or an error that names a way out."""
        with self.way_out(), closing(self.workspace()) as workspace:
            self.run(workspace)
            self.disagreement = None

    @rule(done=st.integers(0, len(STAGES) - 1), at=st.sampled_from((None, BEFORE_COMMIT, BEFORE_HEAD, AFTER_HEAD)))
    def killed(self, done: int, at: str | None) -> None:
        """After so many stages, or in the middle of the last, or before, if the open snapshot is of no use any more."""
        with (
            suppress(Killed, TableChangedMeanwhile),
            self.way_out(),
            closing(self.workspace()) as workspace,
            workspace.iteration(NAME, self.options(resync=True)) as iteration,
        ):
            done = done if at is None else len(STAGES) - 1
            if done:
                drive(iteration, until=STAGES[done - 1])
            if at is not None:
                with patch.object(owner_of(iteration, at), at, side_effect=Killed):
                    take(iteration, Stage.APPLY)
            raise Killed

    @rule()
    def killed_between_two_snapshots(self) -> None:
        """The second one is there, and its list was not read."""
        with (
            suppress(Killed),
            self.way_out(),
            closing(self.workspace()) as workspace,
            patch("ccpr.pipeline.appendable.table_ids", side_effect=Killed),
        ):
            self.run(workspace)
            raise Killed

    @rule(done=st.integers(1, len(STAGES) - 1))
    def overtaken(self, done: int) -> None:
        """An executor whose lease ran out does not notice, and goes on after its successor has ended the iteration."""
        with (
            self.way_out(),
            closing(self.workspace()) as one,
            closing(self.workspace(ahead=3600)) as other,
            suppress(Overtaken),
            one.iteration(NAME, self.options(resync=True)) as old,
        ):
            old.lease._ended.set()  # nothing renews it
            with suppress(TableChangedMeanwhile):
                drive(old, until=STAGES[done - 1])
            self.run(other)
            self.disagreement = None
            with suppress(CcprError):
                for stage in STAGES[done:]:
                    take(old, stage)
                raise AssertionError("it could go on after its successor")
            raise Overtaken

    # ---- copies

    @rule()
    def copy_database(self) -> None:
        copy = self.folder / f"catalog-{len(self.databases)}.db"
        with closing(sqlite3.connect(self.catalog)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        self.databases.append(copy)

    @precondition(lambda self: self.databases)
    @rule(age=st.integers(0, 9))
    def restore_database(self, age: int) -> None:
        for path in self.catalog.parent.glob("catalog.db*"):
            path.unlink()
        shutil.copy(self.databases[-1 - age % len(self.databases)], self.catalog)

    @precondition(lambda self: self.place.exists())
    @rule()
    def copy_mirror(self) -> None:
        copy = self.folder / f"mirror-{len(self.mirrors)}"
        shutil.copytree(self.place, copy)
        self.mirrors.append(copy)

    @precondition(lambda self: self.mirrors)
    @rule(age=st.integers(0, 9))
    def restore_mirror(self, age: int) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.mirrors[-1 - age % len(self.mirrors)], self.place)

    @precondition(lambda self: self.mirrors)
    @rule()
    def lose_mirror(self) -> None:
        """Its disk is not mounted."""
        shutil.rmtree(self.place, ignore_errors=True)

    # ---- the way out

    @precondition(lambda self: isinstance(self.disagreement, (MirrorAhead, MirrorBehind, MirrorForeign)))
    @rule()
    def adopt_and_go_on(self) -> None:
        with closing(self.workspace()) as workspace:
            try:
                with workspace.lease(NAME) as lease:
                    adopt(lease, workspace.mirror_of(Subscription.from_row(lease.claim.row)))
            except MirrorMissing:
                assert not self.place.exists()
                return
            self.run(workspace)
        self.disagreement = None

    # ---- what holds at any time

    @invariant()
    def a_reader_without_a_database_sees_what_was_there(self) -> None:
        if not hasattr(self, "place") or not self.place.exists():
            return
        self.compare(Mirror(LocalStore(self.place)))

    @invariant()
    def a_reader_with_the_database_does_too_or_gets_an_error(self) -> None:
        if not hasattr(self, "place"):
            return
        with closing(self.workspace()) as workspace:
            try:
                mirror = workspace.mirror(NAME)
            except MirrorDisagrees as error:
                check_way_out(error)
                return
            self.compare(mirror)

    def compare(self, mirror: Mirror) -> None:
        with closing(self.workspace()) as workspace:
            replica = Replica(self.history, self.emulator, workspace)
            with patch.object(Workspace, "mirror", lambda *_: mirror):
                for point in mirror.points():
                    replica.assert_equal(point.lsn, point.at, read_mirror)

    # ---- parts

    @property
    def catalog(self) -> Path:
        return self.folder / "home" / "catalog.db"

    def workspace(self, ahead: float = 0.0) -> Workspace:
        return Workspace(self.folder / "home", clock=lambda: time.time() + ahead)

    def options(self, *, resync: bool) -> IterationOptions:
        return IterationOptions(allow_resync=resync, timeouts=ORDINARY)

    def run(self, workspace: Workspace) -> None:
        """With a full list where the base is gone, as an operator who reads the error would allow it."""
        for resync in (False, True, True):
            try:
                with workspace.iteration(NAME, self.options(resync=resync)) as iteration:
                    drive(iteration)
                    return
            except BaseSnapshotLost as error:
                check_names("--allow-resync", error)
                if resync:
                    raise
            except (SnapshotGone, StaleRead, TableChangedMeanwhile) as error:
                last = error
        raise last

    @contextmanager
    def way_out(self) -> Iterator[None]:
        """The block may find that mirror and database do not belong together; nothing else."""
        try:
            yield
        except MirrorDisagrees as error:
            check_way_out(error)
            self.disagreement = error
        except CcprError as error:
            error.add_note(f"in {self.folder}")
            raise


class DisastersWithTarget(Disasters):
    """With a database of `server` as target."""

    server: MariaDb

    def prepare(self, workspace: Workspace) -> None:
        self.target = self.cleared.enter_context(new_database(self.server))
        add(workspace, NAME, "db", self.target.address, self.server.password, TargetSettings(DdlPolicy.FULL))

    @rule()
    def sync_target(self) -> None:
        """It has the rows of the newest point afterwards, or an error says that it is of another history. Then its
        tables are loaded again, as the remedy says."""
        with self.way_out(), closing(self.workspace()) as workspace:
            self.run(workspace)
            self.disagreement = None
            outcome = self.synced(workspace)
            if outcome.failure is not None or (outcome.result is not None and outcome.result.behind):
                codes = {entry.failure.code for entry in (outcome.result.behind if outcome.result else ())}
                codes |= {outcome.failure.code} if outcome.failure else set()
                assert codes <= {"TARGET_AHEAD", "TARGET_POINT_GONE", "POINT_GONE"}, codes
                return
            if outcome.result is None:
                return  # nothing was new
            newest = workspace.mirror(NAME).point()
            assert_target_equal(workspace, self.target, self.history, newest.at)

    def synced(self, workspace: Workspace) -> TargetOutcome:
        with workspace.iteration(NAME) as iteration:
            (outcome,) = sync_targets(workspace, iteration) or [TargetOutcome("db", None, None, 0.0)]
            return outcome


class DisastersOfSeveral(Disasters):
    """With several databases of an account."""

    def history_of(self, seed: int) -> History:
        return SeveralHistory(seed, create_at="prepare" if seed % 2 else "commit")

    @rule(count=st.integers(1, 9))
    def write(self, count: int) -> None:
        assert isinstance(self.history, SeveralHistory)
        for _ in range(count):
            self.history.strike()
        if not self.history.live():
            self.history.step()  # creates one


def check_way_out(error: MirrorDisagrees) -> None:
    check_names(WAYS_OUT[type(error)], error)


def check_names(way_out: str, error: CcprError) -> None:
    assert way_out in error.remedy


def owner_of(iteration: Iteration, method: str) -> object:
    """Whose method it is."""
    return {BEFORE_COMMIT: iteration.lease.log, BEFORE_HEAD: iteration.mirror, AFTER_HEAD: iteration.committer}[method]
