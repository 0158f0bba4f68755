"""A place is one process's at a time, whoever it is, and whatever became of the others."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ccpr.maintenance.claims import TTL_SECONDS, PlaceClaim, Worker, claimed
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.store import Store
from ccpr.state.errors import SubscriptionBusy

AT_ONCE = 0.0


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def worker(name: str = "other", dead: tuple[str, ...] = ()) -> Worker:
    return Worker(name, lambda one: one in dead, AT_ONCE)


def held(store: Store) -> list[str]:
    return [name for name in store.names("work") if not name.endswith(".held")]


@contextmanager
def killed(store: LocalStore, name: str, age: float) -> Iterator[None]:
    """Who claimed the place so long ago, and does nothing since."""
    file = f"work/copy-claims/{name}.1"
    store.replace(file, b"")
    before = (store.root / file).stat().st_mtime - age
    os.utime(store.root / file, (before, before))
    yield


def test_the_second_is_refused_and_the_next_one_is_not(store: LocalStore) -> None:
    with claimed(store, "copy", worker("a")) as claim:
        claim.confirm()
        with pytest.raises(SubscriptionBusy), claimed(store, "copy", worker("b")):
            pass
        claim.confirm()
        with claimed(store, "drill", worker("b")):
            claim.confirm()
    with claimed(store, "copy", worker("b")) as claim:
        claim.confirm()
    assert list(store.names("work")) == []


@pytest.mark.parametrize(("age", "dead"), [(TTL_SECONDS + 1, ()), (-TTL_SECONDS - 1, ()), (0, ("a",))])
def test_who_is_dead_hinders_nobody(store: LocalStore, age: float, dead: tuple[str, ...]) -> None:
    with killed(store, "a", age), claimed(store, "copy", worker("b", dead)) as claim:
        claim.confirm()
        assert [name.partition("claims/")[2][0] for name in held(store)] == ["b"]


def test_who_was_only_late_does_not_go_on(store: LocalStore) -> None:
    with claimed(store, "copy", worker("a")) as late:
        file = store.root / held(store)[0]
        os.utime(file, (file.stat().st_mtime - TTL_SECONDS - 1,) * 2)
        with claimed(store, "copy", worker("b")) as claim:
            claim.confirm()
            late._renew_once()
            with pytest.raises(SubscriptionBusy):
                late.confirm()
            claim.confirm()
        with pytest.raises(SubscriptionBusy):
            late.confirm()


def test_a_claim_that_is_renewed_stays(store: LocalStore) -> None:
    with claimed(store, "copy", worker("a")) as claim:
        file = store.root / held(store)[0]
        os.utime(file, (file.stat().st_mtime - TTL_SECONDS - 1,) * 2)
        claim._renew_once()
        with pytest.raises(SubscriptionBusy), claimed(store, "copy", worker("b")):
            pass


def test_who_has_patience_waits_for_the_end_of_another(store: LocalStore) -> None:
    done, first = threading.Event(), PlaceClaim(store, "copy", worker("a"))
    first.begin()

    def wait() -> None:
        with claimed(store, "copy", Worker("b")):
            done.set()

    second = threading.Thread(target=wait)
    second.start()
    assert not done.wait(0.2)
    first.confirm()
    first.end()
    assert done.wait(30)
    second.join()


def test_of_many_at_the_same_moment_never_two_go_on(store: LocalStore) -> None:
    """Each writes first and looks then; some rounds have no winner."""
    start, inside, most = threading.Barrier(8), [0], [0]
    lock, won = threading.Lock(), list[str]()

    def attempt(name: str) -> None:
        for _ in range(20):
            start.wait()
            try:
                with claimed(store, "copy", worker(name)):
                    with lock:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                        won.append(name)
                    with lock:
                        inside[0] -= 1
            except SubscriptionBusy:
                pass

    threads = [threading.Thread(target=attempt, args=(f"w{number}",)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert won
    assert most == [1]
    assert list(store.names("work")) == []
