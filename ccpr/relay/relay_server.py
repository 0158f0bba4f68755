"""The relay as a server: where it listens, who may log in, and how errors of ours are said.

Start it with `start`, and end it with `stop`; it runs in threads of this process.
"""

import ipaddress
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.access import Login, parse_login
from ccpr.matrixone.server.answers import Answer, StatementError
from ccpr.matrixone.server.backing import Backing
from ccpr.matrixone.server.backing import internal as internal_error
from ccpr.matrixone.server.connection import Engine
from ccpr.matrixone.server.guesses import Guesses
from ccpr.matrixone.server.server import Server
from ccpr.matrixone.server.server_session import UpstreamSession
from ccpr.matrixone.server.upstream import CHUNK_BYTES, ServerStatus, Upstream
from ccpr.relay.errors import RelayListen, RelayTls
from ccpr.relay.mirror_publication import error_text
from ccpr.serve.descriptors import for_strangers
from ccpr.state.settings import MOST_SESSIONS

DEFAULT_ADDRESS = "127.0.0.1:6002"
STALLED_SECONDS = 900.0  # a MatrixOne closes its connections after three minutes
MOST_CONNECTIONS = 512
MOST_STATEMENT_BYTES = 256 * 1024  # a MatrixOne sends some hundreds
MOST_LOGINS = 32  # connections of one address that have not logged in yet
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a relay listens, and how it is protected.

    Attributes
    ----------
    host, port : 0 for a free port.
    certificate, key : PEM files for TLS; None = without. The key may be in the certificate's file.
    insecure : logins without TLS are accepted although others than this machine reach it.
    """

    host: str = "127.0.0.1"
    port: int = 6002
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @classmethod
    def parse(
        cls, text: str, certificate: Path | None = None, key: Path | None = None, *, insecure: bool = False
    ) -> Self:
        """From HOST:PORT. Raises RelayListen."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or int(port) > 0xFFFF:
            raise RelayListen("not an address of the form HOST:PORT", subject=f"address {text[:200]!r}")
        return cls(host, int(port), certificate, key, insecure)

    def context(self) -> ssl.SSLContext | None:
        """Raises RelayListen for a place that others reach without protection, RelayTls."""
        if self.certificate is None:
            if self.key is not None:
                raise RelayTls("there is a key without a certificate", subject=str(self.key))
            if not self.is_loopback and not self.insecure:
                raise RelayListen(
                    "others than this machine would read the data on the way",
                    subject=f"address {self.host}:{self.port}",
                    remedy="Give --tls-cert FILE and --tls-key FILE, or listen on 127.0.0.1 and use a tunnel. In a "
                    "network that you trust: --insecure, which a MatrixOne as a downstream needs, since it uses no "
                    "TLS. In `ccpr serve` these options begin with --relay- or --sql-.",
                )
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise RelayTls(f"it cannot be used: {error}", subject=str(self.certificate)) from error
        return context


def listening(
    engine: Engine,
    listen: Listen,
    digest: Callable[[str], bytes | None],
    guesses: Guesses,
    *,
    sessions: int,
    connections: int,
    statement_bytes: int,
) -> Server:
    """A server for strangers: it has its port, and answers once it is started. Raises RelayListen, RelayTls.

    Parameters
    ----------
    digest : see `Relay`, by the name that a client logs in with.
    sessions, connections : the most of each at once.
    """

    def known(user: str) -> bytes | None:
        try:
            return digest(user)
        except CcprError as error:
            _log.warning("a login was refused: %s", error)
            raise StatementError(1040, f"logins cannot be checked now: {error.code}", "08004") from error

    tls = listen.context()
    try:
        return Server(
            engine,
            port=listen.port,
            host=listen.host,
            tls=tls,
            require_tls=tls is not None and not listen.insecure,
            digests=known,
            guesses=guesses,
            max_sessions=sessions,
            max_connections=for_strangers(connections),
            max_logins=MOST_LOGINS,
            max_packet_bytes=statement_bytes,
            stalled_seconds=STALLED_SECONDS,
        )
    except OSError as error:
        message = f"it cannot listen there: {error.strerror or error}"
        raise RelayListen(message, subject=f"address {listen.host}:{listen.port}") from error


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


class Relay:
    """Serves a backing. Raises RelayListen, RelayTls.

    Parameters
    ----------
    digest : the `ccpr.matrixone.server.guesses.password_digest` of a user's password; None for a user that does not
        exist.
    seen_by : what a user's statements are answered from; by default the backing, for all.
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
    ) -> None:
        self.upstream = Upstream(backing, chunk_bytes, release="4.2", name="relay")
        self._seen_by, self._stopped, self._guesses = seen_by, False, Guesses()
        self._server = listening(
            self,
            listen,
            lambda user: digest(_login(user).user),
            self._guesses,
            sessions=sessions,
            connections=MOST_CONNECTIONS,
            statement_bytes=MOST_STATEMENT_BYTES,
        )

    @property
    def port(self) -> int:
        return self._server.port

    def open(self, user: str, connection_id: int) -> RelaySession:
        """See `ccpr.matrixone.server.connection.Engine`."""
        login, upstream = _login(user), self.upstream
        if self._seen_by is not None:
            upstream = replace(upstream, backing=self._seen_by(login.user))
        return RelaySession(upstream, login, connection_id)

    @property
    def refused(self) -> int:
        """How many connections were refused since there were too many."""
        return self._server.refused

    @property
    def wrong_passwords(self) -> int:
        return self._guesses.wrong_passwords

    @property
    def trouble(self) -> str | None:
        """Why no client can log in at this moment; None if clients can."""
        return self._server.trouble

    def status(self) -> ServerStatus:
        """What was asked and served."""
        return self.upstream.counters.reading()

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        """End every connection and wait for the threads. May be called twice."""
        if not self._stopped:
            self._stopped = True
            self._server.stop()

    def disconnect_all(self) -> int:
        return self._server.disconnect_all()

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
