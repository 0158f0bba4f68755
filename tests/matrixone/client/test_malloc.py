import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

ACCEPTED = """
from ccpr.matrixone.client.malloc import keep_large_blocks
keep_large_blocks(); keep_large_blocks()
assert all(len(bytes(n << 20)) == n << 20 for n in (1, 40, 150))
"""
RETURNED = """
import resource, threading
from pathlib import Path
from ccpr.matrixone.client.malloc import keep_large_blocks, return_free_memory, stay_small

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20

def work():
    blocks = [b"x" * (8 << 20) for _ in range(20)]
    del blocks
    freed.set()
    ended.wait()

stay_small()
assert "THP_enabled:\\t1" not in Path("/proc/self/status").read_text()
keep_large_blocks()
before, freed, ended = resident(), threading.Event(), threading.Event()
threading.Thread(target=work).start()
freed.wait()
kept = resident() - before
return_free_memory()
left = resident() - before
ended.set()
assert kept > 140 and left < 20, (kept, left)
"""


def test_the_setting_is_accepted_by_the_c_library_and_memory_still_works() -> None:
    run(ACCEPTED)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux's C library")
def test_what_large_answers_leave_is_returned_whichever_thread_had_them() -> None:
    run(RETURNED)


def run(script: str) -> None:
    """In a process of its own."""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
