"""A subscription read from its row."""

from dataclasses import replace

import pytest

from ccpr.state.errors import StateUnreadable
from ccpr.state.subscription import Subscription
from tests.support.values import NOW, a_subscription


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
        '{"flush": "never"}',
        '{"zero_dates": null}',
        '{"max_mb_s": NaN}',
        '{"max_mb_s": 1e999}',
        '{"tables": "a,,b"}',
        "[" * 100_000,
    ],
)
def test_settings_that_were_not_written_here_are_reported(config: str) -> None:
    with pytest.raises(StateUnreadable):
        Subscription.from_row(replace(a_subscription().to_row(NOW), sync_config=config))


def test_settings_beyond_limits_that_another_release_had_are_read() -> None:
    row = replace(a_subscription().to_row(NOW), sync_config='{"max_sessions": 60, "sync_interval": 0}')
    settings = Subscription.from_row(row).settings
    assert (settings.max_sessions, settings.sync_interval) == (60, 0)
