"""How much an upstream may send, and how slowly: limits against a server that never ends an answer. Each can be changed
by an environment variable (docs/reference/configuration.md).

A socket's timeout bounds the wait for the next bytes, whatever their number: a server that sends one byte a second
keeps a session for as long as it likes. So a socket is read through a `WatchedReader`.
"""

import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants import CR

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


class Stalled(pymysql.err.OperationalError):
    """An answer came slower than it may."""


class WatchedReader(io.RawIOBase):
    """Reads from `raw` and raises Stalled for an answer that is slower than `limit`.

    Only the time inside `raw` counts: a caller that takes its time between two reads does not make the server slow.
    """

    def __init__(self, raw: io.RawIOBase, limit: StallLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self._raw, self._clock = raw, clock
        self.begin(limit)

    def begin(self, limit: StallLimit) -> None:
        """A new answer is waited for. The time until its first byte does not count."""
        self._limit, self._started = limit, False
        self._waited, self._bytes = 0.0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        before = self._clock()
        size = self._raw.readinto(buffer)
        if not self._started:
            self._started = True
            return size
        self._waited += self._clock() - before
        self._bytes += size or 0
        if self._waited >= self._limit.seconds:
            if size and self._bytes < self._limit.least_bytes:
                raise Stalled(
                    CR.CR_SERVER_LOST,
                    f"{self._bytes} bytes in {self._waited:.0f} s of waiting, fewer than {self._limit.least_bytes}",
                )
            self._waited, self._bytes = 0.0, 0
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
