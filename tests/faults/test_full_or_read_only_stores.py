"""A store that is full, or that cannot be written: what holds, releases, drops, copies and tries points says so by a
typed error, nothing is lost, and the same works when the store does again."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

import ccpr
from ccpr.mirror import local_store
from ccpr.mirror.local_store import LocalStore
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import command
from tests.support.simulated import rows

Fault = Callable[[Path], AbstractContextManager[Any]]


@contextmanager
def full(place: Path) -> Iterator[None]:
    """A file can be made there, and nothing be written to it."""
    write = local_store._write_all

    def fails(descriptor: int, chunk: Any) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(place):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(descriptor, chunk)

    with patch.object(local_store, "_write_all", fails):
        yield


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Nothing is made there, nor deleted."""
    create, delete = LocalStore._create, LocalStore.delete

    def check(store: LocalStore) -> None:
        if store.root.is_relative_to(place):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def no_file(store: LocalStore, temporary: str) -> Any:
        check(store)
        return create(store, temporary)

    def no_deletion(store: LocalStore, name: str) -> None:
        try:
            check(store)
        except OSError as error:
            raise store._failed("delete", name, error) from error
        delete(store, name)

    with patch.object(LocalStore, "_create", no_file), patch.object(LocalStore, "delete", no_deletion):
        yield


@contextmanager
def full_for_kept_points(place: Path) -> Iterator[None]:
    """A point can be made, and then there is no room for the list of those that stay by themselves."""
    begin = LocalStore.begin

    def fails(store: LocalStore, name: str, *more: Any, **options: Any) -> Any:
        if store.root.is_relative_to(place) and name.startswith("kept/"):
            raise store._failed("write", name, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return begin(store, name, *more, **options)

    with patch.object(LocalStore, "begin", fails):
        yield


faults = pytest.mark.parametrize("fault", [full, read_only, full_for_kept_points])
whole_faults = pytest.mark.parametrize("fault", [full, read_only])


def refused(fault: Fault, place: Path, *words: str) -> None:
    with fault(place):
        error = command(*words, code=1)["error"]
    assert error["code"] == "STORE_FAILED"
    assert error["remedy"]


@pytest.fixture
def shop(one_table: OneTable) -> OneTable:
    return one_table.replicated(4)


@faults
def test_holding_releasing_and_dropping_lose_nothing(shop: OneTable, fault: Fault) -> None:
    place = shop.source.mirror_folder()
    refused(fault, place, "points", "hold", "s", "1", "--name", "one")
    assert [point["held"] for point in command("points", "s")] == [[]] * 4
    shop.assert_equal()
    command("points", "hold", "s", "1", "--name", "one")
    refused(fault, place, "points", "release", "s", "one")
    assert rows(shop.read("one")) == rows(shop.truth[1])
    refused(fault, place, "points", "drop", "s", "2", "--yes")
    assert shop.lsns() == [0, 1, 2, 3]
    shop.assert_equal()
    command("points", "drop", "s", "2", "--yes")
    command("points", "release", "s", "one")
    assert shop.lsns() == [0, 1, 3]
    shop.assert_equal()
    assert command("verify", "s")["sound"]


@faults
def test_points_that_expire_meanwhile_go_when_the_store_works_again(shop: OneTable, fault: Fault) -> None:
    command("points", "hold", "s", "0", "--name", "zero")
    command("alter", "s", "--keep", "hourly:2")
    before = shop.lsns()
    with shop.source.storage.begin() as transaction:
        transaction.insert(DATABASE, "a", {"n": [100], "v": ["v100"]})
    refused(fault, shop.source.mirror_folder(), "run", "s")
    assert set(before) <= set(shop.lsns()), "none has gone"
    for lsn in before:
        assert rows(shop.read(str(lsn))) == rows(shop.truth[lsn])
    command("run", "s")
    newest = shop.lsns()[-1]
    assert rows(shop.read(str(newest))) == rows(shop.source.storage.rows_at(DATABASE, "a", shop.source.storage.now))
    assert shop.lsns() == [0, newest]
    assert rows(shop.read("zero")) == rows(shop.truth[0])
    assert command("verify", "s")["sound"]


@whole_faults
def test_a_copy_goes_on_when_its_store_works_again(shop: OneTable, home: Path, fault: Fault) -> None:
    place = home / "second"
    refused(fault, place, "copy", "s", "--to", str(place))
    command("copy", "s", "--to", str(place))
    shop.work()
    refused(fault, place, "copy", "s", "--to", str(place))
    (known,) = command("status", "s")["copies"]
    assert (known["lsn"], known["attempts"], known["failure"]["code"]) == (3, 1, "STORE_FAILED")
    copied = ccpr.open_mirror(place).table(f"{DATABASE}.a")
    for lsn in range(4):
        assert rows(copied.to_arrow(at=lsn)) == rows(shop.truth[lsn])
    assert command("copy", "s", "--to", str(place))["newest_point"] == 4
    assert rows(ccpr.open_mirror(place).table(f"{DATABASE}.a").to_arrow(at=4)) == rows(shop.truth[4])
    assert command("status", "s")["copies"][0]["attempts"] == 0


@whole_faults
def test_what_is_copied_drilled_and_dumped_from_needs_not_be_written(shop: OneTable, home: Path, fault: Fault) -> None:
    with fault(shop.source.mirror_folder()):
        assert command("copy", "s", "--to", str(home / "second"))["newest_point"] == 3
        assert command("drill", "s", "--at", "2")["good"]
        assert command("export", "s", "--all", "--out", str(home / "out"))["lsn"] == 3
        assert command("export", "s", "--format", "sql", "--out", str(home / "s.sql"))["rows"] == 4
        assert command("verify", "s")["sound"]
    assert rows(pq.read_table(home / "out" / f"{DATABASE}.a.parquet")) == rows(shop.truth[3])
    assert rows(ccpr.open_mirror(home / "second").table(f"{DATABASE}.a").to_arrow(at=3)) == rows(shop.truth[3])


def test_a_drill_whose_scratch_place_is_full_says_so_and_leaves_nothing(shop: OneTable, home: Path) -> None:
    scratch, says = home / "scratch", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with patch.object(pq.ParquetWriter, "write_batch", side_effect=says):
        done = command("drill", "s", "--into", str(scratch), code=1)
    assert (done["failure"]["code"], "--into" in done["failure"]["remedy"]) == ("STORE_FAILED", True)
    assert list(scratch.iterdir()) == []
    assert command("status", "s")["drill"]["trouble"]
    done = command("drill", "s", "--at", "3", "--into", str(scratch))
    assert (done["good"], done["rows"]) == (True, len(shop.truth[3]))


@pytest.mark.parametrize("words", [("export", "--all"), ("dump",)], ids=["export", "dump"])
def test_a_file_of_rows_is_complete_or_not_there(shop: OneTable, home: Path, words: tuple[str, ...]) -> None:
    place = home / "out"
    place.write_text("a file is where the folder should be")
    out = str(place if words[0] == "export" else place / "s.sql")
    work = partial(command, words[0], "s", *words[1:], "--out", out)
    assert work(code=1)["error"]["code"] == "STORE_FAILED"
    place.unlink()
    place.mkdir()
    work()
    shutil.rmtree(place)
    shop.assert_equal()
