"""The rows of the log: what cannot be read is reported, and stored failures are read back."""

from pathlib import Path

import pytest

from ccpr.state.database import transaction
from ccpr.state.errors import StateUnreadable
from ccpr.state.log import CcprLog
from ccpr.state.log_rows import Failures
from ccpr.state.migrations import open_database
from tests.support.values import NOW, a_subscription


@pytest.mark.parametrize("message", [None, "", "N:1000:gone", "R:1:2", "R:one:2:3:text", "R:1:2:-3:text"])
def test_other_messages_are_not_read_as_retryable_failures(message: str | None) -> None:
    assert Failures.of(message) is None


def test_consecutive_failures_are_read_back() -> None:
    assert Failures.of("R:2:1000000:1000010:FLAKY: line: down") == Failures(2, 1000000, 1000010, "FLAKY: line: down")


@pytest.mark.parametrize(
    ("column", "value"),
    [("state", "7"), ("iteration_state", "9"), ("watermark", "'x'"), ("created_at", "'yesterday'"), ("fence", "1.5")],
)
def test_a_row_that_was_not_written_here_is_reported(column: str, value: str, tmp_path: Path) -> None:
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
