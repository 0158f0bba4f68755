"""The lanes of the tests, and the order in which processes share them out (pytest-xdist, `--dist loadfile`).

A test is of the lane `long`, `slow` or `integration` if it, its module or its folder says so, of `slow` if it starts a
JVM or a browser, and of the lane `unit` otherwise. A unit test starts no process and no server: if it does, it fails.
Of a test of the lanes `slow` and `integration` with several cases a third stays there, another one each day; a test
marked `in_turn` stays one day in three. So three days run every case; the rest is of the lane `long`. `make test`
runs all lanes but that one, within 40 minutes on two slow cores. `CCPR_TEST_DAY=n` runs the cases of day n.

A file's tests stay together, since they share fixtures. What takes long comes first, so that no process is left alone
with it in the end.
"""

import os
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

LONG, SLOW, INTEGRATION, UNIT = LANES = ("long", "slow", "integration", "unit")
TESTS = Path(__file__).parents[1]
IN_TURN, DAYS = "in_turn", 3
# In the environment, so that processes which share the tests agree at midnight too.
DAY = int(os.environ.setdefault("CCPR_TEST_DAY", str(date.today().toordinal())))
FOLDERS = {
    "benchmarks": LONG,
    "ccpr_assets": INTEGRATION,
    "faults": INTEGRATION,
    "features": INTEGRATION,
    "histories": SLOW,
    "installed": SLOW,
    "kill_matrix": SLOW,
    "matrix": SLOW,
    "restarts": SLOW,
    "sensors": INTEGRATION,
}
_OF_ANOTHER_LANE = re.compile(r"^pytestmark = .*mark\.(?:long|slow|integration|spark|browser)\b", re.MULTILINE)
_STARTING = frozenset(("os.fork", "os.forkpty", "os.posix_spawn", "socket.bind", "subprocess.Popen"))
_running: list[str] = []  # the unit test that runs


def assign(items: list[pytest.Item]) -> None:
    """Mark each test with its lane, and put those of long lanes first."""
    _leave_cases_to_the_long_lane(items)
    for item in items:
        if (lane := lane_of(item)) not in _marks(item):
            item.add_marker(lane)
    items.sort(key=lambda item: (not _is_heavy(item), LANES.index(lane_of(item))))


def _leave_cases_to_the_long_lane(items: list[pytest.Item]) -> None:
    """Which ones stay follows from the test's name: what one test leaves out of all recordings another one reads."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if lane_of(item) in (SLOW, INTEGRATION):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, same in cases.items():
        days = DAYS if IN_TURN in _marks(same[0]) else min(len(same), DAYS)
        for number, item in enumerate(same, zlib.crc32(name.encode()) + DAY):
            if number % days:
                item.add_marker(LONG)


def lane_of(item: pytest.Item) -> str:
    marks = _marks(item)
    top = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
    of_its_folder = FOLDERS.get(top, UNIT)
    if LONG in (*marks, of_its_folder):
        return LONG
    if _is_heavy(item):
        return SLOW
    return next((lane for lane in LANES if lane in marks), of_its_folder)


def has_no_unit_test(path: Path) -> bool:
    """Whether a folder or file says of all its tests that they are of another lane; it need not be imported then."""
    if not path.is_relative_to(TESTS) or path == TESTS:
        return False
    if path.relative_to(TESTS).parts[0] in FOLDERS:
        return True
    return path.name.startswith("test_") and path.is_file() and bool(_OF_ANOTHER_LANE.search(path.read_text()))


def _is_heavy(item: pytest.Item) -> bool:
    return not _marks(item).isdisjoint(("spark", "browser"))


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


@contextmanager
def guarded(item: pytest.Item) -> Iterator[None]:
    """While a unit test runs, it is an error to start a process or a server."""
    if lane_of(item) == UNIT:
        _running.append(item.nodeid)
    try:
        yield
    finally:
        _running.clear()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _running and event in _STARTING:
        raise AssertionError(f"{_running[0]} is a unit test and starts a process or a server ({event}): mark it")


sys.addaudithook(_refuse)
