"""What the answering modules share: one upstream with its options."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from wire.access import Login
from wire.backing import Backing
from wire.faults import FaultBox
from wire.server import Done, ResultSet
from wire.statements import Select
from wire.status import Counters, Status

CHUNK_BYTES = 104_857_600


class UserSql(Protocol):
    """Statements on a session's own tables. Used by one thread."""

    login: Login

    @property
    def in_transaction(self) -> bool: ...

    def knows(self, text: str) -> str | None:
        """The kind under which a statement is counted, if it is answered by `run`."""
        ...

    def run(self, text: str, database: str) -> ResultSet | Done: ...

    def reads(self, database: str, statement: Select) -> bool: ...

    def select(self, database: str, statement: Select) -> ResultSet: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Upstream:
    """An upstream that is served.

    Attributes
    ----------
    chunk_bytes : of get_object; the real one's is fixed at 100 MiB.
    may_flush : whether mo_ctl is allowed.
    on_crash : what a crash stops.
    sql : makes what answers a login's statements on tables of its own; None where there are none.
    """

    backing: Backing
    chunk_bytes: int = CHUNK_BYTES
    may_flush: bool = True
    sql: Callable[[Login], UserSql] | None = None
    faults: FaultBox = field(default_factory=FaultBox)
    counters: Counters = field(default_factory=Counters)
    on_crash: list[Callable[[], object]] = field(default_factory=list)

    def crash(self) -> None:
        """What is served stops at once: the fault `Crash`."""
        for act in self.on_crash:
            act()

    def status(self) -> Status:
        names = (snapshot.name for account in self.backing.accounts() for snapshot in self.backing.snapshots(account))
        return self.counters.reading(self.backing.snapshots_created, tuple(names))
