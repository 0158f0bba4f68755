"""What is done with a mirror whose manifests go on from earlier files: copies, damages, an adopted or imported state,
points that are dropped. Tables with few objects have such manifests here, too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import ccpr
from tests.support.manifest_parts import divided
from tests.support.one_table import DATABASE, OneTable, spoil
from tests.support.replica import command, source_uri
from tests.support.simulated import rows

POINTS = 6


@pytest.fixture
def shop(one_table: OneTable) -> Iterator[OneTable]:
    with divided():
        shop = one_table.replicated(POINTS)
        assert len(parts(shop)) == POINTS - 1
        yield shop


def parts(shop: OneTable) -> list[str]:
    """Those of the newest manifest, in the point's file."""
    (ref,) = shop.source.mirror()._mirror.point().tables.values()
    return list(ref.parts)


def first_manifest(folder: Path) -> Path:
    (file,) = folder.glob("manifests/*/0-*")
    return file


def test_a_damaged_part_is_one_damage_of_all_points_that_need_it(shop: OneTable, home: Path) -> None:
    folder, second = shop.source.mirror_folder(), home / "second"
    command("copy", "s", "--to", str(second))
    spoil(first_manifest(folder))
    (damage,) = command("verify", "s", code=1)["damages"]
    assert damage["path"] == first_manifest(folder).relative_to(folder).as_posix()
    assert sorted(map(int, damage["points"])) == sorted(shop.truth)
    for lsn in shop.truth:
        with pytest.raises(ccpr.MirrorDamaged):
            shop.source.mirror().table(f"{DATABASE}.a").to_arrow(at=lsn)
    (damage,) = command("verify", "s", "--repair")["damages"]
    assert (damage["repaired"], damage["origin"]) == (True, second.as_uri())
    shop.assert_equal()


def test_a_lost_part_that_nobody_has_is_made_up_for_by_a_resync(shop: OneTable) -> None:
    first_manifest(shop.source.mirror_folder()).unlink()
    assert command("run", "s", code=1)["error"]["code"] == "MIRROR_DAMAGED"
    command("resync", "s", "--table", f"{DATABASE}.a", "--yes")
    assert parts(shop) == []
    assert rows(shop.read(str(shop.lsns()[-1]))) == rows(shop.truth[max(shop.truth)])
    newest = shop.work()
    assert rows(shop.read(str(newest))) == rows(shop.truth[newest])


def test_a_copy_has_all_that_its_points_need(shop: OneTable, home: Path) -> None:
    second = home / "second"
    command("copy", "s", "--to", str(second))
    shop.work()
    command("points", "drop", "s", "--before", str(shop.lsns()[3]), "--yes")
    command("copy", "s", "--to", str(second))
    table = ccpr.open_mirror(second).table(f"{DATABASE}.a")
    for lsn in shop.lsns():
        assert rows(table.to_arrow(at=lsn)) == rows(shop.truth[lsn])
    assert first_manifest(second).is_file()  # though its point is gone


def test_an_adopted_state_knows_the_parts(shop: OneTable) -> None:
    command("state", "adopt", "s")
    shop.work()
    assert len(parts(shop)) == POINTS
    command("points", "drop", "s", "--before", str(shop.lsns()[3]), "--yes")
    shop.work()
    shop.assert_equal()
    assert command("verify", "s")["sound"]


def test_an_imported_state_knows_the_parts(shop: OneTable, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, mirror = home / "state.json", shop.source.mirror_folder()
    command("state", "export", "s", "--out", str(file))
    part = first_manifest(mirror)
    aside = part.rename(home / "aside")
    monkeypatch.setenv("CCPR_HOME", str(home / "other"))
    words = ("state", "import", str(file), "--mirror", str(mirror))
    assert command(*words, code=1)["error"]["code"] == "MIRROR_CONTRADICTS_STATE"
    aside.rename(part)
    command(*words, "--from", source_uri(shop.source.emulator.port))
    assert command("verify", "s")["sound"]
    shop.assert_equal()
