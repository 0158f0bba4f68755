"""A change of definitions whose statements fail, at the first one and later."""

import pytest

from replication.checkpoint.store import Location
from replication.targets.database import DatabaseTarget
from replication.targets.errors import TargetChangeStuck, TargetRefused
from tests.replication.targets.history import WIDER
from tests.replication.targets.target_database import Place


def test_a_statement_that_fails_first_changes_nothing_and_a_later_one_leaves_the_table_stuck(
    place: Place, live: DatabaseTarget
):
    wider = place.table(WIDER)
    with pytest.raises(TargetRefused):
        live.alter([wider], ["ALTER TABLE t DROP COLUMN nothing", "ALTER TABLE t ADD COLUMN w int"])
    live.apply(1, [], Location(1, 20))
    place.query("CREATE TABLE z (a int)")
    with pytest.raises(TargetChangeStuck):
        live.alter([wider], ["ALTER TABLE t ADD COLUMN w int", "RENAME TABLE t TO z"])
    with pytest.raises(TargetChangeStuck):
        live.apply(1, [], Location(2, 30))
    live.close()
    live.open()
    assert list(live.stuck()) == [1]
    with pytest.raises(TargetChangeStuck):
        live.apply(1, [], Location(2, 30))
    place.query("DROP TABLE z")
    live.close()
    live.open()
    assert live.stuck() == {}
