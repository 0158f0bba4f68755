import time

import pytest

from ccpr.matrixone.client.errors import (
    ConnectionLost,
    NotFlushedYet,
    SnapshotOutcomeUnknown,
    StatementFailed,
    UpstreamBusy,
    UpstreamUnreachable,
)
from ccpr.matrixone.client.retry import NO_RETRY, RULES, Retry, rule_for, with_retry


def test_pauses_double_up_to_the_longest_and_the_last_error_is_raised(monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []
    policy = Retry(attempts=6, first_pause=1.0, longest_pause=5.0, jitter=0.0)
    monkeypatch.setattr(time, "sleep", pauses.append)

    def fail() -> None:
        raise ConnectionLost(f"attempt {len(pauses) + 1}", subject="test")

    with pytest.raises(ConnectionLost, match="attempt 6"):
        with_retry(fail, policy)
    assert pauses == [1, 2, 4, 5, 5]
    with pytest.raises(ConnectionLost, match="attempt 6"):
        with_retry(fail, NO_RETRY)


def test_the_rule_of_the_last_errors_class_decides_how_often():
    attempts: list[int] = []
    policy = (ConnectionLost, Retry(4, 0.0, 0.0, 0.0)), (SnapshotOutcomeUnknown, Retry(2, 0.0, 0.0, 0.0))
    errors = [ConnectionLost, SnapshotOutcomeUnknown, ConnectionLost]

    def fail() -> None:
        attempts.append(1)
        raise errors[len(attempts) - 1]("again", subject="test")

    with pytest.raises(SnapshotOutcomeUnknown):
        with_retry(fail, policy, also=(SnapshotOutcomeUnknown,))
    assert len(attempts) == 2


def test_what_no_rule_names_is_not_repeated():
    assert rule_for(StatementFailed) is NO_RETRY
    assert rule_for(NotFlushedYet).attempts == 1
    assert 1 < rule_for(UpstreamUnreachable).attempts < rule_for(UpstreamBusy).attempts
    assert all(rule.attempts * rule.longest_pause <= 120 for _, rule in RULES), "the iteration ends within minutes"
