"""Targets as rows of the catalog database."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest
import sqlalchemy as sa

from ccpr.base.errors import Failure
from ccpr.matrixone.client.retry import BACK_OFF
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.schema.choices import Dialect
from ccpr.state.database import transaction
from ccpr.state.errors import StateUnreadable, TargetExists, TargetMissing
from ccpr.state.history import GlobalPoint, PointHistory
from ccpr.state.migrations import open_database
from ccpr.state.settings import TargetSettings
from ccpr.state.targets import (
    Failing,
    LaggingTargetTable,
    Retrying,
    Target,
    TargetRecords,
    TargetState,
    targets_to_verify,
    tasks_to_try_again,
)
from tests.support.values import NOW

pytestmark = pytest.mark.integration

LATER = NOW + timedelta(days=1)
FAILURE = Failure("TARGET_DDL_WAITS", "it waits", "table db.t", "look")


@pytest.fixture
def records(catalog_url: str) -> Iterator[TargetRecords]:
    engine = open_database(catalog_url)
    yield TargetRecords(engine, "task")
    engine.dispose()


def target(name: str) -> Target:
    uri = "mysql://u@h:3306/d"
    return Target("task", name, uri, "sealed", Dialect.MARIADB, TargetSettings(as_text=("t.a", "t.b")), NOW)


def test_a_target_is_read_as_it_was_added_and_its_name_is_unique(records: TargetRecords) -> None:
    records.add(target("report"))
    TargetRecords(records.engine, "other").add(target("report"))
    assert records.all() == [target("report")]
    assert records.get("report") == target("report")
    with pytest.raises(TargetExists):
        records.add(target("report"))
    with pytest.raises(TargetMissing):
        records.get("nobody")
    records.remove("report")
    assert records.all() == []
    assert len(TargetRecords(records.engine, "other").all()) == 1


def test_failures_are_counted_until_a_sync_succeeds(records: TargetRecords) -> None:
    records.add(target("report"))
    for hours in (1, 2):
        records.record_failure(records.get("report"), FAILURE, NOW + timedelta(hours=hours))
    found = records.get("report")
    assert found.failing == Failing(FAILURE, 2, NOW + timedelta(hours=1), NOW + timedelta(hours=2))
    behind = [
        LaggingTargetTable("db.t", FAILURE, ("ALTER TABLE t ADD COLUMN ä INT",)),
        LaggingTargetTable("db.u", FAILURE),
    ]
    records.record_sync(records.get("report"), 7, 700, 3, behind, NOW)
    found = records.get("report")
    assert (found.failing, found.lsn, found.snapshot_ts, found.needed_lsn) == (None, 7, 700, 3)
    assert found.behind == tuple(behind)


def test_points_are_needed_and_lag_counts_while_a_target_is_active(records: TargetRecords) -> None:
    history = PointHistory(records.engine, "task")
    with transaction(records.engine) as connection:
        history.write(connection, GlobalPoint(7, Timestamp(700), "xr", NOW, "", 0, 0, 0), [])
    for name in ("one", "two"):
        records.add(target(name))
    assert records.needed_points() == []
    assert records.lagging(LATER, 60)
    records.record_sync(records.get("one"), 7, 700, 3, [LaggingTargetTable("db.t", FAILURE)], NOW)
    records.record_sync(records.get("two"), 6, 600, 6, [], NOW)
    assert sorted(records.needed_points()) == [3, 6]
    assert records.lagging(LATER, 60)
    records.change("two", state=TargetState.RELEASED.value)
    assert records.needed_points() == [3]
    assert not records.lagging(LATER, 60), "a table that requires operator action does not count"
    records.record_failure(records.get("one"), FAILURE, NOW)
    assert records.lagging(LATER, 60)


def test_a_target_that_fails_for_good_is_tried_more_and_more_rarely(records: TargetRecords) -> None:
    history = PointHistory(records.engine, "task")
    with transaction(records.engine) as connection:
        history.write(connection, GlobalPoint(7, Timestamp(700), "xr", NOW, "", 0, 0, 0), [])
    records.add(target("report"))
    minutes, tried = 0, []
    for minutes in range(3 * 24 * 60):
        now = NOW + timedelta(minutes=minutes)
        if records.lagging(now, 60):
            records.record_failure(records.get("report"), FAILURE, now)
            tried.append(minutes)
    assert tried[:4] == [0, 1, 3, 7]
    waits = [later - earlier for earlier, later in pairwise(tried)]
    assert waits == sorted(waits)
    assert 60 * waits[-1] == BACK_OFF.longest
    set_back = NOW - timedelta(days=1)
    assert records.lagging(set_back, 60), "a clock that was set back does not stop it"
    records.record_sync(records.get("report"), 7, 700, 7, [], NOW)
    assert not records.lagging(now, 60)


def test_tables_that_may_pass_are_tried_again_without_a_new_point_and_a_new_point_does_not_wait(
    records: TargetRecords,
) -> None:
    history = PointHistory(records.engine, "task")
    with transaction(records.engine) as connection:
        history.write(connection, GlobalPoint(7, Timestamp(700), "xr", NOW, "", 0, 0, 0), [])
    records.add(target("report"))
    refused = LaggingTargetTable("db.t", FAILURE, again=True)
    tried = []
    for minutes in range(24 * 60):
        now = NOW + timedelta(minutes=minutes)
        if records.lagging(now, 86400):
            records.record_sync(records.get("report"), 7, 700, 3, [refused], now)
            tried.append(minutes)
    assert tried[:5] == [0, 1, 3, 7, 12], "a long interval does not make the first pauses long"
    assert 60 * (tried[-1] - tried[-2]) == BACK_OFF.longest
    found = records.get("report")
    assert found.failing is None
    assert found.retrying == Retrying(len(tried), NOW, NOW + timedelta(minutes=tried[-1]))
    assert found.behind == (refused,)
    assert tasks_to_try_again(records.engine) == {"task"}
    with transaction(records.engine) as connection:
        history.write(connection, GlobalPoint(8, Timestamp(800), "xr", NOW, "", 0, 0, 0), [])
    assert records.lagging(NOW + timedelta(minutes=tried[-1]), 86400)
    records.record_sync(records.get("report"), 8, 800, 8, [LaggingTargetTable("db.t", FAILURE)], LATER)
    assert records.get("report").retrying is None
    assert not records.lagging(LATER + timedelta(days=1), 60)
    assert tasks_to_try_again(records.engine) == set()


@pytest.mark.parametrize(
    ("column", "value"),
    [("dialect", "'oracle'"), ("behind", "'[[]]'"), ("as_text", "'[1]'"), ("failure", "'x'")],
)
def test_a_row_that_was_not_written_here_is_reported(column: str, value: str, records: TargetRecords) -> None:
    records.add(target("report"))
    with transaction(records.engine) as connection:
        connection.execute(sa.text(f"UPDATE ccpr_targets SET {column} = {value}"))
    with pytest.raises(StateUnreadable, match="target report of task task"):
        records.all()


def test_a_target_with_nothing_to_do_is_to_be_asked_once_a_minute_also_after_a_clock_was_set_back(
    records: TargetRecords,
) -> None:
    records.add(target("report"))
    assert targets_to_verify(records.engine, NOW) == {}, "it has no point yet"
    records.record_sync(records.get("report"), 7, 700, 7, [], NOW)
    second = timedelta(seconds=1)
    found = {at: targets_to_verify(records.engine, NOW + at * second) for at in (-1, 0, 59, 60, 3600)}
    assert found == {-1: {"task": ["report"]}, 0: {}, 59: {}, 60: {"task": ["report"]}, 3600: {"task": ["report"]}}
    assert {at: records.get("report").is_to_verify(NOW + at * second) for at in found} == {
        at: bool(names) for at, names in found.items()
    }
    records.record_verified(records.get("report"), LATER)
    assert records.get("report").verified_at == LATER
    records.record_failure(records.get("report"), FAILURE, LATER)
    assert targets_to_verify(records.engine, LATER + 60 * second) == {}, "it is synced again"
    assert not records.get("report").is_quiet
    records.record_sync(records.get("report"), 7, 700, 7, [], LATER)
    records.change("report", state=TargetState.RELEASED.value)
    assert targets_to_verify(records.engine, LATER + 60 * second) == {}
