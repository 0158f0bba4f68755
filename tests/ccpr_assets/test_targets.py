"""The asset `target_databases` syncs the targets and shows their results. A target that fails fails its step, and
nothing of the replica."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ccpr.dagster import metadata
from tests.support.dagster_fixtures import Sync
from tests.support.mariadb import MariaDb, uri_from
from tests.support.replica import NAME, replaying
from tests.targets.target_database import Place, new_database

TARGET_DATABASES = dg.AssetKey("target_databases")
pytestmark = [pytest.mark.spark, pytest.mark.recordings, pytest.mark.usefixtures("spark")]


@pytest.fixture
def place(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("TARGET_PASSWORD", mariadb.password)
    with new_database(mariadb) as place:
        yield place


def targets(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    assert result.success
    (event,) = [event for event in result.get_asset_materialization_events() if event.asset_key == TARGET_DATABASES]
    shown = event.materialization.metadata[metadata.TARGETS]
    assert isinstance(shown, dg.TableMetadataValue)
    (record,) = shown.records
    return dict(record.data)


def test_targets_are_synced_and_shown(recordings: Path, home: Path, place: Place, sync: Sync) -> None:
    with replaying(recordings / "dml", home) as replica:
        replica.subscribe()
        to = uri_from(place.uri, "TARGET_PASSWORD")
        replica.command("target", "add", NAME, "db", "--to", to)
        first = targets(sync())
        assert (first["target"], first["tables_changed"], first["rows_written"], first["failures"]) == (
            "db",
            1,
            50_000,
            "",
        )
        assert place.query("SELECT COUNT(*) FROM acc") == [(50_000,)]
        place.server.kill()
        try:
            failed = sync()
            assert not failed.success
            made = {event.asset_key for event in failed.get_asset_materialization_events()}
            assert dg.AssetKey("applied_tables") in made
            assert TARGET_DATABASES not in made
            (step,) = [event for event in failed.all_events if event.is_step_failure]
            assert step.step_key == "target_databases"
            shown = step.step_failure_data.user_failure_data
            assert shown is not None
            assert (shown.description or "").startswith("target db: TARGET_UNAVAILABLE")
        finally:
            place.server.start()
        assert targets(sync())["rows_written"] > 600, "this run also brings the rows that the one before could not"
