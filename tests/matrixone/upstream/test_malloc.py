import subprocess
import sys

import pytest


def test_the_setting_is_accepted_by_the_c_library_and_memory_still_works():
    script = (
        "from matrixone.upstream.malloc import keep_large_blocks\n"
        "keep_large_blocks(); keep_large_blocks()\n"
        "assert all(len(bytes(n << 20)) == n << 20 for n in (1, 40, 150))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_what_large_answers_leave_is_returned_on_demand():
    script = (
        "import resource\n"
        "from pathlib import Path\n"
        "from matrixone.upstream.malloc import keep_large_blocks, return_free_memory\n"
        "def resident(): return int(Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize() >> 20\n"
        "keep_large_blocks()\n"
        "blocks = [b'x' * (8 << 20) for _ in range(20)]\n"
        "small = [bytes(100_000) for _ in range(10)]\n"  # above them, so that they are not at the end of the heap
        "full = resident()\n"
        "del blocks\n"
        "kept = resident()\n"
        "return_free_memory()\n"
        "assert full - kept < 20, 'the setting keeps them'\n"
        "assert full - resident() > 140"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
