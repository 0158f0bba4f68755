"""Damaged files are fetched again from where they still are: the upstream, or a second copy of the mirror. Nothing else
ever takes their place."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import ccpr
from ccpr.mirror.encryption_keys import new_key
from ccpr.serve.caretaking import Caretaker
from ccpr.service.workspace import Workspace
from tests.support.one_table import DATABASE, OneTable, spoil
from tests.support.replica import command
from tests.support.simulated import rows


@pytest.fixture
def second(home: Path) -> Path:
    return home / "second"


@pytest.fixture
def shop(one_table: OneTable) -> OneTable:
    return one_table.replicated(3)


@pytest.fixture
def away(shop: OneTable) -> Iterator[Callable[[], None]]:
    """Stops the upstream until the end of the test."""
    yield shop.source.emulator.stop
    shop.source.emulator.restart()


def files(folder: Path, *kinds: str) -> list[Path]:
    return [file for kind in kinds for file in sorted((folder / kind).rglob("*")) if file.is_file()]


def assert_as_it_was(shop: OneTable) -> None:
    assert command("verify", "s")["sound"]
    for lsn, expected in shop.truth.items():
        assert rows(shop.read(str(lsn))) == rows(expected)


def test_without_an_upstream_every_kind_of_file_comes_from_the_copy(
    shop: OneTable, away: Callable[[], None], second: Path
) -> None:
    command("copy", "s", "--to", str(second))
    away()
    folder = shop.source.mirror_folder()
    damaged = files(folder, "objects", "manifests", "ledger", "definitions")
    assert {file.relative_to(folder).parts[0] for file in damaged} >= {"objects", "manifests", "ledger"}
    for number, file in enumerate(damaged):
        spoil(file) if number % 2 else file.unlink()
    assert not command("verify", "s", code=1)["sound"]
    found = command("verify", "s", "--repair")
    assert found["sound"]
    assert {one["path"]: one["origin"] for one in found["damages"]} == {
        file.relative_to(folder).as_posix(): second.as_uri() for file in damaged
    }
    assert_as_it_was(shop)


def test_what_the_upstream_has_comes_from_there(shop: OneTable, second: Path) -> None:
    command("copy", "s", "--to", str(second))
    for file in files(shop.source.mirror_folder(), "objects"):
        spoil(file)
    found = command("verify", "s", "--repair")
    assert {one["origin"] for one in found["damages"]} <= {"the upstream", second.as_uri()}
    assert "the upstream" in {one["origin"] for one in found["damages"]}
    assert_as_it_was(shop)


def test_a_copy_with_the_same_damage_repairs_nothing(shop: OneTable, away: Callable[[], None], second: Path) -> None:
    command("copy", "s", "--to", str(second))
    away()
    damaged = [*files(shop.source.mirror_folder(), "objects", "manifests"), *files(second, "objects", "manifests")]
    for file in damaged:
        spoil(file)
    found = command("verify", "s", "--repair", code=1)
    assert not found["sound"]
    assert not any(one["repaired"] for one in found["damages"])
    for lsn in shop.truth:
        with pytest.raises((ccpr.MirrorDamaged, ccpr.ObjectDamaged)):
            shop.source.mirror().table(f"{DATABASE}.a").to_arrow(at=lsn)


def test_of_several_copies_one_that_cannot_be_opened_hinders_no_other(
    shop: OneTable, away: Callable[[], None], second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPY_KEY", new_key())
    third = second.with_name("third")
    command("copy", "s", "--to", str(second), "--encrypt", "env:COPY_KEY")
    command("copy", "s", "--to", str(third))
    fourth = second.with_name("fourth")
    command("copy", "s", "--to", str(fourth))
    for file in files(fourth, "objects"):
        file.unlink()
    monkeypatch.delenv("COPY_KEY")
    away()
    for file in files(shop.source.mirror_folder(), "objects"):
        spoil(file)
    found = command("verify", "s", "--repair", code=1)
    assert {one["origin"] for one in found["damages"]} == {third.as_uri()}
    read = {one["place"]: one for one in found["copies"]}
    assert [read[one.as_uri()]["sound"] for one in (second, third, fourth)] == [False, True, True]
    assert read[second.as_uri()]["failure"]["code"] == "KEY_UNUSABLE"
    assert {one["origin"] for one in read[fourth.as_uri()]["found"]["damages"]} == {
        shop.source.mirror_folder().as_uri()
    }
    command("copy", "s", "--forget", str(second))
    assert_as_it_was(shop)


def test_an_encrypted_copy_repairs_a_mirror_that_is_not(
    shop: OneTable, away: Callable[[], None], second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPY_KEY", new_key())
    command("copy", "s", "--to", f"{second}?encrypt=env:COPY_KEY")
    away()
    for file in files(shop.source.mirror_folder(), "objects", "manifests"):
        spoil(file)
    assert command("verify", "s", "--repair")["sound"]
    assert_as_it_was(shop)


def test_each_damaged_file_of_a_copy_is_found_shown_and_mended_from_the_mirror(
    shop: OneTable, away: Callable[[], None], second: Path
) -> None:
    command("copy", "s", "--to", str(second))
    assert command("status", "s")["copies"][0]["verified_at"] is None
    away()
    damaged = files(second, "objects", "manifests", "ledger", "definitions", "points")
    for number, file in enumerate(damaged):
        spoil(file) if number % 2 else file.unlink()
    command("verify", "s", code=1)
    (status,) = command("status", "s")["copies"]
    assert "damaged files" in status["trouble"]
    assert "--copy --repair" in status["trouble"]
    found = command("verify", "s", str(second), "--copy", "--repair")
    (read,) = found["copies"]
    assert {one["path"] for one in read["found"]["damages"]} == {
        file.relative_to(second).as_posix() for file in damaged
    }
    assert {one["origin"] for one in read["found"]["damages"]} == {shop.source.mirror_folder().as_uri()}
    assert command("verify", "s", "--copy")["copies"][0]["found"]["damages"] == []
    (status,) = command("status", "s")["copies"]
    assert (status["damaged"], status["trouble"]) == ({}, "")
    assert status["verified_at"] is not None
    copied = ccpr.open_mirror(second)
    for lsn, expected in shop.truth.items():
        assert rows(copied.table(f"{DATABASE}.a").to_arrow(at=lsn)) == rows(expected)


def test_a_damaged_mirror_mends_no_copy(shop: OneTable, away: Callable[[], None], second: Path) -> None:
    command("copy", "s", "--to", str(second))
    away()
    for place in (shop.source.mirror_folder(), second):
        for file in files(place, "objects", "manifests"):
            spoil(file)
    before = {file: file.read_bytes() for file in files(second, "objects", "manifests")}
    (read,) = command("verify", "s", "--copy", "--repair", code=1)["copies"]
    assert not any(one["repaired"] for one in read["found"]["damages"])
    assert {file: file.read_bytes() for file in before} == before


def test_a_copy_that_is_behind_lacks_nothing(shop: OneTable, second: Path) -> None:
    command("copy", "s", "--to", str(second))
    shop.work()
    assert command("verify", "s", "--copy")["sound"]


def test_what_the_mirror_has_dropped_is_read_again_in_a_copy(shop: OneTable, second: Path) -> None:
    command("copy", "s", "--to", str(second))
    command("alter", "s", "--retain", "1", "--retain-files", "0")
    shop.work()
    shop.work()
    gone = {file.name for file in files(second, "objects")} - {
        file.name for file in files(shop.source.mirror_folder(), "objects")
    }
    assert gone
    for name in gone:
        spoil(second / "objects" / name)
    (read,) = command("verify", "s", "--copy", code=1)["copies"]
    assert {one["path"] for one in read["found"]["damages"]} == {f"objects/{name}" for name in gone}


def test_a_service_reads_copies_again(shop: OneTable, away: Callable[[], None], second: Path) -> None:
    command("copy", "s", "--to", str(second))
    command("alter", "s", "--verify-within", "1d")
    away()
    (file, *_) = files(second, "objects")
    content = file.read_bytes()
    spoil(file)
    with closing(Workspace()) as workspace:
        now = workspace.clock()
        caretaker = Caretaker(workspace, steady=lambda: now)
        caretaker._seconds = 24 * 3600.0
        for _ in range(2):  # a share that ends with the last object does not know that it is the last
            caretaker._round()
        assert caretaker.loop.errors == 0
    assert file.read_bytes() == content
    (status,) = command("status", "s")["copies"]
    assert status["verified_at"] is not None
