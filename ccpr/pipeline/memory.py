"""What a subscription remembers (`ccpr.state.context`), as the iteration that has its lease knows and changes it."""

from collections.abc import Callable
from typing import TypeVar

from ccpr.base.clock import Clock
from ccpr.matrixone.errors import CcprError
from ccpr.state.context import Context
from ccpr.state.lease import Lease

T = TypeVar("T")


class Memory:
    """
    Attributes
    ----------
    context : as it is known here. What is set without `remember` is stored with the next change, at the latest with
        the commit.
    answered : names of temporary snapshots that the upstream has said to be made.
    is_running : whether we run the iteration; what another left running is resumed.
    clock : seconds since 1970.
    """

    def __init__(self, lease: Lease, clock: Clock) -> None:
        self._lease, self._log, self._claim, self.clock = lease, lease.log, lease.claim, clock
        self.context = Context.from_text(lease.claim.row.context)
        self.answered: set[str] = set()
        self.is_running = False

    def start(self) -> None:
        """The iteration runs: from here on a failure is written down."""
        self._log.start(self._claim, self.context)
        self.is_running = True

    def remember(self, context: Context) -> None:
        """Store it, and renew the lease. Raises LeaseLost."""
        self.context = context
        self._lease.remember(context)

    def change(self, change: Callable[[Context], tuple[Context, T]]) -> T:
        """Remember what `change` makes of the context, and return what else comes of it."""
        context, found = change(self.context)
        self.remember(context)
        return found

    def committed(self, context: Context) -> None:
        """The iteration has ended; the commit has stored the context."""
        self.context, self.is_running = context, False

    def failed(self, context: Context, error: CcprError, *, ends: bool, is_extra: bool) -> None:
        """`ends`, `is_extra`: see `CcprLog.fail`."""
        self.context = context
        self._log.fail(self._claim, context, error, ends=ends, is_extra=is_extra)
