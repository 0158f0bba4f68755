"""The relay of a state folder as a component of a service, for `ccpr relay serve` and `ccpr serve --relay` alike."""

import logging
import threading

from ccpr.matrixone.client.publication import EVERYTHING
from ccpr.matrixone.server.upstream import ServerStatus
from ccpr.relay.offers import Logins, Offers, Quiet
from ccpr.relay.relay_backing import StateFolder
from ccpr.relay.relay_server import Listen, Relay
from ccpr.service.running import RelayMark
from ccpr.service.workspace import Workspace
from ccpr.state.followers import all_followers

TRY_AGAIN_SECONDS = 10.0
_log = logging.getLogger(__name__)


class RelayService:
    """Serves all subscriptions of a state folder from `start` to `stop` (`ccpr.serve.listening.Component`)."""

    def __init__(self, workspace: Workspace, listen: Listen) -> None:
        self._workspace, self._listen = workspace, listen
        self._logins, self._served = Logins(workspace), StateFolder(Offers(workspace))
        self._relay: Relay | None = None
        self._mark: RelayMark | None = None
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._look_after, name="relay-mirrors", daemon=True)

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._relay is not None
        return f"{self._listen.host}:{self._relay.port}"

    def start(self) -> None:
        """Raises RelayListen, RelayTls, StateUnreadable."""
        self._relay = Relay(self._served, self._logins.digest, self._listen, seen_by=self._served.seen_by)
        self._relay.start()
        try:
            self._mark = RelayMark(self._workspace.home, self.address)
        except BaseException:
            self.stop()
            raise
        self._keeper.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._mark is not None:
            self._mark.remove()
        if self._relay is not None:
            self._relay.stop()

    def counted(self) -> ServerStatus:
        """What was asked and served."""
        assert self._relay is not None
        return self._relay.status()

    def _look_after(self) -> None:
        """Whether mirrors that could not be read can be now; and `ccpr status`, which is another process, is told."""
        shown: dict[str, str] = {}
        while not self._stopping.wait(TRY_AGAIN_SECONDS):
            try:
                self._served.offers.try_again()
                left_out = self.left_out_now()
                if left_out != shown and self._mark is not None:
                    self._mark.note(left_out)
                    shown = left_out
            except Exception:  # noqa: BLE001 - whatever one look raises, the next one follows
                _log.exception("the mirrors that could not be read were not looked at")

    def left_out_now(self) -> dict[str, str]:
        """The subscriptions that the catalog skips since their mirrors cannot be read, by name, and why."""
        return self._served.offers.left_out()

    @property
    def refused(self) -> int:
        """How many connections were refused since there were too many."""
        return 0 if self._relay is None else self._relay.refused

    @property
    def wrong_passwords(self) -> int:
        return 0 if self._relay is None else self._relay.wrong_passwords

    def trouble(self) -> str | None:
        """Why no client can log in at this moment; None if clients can."""
        return None if self._relay is None else self._relay.trouble

    def quiet(self, publication: str) -> Quiet:
        """See `ccpr.relay.follower_watching.Watcher`."""
        return self._served.offers.quiet(publication)

    def left_out(self) -> list[str]:
        """The names of the subscriptions to several databases, which are not served. Raises StateUnavailable,
        StateUnreadable."""
        return sorted(row.subscription_name for row in self._workspace.log.all_rows()[0] if row.db_name == EVERYTHING)

    def has_logins(self) -> bool:
        """Whether any login can be used. Raises StateUnavailable, StateUnreadable."""
        return bool(self._logins.users.all() or all_followers(self._workspace.log.engine)[0])
