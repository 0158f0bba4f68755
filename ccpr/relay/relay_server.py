"""The relay as a server: its sessions, and how errors of ours are said. It runs in threads of this process, for `ccpr
relay serve` and `ccpr serve --relay` alike."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

from ccpr.base.loops import Loop
from ccpr.matrixone.client.endpoint import EVERYTHING
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.answers import Answer, StatementError
from ccpr.matrixone.server.backing import Backing, Login, parse_login
from ccpr.matrixone.server.backing import internal as internal_error
from ccpr.matrixone.server.server_session import UpstreamSession
from ccpr.matrixone.server.upstream import CHUNK_BYTES, ServerStatus, Upstream
from ccpr.relay.client_port import ClientPort, Listen
from ccpr.relay.mirror_publication import error_text
from ccpr.relay.offers import Logins, Offers, Quiet
from ccpr.relay.relay_backing import StateFolder
from ccpr.service.running import RELAYS, PortMark
from ccpr.service.workspace import Workspace
from ccpr.state.settings import MOST_SESSIONS

DEFAULT_ADDRESS = "127.0.0.1:6002"
MOST_CONNECTIONS = 512
MOST_STATEMENT_BYTES = 256 * 1024  # a MatrixOne sends some hundreds
_log = logging.getLogger(__name__)


class RelaySession(UpstreamSession):
    """A login of the relay. What raises an error of ours is answered with its code."""

    def query(self, text: bytes) -> Answer | None:
        try:
            return super().query(text)
        except CcprError as error:
            _log.warning("%s: %s", self.login.user, error)
            raise internal_error(error_text(error)) from error

    def use(self, database: str) -> None:
        try:
            super().use(database)
        except CcprError as error:
            raise internal_error(error_text(error)) from error


class Relay(ClientPort):
    """Serves a backing.

    Parameters
    ----------
    digest : by the name of a user.
    seen_by : what a user's statements are answered from; by default the backing, for all.
    port : further ones of `ClientPort`.
    """

    def __init__(
        self,
        backing: Backing,
        digest: Callable[[str], bytes | None],
        listen: Listen,
        *,
        seen_by: Callable[[str], Backing] | None = None,
        sessions: int = MOST_SESSIONS,
        chunk_bytes: int = CHUNK_BYTES,
        **port: Any,
    ) -> None:
        self.upstream = Upstream(backing, chunk_bytes, release="4.2", name="relay")
        self._seen_by = seen_by
        super().__init__(
            self,
            listen,
            lambda user: digest(_login(user).user),
            sessions=sessions,
            connections=MOST_CONNECTIONS,
            statement_bytes=MOST_STATEMENT_BYTES,
            **port,
        )

    def open(self, user: str, connection_id: int) -> RelaySession:
        """See `ccpr.matrixone.server.connection.Engine`."""
        login, upstream = _login(user), self.upstream
        if self._seen_by is not None:
            upstream = replace(upstream, backing=self._seen_by(login.user))
        return RelaySession(upstream, login, connection_id)

    def status(self) -> ServerStatus:
        """What was asked and served."""
        return self.upstream.counters.reading()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _login(user: str) -> Login:
    """Of account sys, which is the only one."""
    login = parse_login(user)
    if not login.is_sys:
        raise StatementError(1045, f"Access denied for user '{user}': a relay has account sys only", "28000")
    return login


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
