"""Ctrl-C ends a command in seconds, whatever it does then."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ccpr.cli import interrupts
from ccpr.cli.interrupts import TEXT

pytestmark = pytest.mark.integration

HEAD = """
import signal, time
from ccpr.cli import interrupts
from ccpr.cli.interrupts import end_soon_when_interrupted, interrupts_end_nothing

end_soon_when_interrupted()
"""
# What gives back what the command holds takes longer than anyone waits.
SLOW = """
try:
    signal.raise_signal(signal.SIGINT)
finally:
    print("tidying up", flush=True)
    time.sleep(600)
"""
TWICE = """
try:
    signal.raise_signal(signal.SIGINT)
finally:
    signal.raise_signal(signal.SIGINT)
    print("went on")
"""
AT_A_PROMPT = """
with interrupts_end_nothing():
    for _ in range(3):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print("again", end=" ")
signal.raise_signal(signal.SIGINT)
"""
# What fails while it is tidied up is no error of the command's.
FAILING = """
import sys
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnavailable

class Interrupted(Workspace):
    def __enter__(self):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise {error}

import ccpr.service.workspace
ccpr.service.workspace.Workspace = Interrupted
sys.argv = ["ccpr", "points", "shop"]
from ccpr.cli.main import main
main()
"""


def ended(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", HEAD + program]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_what_does_not_end_in_time_is_ended() -> None:
    began = time.monotonic()
    found = ended(f"interrupts.SECONDS = 0.5{SLOW}")
    assert (found.returncode, found.stdout, found.stderr) == (130, "tidying up\n", f"{TEXT}\n")
    assert time.monotonic() - began >= 0.5


def test_a_second_one_ends_it_at_once() -> None:
    found = ended(TWICE)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", f"{TEXT}\n")


def test_at_a_prompt_it_ends_nothing() -> None:
    found = ended(AT_A_PROMPT)
    assert found.stdout == "again again again "
    assert "KeyboardInterrupt" in found.stderr


@pytest.mark.parametrize("error", ['StateUnavailable("locked", subject="catalog")', 'RuntimeError("a defect")'])
def test_what_fails_since_it_is_interrupted_is_not_shown(home: Path, error: str) -> None:
    found = ended(FAILING.format(error=error))
    assert (found.returncode, found.stdout, found.stderr) == (130, "", f"{TEXT}\n")


def test_one_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what runs in the background
    try:
        interrupts.end_soon_when_interrupted()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
