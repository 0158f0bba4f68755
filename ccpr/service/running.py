"""What runs on a state folder now: one service at most, and ports where others log in. Each holds a file in it locked.
The lock ends with the process, however that ends, so that no reader is told of one that is gone.

The file of a port has its address, and after that as JSON what it says of itself: a relay which subscriptions it skips,
the others what they have counted."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from ccpr.base.file_modes import is_locked, lock_file
from ccpr.service.errors import ServiceRunning
from ccpr.state.errors import StateUnreadable

RELAYS, SQL_PORTS, CATALOGS = "relays", "sql", "catalogs"
_MOST_BYTES = 1 << 20


class PortMark:
    """The file of a port of this process; its folder says what answers there."""

    def __init__(self, home: Path, kind: str, address: str) -> None:
        """Raises StateUnreadable."""
        folder, name = home / kind, f"{uuid.uuid4()}.lock"
        self._address, self._said = address, b""
        self._path, hidden = folder / name, folder / f".{name}"
        try:
            self._file = lock_file(hidden)
            self._file.write(address.encode())
            hidden.rename(self._path)  # no process sees it before it is locked
        except OSError as error:
            raise StateUnreadable(
                f"the lock file of the port cannot be made: {error.strerror}", subject=str(folder)
            ) from error

    def note(self, said: Mapping[str, str | int]) -> None:
        """Of a relay the subscriptions that it skips, by name, and why; of others what they have counted. Raises
        OSError."""
        content = f"{self._address}\n{json.dumps(said)}\n".encode()[:_MOST_BYTES]
        if content != self._said:
            os.pwrite(self._file.fileno(), content, 0)
            self._file.truncate(len(content))
            self._said = content

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def addresses(home: Path, kind: str) -> tuple[str, ...]:
    """Where ports of this folder listen now."""
    return tuple(sorted(address for address, _ in _marks(home, kind)))


def counted_by_ports(home: Path, kind: str) -> tuple[str, ...]:
    """Where ports of this folder listen now, and what each has counted."""
    found = list[str]()
    for address, said in _marks(home, kind):
        counts = ", ".join(f"{count:,} {name}" for name, count in said.items() if isinstance(count, int))
        found.append(f"{address}: {counts} since it began" if counts else address)
    return tuple(sorted(found))


def left_out_by_relays(home: Path, name: str) -> tuple[str, ...]:
    """What relays of this folder say of a subscription that they skip, with their addresses."""
    said = sorted((address, skipped[name]) for address, skipped in _marks(home, RELAYS) if name in skipped)
    return tuple(f"the relay on {address} does not have it in its catalog: {why}" for address, why in said)


def _marks(home: Path, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for text in filter(None, map(_content, (home / kind).glob("[!.]*.lock"))):
        address, _, rest = text.partition("\n")
        said: object = {}
        with suppress(ValueError):  # it is being written
            said = json.loads(rest or "{}")
        yield address, said if isinstance(said, dict) else {}


def _content(path: Path) -> str | None:
    """None for one that has ended, whose file is deleted."""
    with suppress(OSError, UnicodeDecodeError):
        if is_locked(path):
            return path.read_bytes().decode()
        path.unlink()
    return None


LOCK = "serve.lock"


def is_served(home: Path) -> bool:
    """Whether a service of this machine runs on the state folder: somebody has its lock. Nothing is written."""
    try:
        return is_locked(home / LOCK)
    except OSError:  # there is no such file, or it is another user's
        return False


class OneService:
    """A component that holds the lock from `start` to `stop`."""

    def __init__(self, home: Path) -> None:
        self._folder = home
        self._file: FileIO | None = None

    def start(self) -> None:
        """Raises ServiceRunning, StateUnreadable."""
        try:
            self._file = lock_file(self._folder / LOCK)
        except BlockingIOError:
            raise ServiceRunning(
                "a `ccpr serve` runs on this state folder already", subject=str(self._folder)
            ) from None
        except OSError as error:
            raise StateUnreadable(
                f"the lock file of the service cannot be opened: {error.strerror}", subject=str(self._folder)
            ) from error

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
