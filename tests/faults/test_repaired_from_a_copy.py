"""Damaged files are fetched again from where they still are: the upstream, or a second copy of the mirror. Nothing else
ever takes their place."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ccpr
from ccpr.mirror.keys import new_key
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
    assert {one["origin"] for one in command("verify", "s", "--repair")["damages"]} == {third.as_uri()}
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
