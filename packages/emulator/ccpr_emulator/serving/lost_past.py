"""A past that a server cannot read after a restart: the faults `EmptyPast` and `NoCheckpoints`, in the words of a
MatrixOne (docs/reference/emulator.md, "A past that is lost")."""

import re
from typing import Final, NoReturn

from ccpr.matrixone.server.answers import StatementError
from ccpr.matrixone.server.backing import Backing, internal, snapshot_not_found
from ccpr_emulator.serving.faults import EmptyPast, FaultBox, NoCheckpoints

EMPTY: Final = "ExpectedEOB"
NO_INDEXES: Final = 'SQL parser error: table "mo_indexes" does not exist'
_AT = re.compile(
    r"(?:(?P<database>\w+)[`\"]?\s*\.\s*)?[`\"]?\w+[`\"]?\s*"
    r"\{\s*(?P<how>mo_ts|snapshot)\s*=\s*'?(?P<which>[^'}]+)",
    re.IGNORECASE,
)


def is_empty(faults: FaultBox, ts: int | None) -> bool:
    """Whether a catalog at a time (None: now) has no rows. Raises 20101 if it cannot be read."""
    lost = faults.lost_past
    if ts is None or lost is None or ts > lost[1]:
        return False
    if isinstance(lost[0], NoCheckpoints):
        raise internal(_no_checkpoints(ts))
    return True


def check(faults: FaultBox, ts: int, wrapper: str, empty: str = EMPTY) -> None:
    """Raises the error of a command that needs the catalog at a time: `wrapper` and what is wrong."""
    lost = faults.lost_past
    if lost is not None and ts <= lost[1]:
        _refuse(lost[0], ts, wrapper, empty)


def _refuse(lost: EmptyPast | NoCheckpoints, ts: int, wrapper: str, empty: str) -> NoReturn:
    if isinstance(lost, NoCheckpoints):
        raise internal(f"{wrapper}: internal error: {_no_checkpoints(ts)}" if wrapper else _no_checkpoints(ts))
    if not wrapper:
        raise StatementError(0, empty)
    raise internal(f"{wrapper}: {empty}")


def check_found(faults: FaultBox, name: str, ts: int) -> None:
    """Raises 20101 for a snapshot that was taken while there are no checkpoints."""
    lost = faults.lost_past
    if lost is not None and isinstance(lost[0], NoCheckpoints) and ts > lost[1]:
        raise snapshot_not_found(name)


def check_rows(faults: FaultBox, backing: Backing, account: str, text: str) -> None:
    """Raises 1049 for a SELECT of rows at a time that is lost."""
    lost = faults.lost_past
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
