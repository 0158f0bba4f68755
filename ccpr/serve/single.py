"""Only one service runs on a state folder: a lock of the operating system, which ends with the process."""

import fcntl
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path

from ccpr.base.file_modes import make_folder, opener
from ccpr.service.errors import ServiceRunning
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable

LOCK = "serve.lock"
_LOOKS, _LOOK_SECONDS = 10, 0.05


def is_served(home: Path) -> bool:
    """Whether a service of this machine runs on the state folder: somebody has its lock. Nothing is written."""
    try:
        with (home / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no such file, or it is another user's
        return False
    return False


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
            self._lock(self._file)
        except BlockingIOError:
            self.stop()
            raise ServiceRunning(
                "a `ccpr serve` runs on this state folder already", subject=str(self._folder)
            ) from None
        except OSError as error:
            raise StateUnreadable(
                f"the lock file of the service cannot be opened: {error.strerror}", subject=str(self._folder)
            ) from error

    @staticmethod
    def _lock(file: FileIO) -> None:
        """At once, but for somebody who looks (`is_served`) and has it for a moment. Raises BlockingIOError."""
        for _ in range(_LOOKS):
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(_LOOK_SECONDS)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
