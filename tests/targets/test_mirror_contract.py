"""The mirror keeps the promises of a destination: the contract, with real iterations from a simulated upstream.

Iterations alone write a mirror, under the subscription's lease, so the product has no destination of it. The session
here only reads its points.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.base.progress import Progress
from ccpr.matrixone.client.endpoint import parse_uri
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.pipeline.options import IterationOptions
from ccpr.pipeline.step_names import Step
from ccpr.service.subscriptions import Wanted, create
from ccpr.service.workspace import Workspace
from ccpr.state.checkpoint.checkpoint import Checkpoint
from ccpr.state.checkpoint.checkpoint_store import NOWHERE, Location
from ccpr.state.settings import Settings
from ccpr.targets.base import Registered, TableState, TargetTable
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, subscribed
from tests.support.driving import iterate
from tests.targets.contract import Contract, Interrupted, Row, state_at

pytestmark = pytest.mark.integration


class MirrorSession:
    """What the contract asks of a session, read from a mirror."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def open(self) -> None:
        return

    def close(self) -> None:
        return

    def tables(self) -> dict[int, Registered]:
        point = self._newest()
        if point is None:
            return {}
        location = Location(point.lsn, point.at.physical)
        sources = [self._mirror.manifest(ref).table for ref in point.tables.values()]
        return {
            table.id: Registered(TargetTable(table, table.database, table.name), TableState.LIVE, location)
            for table in sources
        }

    def points(self) -> dict[int, Location]:
        point = self._newest()
        return {} if point is None else dict.fromkeys(point.tables, Location(point.lsn, point.at.physical))

    def global_point(self) -> Location:
        point = self._newest()
        return NOWHERE if point is None else Location(point.lsn, point.at.physical)

    def advance(self, location: Location, behind: Sequence[int] = ()) -> Location:
        """The iteration's own commit has moved it."""
        return self.global_point()

    def _newest(self) -> Point | None:
        head = self._mirror.published_head()
        return None if head is None or head.newest_point is None else self._mirror.point()


class MirrorScene:
    reads_old_points = True
    shares_its_place = False
    locks_out_others = False
    stride = 1

    def __init__(self, storage: Storage, workspace: Workspace) -> None:
        self.storage, self.workspace = storage, workspace
        self.table_id = storage.table("src", "t").id
        self.reached: dict[int, Location] = {}
        self.steps_left: int | None = None

    def session(self) -> MirrorSession:
        return MirrorSession(self.workspace.mirror(NAME))

    def bring(self, destination: MirrorSession, lsn: int, *, cut: bool = False) -> bool:
        after, before = state_at(lsn), self.rows() if self.reached else None
        rows = pa.table({"id": pa.array(list(after), pa.int64()), "v": pa.array(list(after.values()), pa.string())})
        with self.storage.begin() as transaction:
            if dict(sorted(self._pairs(transaction.rows("src", "t")))) != dict(sorted(after.items())):
                transaction.delete("src", "t")
                transaction.insert("src", "t", rows)

        def on_step(step: Step) -> None:
            if cut and step is Step.APPLY:
                raise Interrupted
            if self.steps_left is not None:
                self.steps_left -= 1
                if self.steps_left < 0:
                    raise Interrupted

        iterate(self.workspace, NAME, IterationOptions(progress=Progress(on_step=on_step)))
        self.reached[lsn] = destination.points()[self.table_id]
        return self.rows() != before  # objects may have changed without their rows

    @contextmanager
    def breaking(self, number: int, *, after: bool) -> Iterator[Callable[[], bool]]:
        """Before a step begins is after the one before it: steps have no answers that could be lost."""
        self.steps_left = number
        broken = False
        try:
            yield lambda: broken
        finally:
            broken, self.steps_left = self.steps_left < 0, None

    def bring_older(self, destination: MirrorSession, lsn: int) -> None:
        """No iteration asks for an older snapshot; every commit goes through the checkpoint, which refuses."""
        checkpoint = Checkpoint(self.workspace.log.engine, self.workspace.log.row(NAME).task_id)
        checkpoint.load()
        checkpoint.save_table_point(self.table_id, self.reached[lsn], schema="src", name="t")

    def location(self, lsn: int) -> Location:
        return self.reached[lsn]

    def rows(self, lsn: int | None = None) -> list[Row]:
        mirror = self.workspace.mirror(NAME)
        schema, batches = mirror.read(mirror.point(None if lsn is None else self.reached[lsn].lsn), "src.t")
        return sorted(self._pairs(pa.Table.from_batches(batches, schema)))

    def bystander(self) -> Callable[[], bool]:
        """A place that is not empty: no subscription can be made that would write there."""
        store = self.workspace.mirror(NAME).store
        store.put("points/000000000000.json", [b"theirs"])
        endpoint, _ = parse_uri("mysql://sys#dump@127.0.0.1:1")
        create(self.workspace, Wanted("second", endpoint, "", "src", settings=Settings(mirror=store.url)))
        return lambda: False

    @staticmethod
    def _pairs(rows: pa.Table) -> Iterator[Row]:
        return zip(*(column.to_pylist() for column in rows.columns), strict=True)


class TestMirror(Contract):
    @pytest.fixture
    def scene(self, tmp_path: Path) -> Iterator[MirrorScene]:
        storage = Storage()
        storage.create_database("src")
        storage.create_table("src", "t", {"id": "bigint not null", "v": "varchar(20)"}, primary_key=["id"])
        storage.create_publication("p", "src")
        with SimulatedUpstream(storage) as emulator, closing(subscribed(emulator.port, tmp_path, "src")) as workspace:
            yield MirrorScene(storage, workspace)
