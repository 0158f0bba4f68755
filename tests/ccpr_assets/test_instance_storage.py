"""Where Dagster keeps runs and events: in SQLite with `dagster.yaml` as it is, in a real MariaDB with the lines that
are commented out in it."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from ccpr.dagster import metadata
from ccpr.dagster.partitions import SUBSCRIPTIONS
from ccpr.mirror.errors import BadName
from ccpr.state.subscription import check_subscription_name
from ccpr_assets.jobs import STEPS
from tests.sensors.driving import Daemon
from tests.support.mariadb import MariaDb
from tests.support.replica import NAME, Replica, replaying

SETTINGS = Path(__file__).resolve().parents[2] / "dagster.yaml"
DATABASE = "dagster"
LONGEST_NAME = 60
INDEXED_CHARACTERS = 64  # of a partition key, in dagster-mysql's unique index
Open = Callable[[], dg.DagsterInstance]


def with_mysql(settings: str) -> str:
    """The settings as an operator would change them: without the comment marks of the block `storage`."""
    block = re.search(r"^# storage:\n(?:# .*\n)+", settings, re.MULTILINE)
    assert block is not None
    return settings.replace(block[0], re.sub(r"^# ", "", block[0], flags=re.MULTILINE))


@pytest.fixture
def on_mariadb(mariadb: MariaDb, home: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS `{DATABASE}`")
    mariadb.create_database(DATABASE)
    values = {
        "HOST": mariadb.host,
        "PORT": mariadb.port,
        "USER": mariadb.user,
        "PASSWORD": mariadb.password,
        "DB": DATABASE,
    }
    for name, value in values.items():
        monkeypatch.setenv(f"DAGSTER_MYSQL_{name}", str(value))
    folder = home / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(with_mysql(SETTINGS.read_text()))
    return lambda: dg.DagsterInstance.from_config(str(folder))


@pytest.fixture
def replica(recordings: Path, home: Path) -> Iterator[Replica]:
    with replaying(recordings / "other_account", home) as replica:
        replica.subscribe()
        yield replica


def test_without_further_settings_the_storage_is_sqlite(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(SETTINGS.read_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert type(instance.run_storage).__name__ == "SqliteRunStorage"
        assert type(instance.event_log_storage).__name__ == "SqliteEventLogStorage"


@pytest.mark.recordings
def test_a_run_kept_in_mariadb_is_read_back_by_another_instance(
    on_mariadb: Open, mariadb: MariaDb, replica: Replica
) -> None:
    with on_mariadb() as instance:
        (request,) = Daemon(instance).tick().run_requests or []
        result = Daemon(instance).run(request)
        assert result.success
    replica.assert_equal_to_source(1)
    with on_mariadb() as instance:
        assert type(instance.run_storage).__name__ == "MySQLRunStorage"
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.SUCCESS
        assert run.tags[metadata.SUBSCRIPTION_TAG] == NAME
        for asset in STEPS[:-1]:  # it has no target
            event = instance.get_latest_materialization_event(asset.key)
            assert event is not None
            assert event.asset_materialization is not None
            assert event.asset_materialization.partition == NAME
            assert event.asset_materialization.metadata[metadata.ITERATION_LSN].value == 0
        assert instance.get_materialized_partitions(STEPS[-2].key) == {NAME}
        checks = [key for asset in STEPS for key in asset.check_keys]
        assert len(instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)) == len(checks) == 2
    with closing(mariadb.connect(DATABASE)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM runs")
        assert cursor.fetchall() == ((1,),)
        cursor.execute(
            "SELECT DISTINCT table_collation FROM information_schema.tables WHERE table_schema = %s", (DATABASE,)
        )
        assert all(collation.startswith("utf8mb4") for (collation,) in cursor.fetchall())


def test_names_that_differ_in_their_last_character_are_two_partitions_in_mariadb(on_mariadb: Open) -> None:
    assert SUBSCRIPTIONS.name is not None
    names = ["s" * (LONGEST_NAME - 1) + last for last in "ab"]
    with on_mariadb() as instance:
        instance.add_dynamic_partitions(SUBSCRIPTIONS.name, names)
    with on_mariadb() as instance:
        assert sorted(instance.get_dynamic_partitions(SUBSCRIPTIONS.name)) == names


def test_no_name_is_longer_than_the_characters_that_the_index_compares() -> None:
    assert LONGEST_NAME < INDEXED_CHARACTERS
    check_subscription_name("s" * LONGEST_NAME)
    with pytest.raises(BadName):
        check_subscription_name("s" * (LONGEST_NAME + 1))
