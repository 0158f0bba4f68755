"""Spans of time as people write them."""

import re

SPAN = r"^[0-9]{1,11}[smhd]?$"  # seconds, or a number with its unit
NO_SPAN = "not a number of seconds, or one with s, m, h or d"
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(span: str) -> int:
    """`90`, `90s`, `15m`, `24h` or `7d` in seconds. Raises ValueError."""
    if not re.fullmatch(SPAN, span):
        raise ValueError(NO_SPAN)
    number = span.rstrip("smhd")
    return int(number) * _SECONDS[span[len(number) :]]
