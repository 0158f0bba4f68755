"""Executors and leases: a dead owner is seen at once, a living one never."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccpr.base.loops import Guard
from ccpr.state.errors import LeaseLost, StateUnreadable
from ccpr.state.lease import Executor, Lease
from ccpr.state.log import CcprLog
from ccpr.state.migrations import open_database
from tests.support.values import NOW, a_subscription
from tests.support.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def log(tmp_path: Path) -> CcprLog:
    log = CcprLog(open_database(f"sqlite:///{tmp_path}/catalog.db"))
    log.insert(a_subscription().to_row(NOW))
    return log


def test_a_living_executor_is_not_dead_and_strangers_cannot_be_judged(tmp_path: Path) -> None:
    ours = Executor(tmp_path)
    other = Executor(tmp_path)
    assert not other.is_dead(ours.id)
    assert not other.is_dead("00000000-0000-4000-8000-000000000009")
    assert not other.is_dead("../../etc/passwd")
    ours.close()
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_an_executor_that_could_not_free_its_lease_is_dead_when_it_has_ended(log: CcprLog, tmp_path: Path) -> None:
    living, ended = Executor(tmp_path / "locks"), Executor(tmp_path / "locks")
    claim = log.claim("sub", ended.id, 30, living.is_dead)
    holding = ended.holding(log, claim)
    holding.__enter__()
    log.engine.dispose()
    (tmp_path / "catalog.db").rename(tmp_path / "away.db")
    (tmp_path / "catalog.db").mkdir()  # a database that is away
    with pytest.raises(StateUnreadable):
        holding.__exit__(None, None, None)
    assert not living.is_dead(ended.id)
    ended.close()
    assert living.is_dead(ended.id)
    for path in (tmp_path / "locks").iterdir():
        os.utime(path, (0, 0))
    living.close()
    assert list((tmp_path / "locks").iterdir()) == [], "those that ended long ago are removed"


def test_a_killed_executor_is_seen_as_dead(tmp_path: Path) -> None:
    script = "import sys, os, signal\nfrom pathlib import Path\nfrom ccpr.state.lease import Executor\n"
    script += "e = Executor(Path(sys.argv[1])); print(e.id, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    executor = Executor(tmp_path)
    assert executor.is_dead(killed.stdout.strip()), killed.stderr
    executor.close()


def test_a_lease_is_renewed_while_work_goes_on_and_freed_at_its_end(log: CcprLog) -> None:
    now = [1000.0]
    log = CcprLog(log.engine, lambda: now[0])
    claim = log.claim("sub", "a", 0.3, lambda owner: False)
    with Lease(log, claim, ttl_seconds=0.3) as lease:
        for _ in range(5):  # it would have expired
            now[0] += 0.25
            until(lambda: log.row("sub").lease_expires_at == round((now[0] + 0.3) * 1000), "a renewal", pause=0.02)
            assert log.is_held(log.row("sub"))
        lease.check()
    assert log.row("sub").lease_expires_at == 0


def test_an_owner_that_was_displaced_loses_its_lease(log: CcprLog) -> None:
    claim = log.claim("sub", "a", 30, lambda owner: False)
    with Lease(log, claim, ttl_seconds=0.03) as lease:
        log.claim("sub", "b", 30, lambda owner: True)
        until(lambda: lease.lost, "it is lost", pause=0.01)
        with pytest.raises(LeaseLost):
            lease.check()
    assert log.row("sub").cn_uuid == "b"
    assert log.row("sub").lease_expires_at > 0


def test_whatever_a_renewal_raises_the_next_one_renews(log: CcprLog, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, renew, guard = log.claim("sub", "a", 30.0, lambda owner: False), log.renew, Guard("leases")
    calls: list[int] = []

    def once_broken(*args: object) -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("the driver is out of step")
        return renew(claim, 30.0)

    monkeypatch.setattr(log, "renew", once_broken)
    with Lease(log, claim, ttl_seconds=0.03, guard=guard) as lease:
        until(lambda: len(calls) >= 3, "further renewals", pause=0.01)
        lease.check()
    assert guard.errors == 1
