"""Faults that a test can inject into the emulator, as plain values.

Pass them to `inject` of an emulator; or as text to `ccpr emulator --fault` and to ``SET EMULATOR FAULT = '…'`` on the
wire: the class's name in lower case and its fields, e.g. ``'cut_object after_bytes=1000'``, ``'delay
kind=object_list seconds=2 times=0'``, ``'crash kind=get_object'`` (see `parse_fault`); ``'none'`` clears all. A fault
strikes `times` times (0 = always). A fault that names an object or a kind of statement strikes only there; an empty
name means any. To remove a snapshot without the client use `RecordedUpstream.drop_snapshot`; to break every connection
`disconnect_all`; to stop, kill and start the server `ccpr_emulator.serving.served.ServedUpstream`.
"""

import re
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, TypeAlias, get_args


@dataclass(frozen=True, slots=True)
class CutObject:
    """The connection breaks after this many bytes of a chunk's row on the wire; shorter chunks are sent whole."""

    after_bytes: int
    object_name: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class CutObjectList:
    """The connection breaks in the middle of a row, after `after_rows` rows of an object list; shorter lists are sent
    whole."""

    after_rows: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class WrongTotalSize:
    """`total_size` of every chunk, including the metadata chunk 0, is wrong by `difference` bytes."""

    difference: int
    object_name: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class WrongTotalChunks:
    """`total_chunks` is wrong by `difference`."""

    difference: int
    object_name: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class WrongChunkLength:
    """The data of a chunk is shorter (`difference` < 0) than it should be, or longer, by zero bytes at its end."""

    difference: int
    object_name: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class DamagedByte:
    """The byte at `offset` of a chunk's data is inverted; lengths stay correct."""

    offset: int
    object_name: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class MissingObject:
    """get_object answers 20405, as for an object that was garbage collected."""

    object_name: str
    times: int = 0


@dataclass(frozen=True, slots=True)
class FailStatement:
    """A statement of this kind (see `Status.statements`, e.g. `object_list`, `create_snapshot`) is answered with this
    error.

    With `after_effect` the statement is executed first, with `later` so many seconds after the answer, unless the
    server is stopped before: the client cannot know its outcome.
    """

    kind: str
    number: int = 20101
    text: str = "internal error: asked for by a test"
    after_effect: bool = False
    times: int = 1
    later: float = 0.0


@dataclass(frozen=True, slots=True)
class CutStatement:
    """The connection breaks instead of the answer to a statement of this kind; with `after_effect` the statement is
    executed before, with `later` so many seconds afterwards, unless the server is stopped before."""

    kind: str
    after_effect: bool = False
    times: int = 1
    later: float = 0.0


@dataclass(frozen=True, slots=True)
class Delay:
    """A statement of this kind is executed and answered `seconds` later."""

    kind: str
    seconds: float
    times: int = 1


@dataclass(frozen=True, slots=True)
class Hold:
    """Statements of this kind that arrive within `seconds` from now wait until then, or until the faults are cleared,
    as for a lock; then they are executed, whether their clients still wait or not."""

    kind: str
    seconds: float
    times: int = 0


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The connection breaks after this many bytes of the rows of an answer to a statement of this kind; at the end of
    a shorter answer, and before an answer without rows."""

    after_bytes: int
    kind: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class StaleRead:
    """An object list against an older snapshot is answered with 22101: the upstream's history no longer reaches back
    to it."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class SnapshotCollected:
    """A snapshot is not found (20101, "find 0 snapshot records"), although it was not dropped."""

    name: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class RefuseLogins:
    """New logins are refused with 1040 for `seconds` from now on."""

    seconds: float
    times: int = 0


@dataclass(frozen=True, slots=True)
class FailLogin:
    """A new login is answered with this error."""

    number: int = 1815
    text: str = "context canceled"
    times: int = 1


