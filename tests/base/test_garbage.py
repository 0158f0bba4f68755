"""Garbage is collected late, and then as usual."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

PROGRAM = """
import atexit, gc

usual = gc.get_threshold()
from ccpr.cli.main import collect_late

collect_late()


class Node:
    def __del__(self):
        global gone
        gone += 1


def ring():
    node = Node()
    node.itself = node


gone, before = 0, gc.get_stats()[0]["collections"]
for _ in range(100_000):
    ring()
assert gone == 0
assert gc.get_stats()[0]["collections"] == before
kept = [[] for _ in range(300_000)]
assert gone == 100_000
assert gc.get_threshold() == usual
assert gc.get_freeze_count() >= 200_000
assert not gc.callbacks
gone = 0
for _ in range(10_000):
    ring()
assert gone > 5_000
print("as usual")
"""


def test_garbage_is_collected_late_and_then_as_usual():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("as usual\n", "")


@pytest.mark.parametrize(("command", "late"), [("run", True), ("emulator", False)])
def test_what_ends_soon_collects_late(command: str, late: bool):
    program = "import gc, ccpr.cli.main as program; program.app = lambda: print(gc.get_threshold()[0]); program.main()"
    words = [sys.executable, "-c", program, command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (int(done.stdout) >= 100_000) == late
