"""How `ccpr` ends: 0 is done, 1 an error.

What Ctrl-C does to a command: it is interrupted wherever it is, gives back what it holds (its lease, its sessions),
and ends. What was begun is as after a kill, and the same command goes on with it; so one that cannot give back in time
is ended, as by a second Ctrl-C. What fails after the first is neither shown nor recorded: an interrupt strikes inside
libraries, whose rollback then fails and would hide it.
"""

import _thread
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

USAGE = 2  # what was typed is wrong; nothing was done
BEHIND = 3  # all is done but for some tables, which are named: they lag in a target, or do not fit into a place
NOT_CONFIRMED = 4  # something would be destroyed, and was not confirmed; nothing was done
INTERRUPTED = 130

SECONDS = 3.0
TEXT = "interrupted; nothing is left half done, type it again to continue"
_STDERR = 2
_SHOW_CURSOR = "\x1b[?25h"  # what shows progress hides it
_seen = False


def end_soon_when_interrupted() -> None:
    """To be called once, by a program. Where its parent wants Ctrl-C to be ignored it is."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def is_interrupted() -> bool:
    return _seen


@contextmanager
def interrupts_end_nothing() -> Iterator[None]:
    """Within the block they are KeyboardInterrupt, and nothing else: at a prompt, which goes on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _seen
    if _seen:
        _end()
    _seen = True
    logging.disable()  # what libraries say of being interrupted helps nobody
    _thread.start_new_thread(_end_later, ())  # not by `threading`, of whose locks the main thread may have one
    raise KeyboardInterrupt


def _end_later() -> None:
    time.sleep(SECONDS)
    _end()


def _end() -> None:
    with suppress(OSError):
        os.write(_STDERR, f"{_SHOW_CURSOR if os.isatty(_STDERR) else ''}{TEXT}\n".encode())
    os._exit(INTERRUPTED)
