"""An upstream of a test with its options: what it does to statements on user tables, faults, and what has arrived."""

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import NoReturn, Protocol, TypeAlias, cast

from ccpr.matrixone.server.answers import Answer
from ccpr.matrixone.server.backing import Backing, Login
from ccpr.matrixone.server.statements import Select
from ccpr.matrixone.server.upstream import Release, ServerStatus, Upstream
from ccpr_emulator.serving.faults import Fault, FaultBox

LOG_STATEMENTS = 10_000
LOG_CHARACTERS = 2000

# Raises what a server that ends answers to a statement of a kind, and to a `login`.
Ending: TypeAlias = Callable[[str], NoReturn]


@dataclass(frozen=True, slots=True)
class Logged:
    """A statement that arrived: the session's number (from 1), account and user, the kind, the text (at most 2,000
    characters)."""

    session: int
    login: str
    kind: str
    text: str


class UserSql(Protocol):
    """Statements on a session's own tables. Used by one thread."""

    login: Login
    number: int
    release: Release

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


class EmulatedBacking(Backing, Protocol):
    """One that counts the snapshots that were created: the recording's position."""

    @property
    def snapshots_created(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EmulatorStatus(ServerStatus):
    """
    Attributes
    ----------
    snapshots_created : how many snapshots were created.
    snapshots : names of those that exist.
    """

    snapshots_created: int
    snapshots: tuple[str, ...]


@dataclass(eq=False)
class EmulatedUpstream(Upstream):
    """An upstream of a test.

    Attributes
    ----------
    sql : opens what answers a login's statements on user tables; None if user tables are not served.
    on_crash : called when the fault `Crash` strikes.
    ending : what is answered while the server ends; None while it serves.
    starts : how often it was started again. What was asked of it before is not executed any more.
    log : the last statements, oldest first.
    """

    sql: Callable[[Login], UserSql] | None = None
    faults: FaultBox = field(default_factory=FaultBox)
    on_crash: list[Callable[[], object]] = field(default_factory=list)
    ending: Ending | None = None
    starts: int = 0
    log: deque[Logged] = field(default_factory=lambda: deque(maxlen=LOG_STATEMENTS))

    def status(self) -> EmulatorStatus:
        names = (snapshot.name for account in self.backing.accounts() for snapshot in self.backing.snapshots(account))
        created = cast(EmulatedBacking, self.backing).snapshots_created
        return EmulatorStatus(**asdict(self.counters.reading()), snapshots_created=created, snapshots=tuple(names))

    def crash(self) -> None:
        """Stop serving at once: the fault `Crash`."""
        for act in self.on_crash:
            act()

    def inject(self, *faults: Fault) -> None:
        times = (snapshot.ts for account in self.backing.accounts() for snapshot in self.backing.snapshots(account))
        self.faults.put(*faults, newest=max(times, default=0))
