"""The mirror's checkpoint moves in the same commit that ends an iteration: points, history and log agree."""

from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from ccpr.service.workspace import Workspace
from ccpr.state.checkpoint.checkpoint import Checkpoint
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.database import transaction
from ccpr.state.history import PointHistory
from ccpr.state.tables import checkpoints
from tests.support.replica import NAME, replaying

pytestmark = pytest.mark.recordings


def state() -> tuple[Checkpoint, dict[int, int]]:
    """The checkpoint, and by table id the point in which each table last changed. Fails if the log's row disagrees."""
    with closing(Workspace()) as workspace:
        row, engine = workspace.log.row(NAME), workspace.log.engine
        checkpoint, history = Checkpoint(engine, row.task_id), PointHistory(engine, row.task_id)
        checkpoint.load()
        newest = history.newest()
        assert newest is not None
        tables = {table_id: point.lsn for table_id, point in history.tables(newest.lsn).items()}
    assert checkpoint.flushed_global_point() == Location(row.iteration_lsn - 1, row.watermark)
    return checkpoint, tables


@pytest.mark.parametrize("scenario", ["dml", "ddl"])
def test_each_table_has_the_point_of_its_last_change_and_all_reach_the_global_point(
    scenario: str, recordings: Path, home: Path
) -> None:
    with replaying(recordings / scenario, home) as replica:
        replica.subscribe()
        for _ in range(replica.about.snapshots):
            replica.run()
            checkpoint, tables = state()
            assert {
                table_id: point.location.lsn for table_id, point in checkpoint.flushed_table_points().items()
            } == tables
            assert not checkpoint.unfinished_tables()
            assert {checkpoint.reached(table_id) for table_id in tables} == {checkpoint.flushed_global_point()}
        before, _ = state()
        assert not replica.run()["point"]
        after, _ = state()
        assert after.flushed_table_points() == before.flushed_table_points(), "an idle iteration moves no table"
        assert after.flushed_global_point() > before.flushed_global_point()


def test_an_iteration_whose_checkpoint_cannot_be_stored_does_not_end(recordings: Path, home: Path) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        replica.run()
        with closing(Workspace()) as workspace:
            engine = workspace.log.engine
            with transaction(engine) as connection:
                connection.execute(
                    sa.text("CREATE TRIGGER full BEFORE UPDATE ON ccpr_checkpoints BEGIN SELECT missing(); END")
                )
            before = workspace.log.row(NAME)
            replica.run(code=1)
            row = workspace.log.row(NAME)
            assert (row.iteration_lsn, row.watermark) == (before.iteration_lsn, before.watermark)
            assert len(replica.command("points", NAME)) == 1
            with transaction(engine) as connection:
                connection.execute(sa.text("DROP TRIGGER full"))
                assert connection.scalar(sa.select(sa.func.max(checkpoints.c.lsn))) == 0
        assert replica.run()["lsn"] == 1
        # The failed iteration gave up its snapshot, the second one: no point shows that.
        replica.assert_equal_to_source(3, at=1)
