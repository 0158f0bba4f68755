"""The relay of a state folder as a component of a service, for `ccpr relay serve` and `ccpr serve --relay` alike."""

from functools import partial

from ccpr.base.loops import Loop
from ccpr.matrixone.client.publication import EVERYTHING
from ccpr.relay.client_port import Listen
from ccpr.relay.offers import Logins, Offers, Quiet
from ccpr.relay.relay_backing import StateFolder
from ccpr.relay.relay_server import Relay
from ccpr.service.running import RELAYS, PortMark
from ccpr.service.workspace import Workspace

TRY_AGAIN_SECONDS = 10.0


class RelayService(Relay):
    """Serves all subscriptions of a state folder."""

    def __init__(self, workspace: Workspace, listen: Listen) -> None:
        self._workspace, self._logins, self._served = workspace, Logins(workspace), StateFolder(Offers(workspace))
        self._loop = Loop("relay-mirrors", self._look_after)
        self._noted: dict[str, str] = {}
        mark = partial(PortMark, workspace.home, RELAYS)
        super().__init__(
            self._served,
            self._logins.digest,
            listen,
            seen_by=self._served.seen_by,
            mark=mark,
            keeper=self._loop,
        )

    def _look_after(self) -> None:
        """Whether mirrors that could not be read can be now; and `ccpr status`, which is another process, is told."""
        while not self._loop.ending.wait(TRY_AGAIN_SECONDS):
            self._loop.attempt("the mirrors that could not be read were not looked at", self._try_again)

    def _try_again(self) -> None:
        self._served.offers.try_again()
        left_out = self.left_out_now()
        if left_out != self._noted and self.mark is not None:
            self.mark.note(left_out)
            self._noted = left_out

    def left_out_now(self) -> dict[str, str]:
        """The subscriptions that the catalog skips since their mirrors cannot be read, by name, and why."""
        return self._served.offers.left_out()

    def quiet(self, publication: str) -> Quiet:
        """See `ccpr.relay.follower_watching.Watcher`."""
        return self._served.offers.quiet(publication)

    def left_out(self) -> list[str]:
        """The names of the subscriptions to several databases, which are not served. Raises StateUnavailable,
        StateUnreadable."""
        return sorted(row.subscription_name for row in self._workspace.log.all_rows()[0] if row.db_name == EVERYTHING)

    def has_logins(self) -> bool:
        """Whether any login can be used. Raises StateUnavailable, StateUnreadable."""
        return self._logins.any()
