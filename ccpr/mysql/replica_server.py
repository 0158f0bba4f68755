"""The replicas of a state folder for MySQL clients, as a component of `ccpr serve`: where it listens, who may log in,
and how many at once."""

import threading
from collections.abc import Collection

from ccpr.base.loops import Guard
from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.guesses import Guesses
from ccpr.matrixone.server.server import Server
from ccpr.mysql.query_runner import QueryLimits
from ccpr.mysql.replica_session import ReplicaSession
from ccpr.mysql.replicas import Replicas
from ccpr.relay.relay_server import Listen, listening
from ccpr.service.workspace import Workspace

MOST_CONNECTIONS, MOST_SESSIONS = 256, 64
MOST_STATEMENT_BYTES = 1024 * 1024
EACH_SECONDS = 1.0


class ReplicaServer:
    """Serves from `start` to `stop` (`ccpr.serve.listening.Component`). The logins are those of the relay.

    Parameters
    ----------
    operators : the logins that may change subscriptions.
    """

    def __init__(
        self, workspace: Workspace, listen: Listen, operators: Collection[str] = (), limits: QueryLimits | None = None
    ) -> None:
        self._replicas, self._listen = Replicas(workspace), listen
        self._operators = {name.lower() for name in operators}
        self._limits = limits or QueryLimits()
        self._lock, self._sessions = threading.Lock(), dict[int, ReplicaSession]()
        self._server: Server | None = None
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._look_after, name="sql-points", daemon=True)

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"{self._listen.host}:{self._server.port}"

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.port

    def start(self) -> None:
        """Raises RelayListen, RelayTls, StateUnreadable."""
        self._replicas.end_left_pins()
        self._server = listening(
            self,
            self._listen,
            self._replicas.users.digest,
            Guesses(),
            sessions=MOST_SESSIONS,
            connections=MOST_CONNECTIONS,
            statement_bytes=MOST_STATEMENT_BYTES,
        )
        self._server.start()
        self._keeper.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._server is not None:
            gone = StatementError(1053, "Server shutdown in progress", "08S01")
            for session in list(self._sessions.values()):
                session.interrupt(gone)
            self._server.stop()
            self._replicas.let_go(at_once=True)

    def trouble(self) -> str | None:
        """Why no client can log in at this moment; None if clients can."""
        return None if self._server is None else self._server.trouble

    def has_logins(self) -> bool:
        """Whether any login can be used. Raises StateUnavailable, StateUnreadable."""
        return bool(self._replicas.users.all())

    # ---- sessions

    def open(self, user: str, connection_id: int) -> ReplicaSession:
        """See `ccpr.matrixone.server.connection.Engine`."""
        login = user.lower()
        session = ReplicaSession(
            self._replicas, self, self._limits, login, connection_id, is_operator=login in self._operators
        )
        with self._lock:
            self._sessions[connection_id] = session
        return session

    def closed(self, session: ReplicaSession) -> None:
        with self._lock:
            self._sessions.pop(session.number, None)

    def interrupt(self, number: int, asker: ReplicaSession, why: StatementError) -> None:
        """End the statement of another session of the same login, or, for an operator, of any."""
        with self._lock:
            found = self._sessions.get(number)
        if found is None:
            raise StatementError(1094, f"Unknown thread id: {number}")
        if found.user != asker.user and not asker.is_operator:
            raise StatementError(1095, f"You are not owner of thread {number}")
        found.interrupt(why)

    def _look_after(self) -> None:
        guard = Guard("points of MySQL clients")
        while not self._stopping.wait(EACH_SECONDS):
            guard.attempt("giving points back", self._replicas.let_go)
