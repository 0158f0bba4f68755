"""What the answering modules share: one replayed upstream with its options."""

from dataclasses import dataclass, field

from emulator.faults import FaultBox
from emulator.recording import Recording
from emulator.state import State
from emulator.status import Counters, Status

CHUNK_BYTES = 104_857_600


@dataclass(frozen=True)
class Upstream:
    """A replayed upstream.

    Attributes
    ----------
    chunk_bytes : of get_object; the real one's is fixed at 100 MiB.
    may_flush : whether mo_ctl is allowed.
    strict_publication : whether only the recorded publication name exists.
    """

    recording: Recording
    state: State
    chunk_bytes: int = CHUNK_BYTES
    may_flush: bool = True
    strict_publication: bool = False
    faults: FaultBox = field(default_factory=FaultBox)
    counters: Counters = field(default_factory=Counters)

    def status(self) -> Status:
        return self.counters.reading(self.state.created, tuple(snapshot.name for snapshot in self.state.snapshots()))
