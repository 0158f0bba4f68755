"""Only one service runs on a state folder: a lock of the operating system, which ends with the process."""

from io import FileIO
from pathlib import Path

from ccpr.base.file_lock import is_locked, lock_file
from ccpr.service.errors import ServiceRunning
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable

LOCK = "serve.lock"


def is_served(home: Path) -> bool:
    """Whether a service of this machine runs on the state folder: somebody has its lock. Nothing is written."""
    try:
        return is_locked(home / LOCK)
    except OSError:  # there is no such file, or it is another user's
        return False


class OneService:
    """A component that holds the lock from `start` to `stop`."""

    def __init__(self, workspace: Workspace) -> None:
        self._folder = workspace.home
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
