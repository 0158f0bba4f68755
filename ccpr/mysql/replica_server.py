"""The replicas of a state folder for MySQL clients, as a component of `ccpr serve`."""

import threading
from functools import partial

from ccpr.base.loops import Loop
from ccpr.matrixone.server.answers import StatementError
from ccpr.mysql.query_runner import QueryLimits
from ccpr.mysql.replica_session import ReplicaSession
from ccpr.mysql.replicas import Replicas
from ccpr.mysql.sql_metrics import RESULTS, SqlMetrics, StatementCounts
from ccpr.relay.client_port import ClientPort, Listen
from ccpr.service.running import SQL_PORTS, PortMark
from ccpr.service.workspace import Workspace

MOST_CONNECTIONS, MOST_SESSIONS = 256, 64
MOST_STATEMENT_BYTES = 1024 * 1024
EACH_SECONDS = 1.0


class ReplicaServer(ClientPort):
    """Its logins are those of readers and operators."""

    def __init__(self, workspace: Workspace, listen: Listen, limits: QueryLimits | None = None) -> None:
        self._replicas, self._limits = Replicas(workspace), limits or QueryLimits()
        self._lock, self._logged_in, counts = threading.Lock(), dict[int, ReplicaSession](), StatementCounts()
        self._counts, self.metrics = counts, SqlMetrics(self, counts)
        self._loop = Loop("sql-points", self._look_after)
        super().__init__(
            self,
            listen,
            self._replicas.digest,
            sessions=MOST_SESSIONS,
            connections=MOST_CONNECTIONS,
            statement_bytes=MOST_STATEMENT_BYTES,
            mark=partial(PortMark, workspace.home, SQL_PORTS),
            keeper=self._loop,
        )

    def start(self) -> None:
        self._replicas.end_left_pins()
        super().start()

    def stop(self) -> None:
        gone = StatementError(1053, "Server shutdown in progress", "08S01")
        with self._lock:
            sessions = list(self._logged_in.values())
        for session in sessions:
            session.interrupt(gone)
        super().stop()
        self._replicas.let_go(at_once=True)
        self._limits.engines.close()

    # ---- sessions

    def open(self, user: str, connection_id: int) -> ReplicaSession:
        """See `ccpr.matrixone.server.connection.Engine`."""
        address = self.server.address_of(connection_id)
        session = ReplicaSession(self._replicas, self, self._limits, self._counts, user.lower(), connection_id, address)
        with self._lock:
            self._logged_in[connection_id] = session
        return session

    def closed(self, session: ReplicaSession) -> None:
        with self._lock:
            self._logged_in.pop(session.number, None)

    def interrupt(self, number: int, asker: ReplicaSession, why: StatementError) -> None:
        """End the statement of another session of the same login, or, for an operator, of any."""
        with self._lock:
            found = self._logged_in.get(number)
        if found is None:
            raise StatementError(1094, f"Unknown thread id: {number}")
        if found.user != asker.user and not asker.is_operator:
            raise StatementError(1095, f"You are not owner of thread {number}")
        found.interrupt(why)

    def _look_after(self) -> None:
        while not self._loop.ending.wait(EACH_SECONDS):
            self._loop.attempt("giving points back", self._replicas.let_go)
            self._loop.attempt("noting what was counted", self._note)

    def _note(self) -> None:
        results, mark = self._counts.results, self.mark
        if mark is not None:
            counts = {
                "connections": self.sessions,
                "statements": sum(results[name] for name in RESULTS),
                "refused": results["refused"] + self.refused,
                "wrong passwords": self.wrong_passwords,
            }
            mark.note(counts)
