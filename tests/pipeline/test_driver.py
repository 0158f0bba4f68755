"""The order in which an iteration goes, and where it may be left and taken up."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ccpr.base.progress import Progress
from ccpr.pipeline.driver import drive, take
from ccpr.pipeline.errors import NoOpenIteration, StepMissing
from ccpr.pipeline.options import IterationOptions
from ccpr.pipeline.step_names import Stage
from ccpr.service.workspace import Workspace
from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.histories.replicating import NAME, read_mirror, subscribed

pytestmark = pytest.mark.integration

STAGES = list(Stage)


class Upstream:
    """A table, and a state folder that subscribes to it."""

    def __init__(self, storage: Storage, folder: Path, workspace: Workspace) -> None:
        self.storage, self.folder, self.workspace = storage, folder, workspace

    def insert(self, number: int) -> None:
        with self.storage.begin() as transaction:
            transaction.insert("d", "t", {"n": [number]})

    def assert_equal(self) -> None:
        """All points."""
        for point in self.workspace.mirror(NAME).points():
            found, expected = read_mirror(self.workspace, point, "d.t"), self.storage.rows_at("d", "t", point.at)
            assert found.sort_by("n") == expected.sort_by("n")


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Upstream]:
    storage = Storage()
    storage.create_database("d")
    storage.create_table("d", "t", {"n": "int not null"}, primary_key=["n"])
    storage.create_publication("p", "d")
    with SimulatedUpstream(storage) as emulator, closing(subscribed(emulator.port, tmp_path, "d")) as workspace:
        made = Upstream(storage, tmp_path, workspace)
        made.insert(1)
        yield made


def test_stages_come_in_their_order_and_something_may_happen_between_two(upstream: Upstream) -> None:
    seen: list[str] = []
    options = IterationOptions(progress=Progress(on_step=lambda step: seen.append(step.label)))
    with upstream.workspace.iteration(NAME, options) as iteration:
        record = drive(iteration, between=lambda: seen.append("between"))
    assert seen == [
        *("init", "catalog", "between", "between", "object_list", "between", "copy", "between"),
        *("filter", "apply", "outcome", "release"),
    ]
    assert record.ended.point
    assert record.copied is not None
    assert record.ended.objects_copied == record.copied.rows.num_rows == 1
    upstream.assert_equal()


@pytest.mark.parametrize("until", STAGES[:-1])
def test_an_iteration_that_is_left_after_any_stage_is_taken_up_by_another_process(
    until: Stage, upstream: Upstream
) -> None:
    with upstream.workspace.iteration(NAME) as iteration:
        left = drive(iteration, until=until)
    assert left.outcome is None
    upstream.insert(2)  # after its snapshot
    with closing(Workspace(upstream.folder / "home")) as other, other.iteration(NAME) as iteration:
        taken_up = drive(iteration)
    assert taken_up.snapshot == left.snapshot
    upstream.assert_equal()


@pytest.mark.parametrize("until", STAGES)
def test_what_is_raised_between_two_stages_leaves_the_iteration_open(until: Stage, upstream: Upstream) -> None:
    class Stop(Exception):
        pass

    left = STAGES.index(until)

    def stop() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Stop

    with upstream.workspace.iteration(NAME) as iteration:
        if until is STAGES[-1]:
            assert drive(iteration, between=stop).outcome is not None
        else:
            with pytest.raises(Stop):
                drive(iteration, between=stop)
    row = upstream.workspace.log.row(NAME)
    assert row.error_message is None
    assert row.iteration_lsn == (until is STAGES[-1])


def test_an_idle_iteration_ends_after_its_object_list_unless_it_may_not(upstream: Upstream) -> None:
    points, ended = 0, True
    while ended:
        with upstream.workspace.iteration(NAME) as iteration:
            idle = drive(iteration)
        ended = idle.ended.point
        points += ended
    assert points > 0
    assert idle.copied is None
    with upstream.workspace.iteration(NAME) as iteration:
        assert drive(iteration, until=Stage.OBJECT_LIST).outcome is None
        assert drive(iteration, until=Stage.OBJECT_LIST, may_end_idle=lambda: False).outcome is None
        assert not drive(iteration, until=Stage.OBJECT_LIST, may_end_idle=lambda: True).ended.point
    with upstream.workspace.iteration(NAME) as iteration:
        through = drive(iteration, may_end_idle=lambda: False)
    assert not through.ended.point
    assert through.copied is not None
    assert through.copied.rows.num_rows == 0
    upstream.assert_equal()


def test_an_iteration_that_may_end_idle_and_is_not_stays_open_with_its_list_kept(upstream: Upstream) -> None:
    with upstream.workspace.iteration(NAME) as iteration:
        drive(iteration)
    upstream.insert(2)
    with upstream.workspace.iteration(NAME) as iteration:
        assert drive(iteration, until=Stage.OBJECT_LIST, may_end_idle=lambda: True).outcome is None
    with upstream.workspace.iteration(NAME) as iteration:
        take(iteration, Stage.COPY)
        assert take(iteration, Stage.APPLY).ended.point
    upstream.assert_equal()


def test_a_stage_that_is_taken_too_early_is_an_error_and_fails_nothing(upstream: Upstream) -> None:
    for stage in STAGES[1:]:
        with pytest.raises(NoOpenIteration), upstream.workspace.iteration(NAME) as iteration:
            take(iteration, stage)
    with upstream.workspace.iteration(NAME) as iteration:
        take(iteration, Stage.SNAPSHOT)
        for stage, before in ((Stage.COPY, "object_diffs"), (Stage.APPLY, "copied_objects")):
            with pytest.raises(StepMissing, match=before):
                take(iteration, stage)
        assert drive(iteration).ended.point
    assert upstream.workspace.log.row(NAME).error_message is None
    upstream.assert_equal()
