"""A change of definitions whose statements fail, at the first one and later."""

import pymysql
import pytest

from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import TargetChangeStuck, TargetRefused
from ccpr.targets.target_session import TargetSession
from tests.targets.history import RENAMED, WIDER
from tests.targets.target_database import Place

pytestmark = pytest.mark.integration


def test_a_statement_that_fails_first_changes_nothing_and_a_later_one_leaves_the_table_stuck(
    place: Place, live: DatabaseTarget
):
    place.query("ALTER TABLE t ADD COLUMN w int")
    with pytest.raises(TargetRefused):
        live.alter([place.table(WIDER)])
    live.apply(1, [], Location(1, 20))
    with pytest.raises(TargetChangeStuck):
        live.alter([place.table(RENAMED)])
    with pytest.raises(TargetChangeStuck):
        live.apply(1, [], Location(2, 30))
    live.close()
    live.open()
    assert list(live.stuck()) == [1]
    with pytest.raises(TargetChangeStuck):
        live.apply(1, [], Location(2, 30))
    place.query("ALTER TABLE t2 DROP COLUMN w")
    live.close()
    live.open()
    assert live.stuck() == {}


def test_a_first_statement_that_ran_although_an_error_was_answered_is_completed(
    place: Place, live: DatabaseTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    define = TargetSession.define

    def answered_by_an_error(session: TargetSession, statement: str) -> None:
        define(session, statement)
        raise pymysql.err.OperationalError(1105, "something new")

    with monkeypatch.context() as patched:
        patched.setattr(TargetSession, "define", answered_by_an_error)
        with pytest.raises(TargetChangeStuck):
            live.alter([place.table(WIDER)])
    live.close()
    live.open()
    assert live.stuck() == {}
    assert live.tables()[1].table.create == place.table(WIDER).create
    live.apply(1, [], Location(1, 20))
    assert place.rows("t") == [(1, "a", None), (2, None, None)]
