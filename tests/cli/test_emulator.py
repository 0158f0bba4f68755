"""`ccpr emulator` as a process."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wire_client import Connect

pytestmark = pytest.mark.integration

RUN = [sys.executable, "-c", "import typer; from ccpr_emulator.cli.emulator import emulator; typer.run(emulator)"]


@pytest.mark.recordings
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_port_first_and_ends_cleanly(recordings: Path, connect: Connect, ending: signal.Signals) -> None:
    arguments = ["--recording", str(recordings / "dml"), "--chunk-bytes", "1000", "--flush-after", "0"]
    process = subprocess.Popen([*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("listening on 127.0.0.1:")
        client = connect(int(first.rsplit(":", 1)[1]))
        client.rows("create snapshot s for database gd_dml from sys publication p")
        assert client.one("__++__internal_check_snapshot_flushed s sys p") == b"1"
        name = sorted((recordings / "dml" / "objects").glob("*"))[0].name
        ((data, *_),) = client.rows(f"__++__internal_get_object sys p {name} 1")
        assert len(data or b"") == 1000
        process.send_signal(ending)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")


def test_a_folder_without_a_recording_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    done = subprocess.run([*RUN, "--recording", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "CCPR_EMULATOR_RECORDING" in done.stderr
    assert "Traceback" not in done.stderr
