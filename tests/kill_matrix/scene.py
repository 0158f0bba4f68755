"""What a cell of the kill matrix plays in: a replayed upstream, a state folder, a subscription at its first point, and
the ways to try the second iteration and to look at what is left.
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
from replication.iteration.copying import copy_in_process
from replication.iteration.iteration import Iteration
from replication.iteration.options import IterationOptions, Timeouts
from replication.iteration.steps import OnStep
from replication.progress import Progress
from replication.service.workspace import Workspace
from replication.state.context import Context
from replication.state.log import IterationState, LogRow, State
from tests.end_to_end.replica import NAME, About, Replica
from tests.support.mariadb import MariaDb

SHORT_TIMEOUTS = Timeouts(
    connect=5.0, read=10.0, retry=NO_RETRY
)  # what a fault does shows at once; the re-run has the usual patience


@dataclass
class Scene:
    """One subscription whose first point (lsn 0, recorded snapshot 1) is made; its next iteration shows recorded
    snapshot 2."""

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
        """Try the next iteration in this process. `done`, or the code of the error that ended it."""
        structlog.reset_defaults()  # the last command's standard error is closed
        try:
            with self.workspace(clock) as workspace:
                iterate(workspace, on_step)
        except CcprError as error:
            return error.code
        return "done"

    def assert_whole(self) -> None:
        """Equal to the source at both points, row by row; nothing left upstream, in the mirror or in the log."""
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
    with workspace.iteration(NAME, IterationOptions(timeouts=SHORT_TIMEOUTS, progress=Progress(on_step=on_step))) as iteration:
        take_steps(iteration)


def take_steps(iteration: Iteration) -> None:
    iteration.take_snapshot()
    iteration.diff_catalog()
    iteration.diff_objects()
    iteration.copy_objects(copy_in_process)
    iteration.apply()


@contextmanager
def scene(recording: Path, folder: Path, database: MariaDb | None = None) -> Iterator[Scene]:
    """A scene of its own below `folder`; the catalog database is SQLite there, or a new one at `database`."""
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
        yield Scene(replica, database)
