"""scripts/with-children, and `make ui` with it: real processes, ended by real signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.web_ui import answers, wait_for

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "scripts" / "with-children"
SECONDS = 60.0
UI_SECONDS = 240.0
# A tree as Dagster has it: a child, one in a session of its own, and one whose parent has ended; the last two ignore
# SIGINT and SIGTERM.
TREE = """
import os, signal, subprocess, sys, time
leaf = (
    "import time; from signal import *; signal(SIGINT, SIG_IGN); signal(SIGTERM, SIG_IGN); print(flush=True);"
    " time.sleep(600)"
)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
subprocess.Popen([sys.executable, "-c", leaf], start_new_session=True, stdout=subprocess.PIPE).stdout.readline()
middle = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
    " start_new_session=True, stdout=subprocess.PIPE).stdout.readline()"
)
subprocess.run([sys.executable, "-c", middle, leaf])
print("ready", flush=True)
time.sleep(600)
"""

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="orphans are found by /proc"),
    pytest.mark.timeout(400),
]


def processes_with(mark: str) -> set[int]:
    """That have this text in their environment."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in file.read_bytes():
                found.add(int(file.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_all_that_it_started(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "MARK": str(tmp_path), "WITH_CHILDREN_PATIENCE": "1"}
    command = [sys.executable, PROGRAM, sys.executable, "-c", TREE]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(processes_with(f"MARK={tmp_path}")) == 5
        process.send_signal(number)
        assert process.wait(SECONDS) == 128 + number
    assert not processes_with(f"MARK={tmp_path}")


def test_a_command_that_ends_by_itself_gives_its_exit_code(tmp_path: Path) -> None:
    assert subprocess.run([PROGRAM, sys.executable, "-c", "raise SystemExit(3)"], timeout=SECONDS).returncode == 3


@pytest.mark.in_turn
def test_the_ui_ends_with_all_its_processes(tmp_path: Path) -> None:
    home, port = tmp_path / "home", free_port()
    home.mkdir()
    environment = {**os.environ, "MARK": str(tmp_path), "CCPR_HOME": str(home), "PORT": str(port)}
    command = ["make", "--no-print-directory", "-o", ".venv/.installed", "ui", f"CCPR_HOME={home}", f"PORT={port}"]
    with (tmp_path / "ui.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}") or process.poll() is not None, UI_SECONDS)
            assert process.poll() is None, (tmp_path / "ui.log").read_text()
            assert len(processes_with(f"MARK={tmp_path}")) > 4
            process.terminate()
            process.wait(UI_SECONDS)
        finally:
            left = processes_with(f"MARK={tmp_path}")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            process.wait()
    assert not left
