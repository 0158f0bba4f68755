"""Migrations of the catalog database from version 1 on, in SQLite and in a real MariaDB. A newer version is refused."""

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateTable

from ccpr.state import migrations
from ccpr.state.context import Context
from ccpr.state.credentials import Vault
from ccpr.state.database import create_engine, transaction
from ccpr.state.errors import StateUnreadable, SubscriptionExists
from ccpr.state.followers import publication_of
from ccpr.state.history import PointHistory
from ccpr.state.log import CcprLog
from ccpr.state.migrations import SCHEMA_VERSION, open_database
from ccpr.state.pins import Pins
from ccpr.state.relay_users import RelayUsers
from ccpr.state.states import State
from ccpr.state.tables import METADATA, create_tables, versions
from tests.support.mariadb import MariaDb
from tests.support.values import NOW, a_subscription

pytestmark = pytest.mark.integration

# The tables as version 1 made them.
VERSION_1 = """
CREATE TABLE ccpr_schema (version INTEGER NOT NULL, PRIMARY KEY (version));
CREATE TABLE mo_ccpr_log (
    task_id VARCHAR(36) NOT NULL, subscription_name VARCHAR(60) NOT NULL,
    subscription_account_name VARCHAR(300) NOT NULL,
    sync_level VARCHAR(16) NOT NULL, account_id BIGINT NOT NULL, db_name VARCHAR(5000) NOT NULL,
    table_name VARCHAR(5000) NOT NULL,
    upstream_conn VARCHAR(5000) NOT NULL, sync_config TEXT NOT NULL, state SMALLINT NOT NULL,
    iteration_state SMALLINT NOT NULL,
    iteration_lsn BIGINT NOT NULL, watermark BIGINT NOT NULL, context TEXT, cn_uuid VARCHAR(64),
    error_message VARCHAR(5000),
    created_at DATETIME NOT NULL, drop_at DATETIME, updated_at DATETIME NOT NULL,
    publication_name VARCHAR(64) NOT NULL,
    fence BIGINT NOT NULL, lease_expires_at BIGINT NOT NULL, PRIMARY KEY (task_id), UNIQUE (subscription_name));
CREATE TABLE ccpr_points (
    task_id VARCHAR(36) NOT NULL, lsn BIGINT NOT NULL, snapshot_ts BIGINT NOT NULL, snapshot VARCHAR(64) NOT NULL,
    committed_at DATETIME NOT NULL, ledger VARCHAR(255) NOT NULL, tables_changed BIGINT NOT NULL,
    objects_copied BIGINT NOT NULL,
    bytes_copied BIGINT NOT NULL, PRIMARY KEY (task_id, lsn));
CREATE TABLE ccpr_table_points (
    task_id VARCHAR(36) NOT NULL, table_id BIGINT NOT NULL, lsn BIGINT NOT NULL, gone BOOLEAN NOT NULL,
    database_name VARCHAR(5000) NOT NULL, table_name VARCHAR(5000) NOT NULL, kind VARCHAR(16) NOT NULL,
    table_schema TEXT NOT NULL,
    manifest VARCHAR(255) NOT NULL, objects BIGINT NOT NULL, appendable BIGINT NOT NULL,
    row_count BIGINT NOT NULL, bytes BIGINT NOT NULL,
    PRIMARY KEY (task_id, table_id, lsn));
CREATE TABLE ccpr_objects (
    task_id VARCHAR(36) NOT NULL, object_name VARCHAR(42) NOT NULL, size BIGINT NOT NULL, sha256 BLOB NOT NULL,
    PRIMARY KEY (task_id, object_name));
CREATE TABLE ccpr_object_references (
    task_id VARCHAR(36) NOT NULL, object_name VARCHAR(42) NOT NULL, table_id BIGINT NOT NULL,
    from_lsn BIGINT NOT NULL, until_lsn BIGINT,
    PRIMARY KEY (task_id, object_name, table_id, from_lsn));
CREATE TABLE ccpr_garbage (
    task_id VARCHAR(36) NOT NULL, path VARCHAR(255) NOT NULL, due_at BIGINT NOT NULL, PRIMARY KEY (task_id, path));
INSERT INTO ccpr_schema VALUES (1);
"""
LIVE, GONE = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
ROWS = f"""
INSERT INTO mo_ccpr_log VALUES ('{LIVE}', 'Shop', 'sys', 'database', 0, 'shop', '',
    'mysql://sys#dump:sealed@127.0.0.1:6001',
    '{{"sync_interval": 60}}', 0, 2, 4, 17, '{{}}', NULL, NULL, '2026-01-02 03:04:05', NULL,
    '2026-01-02 03:04:05', 'pub', 9, 0);
INSERT INTO mo_ccpr_log VALUES ('{GONE}', 'old', 'sys', 'database', 0, 'shop', '',
    'mysql://sys#dump:sealed@127.0.0.1:6001',
    '{{}}', 3, 2, 1, 5, '{{}}', NULL, NULL, '2026-01-02 03:04:05', '2026-02-02 03:04:05',
    '2026-01-02 03:04:05', 'pub', 2, 0);
INSERT INTO ccpr_points VALUES ('{LIVE}', 3, 17, 'xr_a_3_0', '2026-01-02 03:04:05', '', 1, 2, 3);
"""
MakeUrl = Callable[[], str]


