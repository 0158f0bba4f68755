"""Where the relay keeps its snapshots: in the state database, or, for a mirror alone, in memory."""

from datetime import datetime
from threading import Lock
from typing import Protocol

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
