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
        "[" * 100_000,
    ],
)
def test_settings_that_were_not_written_here_are_reported(config: str) -> None:
    with pytest.raises(StateUnreadable):
        Subscription.from_row(replace(a_subscription().to_row(NOW), sync_config=config))
