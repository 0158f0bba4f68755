"""A full disk under what `ccpr serve` writes for people: it serves all the same."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.support.ports import free_port

LIMIT_SECONDS = 120.0


def test_a_service_whose_output_and_log_find_the_disk_full_works(home: Path) -> None:
    port = free_port()
    program = [sys.executable, "-m", "ccpr.cli", "--verbose", "serve", "--port", str(port)]
    with Path("/dev/full").open("wb", buffering=0) as full:
        process = subprocess.Popen(program, stdout=full, stderr=full)
    try:
        end = time.monotonic() + LIMIT_SECONDS
        while True:
            assert process.poll() is None, "it has ended"
            assert time.monotonic() < end
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
                    found = json.load(answer)
                break
            except OSError:
                time.sleep(0.1)
        assert (found["ok"], found["failing"]) == (True, {})
    finally:
        process.terminate()
        code = process.wait(60)
    assert code in (0, 120), "Python itself ends with 120 where it cannot write what is left"
