"""What runs on a state folder now: one service at most, and ports where others log in. Each holds a file in it locked.
The lock ends with the process, however that ends, so that no reader is told of one that is gone.

The file of a port has its address, and, of a relay, after that the subscriptions that it skips, as JSON."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path

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
        self._address = address
        self._path, hidden = folder / name, folder / f".{name}"
        try:
            self._file = lock_file(hidden)
            self._file.write(address.encode())
            hidden.rename(self._path)  # no process sees it before it is locked
        except OSError as error:
            raise StateUnreadable(
                f"the lock file of the port cannot be made: {error.strerror}", subject=str(folder)
            ) from error

    def note(self, left_out: Mapping[str, str]) -> None:
        """The subscriptions that it skips, by name, and why. Raises OSError."""
        content = f"{self._address}\n{json.dumps(left_out)}\n".encode()[:_MOST_BYTES]
        os.pwrite(self._file.fileno(), content, 0)
        self._file.truncate(len(content))

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def addresses(home: Path, kind: str) -> tuple[str, ...]:
    """Where ports of this folder listen now."""
    return tuple(sorted(address for address, _ in _marks(home, kind)))


def left_out_by_relays(home: Path, name: str) -> tuple[str, ...]:
    """What relays of this folder say of a subscription that they skip, with their addresses."""
    said = sorted((address, left_out[name]) for address, left_out in _marks(home, RELAYS) if name in left_out)
    return tuple(f"the relay on {address} does not have it in its catalog: {why}" for address, why in said)


def _marks(home: Path, kind: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for text in filter(None, map(_content, (home / kind).glob("[!.]*.lock"))):
        address, _, rest = text.partition("\n")
        left_out: object = {}
        with suppress(ValueError):  # it is being written
            left_out = json.loads(rest or "{}")
        yield address, left_out if isinstance(left_out, dict) else {}


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
