"""A catalog database that holds what was not written here, is locked, restarts, or is lost in the middle of a commit."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from matrixone.objects.timestamp import Timestamp
from replication.errors import CommitOutcomeUnknown, LeaseLost, StateUnavailable, StateUnreadable
from replication.state.context import Context
from replication.state.database import transaction
from replication.state.history import GlobalPoint, PointHistory, TablePoint
from replication.state.log import CcprLog
from replication.state.migrations import open_database
from replication.state.subscription import Subscription
from tests.replication.values import NOW, a_subscription, a_table, commit
from tests.support.mariadb import MariaDb, program_or_skip, running

TTL = 30.0


def nobody_is_dead(owner: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("column", "value"),
    [("state", "7"), ("iteration_state", "9"), ("watermark", "'x'"), ("created_at", "'yesterday'"), ("fence", "1.5")],
)
def test_a_row_that_was_not_written_here_is_told(column: str, value: str, tmp_path: Path) -> None:
    """In SQLite, which stores anything in any column."""
    log = CcprLog(open_database(f"sqlite:///{tmp_path}/catalog.db"))
    log.insert(a_subscription().to_row(NOW))
    with transaction(log.engine) as connection:
        connection.exec_driver_sql(f"UPDATE mo_ccpr_log SET {column} = {value}")
    with pytest.raises(StateUnreadable, match="cannot be read") as raised:
        log.row("sub")
    assert "ccpr drop sub --force" in raised.value.remedy
    rows, bad = log.all_rows()
    assert rows == []
    assert [(row.subscription_name, type(row.error)) for row in bad] == [("sub", StateUnreadable)]


@pytest.mark.parametrize(
    "config",
    [
        "",
        "[]",
        "{",
        '{"sync_interval": "x"}',
        '{"sync_interval": true}',
        '{"with_indexes": 1}',
        '{"colour": 1}',
        "[" * 100_000,
    ],
)
def test_settings_that_were_not_written_here_are_told(config: str) -> None:
    with pytest.raises(StateUnreadable):
        Subscription.from_row(replace(a_subscription().to_row(NOW), sync_config=config))


@pytest.mark.parametrize("column", ["snapshot_ts", "committed_at", "ledger"])
def test_a_point_that_was_not_written_here_is_told(column: str, tmp_path: Path) -> None:
    log = CcprLog(open_database(f"sqlite:///{tmp_path}/catalog.db"))
    history = PointHistory(log.engine, "task")
    with transaction(log.engine) as connection:
        history.write(
            connection, GlobalPoint(0, Timestamp(7), "xr_a_0_0", NOW, "", 0, 0, 0), [TablePoint(a_table(), None, 0)]
        )
    assert history.newest() is not None
    with transaction(log.engine) as connection:
        connection.exec_driver_sql(f"UPDATE ccpr_points SET {column} = x'00ff'")
        connection.exec_driver_sql("UPDATE ccpr_table_points SET table_schema = '{}'")
    for read in (history.newest, history.global_points, lambda: history.changed(0)):
        with pytest.raises(StateUnreadable):
            read()


def test_a_locked_database_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replication.state.database.RETRY_SECONDS", 0.2)
    url = f"sqlite:///{tmp_path}/catalog.db"
    log, other = CcprLog(open_database(url)), open_database(url)
    log.insert(a_subscription().to_row(NOW))
    log.engine.dispose()
    sa.event.listen(log.engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout=50"))
    with transaction(other), pytest.raises(StateUnavailable, match="locked"):
        log.row("sub")
    assert log.row("sub").iteration_lsn == 0


@pytest.fixture
def own_mariadb() -> Iterator[MariaDb]:
    """A server that a test may kill."""
    with running(program_or_skip()) as server:
        yield server


def on(server: MariaDb) -> CcprLog:
    server.create_database("catalog")
    log = CcprLog(open_database(f"mysql+pymysql://{server.user}:{server.password}@{server.host}:{server.port}/catalog"))
    log.insert(a_subscription().to_row(NOW))
    return log


def lose(connection: sa.Connection, server: MariaDb) -> None:
    """In the middle of a transaction."""
    server.restart()
    connection.execute(sa.select(1))


@pytest.mark.kills
def test_reads_and_claims_survive_a_restart_of_the_database(own_mariadb: MariaDb) -> None:
    log = on(own_mariadb)
    own_mariadb.restart()
    assert log.row("sub").iteration_lsn == 0
    own_mariadb.kill()
    starter = threading.Timer(1.0, own_mariadb.start)
    starter.start()
    claim = log.claim("sub", "a", TTL, nobody_is_dead)  # waits
    starter.join()
    log.start(claim, Context())
    own_mariadb.restart()
    with pytest.raises(StateUnavailable):
        commit(log, claim, 7, lambda connection: lose(connection, own_mariadb))
    assert not log.has_committed(claim, StateUnavailable("lost", subject="database"))
    commit(log, claim, 7)
    assert log.has_committed(claim, StateUnavailable("lost", subject="database"))


@pytest.mark.kills
def test_a_commit_whose_outcome_is_not_known_is_looked_up(
    own_mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replication.state.database.RETRY_SECONDS", 0.5)
    log = on(own_mariadb)
    claim = log.claim("sub", "a", TTL, nobody_is_dead)
    log.start(claim, Context())
    commit(log, claim, 7)
    lost = StateUnavailable("lost", subject="database")
    own_mariadb.kill()
    with pytest.raises(CommitOutcomeUnknown):
        log.has_committed(claim, lost)
    own_mariadb.start()
    assert log.has_committed(claim, lost)
    log.claim("sub", "b", TTL, lambda owner: True)
    with pytest.raises(LeaseLost):
        log.has_committed(claim, lost)
