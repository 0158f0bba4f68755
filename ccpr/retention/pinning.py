"""Points that stay for the time of some work, or as long as a client of the relay has a snapshot of them; and where
these pins are kept: in the state database, or, for a mirror alone, in memory."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from typing import Protocol

from ccpr.base.clock import Clock, utc_now
from ccpr.mirror.points import Point
from ccpr.state.errors import RelayPinned
from ccpr.state.pins import Pin


class PinStore(Protocol):
    """Snapshots by name. `ccpr.state.pins.Pins` is the one that lasts. Thread-safe."""

    def seen_by(self, login: str) -> "PinStore":
        """The same, with the snapshots of this login of the relay only."""
        ...

    def find(self, name: str) -> Pin | None: ...

    def all(self) -> list[Pin]: ...

    def add(self, pin: Pin) -> None:
        """Raises PointGone, RelayPinned, RelayPins."""
        ...

    def drop(self, name: str) -> bool: ...

    def seen(self, name: str, now: datetime) -> None: ...


class PinsInMemory:
    """For as long as a process serves, to one login. Nothing keeps the points from going."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pins: dict[str, Pin] = {}

    def seen_by(self, login: str) -> "PinsInMemory":
        return self

    def find(self, name: str) -> Pin | None:
        with self._lock:
            return self._pins.get(name)

    def all(self) -> list[Pin]:
        with self._lock:
            return sorted(self._pins.values(), key=lambda pin: (pin.lsn, pin.name))

    def add(self, pin: Pin) -> None:
        with self._lock:
            if pin.name in self._pins:
                raise RelayPinned("there is a snapshot of that name", subject=f"snapshot {pin.name}")
            self._pins[pin.name] = pin

    def drop(self, name: str) -> bool:
        with self._lock:
            return self._pins.pop(name, None) is not None

    def seen(self, name: str, now: datetime) -> None:
        """It is never asked."""


def end_left(pins: PinStore, prefix: str) -> None:
    """Drop the snapshots of this prefix: what made them was killed. The caller sees to it that none is in use."""
    for pin in pins.all():
        if pin.name.startswith(prefix):
            pins.drop(pin.name)


@contextmanager
def pinned(
    pins: PinStore | None,
    point: Point,
    clock: Clock,
    prefix: str = "ccpr_work_",
    name: str | None = None,
) -> Iterator[None]:
    """The point stays until the end of the block; if `pins` is None, as long as files stay for open readers.

    If the process is killed, a snapshot is left that `ccpr relay pins` shows. Raises PointGone.
    """
    if pins is None:
        yield
        return
    name, now = name or f"{prefix}{secrets.token_hex(8)}", utc_now(clock)
    pins.add(Pin(name, point.lsn, point.at.physical, None, now, now))
    try:
        yield
    finally:
        pins.drop(name)