@pytest.fixture(params=["sqlite", "mariadb"])
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> MakeUrl:
    """A database of the test's own; in MariaDB of the character set that an old server takes by itself."""
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path}/catalog.db"
    server: MariaDb = request.getfixturevalue("mariadb")
    name = f"catalog_{uuid.uuid4().hex[:8]}"
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET latin1")
    return lambda: server.url(name)


@pytest.fixture
def url(make_url: MakeUrl) -> str:
    return make_url()


@pytest.fixture
def engine_1(url: str) -> Iterator[sa.Engine]:
    """A database as version 1 left it, with rows."""
    engine = create_engine(url)
    run_script(engine, VERSION_1 + ROWS)
    yield engine
    engine.dispose()


def run_script(engine: sa.Engine, script: str) -> None:
    with engine.begin() as connection:
        for statement in filter(str.strip, script.split(";\n")):
            connection.exec_driver_sql(statement)


def test_version_1_becomes_the_present_one_with_its_rows(engine_1: sa.Engine, url: str) -> None:
    log = CcprLog(open_database(url))
    row = log.row("Shop")
    assert (row.task_id, row.iteration_lsn, row.watermark, row.fence, row.db_name) == (LIVE, 4, 17, 9, "shop")
    assert [row.subscription_name for row in log.rows()] == ["Shop"]
    assert PointHistory(log.engine, LIVE).head().newest_point == 3
    dropped = log.dropped_row("old")
    assert dropped is not None
    assert dropped.task_id == GONE
    log.insert(a_subscription("old").to_row(NOW))  # the name of a dropped one is free
    with pytest.raises(SubscriptionExists):
        log.insert(a_subscription("Shop").to_row(NOW))


def test_letter_case_counts_and_all_of_unicode_can_be_stored(url: str) -> None:
    log = CcprLog(open_database(url))
    log.insert(a_subscription("sub").to_row(NOW))
    with transaction(log.engine) as connection:
        connection.execute(sa.text("UPDATE mo_ccpr_log SET db_name = 'Ä😀', created_at = '2026-01-02 03:04:05.678901'"))
    row = log.row("sub")
    assert (row.db_name, row.created_at.microsecond) == ("Ä😀", 678901)
    assert log.dropped_row("SUB") is None
    with transaction(log.engine) as connection:
        assert (
            connection.scalar(
                sa.text("SELECT COUNT(*) FROM mo_ccpr_log WHERE subscription_name = 'SUB' OR live_name = 'SUB'")
            )
            == 0
        )


