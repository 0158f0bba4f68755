"""A point that stays for the time of some work."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from ccpr.base.clock import Clock, utc_now
from ccpr.mirror.points import Point
from ccpr.state.pins import Pin, Pins


def end_left(pins: Pins, prefix: str) -> None:
    """Drop the snapshots of this prefix: what made them was killed. The caller sees to it that none is in use."""
    for pin in pins.all():
        if pin.name.startswith(prefix):
            pins.drop(pin.name)


@contextmanager
def pinned(pins: Pins | None, point: Point, clock: Clock, prefix: str = "ccpr_work_") -> Iterator[None]:
    """The point stays until the end of the block; if `pins` is None, as long as files stay for open readers.

    If the process is killed, a snapshot is left that `ccpr relay pins` shows. Raises PointGone.
    """
    if pins is None:
        yield
        return
    name, now = f"{prefix}{secrets.token_hex(8)}", utc_now(clock)
    pins.add(Pin(name, point.lsn, point.at.physical, None, now, now))
    try:
        yield
    finally:
        pins.drop(name)
