import subprocess
import sys


def test_the_setting_is_accepted_by_the_c_library_and_memory_still_works():
    script = (
        "from matrixone.upstream.malloc import keep_large_blocks\n"
        "keep_large_blocks(); keep_large_blocks()\n"
        "assert all(len(bytes(n << 20)) == n << 20 for n in (1, 40, 150))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
