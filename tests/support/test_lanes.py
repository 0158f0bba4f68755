"""Lanes: a unit test that starts a process or a server fails, and every test is of one lane."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long
STARTING = {
    "process": "import subprocess, sys\ndef test(): subprocess.run([sys.executable, '-c', ''])",
    "fork": "import os\ndef test():\n    if not os.fork(): os._exit(0)",
    "server": "import socket\ndef test(): socket.create_server(('127.0.0.1', 0)).close()",
    "fixture": (
        "import pytest, socket\n@pytest.fixture\ndef server(): socket.create_server(('127.0.0.1', 0)).close()\n"
        "def test(server): pass"
    ),
}
FILE = """
import os, pytest
@pytest.mark.parametrize("number", range(16))
def test_of_this_file(number): print("of NAME", os.getpid())
"""
LANES = """
import pytest
def test_unit(): print("unit")
@pytest.mark.integration
def test_integration(): print("integration")
@pytest.mark.slow
def test_slow(): print("slow")
@pytest.mark.spark
def test_spark(): print("spark")
"""


def run(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *options]
    words += ["--rootdir", str(folder), "-c", str(ROOT / "pyproject.toml"), "-o", "timeout=", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_XDIST")}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("what", STARTING)
def test_a_unit_test_that_starts_something_fails_and_another_does_not(what: str, tmp_path: Path) -> None:
    file = tmp_path / "test_starting.py"
    file.write_text(STARTING[what])
    refused = run(tmp_path, "-m", "unit")
    assert refused.returncode == 1, refused.stdout
    assert "is a unit test and starts a process or a server" in refused.stdout
    for lane in ("integration", "slow", "long"):
        file.write_text(f"{STARTING[what]}\nimport pytest\npytestmark = pytest.mark.{lane}")
        assert run(tmp_path, "-m", lane).returncode == 0
        assert "1 deselected" in run(tmp_path, "-m", "unit").stdout


def test_the_tests_of_a_file_are_one_process_s(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(FILE.replace("NAME", name))
    shared = ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    done = run(tmp_path, *shared, "-rA", "-o", "addopts=")
    assert done.returncode == 0, done.stdout
    shown = [line.split() for line in done.stdout.splitlines() if line.startswith("of ")]
    assert len(shown) == 32
    for name in ("a", "b"):
        assert len({process for _, file, process in shown if file == name}) == 1


def test_long_lanes_come_first(tmp_path: Path) -> None:
    (tmp_path / "test_lanes.py").write_text(LANES)
    done = run(tmp_path, "-rA", "-o", "addopts=")
    shown = [line for line in done.stdout.splitlines() if line in ("unit", "integration", "slow", "spark")]
    assert shown == ["spark", "slow", "integration", "unit"]


def test_every_test_is_of_one_lane() -> None:
    """By the lanes of a collection, as the Makefile selects them: together they are all."""
    counts = []
    lanes = ("unit", "integration and not slow and not long", "slow and not long", "long")
    for lane in (*lanes, "unit or integration or slow or long"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "--collect-only",
                "-q",
                "-m",
                lane,
                "tests/support",
                "tests/base",
                "tests/api",
                "tests/installed",
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        counts.append(len([line for line in done.stdout.splitlines() if "::" in line]))
    assert all(counts), counts
    assert sum(counts[:-1]) == counts[-1]
