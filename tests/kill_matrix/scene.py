"""The scene of a cell of the kill matrix: a replayed upstream, a state folder, and a subscription at its first point;
with methods to try the second iteration and to check what is left.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import structlog

from emulator.recorded_upstream import RecordedUpstream
from matrixone.errors import CcprError
from matrixone.upstream.retry import NO_RETRY
from matrixone.upstream.snapshots import create_snapshot
from replication.iteration.copying import copy_in_process
from replication.iteration.iteration import Iteration
from replication.iteration.options import IterationOptions, Timeouts
from replication.iteration.steps import Step
from replication.progress import Progress
from replication.service.workspace import Workspace
from replication.state.context import Context
from replication.state.database import transaction
from replication.state.log_rows import LogRow
from replication.state.states import IterationState, State
from replication.state.subscription import Subscription
from replication.state.tables import mo_ccpr_log
from tests.end_to_end.replica import NAME, About, Replica
from tests.support.mariadb import MariaDb

OnStep = Callable[[Step], object]
# So that a fault shows its effect at once; the re-run has the usual timeouts and retries.
SHORT_TIMEOUTS = Timeouts(connect=5.0, read=10.0, retry=NO_RETRY)


@dataclass
class Scene:
    """One subscription whose first point (lsn 0, recorded snapshot 1) exists; its next iteration shows recorded
    snapshot 2, and drops one snapshot upstream."""

    replica: Replica
    database: MariaDb | None

    @property
    def emulator(self) -> RecordedUpstream:
        return self.replica.emulator

    @contextmanager
    def workspace(self, clock: Callable[[], float] | None = None) -> Iterator[Workspace]:
        with closing(Workspace(clock=clock) if clock else Workspace()) as workspace:
            yield workspace

    def row(self) -> LogRow:
        with self.workspace() as workspace:
            return workspace.log.row(NAME)

    def attempt(self, on_step: OnStep, clock: Callable[[], float] | None = None) -> str:
        """Try the next iteration in this process. Returns `done`, or the code of the error that ended it."""
        structlog.reset_defaults()  # the last command's standard error is closed
        try:
            with self.workspace(clock) as workspace:
                iterate(workspace, on_step)
        except CcprError as error:
            return error.code
        return "done"

    def assert_whole(self) -> None:
        """Both points equal the source, row by row; nothing is left upstream, in the mirror or in the log."""
        self.replica.assert_equal_to_source(2)
        self.replica.assert_equal_to_source(1, at=0)
        row = self.row()
        assert (row.state, row.iteration_state, row.lease_expires_at) == (State.RUNNING, IterationState.COMPLETE, 0)
        context = Context.from_text(row.context)
        recorded = {ref.name for ref in (context.current, context.previous) if ref is not None}
        assert {snapshot.name for snapshot in self.emulator.snapshots()} <= recorded
        assert (context.open, tuple(context.to_drop)) == (None, ())
        assert [path for folder in ("work", ".unfinished") for path in self.replica.mirror.glob(f"{folder}/*")] == []
        assert self.replica.command("verify", NAME, "--deep")["damages"] == []


def iterate(workspace: Workspace, on_step: OnStep) -> None:
    """One iteration, copied by this process."""
    with workspace.iteration(
        NAME, IterationOptions(timeouts=SHORT_TIMEOUTS, progress=Progress(on_step=on_step))
    ) as iteration:
        take_steps(iteration)


def take_steps(iteration: Iteration) -> None:
    iteration.take_snapshot()
    iteration.diff_catalog()
    iteration.diff_objects()
    iteration.copy_objects(copy_in_process)
    iteration.apply()


@contextmanager
def scene(recording: Path, folder: Path, database: MariaDb | None = None) -> Iterator[Scene]:
    """A new scene below `folder`; its catalog database is SQLite there, or a new one at `database`."""
    environment = {"CCPR_HOME": str(folder / "home"), "UPSTREAM_PASSWORD": "111"}
    if database is not None:
        name = f"ccpr_{os.urandom(6).hex()}"
        database.create_database(name)
        environment["CCPR_CATALOG"] = (
            f"mysql+pymysql://{database.user}:{database.password}@{database.host}:{database.port}/{name}"
        )
    with patch.dict(os.environ, environment), RecordedUpstream(recording) as emulator:
        replica = Replica(About.read(recording), emulator, folder)
        replica.subscribe("--resync-limit", "1000000000")
        replica.run()
        leave_snapshot_to_drop()
        yield Scene(replica, database)


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
            connection.execute(mo_ccpr_log.update().values(context=opened.abandoned().to_text()))
