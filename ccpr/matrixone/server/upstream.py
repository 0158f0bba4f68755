"""One served upstream with its options, which the modules that answer statements share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NoReturn, Protocol, TypeAlias

from ccpr.matrixone.server.access import Login
from ccpr.matrixone.server.answers import Answer
from ccpr.matrixone.server.backing import Backing
from ccpr.matrixone.server.faults import Fault, FaultBox
from ccpr.matrixone.server.statements import Select
from ccpr.matrixone.server.status import Counters, Status

CHUNK_BYTES = 104_857_600
# The releases that can be imitated: 3.0 lacks the replication interface, 4.2 knows zero dates (docs/upstream.md).
Release: TypeAlias = Literal["3.0", "4.1", "4.2"]


# Raises what a server that ends answers to a statement of a kind, and to a `login`.
Ending: TypeAlias = Callable[[str], NoReturn]


class UserSql(Protocol):
    """Statements on a session's own tables. Used by one thread."""

    login: Login
    number: int

    @property
    def in_transaction(self) -> bool: ...

    def knows(self, text: str) -> str | None:
        """The kind under which a statement is counted; None if others may answer it."""
        ...

    def run(self, text: str, database: str) -> Answer:
        """Answer a statement, also one that neither `knows` nor anything else knows."""
        ...

    def reads(self, database: str, statement: Select) -> bool:
        """Whether the table is a user's."""
        ...

    def close(self) -> None: ...


@dataclass(eq=False)
class Upstream:
    """An upstream that is served.

    Attributes
    ----------
    chunk_bytes : of get_object; 100 MiB in MatrixOne.
    may_flush : whether mo_ctl is permitted.
    release : which MatrixOne's statements it answers; may change between two statements, as by an upgrade in place.
    sql : opens what answers a login's statements on user tables; None if user tables are not served.
    on_crash : called when the fault `Crash` strikes.
    ending : what is answered while the server ends; None while it serves.
    starts : how often it was started again. What was asked of it before is not executed any more.
    name : what the server calls itself in its messages.
    for_tests : whether faults are set and counters are shown by statements.
    """

    backing: Backing
    chunk_bytes: int = CHUNK_BYTES
    may_flush: bool = True
    sql: Callable[[Login], UserSql] | None = None
    release: Release = "4.1"
    faults: FaultBox = field(default_factory=FaultBox)
    counters: Counters = field(default_factory=Counters)
    on_crash: list[Callable[[], object]] = field(default_factory=list)
    ending: Ending | None = None
    starts: int = 0
    name: str = "emulator"
    for_tests: bool = True

    def crash(self) -> None:
        """Stop serving at once: the fault `Crash`."""
        for act in self.on_crash:
            act()

    def inject(self, *faults: Fault) -> None:
        times = (snapshot.ts for account in self.backing.accounts() for snapshot in self.backing.snapshots(account))
        self.faults.put(*faults, newest=max(times, default=0))

    def status(self) -> Status:
        names = (snapshot.name for account in self.backing.accounts() for snapshot in self.backing.snapshots(account))
        return self.counters.reading(self.backing.snapshots_created, tuple(names))
