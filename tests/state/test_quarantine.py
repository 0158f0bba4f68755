"""What is stored of tables that failed, and which tables a point does not show."""

from datetime import timedelta

import sqlalchemy as sa

from ccpr.base.errors import Failure
from ccpr.mirror.points import LaggingTable
from ccpr.state.database import transaction
from ccpr.state.migrations import open_database
from ccpr.state.quarantine import Quarantine
from tests.support.values import NOW, a_table

FAILURE = Failure("OBJECT_GONE", "it is gone", "object x", "look")


def test_failures_are_counted_from_the_first_and_forgotten_with_success() -> None:
    quarantine = Quarantine(open_database("sqlite://"), "task")
    t, u = a_table(1, "t"), a_table(2, "u")
    other = Failure("OBJECT_DAMAGED", "it is bad", "object y", "look")

    def end(lsn: int, **failed: Failure) -> list[tuple[str, str, int, int]]:
        tables = {"t": t, "u": u}
        with transaction(quarantine.engine) as connection:
            by_id = {tables[name].id: (tables[name], why) for name, why in failed.items()}
            quarantine.write(connection, lsn, NOW + timedelta(hours=lsn), by_id)
        return [
            (entry.qualified_name, entry.failure.code, entry.since_lsn, entry.attempts)
            for entry in quarantine.entries()
        ]

    assert end(3, t=FAILURE) == [("db.t", "OBJECT_GONE", 3, 1)]
    assert end(4, t=other, u=FAILURE) == [("db.t", "OBJECT_DAMAGED", 3, 2), ("db.u", "OBJECT_GONE", 4, 1)]
    first, second = quarantine.entries()
    assert (first.first_failed_at, first.last_failed_at) == (NOW + timedelta(hours=3), NOW + timedelta(hours=4))
    assert second.failure == FAILURE
    assert end(5, u=FAILURE) == [("db.u", "OBJECT_GONE", 4, 2)]
    assert end(6) == []


def test_what_points_do_not_show_is_kept_by_point_and_deleted_with_it() -> None:
    quarantine = Quarantine(open_database("sqlite://"), "task")
    others = Quarantine(quarantine.engine, "another")
    late, new = LaggingTable("db", "t", 3), LaggingTable("db", "new", None)
    with transaction(quarantine.engine) as connection:
        quarantine.write_behind(connection, 4, {1: late})
        quarantine.write_behind(connection, 6, {1: late, 2: new})
        others.write_behind(connection, 4, {9: late})
    assert quarantine.behind(4) == {1: late}
    assert quarantine.behind(5) == {}
    assert quarantine.behind_by_point() == {4: {1: late}, 6: {1: late, 2: new}}
    with transaction(quarantine.engine) as connection:
        quarantine.drop_between(connection, 6)
    assert quarantine.behind_by_point() == {6: {1: late, 2: new}}
    assert others.behind(4) == {9: late}
    with quarantine.engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM ccpr_behind")) == 3
