"""How much an upstream may send, and how slowly: limits against a server that never ends an answer. Each can be changed
by an environment variable (docs/reference/configuration.md)."""

import os
from dataclasses import dataclass

from ccpr.matrixone.client.errors import BadLimit

STALL_BYTES_VARIABLE = "CCPR_STALL_BYTES"
STALL_SECONDS_VARIABLE = "CCPR_STALL_SECONDS"
LIST_ROWS_VARIABLE = "CCPR_OBJECT_LIST_ROWS"
LIST_BYTES_VARIABLE = "CCPR_OBJECT_LIST_BYTES"


@dataclass(frozen=True, slots=True)
class StallLimit:
    """The slowest that an answer may come: after its first byte at least `least_bytes` in each `seconds` that are spent
    waiting for it.

    The default is half a kB a second, far below any line that can be used, over a time in which an upstream that
    computes rows while it sends them may pause.
    """

    least_bytes: int = 64 << 10
    seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class ListLimit:
    """The longest object list that is read: rows that are kept, which are those of tables in scope, and bytes of the
    whole answer.

    A row that is kept takes some 300 bytes of memory, and some times as much while lists are compared.
    """

    rows: int = 5_000_000
    bytes: int = 16 << 30


def stall_limit() -> StallLimit:
    """Raises BadLimit."""
    default = StallLimit()
    return StallLimit(
        _number(STALL_BYTES_VARIABLE, default.least_bytes), float(_number(STALL_SECONDS_VARIABLE, int(default.seconds)))
    )


def list_limit() -> ListLimit:
    """Raises BadLimit."""
    default = ListLimit()
    return ListLimit(_number(LIST_ROWS_VARIABLE, default.rows), _number(LIST_BYTES_VARIABLE, default.bytes))


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 18 and int(text) > 0):
        raise BadLimit(f"{text:.40} is not a whole number above 0", subject=variable)
    return int(text)
