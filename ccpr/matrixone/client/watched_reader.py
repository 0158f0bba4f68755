"""A socket's reader that gives up on an answer which comes too slowly.

A socket's timeout bounds the wait for the next bytes, whatever their number: a server that sends one byte a second
keeps a session for as long as it likes.
"""

import io
import time
from collections.abc import Callable
from typing import Any

import pymysql
from pymysql.constants import CR

from ccpr.matrixone.client.limits import StallLimit


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
