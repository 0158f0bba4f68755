"""The picture that the docs give of packages and rooms is that of the tree."""

import re
import subprocess
import sys

import pytest

from tests.docs.pages import DOCS, ROOT

pytestmark = pytest.mark.integration

_ARCHITECTURE = (DOCS / "architecture.md").read_text("utf-8")


def rooms(*words: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / "rooms"), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout


def test_no_module_imports_in_a_circle() -> None:
    printed = rooms()
    assert re.search(r"^\d+ modules, no circle$", printed, re.M)
    assert "a circle:" not in printed


def test_every_package_and_room_is_described() -> None:
    printed = rooms()
    named = set(re.findall(r"^  (\w+) +", printed, re.M))
    assert {"ccpr", "matrixone", "targets", "mirror"} <= named
    assert {name for name in named if f"`{name}`" not in _ARCHITECTURE} == set()


def test_the_picture_of_the_rooms_shows_imports_that_there_are() -> None:
    printed = rooms("ccpr")
    imports = {
        line.split()[0]: set(line.split()[1:]) for line in printed.split("\n") if line.startswith("  ") and line.split()
    }
    drawn = re.findall(r"^  (\w+) --> (\w+)$", _ARCHITECTURE, re.M)
    assert len(drawn) > 10
    assert [(room, other) for room, other in drawn if other not in imports[room]] == []
