"""A program that serves ends at a signal, whichever thread the kernel hands it to, at whatever moment."""

import signal
import subprocess
import sys
import threading

import pytest

from ccpr.base.loops import Ending

pytestmark = pytest.mark.integration

# A thread of its own takes the signal while the main thread waits.
TAKEN_BY_ANOTHER = """
import signal, threading, time
from ccpr.base.loops import Ending

def take():
    time.sleep(0.2)  # the main thread waits by then, or will: both must end
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

with Ending(signal.SIGTERM) as ending:
    threading.Thread(target=take, daemon=True).start()
    ending.wait()
    assert ending.event.is_set()
"""

# Signals at every moment of a wait: a handler that sets a `threading.Event` waits for ever, in each run.
AT_EVERY_MOMENT = """
import signal, time
from ccpr.base.loops import Ending

end, number = time.monotonic() + 3, 0
while time.monotonic() < end:
    number += 1
    with Ending(signal.SIGALRM) as ending:
        signal.setitimer(signal.ITIMER_REAL, (1 + number % 60) * 1e-6)
        ending.wait()
"""

TWICE = """
import signal, time
from ccpr.base.loops import Ending

with Ending(signal.SIGTERM):
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
print("went on")
"""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("program", [TAKEN_BY_ANOTHER, AT_EVERY_MOMENT])
def test_a_signal_ends_the_wait(program: str) -> None:
    found = ended(program)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_second_signal_ends_the_process_at_once() -> None:
    found = ended(TWICE)
    assert (found.returncode, found.stdout) == (128 + signal.SIGTERM, "")


def test_a_thread_ends_the_wait_and_handlers_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Ending(signal.SIGTERM) as ending:
        assert not ending.event.is_set()
        threading.Thread(target=ending.set).start()
        ending.wait()
        assert ending.event.is_set()
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1
    ending.set()  # of a thread that was late
