"""How a program that serves is told to end: by a signal, or by a part of itself.

The kernel may hand a signal to any thread, and does so to one that is just starting another. Python runs the handler in
the main thread, when that executes: while it waits for a lock, as in `threading.Event.wait`, it does not. And a handler
that sets the event for which the main thread waits may wait for the event's own lock for ever. So the main thread waits
for a byte, which Python writes at each signal, whichever thread has it (decision loops-survive-an-item).
"""

import os
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Self


class Ending:
    """Whether the program is to end. A context manager, of the main thread: within the block these signals say so, and
    a second one ends the process at once.

    Attributes
    ----------
    event : for the other threads, which may wait for it.
    """

    def __init__(self, *signals: int) -> None:
        self.event = threading.Event()
        self._signals, self._signaled = signals, False
        self._read, self._written = socket.socketpair()
        self._written.setblocking(False)
        self._after = ExitStack()

    def __enter__(self) -> Self:
        for part in (self._read, self._written):
            self._after.callback(part.close)
        self._after.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(self._written.fileno()))
        for number in self._signals:
            self._after.callback(signal.signal, number, signal.signal(number, self._signal))
        return self

    def __exit__(self, *_: object) -> None:
        self._after.close()

    def set(self) -> None:
        """From any thread, but from no handler of a signal."""
        self.event.set()
        with suppress(OSError):  # it has ended, or there are bytes enough
            self._written.send(b"x")

    def wait(self) -> None:
        """In the main thread, until the program is to end."""
        while not (self._signaled or self.event.is_set()):
            self._read.recv(1)
        self.event.set()

    def _signal(self, number: int, _: FrameType | None) -> None:
        if self._signaled:
            os._exit(128 + number)
        self._signaled = True
