"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable
from typing import Any

LIMIT_SECONDS = 120.0  # generous: of a machine with much else to do


def until(holds: Callable[[], Any], what: str, *, pause: float = 0.1, limit: float = LIMIT_SECONDS) -> Any:
    """What `holds` gives once that is true. Fails with `what` after `limit` seconds."""
    end = time.monotonic() + limit
    while not (found := holds()):
        assert time.monotonic() < end, f"not so in time: {what}"
        time.sleep(pause)
    return found
