"""The connection to the catalog database: URLs, errors, a database that is locked, restarts, or is lost in a commit."""

import ast
import os
import re
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

import ccpr
from ccpr.state.context import Context
from ccpr.state.database import create_engine, place, reading, repeatable, together, transaction
from ccpr.state.errors import CommitOutcomeUnknown, LeaseLost, StateUnavailable, StateUnreadable
from ccpr.state.log import CcprLog
from ccpr.state.migrations import open_database
from ccpr.state.tables import mo_ccpr_log
from tests.support.mariadb import MariaDb, program_or_skip, running
from tests.support.values import NOW, a_subscription, commit

pytestmark = pytest.mark.integration

TTL = 30.0


def nobody_is_dead(owner: str) -> bool:
    return False


def test_a_locked_database_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.state.database.RETRY_SECONDS", 0.2)
    url = f"sqlite:///{tmp_path}/catalog.db"
    log, other = CcprLog(open_database(url)), open_database(url)
    log.insert(a_subscription().to_row(NOW))
    log.engine.dispose()
    sa.event.listen(log.engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout=50"))
    with transaction(other), pytest.raises(StateUnavailable, match="locked"):
        log.claim("sub", "a", TTL, nobody_is_dead)
    assert log.claim("sub", "a", TTL, nobody_is_dead).name == "sub"


def test_readers_do_not_wait_for_a_writer_and_see_what_was_committed(catalog_url: str) -> None:
    log, other = CcprLog(open_database(catalog_url)), open_database(catalog_url)
    log.insert(a_subscription().to_row(NOW))
    with transaction(other) as connection:
        connection.execute(mo_ccpr_log.update().values(iteration_lsn=7))
        assert log.row("sub").iteration_lsn == 0
    assert log.row("sub").iteration_lsn == 7


def test_a_writer_of_this_process_does_not_hold_its_readers_up(catalog_url: str) -> None:
    log = CcprLog(open_database(catalog_url))
    log.insert(a_subscription().to_row(NOW))
    with transaction(log.engine) as connection, ThreadPoolExecutor(1) as threads:
        connection.execute(mo_ccpr_log.update().values(iteration_lsn=7))
        assert threads.submit(log.row, "sub").result(30).iteration_lsn == 0
    assert log.row("sub").iteration_lsn == 7


def test_a_reader_sees_one_moment_in_sqlite(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/catalog.db")
    log = CcprLog(engine)
    log.insert(a_subscription().to_row(NOW))
    lsn = sa.select(mo_ccpr_log.c.iteration_lsn)
    with reading(engine) as connection:
        assert connection.scalar(lsn) == 0
        with transaction(engine) as writer:
            writer.execute(mo_ccpr_log.update().values(iteration_lsn=7))
        assert connection.scalar(lsn) == 0
    with reading(engine) as connection:
        assert connection.scalar(lsn) == 7


def test_what_reads_does_not_write() -> None:
    """In SQLite a writer that began as a reader would fail where another one was faster."""
    writes = re.compile(r"\.(insert|update|delete|with_for_update)\(|lock=True")
    found = 0
    for path in sorted(Path(ccpr.__file__).parent.rglob("*.py")):
        text = path.read_text()
        for block in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.With)):
            if any(ast.unparse(item.context_expr).startswith("reading(") for item in block.items):
                found += 1
                assert not writes.search(ast.unparse(block)), f"{path}:{block.lineno}"
    assert found


@pytest.fixture
def own_mariadb() -> Iterator[MariaDb]:
    """A server that a test may kill."""
    with running(program_or_skip()) as server:
        yield server


def on(server: MariaDb) -> CcprLog:
    server.create_database("catalog")
    log = CcprLog(open_database(server.url("catalog")))
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
    monkeypatch.setattr("ccpr.state.database.RETRY_SECONDS", 0.5)
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


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("this is not a database, " * 100)
    with pytest.raises(StateUnreadable):
        open_database(f"sqlite:///{tmp_path}/catalog.db")


