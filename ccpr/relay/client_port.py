"""A port at which strangers log in: the relay's, and that for MySQL clients. Where it listens, who may log in, and how
many at once."""

import ipaddress
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ccpr.base.loops import Loop
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.connection import Engine
from ccpr.matrixone.server.server import Server
from ccpr.matrixone.server.wrong_passwords import Guesses
from ccpr.relay.errors import RelayListen, RelayTls
from ccpr.serve.listening import for_strangers
from ccpr.service.running import PortMark

STALLED_SECONDS = 900.0  # a MatrixOne closes its connections after three minutes
MOST_LOGINS = 32  # connections of one address that have not logged in yet
_STOP_SECONDS = 5.0
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
                    "TLS. In `ccpr serve` these options begin with --relay-, --sql- or --catalog-.",
                )
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise RelayTls(f"it cannot be used: {error}", subject=str(self.certificate)) from error
        return context


class ClientPort:
    """It serves from `start` to `stop` (`ccpr.serve.listening.Component`).

    Parameters
    ----------
    digest : the `ccpr.matrixone.server.wrong_passwords.password_digest` of the password of a login, by the name that a
        client gives; None for one that does not exist.
    sessions, connections : the most of each at once.
    mark : tells other processes where it listens, while it does.
    keeper : what is done beside, while it serves.
    """

    def __init__(
        self,
        engine: Engine,
        listen: Listen,
        digest: Callable[[str], bytes | None],
        *,
        sessions: int,
        connections: int,
        statement_bytes: int,
        mark: Callable[[str], PortMark] | None = None,
        keeper: Loop | None = None,
    ) -> None:
        self._engine, self._listen, self._digest, self._keeper = engine, listen, digest, keeper
        self._most, self._statement_bytes = (sessions, connections), statement_bytes
        self._guesses, self._make_mark = Guesses(), mark
        self._server: Server | None = None
        self.mark: PortMark | None = None
        self._stopped = False

    @property
    def server(self) -> Server:
        assert self._server is not None, "it has not started"
        return self._server

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self._listen.host}:{self.port}"

    @property
    def sessions(self) -> int:
        """How many are open."""
        return 0 if self._server is None else self._server.open_sessions

    @property
    def refused(self) -> int:
        """How many connections were refused since there were too many."""
        return 0 if self._server is None else self._server.refused

    @property
    def wrong_passwords(self) -> int:
        return self._guesses.wrong_passwords

    def trouble(self) -> str | None:
        """Why no client can log in at this moment; None if clients can."""
        kept = None if self._keeper is None else self._keeper.trouble()
        return kept if self._server is None else self._server.trouble or kept

    def start(self) -> None:
        """Raises RelayListen, RelayTls, StateUnreadable."""
        self._server = self._opened()
        self._server.start()
        try:
            if self._make_mark is not None:
                self.mark = self._make_mark(self.address)
        except BaseException:
            self.stop()
            raise
        if self._keeper is not None:
            self._keeper.start()

    def stop(self) -> None:
        """End every connection and wait for the threads. May be called twice."""
        mark, server, self.mark = self.mark, self._server, None
        if self._keeper is not None:
            self._keeper.stop(_STOP_SECONDS)
        if mark is not None:
            mark.remove()
        if server is not None and not self._stopped:
            self._stopped = True
            server.stop()

    def _opened(self) -> Server:
        tls, (sessions, connections) = self._listen.context(), self._most
        try:
            return Server(
                self._engine,
                port=self._listen.port,
                host=self._listen.host,
                tls=tls,
                require_tls=tls is not None and not self._listen.insecure,
                digests=self._known,
                guesses=self._guesses,
                max_sessions=sessions,
                max_connections=for_strangers(connections),
                max_logins=MOST_LOGINS,
                max_packet_bytes=self._statement_bytes,
                stalled_seconds=STALLED_SECONDS,
            )
        except OSError as error:
            message = f"it cannot listen there: {error.strerror or error}"
            raise RelayListen(message, subject=f"address {self._listen.host}:{self._listen.port}") from error

    def _known(self, user: str) -> bytes | None:
        try:
            return self._digest(user)
        except CcprError as error:
            _log.warning("a login was refused: %s", error)
            raise StatementError(1040, f"logins cannot be checked now: {error.code}", "08004") from error
