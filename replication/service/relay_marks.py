"""Which relays serve a state folder now: each has a file in it, with its address, that it holds locked. The lock ends
with the process, however that ends, so that whoever looks is never told of one that is gone."""

import fcntl
import uuid
from contextlib import suppress
from io import FileIO
from pathlib import Path

from replication.errors import StateUnreadable
from replication.file_modes import make_folder, opener

FOLDER = "relays"


class RelayMark:
    """The file of a relay of this process."""

    def __init__(self, home: Path, address: str) -> None:
        """Raises StateUnreadable."""
        folder, name = home / FOLDER, f"{uuid.uuid4()}.lock"
        self._path, hidden = folder / name, folder / f".{name}"
        try:
            make_folder(folder)
            self._file = FileIO(hidden, "w", opener=opener())
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._file.write(address.encode())
            hidden.rename(self._path)  # nobody sees it before it is locked
        except OSError as error:
            raise StateUnreadable(
                f"the lock file of the relay cannot be made: {error.strerror}", subject=str(folder)
            ) from error

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def relay_addresses(home: Path) -> tuple[str, ...]:
    """Where relays of this folder listen now."""
    return tuple(sorted(filter(None, map(_address, (home / FOLDER).glob("[!.]*.lock")))))


def _address(path: Path) -> str | None:
    """None for one that has ended, whose file is deleted."""
    with suppress(OSError, UnicodeDecodeError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(300).decode()
        path.unlink()
    return None
