"""Migrations of the catalog database, in SQLite and a MariaDB; a newer one and one before 0.2.0 are refused."""

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
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
from ccpr.state.errors import StateUnreadable
from ccpr.state.log import CcprLog
from ccpr.state.logins import UNLIMITED, LoginRole, PortLogin, PortLogins, ReadLimits
from ccpr.state.migrations import SCHEMA_VERSION, open_database
from ccpr.state.states import State
from ccpr.state.tables import METADATA, create_tables, versions
from tests.support.mariadb import MariaDb
from tests.support.values import NOW, a_subscription

pytestmark = pytest.mark.integration

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


def run_script(engine: sa.Engine, script: str) -> None:
    with engine.begin() as connection:
        for statement in filter(str.strip, script.split(";\n")):
            connection.exec_driver_sql(statement)


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


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version after this one, whose step has two statements of which each may run twice."""

    def step(connection: sa.Connection) -> None:
        present = {column["name"] for column in sa.inspect(connection).get_columns("mo_ccpr_log")}
        for name in ("of_later", "of_later_too"):
            if name not in present:
                connection.exec_driver_sql(f"ALTER TABLE mo_ccpr_log ADD COLUMN {name} BIGINT")

    monkeypatch.setattr(migrations, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr(migrations, "_STEPS", {SCHEMA_VERSION + 1: step})


@pytest.fixture
def before(url: str) -> sa.Engine:
    """A database of the version before `later`, with a row."""
    log = CcprLog(open_database(url))
    log.insert(a_subscription("Shop").to_row(NOW))
    log.engine.dispose()
    return log.engine


def columns_of_log(engine: sa.Engine) -> set[str]:
    return {column["name"] for column in sa.inspect(engine).get_columns("mo_ccpr_log")}


def test_a_step_that_was_interrupted_is_run_again(
    before: sa.Engine, later: None, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each of its statements once; where the database undoes the step, from its beginning."""
    real = sa.Connection.exec_driver_sql
    for stop in range(1, 10):
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
    assert stop > 1
    engine = open_database(url)
    assert {"of_later", "of_later_too"} <= columns_of_log(engine)
    assert CcprLog(engine).row("Shop").subscription_name == "Shop"
    with transaction(engine) as connection:
        assert connection.scalar(sa.select(sa.func.max(versions.c.version))) == SCHEMA_VERSION + 1


def test_two_processes_at_once_migrate_once(before: sa.Engine, later: None, url: str) -> None:
    failures: list[Exception] = []

    def migrate() -> None:
        try:
            assert CcprLog(open_database(url)).row("Shop").subscription_name == "Shop"
        except Exception as error:  # noqa: BLE001 - the test shows it
            failures.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with transaction(create_engine(url)) as connection:
        assert sorted(connection.scalars(sa.select(versions.c.version))) == [SCHEMA_VERSION, SCHEMA_VERSION + 1]


def test_a_login_of_before_there_were_roles_is_one_of_the_relay(url: str, tmp_path: Path) -> None:
    """As version 11 had it."""
    vault, engine = Vault(tmp_path / "key"), open_database(url)
    PortLogins(engine, vault).add(PortLogin("mo", NOW, publications=frozenset({"shop"})), b"d" * 20)
    with engine.begin() as connection:
        for column in ("role", "limits"):
            connection.exec_driver_sql(f"ALTER TABLE ccpr_relay_users DROP COLUMN {column}")
        connection.exec_driver_sql(f"UPDATE ccpr_schema SET version = 11 WHERE version = {SCHEMA_VERSION}")
    engine.dispose()
    logins = PortLogins(open_database(url), vault)
    assert [(one.name, one.role, one.publications, one.limits) for one in logins.all()] == [
        ("mo", LoginRole.RELAY, frozenset({"shop"}), UNLIMITED)
    ]
    assert logins.digest("MO") == b"d" * 20
    logins.change(PortLogin("mo", NOW, LoginRole.READER, limits=ReadLimits(("a",), ("b",), (("c", "d = 'ä'"),))))
    assert logins.get("mo").limits.rows == (("c", "d = 'ä'"),)


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


def test_a_version_before_0_2_0_is_refused_and_left_as_it_is(url: str) -> None:
    engine = create_engine(url)
    run_script(
        engine, "CREATE TABLE ccpr_schema (version INTEGER NOT NULL PRIMARY KEY);\nINSERT INTO ccpr_schema VALUES (9)"
    )
    with pytest.raises(StateUnreadable, match="version 9") as raised:
        open_database(url)
    assert "release 0.2.0 first" in raised.value.remedy
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
