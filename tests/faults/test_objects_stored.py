"""What was copied is in the store before a point names it: so `ccpr run` and `ccpr resync` look, as the service
(tests/serve/test_replicator.py) and Dagster's runs (tests/ccpr_assets/test_failures.py) do."""

from contextlib import closing

import pytest

from ccpr.mirror.layout import object_path
from ccpr.pipeline.driver import drive
from ccpr.pipeline.step_names import Stage
from ccpr.service.workspace import Workspace
from tests.support.lost_objects import losing_objects
from tests.support.replica import NAME, Replica


@pytest.mark.parametrize("words", [("run", NAME), ("resync", NAME, "--yes")], ids=lambda words: words[0])
def test_a_copied_object_that_is_not_in_the_store_fails_the_iteration_and_makes_no_point(
    words: tuple[str, ...], replica: Replica
) -> None:
    with losing_objects() as lost:
        error = replica.command(*words, code=1)["error"]
    assert_failed(replica, error, lost[0])


def test_what_an_interrupted_run_has_copied_is_looked_for_too(replica: Replica) -> None:
    with closing(Workspace()) as workspace, workspace.iteration(NAME) as iteration:
        copied = drive(iteration, until=Stage.COPY).copied
        assert copied is not None
        lost = copied.rows.column("name")[0].as_py()
    (replica.mirror / object_path(lost)).unlink()
    assert_failed(replica, replica.run(code=1)["error"], lost)


def assert_failed(replica: Replica, error: dict[str, str], lost: str) -> None:
    """The next run takes a new snapshot, and copies again."""
    assert (error["code"], error["subject"]) == ("MIRROR_DAMAGED", f"object {lost}")
    assert [point["lsn"] for point in replica.command("points", NAME)] == [0]
    assert replica.run()["point"]
    replica.assert_equal_to_source(3)
    replica.assert_equal_to_source(1, at=0)
