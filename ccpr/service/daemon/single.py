"""Only one service runs on a state folder: a lock of the operating system, which ends with the process."""

import fcntl
from io import FileIO

from ccpr.base.file_modes import make_folder, opener
from ccpr.service.errors import ServiceRunning
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable

LOCK = "serve.lock"


class OneService:
    """A component that holds the lock from `start` to `stop`."""

    def __init__(self, workspace: Workspace) -> None:
        self._folder = workspace.home
        self._file: FileIO | None = None

    def start(self) -> None:
        """Raises ServiceRunning, StateUnreadable."""
        try:
            make_folder(self._folder)
            self._file = FileIO(self._folder / LOCK, "a", opener=opener())
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.stop()
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
