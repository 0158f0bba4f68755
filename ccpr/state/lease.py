"""An executor's identity, and the lease that it renews while it works. Source: docs/requirements.md O4, O5; decision
lease-and-file-lock.

The lease in `mo_ccpr_log` decides. In addition each executor holds an operating system lock on a file of its own. The
kernel frees this lock however the process ends. So an executor on the same state folder sees at once that the former
owner is dead and does not have to wait until the lease expires. An executor elsewhere waits.
"""

import stat
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ccpr.base.clock import wall_clock
from ccpr.base.file_modes import is_locked, lock_file, make_folder
from ccpr.base.loops import Guard
from ccpr.state.context import Context
from ccpr.state.errors import LeaseLost, StateUnreadable
from ccpr.state.log import CcprLog
from ccpr.state.log_rows import Claim, LogRow

TTL_SECONDS = 30.0
_KEPT_SECONDS = 86_400.0  # age at which the lock file of an ended executor is deleted; no lease lasts as long


class Executor:
    """This process as an owner of leases. `renewals`: counts the renewals of leases that failed."""

    def __init__(self, folder: Path) -> None:
        self.id = str(uuid.uuid4())
        self.renewals = Guard("leases")
        self._folder = folder
        self._path = folder / f"{self.id}.lock"
        try:
            make_folder(folder)
            # Where a group may write the folder, executors of several users lock each other's files.
            self._file = lock_file(self._path, shared=bool(folder.stat().st_mode & stat.S_IWGRP))
        except OSError as error:
            raise StateUnreadable(
                f"the lock file of this executor cannot be created: {error.strerror}", subject=str(folder)
            ) from error
        self._held: set[str] = set()

    @contextmanager
    def holding(self, log: CcprLog, claim: Claim) -> Iterator["Lease"]:
        """Hold and renew the claim's lease during the block."""
        lease = self.begin(log, claim)
        try:
            yield lease
        finally:
            self.finish(lease)

    def begin(self, log: CcprLog, claim: Claim) -> "Lease":
        """Renew the claim's lease until `finish`, or until `Lease.end` where a later claim of ours takes its place."""
        lease = Lease(log, claim, guard=self.renewals)
        self._held.add(claim.task_id)
        lease.begin()
        return lease

    def finish(self, lease: "Lease") -> None:
        """End renewing, and free the lease."""
        lease.finish()
        self._held.discard(lease.claim.task_id)

    def is_dead(self, owner: str) -> bool:
        """True if the owner ran on this state folder and has ended; False if it is alive or ran elsewhere."""
        try:
            return not is_locked(self._folder / f"{uuid.UUID(owner)}.lock")
        except (FileNotFoundError, ValueError):
            return False
        except OSError as error:
            raise StateUnreadable(
                f"the lock file of another executor cannot be read: {error.strerror}", subject=str(self._folder)
            ) from error

    def close(self) -> None:
        """End, and delete lock files of executors that ended long ago.

        If a lease could not be freed because the database did not answer, our own file stays, unlocked: it shows other
        executors that we are dead.
        """
        if not self._held:
            self._path.unlink(missing_ok=True)
        self._file.close()
        for path in self._folder.glob("*.lock"):
            with suppress(OSError):
                if wall_clock() - path.stat().st_mtime > _KEPT_SECONDS and not is_locked(path):
                    path.unlink()


class Lease:
    """Holds a claim during the work; a thread renews it. `check` raises LeaseLost once another executor took over.
    `left`: the subscription's row as the end of the lease left it; None before, and where it cannot be read."""

    def __init__(
        self, log: CcprLog, claim: Claim, ttl_seconds: float = TTL_SECONDS, guard: Guard | None = None
    ) -> None:
        self.claim = claim
        self.freed = False
        self.left: LogRow | None = None
        self.log, self._ttl, self._guard = log, ttl_seconds, guard or Guard("leases")
        self._ended, self._lost = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease-{claim.name}", daemon=True)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Renew it no more, and do not free it: a later claim of the same owner has taken its place."""
        self._ended.set()
        self._thread.join()

    def finish(self) -> None:
        self.end()
        self.left = self.log.release(self.claim)
        self.freed = True

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def check(self) -> None:
        """Raises LeaseLost. Does not ask the database."""
        if self.lost:
            raise LeaseLost("another executor has taken over", subject=f"subscription {self.claim.name}")

    def confirm(self) -> None:
        """Ask the database whether the lease is still ours, and renew it. For steps that no transaction protects.

        Raises LeaseLost.
        """
        if not self.log.renew(self.claim, self._ttl):
            self._lost.set()
        self.check()

    def remember(self, context: Context) -> None:
        """Store a changed context, and renew the lease. As `confirm`, in one transaction with what is stored.

        Raises LeaseLost.
        """
        self.log.remember(self.claim, context, self._ttl)

    def _renew(self) -> None:
        """A renewal that fails is no reason to stop: the database may answer again soon, and the guarded commit decides
        in the end."""
        while not self.lost and not self._ended.wait(self._ttl / 3):
            self._guard.attempt(f"the lease of {self.claim.name} was not renewed", self._renew_once)

    def _renew_once(self) -> None:
        if not self.log.renew(self.claim, self._ttl):
            self._lost.set()
