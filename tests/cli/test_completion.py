"""What the shell is told to complete, as it asks for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.replica import NAME, Replica

pytestmark = pytest.mark.integration


def completed(line: str) -> list[str]:
    """The answers for a line that ends at the cursor, as bash asks for them."""
    words = line.split()
    place = len(words) if line.endswith(" ") else len(words) - 1
    environment = os.environ | {"_CCPR_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(place)}
    program = str(Path(sys.executable).with_name("ccpr"))
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.stdout.split()


def test_the_shell_completes_names_points_and_codes(replica: Replica) -> None:
    table = next(iter(replica.in_scope(1)))
    assert NAME in completed("ccpr query ")
    assert completed(f"ccpr status {NAME[:3]}") == [NAME]
    assert table in completed(f"ccpr query {NAME} ")
    assert table.partition(".")[2] in completed(f"ccpr export {NAME} ")
    assert completed(f"ccpr query {NAME} {table} --at ") == ["0"]
    assert completed("ccpr explain SNAPSHOT_G") == ["SNAPSHOT_GONE"]
    assert completed("ccpr status nothing") == []
    assert completed("ccpr query nothing ") == []


def test_where_nothing_is_nothing_is_completed_or_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCPR_HOME", str(home / "none"))
    assert completed("ccpr status ") == []
    assert not (home / "none").exists()
