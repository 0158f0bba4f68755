"""What the answering modules share: one upstream with its options."""

from dataclasses import dataclass, field

from emulator.backing import Backing
from emulator.faults import FaultBox
from emulator.status import Counters, Status

CHUNK_BYTES = 104_857_600


@dataclass(frozen=True)
class Upstream:
    """An upstream that is served.

    Attributes
    ----------
    chunk_bytes : of get_object; the real one's is fixed at 100 MiB.
    may_flush : whether mo_ctl is allowed.
    """

    backing: Backing
    chunk_bytes: int = CHUNK_BYTES
    may_flush: bool = True
    faults: FaultBox = field(default_factory=FaultBox)
    counters: Counters = field(default_factory=Counters)

    def status(self) -> Status:
        names = (snapshot.name for account in self.backing.accounts() for snapshot in self.backing.snapshots(account))
        return self.counters.reading(self.backing.snapshots_created, tuple(names))