def test_a_step_that_was_interrupted_is_run_again(
    engine_1: sa.Engine, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of its statements once; where the database undoes the step, from its beginning."""
    real = sa.Connection.exec_driver_sql
    for stop in range(1, 40):
        count = 0

        def cut(self: sa.Connection, statement: str, *args: Any, stop: int = stop, **options: Any) -> object:
            nonlocal count
            if statement.lstrip().startswith(("ALTER", "UPDATE", "CREATE", "INSERT", "DROP")):
                count += 1
                if count == stop:
                    raise KeyboardInterrupt
            return real(self, statement, *args, **options)

        monkeypatch.setattr(sa.Connection, "exec_driver_sql", cut)
        try:
            open_database(url).dispose()
            break
        except KeyboardInterrupt:
            continue
    else:
        pytest.fail("the step never ended")
    monkeypatch.undo()
    assert stop > 3
    assert CcprLog(open_database(url)).row("Shop").iteration_lsn == 4


def test_columns_that_version_2_lacks_are_added_and_its_rows_stay(url: str) -> None:
    """Twice: MySQL may have added a column and not stored the number."""
    engine = open_database(url)
    CcprLog(engine).insert(a_subscription("sub").to_row(NOW))
    for again in (False, True):
        with transaction(engine) as connection:
            steps = (3, 4, 5, 6, 7, 9)
            added = [column for step in steps for column in getattr(migrations, f"_ADDED_{step}")]
            for column in () if again else added:
                connection.exec_driver_sql(f"ALTER TABLE {column.table.name} DROP COLUMN {column.name}")
            connection.execute(versions.delete().where(versions.c.version >= 2))
            connection.execute(versions.insert().values(version=2))
        engine.dispose()
        engine = open_database(url)
        assert CcprLog(engine).row("sub").subscription_name == "sub"
        for table in METADATA.tables.values():
            present = {column["name"] for column in sa.inspect(engine).get_columns(table.name)}
            assert present == set(table.columns.keys())


def test_snapshots_of_version_5_are_their_followers_and_logins_may_use_all(url: str) -> None:
    engine, task = open_database(url), "11111111-1111-4111-8111-111111111111"
    with transaction(engine) as connection:
        for column in migrations._ADDED_6:
            connection.exec_driver_sql(f"ALTER TABLE {column.table.name} DROP COLUMN {column.name}")
        for name in (f"ccpr_{task}_7", f"ccpr_{task.replace('1', '2')}_7", "xr_1"):
            connection.exec_driver_sql(
                "INSERT INTO ccpr_pins (task_id, snapshot_name, lsn, snapshot_ts, scope, table_name, created_at, "
                f"seen_at) VALUES ('{LIVE}', '{name}', 1, 1, 'database', '', '2026-01-02 03:04:05', "
                "'2026-01-02 03:04:05')"
            )
        for name, there in (("site_b", f"'{task}'"), ("starting", "NULL")):
            connection.exec_driver_sql(
                "INSERT INTO ccpr_followers (task_id, follower_name, uri, sealed_password, sealed_login, "
                "database_name, relay_address, stage, created_at, resumes, attempts, downstream_task) VALUES "
                f"('{LIVE}', '{name}', '', '', '', 'd', '', 'following', '2026-01-02 03:04:05', 0, 0, {there})"
            )
        connection.exec_driver_sql(
            "INSERT INTO ccpr_relay_users (user_name, sealed_digest, created_at) VALUES ('mo', '', "
            "'2026-01-02 03:04:05')"
        )
        connection.execute(versions.delete())
        connection.execute(versions.insert().values(version=5))
    engine.dispose()
    engine = open_database(url)
    owned = {pin.name: pin.owner for pin in Pins(engine, LIVE).all()}
    publication = publication_of(LIVE, "site_b")
    assert owned == {f"ccpr_{task}_7": publication, f"ccpr_{task.replace('1', '2')}_7": None, "xr_1": None}
    assert [pin.name for pin in Pins(engine, LIVE, "site_b", publication).all()] == [f"ccpr_{task}_7"]
    assert {pin.name for pin in Pins(engine, LIVE, None, "mo").all()} == {name for name in owned if not owned[name]}
    (user,) = RelayUsers(engine, Vault(Path("key"))).all()
    assert user.publications is None


def test_tables_of_version_1_without_its_number_are_migrated_too(engine_1: sa.Engine, url: str) -> None:
    run_script(engine_1, "DELETE FROM ccpr_schema")
    assert CcprLog(open_database(url)).row("Shop").task_id == LIVE


def test_two_processes_at_once_make_one_database(engine_1: sa.Engine, url: str) -> None:
    failures: list[Exception] = []

    def migrate() -> None:
        try:
            assert CcprLog(open_database(url)).row("Shop").task_id == LIVE
        except Exception as error:  # noqa: BLE001 - the test shows it
            failures.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with transaction(create_engine(url)) as connection:
        assert sorted(connection.scalars(sa.select(versions.c.version))) == [1, SCHEMA_VERSION]


def test_the_first_to_open_the_database_creates_all_of_its_tables() -> None:
    """In a process of its own: which other modules are imported must not matter."""
    show = "from ccpr.state.migrations import METADATA; print(*sorted(METADATA.tables))"
    walk = "for module in pkgutil.iter_modules(ccpr.__path__):\n    importlib.import_module(f'ccpr.{module.name}')"
    programs = (show, f"import ccpr, importlib, pkgutil\n{walk}\n{show}")
    tables = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for program in programs
    ]
    assert tables[0] == tables[1]
    assert "ccpr_checkpoints" in tables[0].split()


def test_a_newer_version_is_refused_and_left_as_it_is(url: str) -> None:
    engine, newer = create_engine(url), SCHEMA_VERSION + 1
    run_script(
        engine,
        f"CREATE TABLE ccpr_schema (version INTEGER NOT NULL PRIMARY KEY);\nINSERT INTO ccpr_schema VALUES ({newer})",
    )
    with pytest.raises(StateUnreadable, match=f"version {newer}") as raised:
        open_database(url)
    assert "as new as" in raised.value.remedy
    assert sa.inspect(engine).get_table_names() == ["ccpr_schema"]


def test_the_view_shows_what_is_not_dropped(url: str) -> None:
    log = CcprLog(open_database(url))
    log.insert(a_subscription("sub").to_row(NOW))
    query = sa.text("SELECT * FROM mo_sync_configs")
    with transaction(log.engine) as connection:
        (row,) = connection.execute(query).mappings().all()
    assert list(row) == list(migrations.VIEW_COLUMNS)
    assert (row["subscription_name"], row["sync_level"], row["db_name"]) == ("sub", "database", "db")
    log.drop("sub")
    with transaction(log.engine) as connection:
        assert connection.execute(query).all() == []
    dropped = log.dropped_row("sub")
    assert dropped is not None
    assert (dropped.state, Context.from_text(dropped.context)) == (State.DROPPED, Context())


def test_every_table_says_its_character_set_and_its_keys_fit() -> None:
    told: dict[str, str] = {}

    def note(statement: sa.Executable, *_: object, **__: object) -> None:
        if isinstance(statement, CreateTable):
            told[statement.element.name] = str(statement.compile(dialect=mysql.dialect()))

    create_tables(sa.create_mock_engine("mysql+pymysql://", note))  # type: ignore[arg-type]
    for table in METADATA.tables.values():
        text = told[table.name]
        assert "CHARSET=utf8mb4" in text, table.name
        assert "COLLATE utf8mb4_bin" in text, table.name
        keys = [table.primary_key.columns, *(index.columns for index in table.indexes)]
        keys += [constraint.columns for constraint in table.constraints if isinstance(constraint, sa.UniqueConstraint)]
        for columns in keys:
            assert sum(4 * (getattr(column.type, "length", None) or 2) for column in columns) <= 3072, table.name
        widths = sum(
            4 * column.type.length + 2
            for column in table.columns
            if isinstance(column.type, sa.String) and column.type.length
        )
        assert widths < 60_000, table.name


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with transaction(open_database(url)) as connection:
        connection.execute(versions.insert().values(version=99))
    with pytest.raises(StateUnreadable, match="version 99"):
        open_database(url)