@pytest.mark.parametrize(
    "url", ["mysql+pymysql://u:s3cret@@@:x/", "nosuch://u:s3cret@h/d", "s3cret", "postgresql+nodriver://u:s3cret@h/d"]
)
def test_a_url_that_cannot_be_opened_is_reported_without_its_password(url: str) -> None:
    with pytest.raises(StateUnreadable) as raised:
        open_database(url)
    assert "s3cret" not in f"{raised.value}{raised.value.__cause__}"
    assert "CCPR_CATALOG" in str(raised.value)


def test_a_wrong_password_and_a_missing_database_need_a_person(mariadb: MariaDb) -> None:
    for login, database in ((f"{mariadb.user}:s3cret", "d"), (f"{mariadb.user}:{mariadb.password}", "nowhere")):
        with pytest.raises(StateUnreadable) as raised:
            open_database(f"mysql+pymysql://{login}@{mariadb.host}:{mariadb.port}/{database}?connect_timeout=60")
        assert "s3cret" not in str(raised.value)
        assert mariadb.password not in str(raised.value)
        assert raised.value.remedy != StateUnreadable.default_remedy


@pytest.mark.parametrize("number", [1053, 1105, 1180, 3024, 9999])
def test_an_error_of_the_server_that_nobody_knows_may_pass(number: int, mariadb: MariaDb) -> None:
    engine = create_engine(mariadb.url("mysql"))
    signal = f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'as it says'"
    with pytest.raises(StateUnavailable, match="as it says"), transaction(engine) as connection:
        connection.exec_driver_sql(signal)
    with pytest.raises(StateUnreadable), transaction(engine) as connection:
        connection.exec_driver_sql("SELECT * FROM no_such_table")
    engine.dispose()


def test_a_file_that_is_there_and_cannot_be_opened_now_may_pass(tmp_path: Path) -> None:
    """As if the process has no descriptor left."""
    url = f"sqlite:///{tmp_path}/catalog.db"
    engine = open_database(url)
    engine.dispose()
    limits, kept = resource.getrlimit(resource.RLIMIT_NOFILE), []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, limits[1]), limits[1]))
        with suppress(OSError):
            while True:
                kept.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(StateUnavailable), transaction(engine):
            pass
    finally:
        for descriptor in kept:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with transaction(engine):
        pass


def test_a_server_that_does_not_answer_is_waited_for_and_then_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.state.database.RETRY_SECONDS", 0.3)
    with pytest.raises(StateUnavailable) as raised:
        open_database("mysql+pymysql://u:s3cret@127.0.0.1:1/d")
    assert "s3cret" not in str(raised.value)


def test_place_hides_the_options_of_a_url() -> None:
    assert place(create_engine("mysql+pymysql://u:s3cret@h/d?passwd=s3cret")) == "mysql+pymysql://u:***@h/d"


def test_what_is_done_together_is_one_transaction_that_ends_as_a_whole(catalog_url: str) -> None:
    log = CcprLog(open_database(catalog_url))
    log.insert(a_subscription().to_row(NOW))
    begun: list[sa.Connection] = []
    sa.event.listen(log.engine, "begin", begun.append)
    with together(log.engine):
        assert log.row("sub").fence == 0
        claim = log.claim("sub", "us", TTL, nobody_is_dead)
        assert log.row("sub").fence == 1
        with pytest.raises(RuntimeError, match="open already"), together(log.engine):
            pass
    assert len(begun) == 1

    def released_in_vain() -> None:
        with together(log.engine):
            log.release(claim)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        released_in_vain()
    assert log.row("sub").lease_expires_at > 0, "rolled back"
    assert len(begun) == 3, "and each is by itself again"
    log.engine.dispose()


def test_nothing_is_repeated_within_a_transaction_that_is_lost(own_mariadb: MariaDb) -> None:
    log, attempts = on(own_mariadb), 0

    @repeatable
    def read() -> int:
        nonlocal attempts
        attempts += 1
        with together(log.engine):
            fence = log.row("sub").fence
            if attempts == 1:
                own_mariadb.restart()
            return fence + log.row("sub").fence

    assert read() == 0
    assert attempts == 2, "as a whole, and not the part that failed"
    log.engine.dispose()
