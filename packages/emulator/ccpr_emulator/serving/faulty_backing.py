"""What the internal commands read of an upstream, with the faults that strike there; and a past that it cannot read
after a restart (`EmptyPast`, `NoCheckpoints`), in the words of a MatrixOne (docs/reference/emulator.md, "A past that is
lost")."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ccpr.matrixone.server.answers import Cell, ResultSet, StatementError
from ccpr.matrixone.server.backing import Backing, ServedCatalog, Snapshot, internal, snapshot_not_found
from ccpr_emulator.serving import faults
from ccpr_emulator.serving.cut_connection import CutRows

EMPTY: Final = "ExpectedEOB"
NO_INDEXES: Final = 'SQL parser error: table "mo_indexes" does not exist'
_AT = re.compile(
    r"(?:(?P<database>\w+)[`\"]?\s*\.\s*)?[`\"]?\w+[`\"]?\s*"
    r"\{\s*(?P<how>mo_ts|snapshot)\s*=\s*'?(?P<which>[^'}]+)",
    re.IGNORECASE,
)

# The text of a command before what is wrong with a past, and what is wrong; of all others the second line.
_TEXTS: Final = {
    "get_mo_indexes": ("failed to query mo_indexes", NO_INDEXES),
    "check_snapshot_flushed": ("",),
}
_TEXT: Final = ("failed to get database",)
_LIST_CUT_BYTES: Final = 40  # of the row in whose middle a list is cut


@dataclass(frozen=True, slots=True)
class FaultyBacking:
    """A `ccpr.matrixone.server.backing.Backing` for one command. What is not defined here is the backing's."""

    backing: Backing
    box: faults.FaultBox
    command: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backing, name)

    def published(self, publisher: str, name: str) -> "FaultyBacking":
        return replace(self, backing=self.backing.published(publisher, name))

    def find_snapshot(self, account: str, name: str) -> Snapshot:
        if self.box.strike(lambda fault: isinstance(fault, faults.SnapshotCollected) and fault.name in ("", name)):
            raise snapshot_not_found(name)
        snapshot = self.backing.find_snapshot(account, name)
        check_found(self.box, name, snapshot.ts)
        return snapshot

    def catalog(self, account: str, snapshot: Snapshot | None = None) -> ServedCatalog:
        self._check_past(snapshot)
        return self.backing.catalog(account, snapshot)

    def is_flushed(self, account: str, snapshot: Snapshot) -> bool:
        self._check_past(snapshot)
        return self.backing.is_flushed(account, snapshot)

    def object_list(self, account: str, target: Snapshot, base: Snapshot | None) -> Sequence[Sequence[Cell]]:
        self._check_past(target)
        self._check_past(base)
        if base is not None and self.box.strike(lambda fault: isinstance(fault, faults.StaleRead)):
            raise StatementError(22101, f"stale read, min TS is {target.ts}-0, receive {base.ts}-0")
        return self.backing.object_list(account, target, base)

    def object_size(self, name: str) -> int | None:
        if self.box.strike(lambda fault: isinstance(fault, faults.MissingObject) and fault.object_name in ("", name)):
            return None
        return self.backing.object_size(name)

    def _check_past(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            check(self.box, snapshot.ts, *_TEXTS.get(self.command, _TEXT))


def struck(answer: ResultSet, command: str, words: list[str], box: faults.FaultBox) -> ResultSet:
    """The answer to a command, with the faults that strike lists and chunks."""
    if command == "object_list":
        rows = len(answer.rows)
        for fault in box.strike(lambda fault: isinstance(fault, faults.CutObjectList) and fault.after_rows < rows):
            if isinstance(fault, faults.CutObjectList):
                answer = CutRows(answer.columns, answer.rows, fault.after_rows, _LIST_CUT_BYTES)
    elif command == "get_object":
        name, (data, *_) = words[2], answer.rows[0]
        size = len(data) if isinstance(data, bytes | memoryview) else 0
        for fault in box.strike(lambda fault: _applies(fault, name, int(words[3]), size)):
            answer = _struck(answer, fault)
    return answer


def _applies(fault: faults.Fault, name: str, chunk: int, size: int) -> bool:
    """Whether a fault strikes this chunk of an object. Those of the data need a byte beyond the place where they
    strike."""
    match fault:
        case faults.WrongTotalSize() | faults.WrongTotalChunks():
            return fault.object_name in ("", name)
        case faults.CutObject():
            place = fault.after_bytes
        case faults.DamagedByte():
            place = fault.offset
        case faults.WrongChunkLength():
            place = -1
        case _:
            return False
    return fault.object_name in ("", name) and chunk > 0 and place < size


def _struck(answer: ResultSet, fault: faults.Fault) -> ResultSet:
    ((data, size, number, chunks, is_last),) = answer.rows
    assert isinstance(data, bytes | memoryview)
    assert isinstance(size, int)
    assert isinstance(chunks, int)
    match fault:
        case faults.WrongTotalSize():
            size += fault.difference
        case faults.WrongTotalChunks():
            chunks += fault.difference
        case faults.CutObject():
            return CutRows(answer.columns, answer.rows, 0, fault.after_bytes)
        case faults.WrongChunkLength():
            data = bytes(data)[: max(0, len(data) + fault.difference)] + bytes(max(0, fault.difference))
        case faults.DamagedByte():
            damaged = bytearray(data)
            damaged[fault.offset] ^= 0xFF
            data = bytes(damaged)
    return replace(answer, rows=((data, size, number, chunks, is_last),))


def is_empty(box: faults.FaultBox, ts: int | None) -> bool:
    """Whether a catalog at a time (None: now) has no rows. Raises 20101 if it cannot be read."""
    lost = box.lost_past
    if ts is None or lost is None or ts > lost[1]:
        return False
    if isinstance(lost[0], faults.NoCheckpoints):
        raise internal(_no_checkpoints(ts))
    return True


def check(box: faults.FaultBox, ts: int, wrapper: str, empty: str = EMPTY) -> None:
    """Raises the error of a command that needs the catalog at a time: `wrapper` and what is wrong."""
    lost = box.lost_past
    if lost is None or ts > lost[1]:
        return
    if isinstance(lost[0], faults.NoCheckpoints):
        raise internal(f"{wrapper}: internal error: {_no_checkpoints(ts)}" if wrapper else _no_checkpoints(ts))
    raise internal(f"{wrapper}: {empty}") if wrapper else StatementError(0, empty)


def check_found(box: faults.FaultBox, name: str, ts: int) -> None:
    """Raises 20101 for a snapshot that was taken while there are no checkpoints."""
    lost = box.lost_past
    if lost is not None and isinstance(lost[0], faults.NoCheckpoints) and ts > lost[1]:
        raise snapshot_not_found(name)


def check_rows(box: faults.FaultBox, backing: Backing, account: str, text: str) -> None:
    """Raises 1049 for a SELECT of rows at a time that is lost."""
    lost = box.lost_past
    if lost is None:
        return
    for found in _AT.finditer(text):
        which = found["which"].strip()
        if found["how"].lower() == "snapshot":
            ts = backing.find_snapshot(account, which.lower()).ts
        else:
            ts = int(which) if which.isdecimal() else lost[1] + 1
        if ts <= lost[1]:
            raise StatementError(1049, f"Unknown database {found['database'] or ''}".rstrip(), "42000")


def _no_checkpoints(ts: int) -> str:
    return (
        f"No available checkpoints for snapshot read at:{ts}-0, table:mo_database, tid:1, "
        f"txn:0123456789abcdef/Active/S:{ts}-0"
    )
