"""A difference that the upstream does not answer is given up; an upstream that is away is not."""

import pytest

from ccpr.matrixone.client.errors import ConnectionLost
from ccpr.pipeline.errors import DifferenceHangs
from ccpr.pipeline.logical import table_reads


def test_a_connection_that_is_lost_at_once_is_an_upstream_that_is_away():
    with pytest.raises(ConnectionLost), table_reads.given_up_if_it_hangs():
        raise ConnectionLost("it went", subject="statement")


def test_one_that_is_lost_after_a_long_silence_is_a_difference_that_hangs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_reads, "TIMEOUT_SECONDS", 0.0)
    with pytest.raises(DifferenceHangs), table_reads.given_up_if_it_hangs():
        raise ConnectionLost("timed out", subject="statement")
