"""What /metrics says of what did not run, and of targets that fail."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccpr.base.errors import Failure
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.serve.metrics import Metrics
from ccpr.service.target_sync import TargetOutcome
from ccpr.state.credentials import Vault
from ccpr.state.log_rows import LogRow
from ccpr.state.settings import Settings
from ccpr.state.subscription import Subscription


@pytest.fixture
def row(tmp_path: Path) -> LogRow:
    endpoint, publication = Endpoint("127.0.0.1", 6001, "sys", "dump"), Publication("p", "sys", 0)
    new = Subscription.new("s", endpoint, "secret!", Vault(tmp_path / "key"), publication, "d", None, Settings())
    return new.to_row(datetime.now(UTC))


def test_an_iteration_that_was_not_run_after_all_is_not_shown_as_running(row: LogRow) -> None:
    metrics = Metrics(time.time)
    metrics.subscriptions_read([row])
    metrics.iteration_began(row, 0.0)
    assert b'ccpr_subscription_state{state="copying",subscription="s"} 1.0' in metrics.text()
    metrics.iteration_left(row)
    assert b'ccpr_subscription_state{state="idle",subscription="s"} 1.0' in metrics.text()


def test_a_target_that_fails_is_red_until_it_is_synced_and_gone_with_its_subscription(row: LogRow) -> None:
    metrics = Metrics(time.time)
    metrics.subscriptions_read([row])
    failure = Failure("TARGET_UNREACHABLE", "it refuses", "target db", "Start it.")
    for found, value in ((failure, "1.0"), (None, "0.0")):
        metrics.target_synced(row, TargetOutcome("db", None, found, 0.1))
        assert f'ccpr_target_failing{{subscription="s",target="db"}} {value}' in metrics.text().decode()
    metrics.subscriptions_read([])
    assert b"ccpr_target_failing{" not in metrics.text()
