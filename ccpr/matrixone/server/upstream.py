"""One served upstream with its options, which the modules that answer statements share."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ccpr.matrixone.server.backing import Backing
from ccpr.matrixone.server.server_status import ServerCounters, ServerStatus

CHUNK_BYTES = 104_857_600
# The releases whose statements can be answered: 3.0 lacks the replication interface, 4.2 knows zero dates.
Release: TypeAlias = Literal["3.0", "4.1", "4.2"]


@dataclass(eq=False)
class Upstream:
    """An upstream that is served.

    Attributes
    ----------
    chunk_bytes : of get_object; 100 MiB in MatrixOne.
    may_flush : whether mo_ctl is permitted.
    release : which MatrixOne's statements it answers; may change between two statements, as by an upgrade in place.
    counters : of all its sessions.
    name : what the server calls itself in its messages.
    """

    backing: Backing
    chunk_bytes: int = CHUNK_BYTES
    may_flush: bool = True
    release: Release = "4.1"
    counters: ServerCounters = field(default_factory=ServerCounters)
    name: str = "emulator"

    def status(self) -> ServerStatus:
        names = (snapshot.name for account in self.backing.accounts() for snapshot in self.backing.snapshots(account))
        return self.counters.reading(self.backing.snapshots_created, tuple(names))
