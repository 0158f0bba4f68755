import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ccpr.serve.listening import Descriptors, for_strangers

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("soft", "hard", "most"), [(300, 900, 900), (900, 900, 900), (300, 2000, 1000)])
def test_a_service_takes_what_the_system_gives(soft: int, hard: int, most: int) -> None:
    """In a process of its own, which cannot take more again."""
    program = (
        "import resource; from ccpr.serve import listening\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "listening.MOST = 1000\n"
        "print(listening.raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "print(listening.for_strangers(512))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(most), str(most), str(min(512, most // 2))]


def test_what_is_open_is_counted() -> None:
    before = Descriptors.now()
    opened = [os.dup(0) for _ in range(10)]
    try:
        assert Descriptors.now().open >= before.open + 10 - 5, "other threads may close theirs meanwhile"
    finally:
        for one in opened:
            os.close(one)
    assert 0 < before.open < before.most
    assert not before.are_few
    assert Descriptors(before.most - 5, before.most).are_few


def test_without_a_free_one_to_look_with_all_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "iterdir", full)
    assert Descriptors.now().are_few


def test_strangers_get_at_most_half() -> None:
    assert for_strangers(1) == 1
    assert for_strangers(10**9) == resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
