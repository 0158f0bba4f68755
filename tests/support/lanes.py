"""The lanes of the tests, and how they are shared out among processes (pytest-xdist, `--dist loadgroup`).

A test is of the lane `slow` or `integration` if it, its module or its folder says so, and of the lane `unit` otherwise.
A unit test starts no process and no server: if it does, it fails.

A file's tests stay together, since they share fixtures. All that starts a JVM or a browser is one process's: two of
them at once are more than two cores, and the memory of a small machine, can bear. What takes long comes first, so that
no process is left alone with it in the end.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SLOW, INTEGRATION, UNIT = LANES = ("slow", "integration", "unit")
HEAVY = "heavy"
TESTS = Path(__file__).parents[1]
FOLDERS = {
    "benchmarks": SLOW,
    "ccpr_assets": INTEGRATION,
    "faults": INTEGRATION,
    "features": INTEGRATION,
    "histories": SLOW,
    "installed": SLOW,
    "kill_matrix": SLOW,
    "restarts": SLOW,
    "sensors": INTEGRATION,
}
_STARTING = frozenset(("os.fork", "os.forkpty", "os.posix_spawn", "socket.bind", "subprocess.Popen"))
_running: list[str] = []  # the unit test that runs


def assign(items: list[pytest.Item]) -> None:
    """Give each test its lane and, if it is a heavy one, its group; and put those of long lanes first."""
    for item in items:
        if (lane := lane_of(item)) not in {mark.name for mark in item.iter_markers()}:
            item.add_marker(lane)
        if is_heavy(item):
            item.add_marker(pytest.mark.xdist_group(HEAVY))
    items.sort(key=lambda item: (not is_heavy(item), LANES.index(lane_of(item))))


def lane_of(item: pytest.Item) -> str:
    marks = {mark.name for mark in item.iter_markers()}
    if is_heavy(item):
        return SLOW
    if of_its_own := [lane for lane in LANES if lane in marks]:
        return of_its_own[0]
    return FOLDERS.get(item.path.relative_to(TESTS).parts[0], UNIT) if item.path.is_relative_to(TESTS) else UNIT


def is_heavy(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None or item.get_closest_marker("browser") is not None


def scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's, by file, but for those that are in a group."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            return HEAVY if test.endswith(f"@{HEAVY}") else file

    return ByFile(config, log)


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
