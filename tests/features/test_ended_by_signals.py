"""What serves until it is told to end does so, though the kernel hands the signal to another thread than the main one,
as it does now and then while that thread starts one."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.kills]

ROOT = Path(__file__).resolve().parents[2]
LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.mark.skipif(not hasattr(LIBC, "tgkill"), reason="a signal can be sent to one thread with Linux' C library only")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "words",
    [
        ["serve", "--port", "0"],
        ["relay", "serve", "--listen", "127.0.0.1:0"],
        ["emulator", "--living", "--merge-every", "3600"],
    ],
    ids=lambda words: words[0],
)
def test_a_signal_that_another_thread_takes_ends_it(home: Path, words: list[str], number: int) -> None:
    program = [sys.executable, "-c", "from ccpr.cli.main import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            time.sleep(0.5)  # the main thread sleeps by then; if it does not, it is interrupted, which must end it, too
            threads = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
            other = max(thread for thread in threads if thread != process.pid)
            assert LIBC.tgkill(process.pid, other, number) == 0, os.strerror(ctypes.get_errno())
            assert process.wait(60) == 0
        finally:
            process.kill()
