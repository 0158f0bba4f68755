"""A share of this machine's processors for some processes, by a control group of Linux, and what processes used."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PERIOD_US = 20_000  # short: a request to a process that has used up its time waits so long at most
_END_SECONDS = 10.0
_FIRST, _SECOND = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class CpuShare:
    """A group of processes, at first without a limit."""

    folder: Path

    def limit(self, cores: float | None) -> None:
        """So many processors' time for all of them together."""
        quota = None if cores is None else round(cores * _PERIOD_US)
        if self.folder.parent == _FIRST:
            (self.folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))
        else:
            (self.folder / "cpu.max").write_text(f"{'max' if quota is None else quota} {_PERIOD_US}")

    def take(self, root: int) -> None:
        """A process and all below it, also those that it starts later."""
        for _ in range(2):  # what one started while it was taken
            for process in _below({root: root}):
                with suppress(ProcessLookupError):
                    (self.folder / "cgroup.procs").write_text(str(process))


@contextmanager
def cpu_share(name: str) -> Iterator[CpuShare]:
    """Ends the program without the right to make control groups."""
    first = (_FIRST / "cpu.cfs_quota_us").exists()
    folder = (_FIRST if first else _SECOND) / f"{name}-{os.getpid()}"
    try:
        if not first:
            (_SECOND / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir()
    except OSError as error:
        raise SystemExit(f"this needs control groups, as root on Linux: {error}") from error
    try:
        yield CpuShare(folder)
    finally:
        until = time.monotonic() + _END_SECONDS
        while (folder / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.1)  # what was killed is not gone at once
        folder.rmdir()


def cpu_by(roots: Mapping[int, str]) -> dict[str, float]:
    """CPU seconds by the names of `roots`: a process and all below it that is not below another root."""
    seconds: dict[str, float] = defaultdict(float)
    for process, root in _below(roots).items():
        with suppress(OSError):
            seconds[roots[root]] += sum(map(int, _stat(process)[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


def _below(roots: Mapping[int, object]) -> dict[int, int]:
    """Processes, with the nearest root above each."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int(_stat(int(folder.name))[1])
    found = {}
    for process in parents:
        above = process
        while above and above not in roots:
            above = parents.get(above, 0)
        if above:
            found[process] = above
    return found


def _stat(process: int) -> list[str]:
    """From the state on, field 3 of proc(5)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
