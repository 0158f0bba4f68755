"""Faults that a test can ask of the emulator, as plain data.

Give them to `Emulator.inject`. A fault strikes `times` times (0 = always) and then is spent. Faults that name an object or a statement
strike only there; an empty name means any. To take a snapshot away behind the client's back use `Emulator.drop_snapshot`; to break every
connection `Emulator.disconnect_all`.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class CutObject:
    """The connection breaks after this many bytes of a chunk's row on the wire (chunks shorter than that pass whole)."""

    after_bytes: int
    object_name: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class CutObjectList:
    """The connection breaks in the middle of the row after `after_rows` rows of an object list (shorter lists pass whole)."""

    after_rows: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class WrongTotalSize:
    """`total_size` of every chunk, the metadata chunk 0 included, is off by `difference` bytes."""

    difference: int
    object_name: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class WrongTotalChunks:
    """`total_chunks` is off by `difference`."""

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
    """The byte at `offset` of a chunk's data is flipped; lengths stay right."""

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
    """A statement of this kind (see `Status.statements`, e.g. `object_list`, `create_snapshot`) gets this error instead of its answer.

    With `after_effect` the statement does its work first: the client cannot know its outcome.
    """

    kind: str
    number: int = 20101
    text: str = "internal error: asked for by a test"
    after_effect: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class CutStatement:
    """The connection breaks instead of the answer to a statement of this kind; with `after_effect` the statement did its work before."""

    kind: str
    after_effect: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class Delay:
    """A statement of this kind is answered `seconds` later."""

    kind: str
    seconds: float
    times: int = 1


ObjectFault: TypeAlias = CutObject | WrongTotalSize | WrongTotalChunks | WrongChunkLength | DamagedByte | MissingObject
StatementFault: TypeAlias = FailStatement | CutStatement | Delay
Fault: TypeAlias = ObjectFault | StatementFault | CutObjectList


class FaultBox:
    """The faults still to strike. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: list[tuple[Fault, int]] = []  # a fault and how often it may still strike; -1 = always
        self._cleared = threading.Event()

    def put(self, *faults: Fault) -> None:
        with self._lock:
            self._left.extend((fault, fault.times or -1) for fault in faults)

    def clear(self) -> None:
        """None strikes any more, and what is being delayed goes on at once."""
        with self._lock:
            self._left.clear()
            self._cleared.set()
            self._cleared = threading.Event()

    def delay(self, seconds: float) -> None:
        """Wait so long, or until the faults are cleared."""
        self._cleared.wait(seconds)

    def strike(self, applies: Callable[[Fault], bool]) -> list[Fault]:
        """The faults that apply here, in the order they were put; each counts as having struck once."""
        with self._lock:
            struck = [fault for fault, _ in self._left if applies(fault)]
            self._left = [(fault, left - (fault in struck)) for fault, left in self._left if fault not in struck or left != 1]
            return struck