@dataclass(frozen=True, slots=True)
class CutLogin:
    """The connection breaks in the middle of a login."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class EmptyPast:
    """For `seconds` from now on the server finds nothing at times that are not later than the newest snapshot of now:
    catalogs there are empty, without an error (docs/reference/emulator.md, "A past that is lost")."""

    seconds: float
    times: int = 0


@dataclass(frozen=True, slots=True)
class NoCheckpoints:
    """The same, but for the errors: 20101 "No available checkpoints for snapshot read". Snapshots that are taken
    meanwhile are not found until it is over."""

    seconds: float
    times: int = 0


@dataclass(frozen=True, slots=True)
class Crash:
    """The server stops and breaks all connections when a statement of this kind arrives (`after_effect`: when it has
    been executed)."""

    kind: str = ""
    after_effect: bool = False
    times: int = 1


ObjectFault: TypeAlias = CutObject | WrongTotalSize | WrongTotalChunks | WrongChunkLength | DamagedByte | MissingObject
StatementFault: TypeAlias = FailStatement | CutStatement | CutAnswer | Delay | Crash
LoginFault: TypeAlias = FailLogin | CutLogin
LostPast: TypeAlias = EmptyPast | NoCheckpoints
TimedFault: TypeAlias = RefuseLogins | Hold | LostPast  # from now on, for so many seconds
Fault: TypeAlias = (
    ObjectFault | StatementFault | CutObjectList | StaleRead | SnapshotCollected | LoginFault | TimedFault
)
KINDS: Final[tuple[type[Any], ...]] = get_args(Fault)
_CONVERTERS: Final[dict[Any, Callable[[str], Any]]] = {
    int: int,
    float: float,
    str: str,
    bool: lambda text: text.lower() in ("1", "true", "yes"),
}


def parse_fault(text: str) -> Fault | None:
    """A fault from text: its name and ``field=value`` pairs, values with blanks in quotes. None for ``none``. Raises
    ValueError."""
    words = shlex.split(text)
    if words == ["none"]:
        return None
    named = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in KINDS}
    if not words or words[0] not in named:
        raise ValueError(f"a fault is one of: none, {', '.join(named)}")
    known = {field.name: field for field in fields(named[words[0]])}
    given: dict[str, Any] = {}
    for word in words[1:]:
        name, equal, value = word.partition("=")
        if not equal or name not in known:
            raise ValueError(f"{words[0]} has the fields {', '.join(known)}, not {word!r}")
        given[name] = _CONVERTERS[known[name].type](value)
    missing = [name for name, field in known.items() if field.default is MISSING and name not in given]
    if missing:
        raise ValueError(f"{words[0]} needs {', '.join(missing)}")
    return named[words[0]](**given)


class FaultBox:
    """The faults that can still strike. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: list[tuple[Fault, int]] = []  # a fault and how many times it will still strike; -1 = always
        self._timed: list[tuple[TimedFault, float, int]] = []  # when it ends; the time that is past for it
        self._cleared = threading.Event()

    def put(self, *faults: Fault, newest: int = 0) -> None:
        """`newest` is the time of the newest snapshot, up to which a past may be lost."""
        with self._lock:
            now = time.monotonic()
            for fault in faults:
                if isinstance(fault, TimedFault):
                    self._timed.append((fault, now + fault.seconds, newest))
                else:
                    self._left.append((fault, fault.times or -1))

    @property
    def left(self) -> bool:
        """Whether a fault has not struck as often as it will; of those that do not always strike."""
        with self._lock:
            return any(left > 0 for _, left in self._left)

    @property
    def refuses_logins(self) -> bool:
        return any(isinstance(fault, RefuseLogins) for fault, _, _ in self._lasting())

    @property
    def lost_past(self) -> tuple[LostPast, int] | None:
        """What is lost now, and up to which time in nanoseconds since 1970."""
        found = ((fault, newest) for fault, _, newest in self._lasting() if isinstance(fault, LostPast))
        return next(found, None)

    def hold(self, kind: str) -> bool:
        """Wait until statements of this kind are held no more. Returns whether they were."""
        ends = [end for fault, end, _ in self._lasting() if isinstance(fault, Hold) and fault.kind == kind]
        if ends:
            self.delay(max(ends) - time.monotonic())
        return bool(ends)

    def _lasting(self) -> list[tuple[TimedFault, float, int]]:
        with self._lock:
            now = time.monotonic()
            return [one for one in self._timed if one[1] > now]

    def clear(self) -> None:
        """Remove all faults; delayed statements continue at once."""
        with self._lock:
            self._left.clear()
            self._timed.clear()
            self._cleared.set()
            self._cleared = threading.Event()

    def delay(self, seconds: float) -> None:
        """Wait for `seconds`, or until the faults are cleared."""
        self._cleared.wait(seconds)

    def strike(self, applies: Callable[[Fault], bool]) -> list[Fault]:
        """The faults that apply, in the order in which they were put; each of them has struck once more."""
        with self._lock:
            struck = [fault for fault, _ in self._left if applies(fault)]
            self._left = [
                (fault, left - (fault in struck)) for fault, left in self._left if fault not in struck or left != 1
            ]
            return struck
