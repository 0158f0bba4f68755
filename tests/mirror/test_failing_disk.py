"""A disk that fails below a file of a mirror is an error of that file, and never the end of the process. A file that is
cut off does to a map of it what a failing disk does: SIGBUS."""

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.local_store import LocalStore

pytestmark = pytest.mark.integration

BYTES = bytes(range(256)) * 4096

_READ = """
import os, sys
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.local_store import LocalStore
from pathlib import Path
store, name = LocalStore(Path(sys.argv[1])), "objects/a"
whole, opened = store.read(name), store.open(name)
assert opened.slice(0, 10).to_pybytes() == bytes(range(10))
os.truncate(Path(sys.argv[1]) / name, 10)
assert sum(whole.to_pybytes()) > 0, "what was read stays"
try:
    print(sum(opened.slice(500_000, 100).to_pybytes()))
except MirrorDamaged as error:
    print(error.code)
"""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    store.put("objects/a", [BYTES])
    return store


def test_a_file_that_is_cut_off_while_it_is_open_is_damaged_and_kills_nobody(store: LocalStore) -> None:
    made = subprocess.run([sys.executable, "-c", _READ, str(store.root)], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout.strip()) == (0, "MIRROR_DAMAGED"), made.stderr


def test_a_read_that_the_disk_refuses_is_an_error_of_the_store(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = store.open("objects/a")

    def refuse(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", refuse)
    for read in (lambda: opened.slice(0, 10), lambda: store.stored("objects/a")):
        with pytest.raises(StoreFailed, match="Input/output error") as raised:
            read()
        assert raised.value.subject.endswith("objects/a")


def test_a_file_is_summed_without_having_it_in_memory(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpr.mirror.store.SUMMED_BYTES", 1000)
    stored = store.stored("objects/a")
    assert (stored.size, stored.sha256) == (len(BYTES), hashlib.sha256(BYTES).digest())
    store.put("empty", [b""])
    assert store.stored("empty").sha256 == hashlib.sha256(b"").digest()
