"""The relay of a state folder as a component of a service, for `ccpr relay serve` and `ccpr serve --relay` alike."""

from matrixone.upstream.publication import EVERYTHING
from relay.backing import StateFolder
from relay.logins import Logins
from relay.offers import Offers, Quiet
from relay.server import Listen, Relay
from replication.service.relay_marks import RelayMark
from replication.service.workspace import Workspace
from replication.state.followers import all_followers
from wire.status import Status


class RelayService:
    """Serves all subscriptions of a state folder from `start` to `stop` (`replication.daemon.listening.Component`)."""

    def __init__(self, workspace: Workspace, listen: Listen) -> None:
        self._workspace, self._listen = workspace, listen
        self._logins, self._served = Logins(workspace), StateFolder(Offers(workspace))
        self._relay: Relay | None = None
        self._mark: RelayMark | None = None

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

    def stop(self) -> None:
        if self._mark is not None:
            self._mark.remove()
        if self._relay is not None:
            self._relay.stop()

    def counted(self) -> Status:
        """What was asked and served; without snapshots, for which the state database would be asked."""
        assert self._relay is not None
        return self._relay.upstream.counters.reading(0, ())

    @property
    def refused(self) -> int:
        """How many connections were refused since there were too many."""
        return 0 if self._relay is None else self._relay.refused

    @property
    def wrong_passwords(self) -> int:
        return 0 if self._relay is None else self._relay.wrong_passwords

    def trouble(self) -> str | None:
        """Why nobody can log in at this moment; None if everybody can."""
        return None if self._relay is None else self._relay.trouble

    def quiet(self, publication: str) -> Quiet:
        """See `relay.watching.Watcher`."""
        return self._served.offers.quiet(publication)

    def left_out(self) -> list[str]:
        """The names of the subscriptions to several databases, which are not served. Raises StateUnavailable,
        StateUnreadable."""
        return sorted(row.subscription_name for row in self._workspace.log.all_rows()[0] if row.db_name == EVERYTHING)

    def has_logins(self) -> bool:
        """Whether anybody can log in. Raises StateUnavailable, StateUnreadable."""
        return bool(self._logins.users.all() or all_followers(self._workspace.log.engine)[0])
