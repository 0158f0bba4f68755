"""The engine: cases drawn from a seed run in worker processes, so that a crash, a hang or a flood of memory is noticed
and its input kept.

A case is (target, seed, number); its input depends on these three only. A worker writes the number of the case that it
is about to run into shared memory. When it dies, the parent knows which case it was: it makes the input again, keeps
it, and starts another worker with the next case.
"""

import mmap
import multiprocessing
import random
import resource
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ccpr.matrixone.errors import CcprError

CASE_SECONDS = 10.0
# Address space on top of what a worker has after its warm-up. A claimed size that is believed exceeds it even if the
# memory is never touched.
_SPACE_BYTES = 3 << 30
_BASE_BYTES, _PER_BYTE = 64 << 20, 300  # LZ4 inflates at most 255 times; the rest is decoding's own working memory
# Rows may share their bytes (docs/format/object-file.md 3.3): working memory then grows with the output, not the file.
_DECODED_COPIES = 4
_REPORT_EVERY = 2000
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Target(Protocol):
    """A reader of foreign bytes, which is attacked.

    Attributes
    ----------
    name : also the name of its folder in the corpus.
    decoded_bytes : size of the largest value that the last `run` decoded; the memory allowed for a case grows with it.
    """

    name: str
    decoded_bytes: int

    def make(self, chance: random.Random) -> bytes:
        """One hostile input."""
        ...

    def run(self, data: bytes) -> str:
        """Read it in every way. Returns "rows", or the code of the first typed error. Other exceptions are findings."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that did what none may do. `what` begins with its kind: exception, crash, hang or memory."""

    target: str
    seed: int
    case: int
    what: str
    data: bytes


@dataclass
class Tally:
    """The result of a run."""

    cases: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0
    slowest_seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def chance_of(target: str, seed: int, case: int) -> random.Random:
    return random.Random(f"{target}/{seed}/{case}")


def outcome(target: Target, data: bytes) -> str:
    """Run one input in this process. Returns "rows" or the code of a typed error; other exceptions are raised."""
    try:
        return target.run(data)
    except CcprError as error:
        str(error)
        return error.code


def fuzz(name: str, cases: int, seed: int, *, seconds: float | None = None) -> Tally:
    """Run `cases` cases of a target (or as many as fit into `seconds`)."""
    tally, start = Tally(), time.monotonic()
    at = mmap.mmap(-1, 8)
    context = multiprocessing.get_context("fork")  # workers share `at`; the caller has no threads that hold locks
    first = 0
    while first < cases and (seconds is None or time.monotonic() - start < seconds):
        receiver, sender = context.Pipe(duplex=False)
        deadline = None if seconds is None else start + seconds
        worker = context.Process(target=_work, args=(name, first, cases, seed, deadline, at, sender))
        worker.start()
        sender.close()
        ended = _collect(receiver, tally)
        worker.join()
        first = int.from_bytes(at[:8], "little") + 1
        if ended:
            break
        number = -(worker.exitcode or 0)
        kind = "hang" if number == signal.SIGALRM else "crash"
        what = f"{kind}: {signal.Signals(number).name if number > 0 else f'exit status {worker.exitcode}'}"
        tally.cases += 1
        tally.findings.append(Finding(name, seed, first - 1, what, b""))
    tally.seconds = time.monotonic() - start
    if any(not finding.data for finding in tally.findings):
        tally.findings = [_with_data(finding) for finding in tally.findings]
    return tally


def _with_data(finding: Finding) -> Finding:
    if finding.data:
        return finding
    from tests.hostile.targets import make_target

    target = make_target(finding.target)
    data = target.make(chance_of(finding.target, finding.seed, finding.case))
    target.close()
    return Finding(finding.target, finding.seed, finding.case, finding.what, data)


def _collect(receiver: Any, tally: Tally) -> bool:
    """Whether the worker ended by itself."""
    while True:
        try:
            cases, outcomes, findings, peak, slowest, ended = receiver.recv()
        except EOFError:
            return False
        tally.cases += cases
        tally.outcomes.update(outcomes)
        tally.findings += findings
        tally.peak_bytes = max(tally.peak_bytes, peak)
        tally.slowest_seconds = max(tally.slowest_seconds, slowest)
        if ended:
            return True


def _work(name: str, first: int, cases: int, seed: int, deadline: float | None, at: mmap.mmap, sender: Any) -> None:
    from tests.hostile.targets import make_target

    target = make_target(name)
    for number in range(20):  # imports and caches do not count
        outcome_or_finding(target, name, seed + 1_000_003, number)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    done, outcomes, findings, peak, slowest = 0, Counter[str](), [], 0, 0.0
    for case in range(first, cases):
        at[:8] = case.to_bytes(8, "little")
        found, grown, took = outcome_or_finding(target, name, seed, case)
        if isinstance(found, Finding):
            findings.append(found)
            outcomes["FINDING"] += 1
        else:
            outcomes[found] += 1
        done, peak, slowest = done + 1, max(peak, grown), max(slowest, took)
        late = deadline is not None and time.monotonic() > deadline
        if done == _REPORT_EVERY or findings or late:
            sender.send((done, outcomes, findings, peak, slowest, late))
            done, outcomes, findings = 0, Counter(), []
        if late:
            return
    sender.send((done, outcomes, findings, peak, slowest, True))
    target.close()


def outcome_or_finding(target: Target, name: str, seed: int, case: int) -> tuple[str | Finding, int, float]:
    """The outcome of a case, by how many bytes the process's resident memory grew during it, and its seconds."""
    data = target.make(chance_of(name, seed, case))
    before = _restart_peak()
    target.decoded_bytes = 0
    start = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS)  # its signal ends the process even within C code
    try:
        found: str | Finding = outcome(target, data)
    except Exception as error:  # noqa: BLE001 - any exception that is not ours is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"exception: {type(error).__name__}: {str(error)[:200]} at {Path(last.filename).name}:{last.lineno}"
        found = Finding(name, seed, case, text, data)
    signal.setitimer(signal.ITIMER_REAL, 0)
    took = time.perf_counter() - start
    grown = _status("VmHWM") - before
    if grown > _bound(target, data) and not isinstance(found, Finding):
        found = Finding(name, seed, case, _excess(target, data, grown), data)
    return found, grown, took


def outcome_in_bounds(target: Target, data: bytes) -> str:
    """`outcome`, or a description of how much memory it took if that is beyond the bound."""
    before = _restart_peak()
    target.decoded_bytes = 0
    found = outcome(target, data)
    grown = _status("VmHWM") - before
    return found if grown <= _bound(target, data) else _excess(target, data, grown)


def _bound(target: Target, data: bytes) -> int:
    return _BASE_BYTES + _PER_BYTE * len(data) + _DECODED_COPIES * target.decoded_bytes


def _excess(target: Target, data: bytes, grown: int) -> str:
    return f"memory: {grown >> 20} MiB for {len(data)} bytes, {target.decoded_bytes} decoded"


def _restart_peak() -> int:
    """Reset the highest resident memory so far. Returns the present one in bytes."""
    _CLEAR.write_bytes(b"5")
    return _status("VmRSS")


def _status(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    return 0
