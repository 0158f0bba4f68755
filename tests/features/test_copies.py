"""Second copies of a mirror: whatever it is and whenever a copy was killed, the copy reads as the mirror does; and one
that is promoted is the mirror."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import ccpr
from ccpr.maintenance.claims import TTL_SECONDS, Worker, claimed
from ccpr.maintenance.second_copy import SecondCopy
from ccpr.mirror.encryption_keys import new_key
from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.service.copies import copy
from ccpr.service.workspace import Workspace
from ccpr.state.care_records import copy_id
from ccpr.state.errors import SubscriptionBusy
from ccpr.state.pins import Pin, Pins
from tests.support.one_table import DATABASE, DAY, OneTable
from tests.support.replica import command
from tests.support.simulated import rows
from tests.support.values import NOW

TABLE = f"{DATABASE}.a"


@pytest.fixture
def place(home: Path) -> Path:
    return home / "second"


def assert_same(shop: OneTable, place: Path | str) -> None:
    """The copy has the points and holds of the mirror, and each reads as the source was then."""
    mirror, second = shop.source.mirror(), ccpr.open_mirror(str(place))
    found = second.points()
    assert [point.lsn for point in found] == [point.lsn for point in mirror.points()]
    for point in found:
        expected = rows(shop.truth[point.lsn])
        assert rows(second.table(TABLE).to_arrow(at=point.lsn)) == expected
    held = Mirror(open_store(str(place))).kept().holds
    assert held == Mirror(LocalStore(shop.source.mirror_folder())).kept().holds


def assert_reads(shop: OneTable, place: Path | str) -> None:
    """It has all points, and each reads as the source was then."""
    second = ccpr.open_mirror(str(place))
    assert {one.lsn: rows(second.table(TABLE).to_arrow(at=one.lsn)) for one in second.points()} == {
        lsn: rows(expected) for lsn, expected in shop.truth.items()
    }


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and "work" not in path.parts}


def test_a_copy_follows_point_by_point_and_costs_what_has_changed(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe("--keep", "all:90m,hourly:3,daily:2", "--retain-files", "0")
    for number in range(12):
        one_table.work(30 * 60 if number < 8 else DAY)
        if number == 3:
            command("points", "hold", "s", "2", "--name", "before")
        if number % 2:
            done = command("copy", "s", "--to", str(place))
            assert done["newest_point"] == number
            assert_same(one_table, place)
    again = command("copy", "s", "--to", str(place))
    assert (again["points"], again["objects"], again["bytes"]) == (0, 0, 0)
    one_table.work(60)
    done = command("copy", "s", "--to", str(place))
    assert (done["points"], done["objects"]) == (1, command("points", "s")[-1]["objects_copied"])
    assert_same(one_table, place)
    assert files(place) <= files(one_table.source.mirror_folder()), "what the mirror has deleted is gone"
    command("points", "release", "s", "before")
    command("copy", "s", "--to", str(place))
    assert_same(one_table, place)


@contextmanager
def killed_after(writes: int) -> Iterator[None]:
    """The copy's store fails for good after so many files."""
    left, real = [writes], LocalStore.begin

    def begin(store: LocalStore, name: str, *more: Any, **how: Any) -> Any:
        if "second" in store.url and (left := left_of()) < 0:
            raise StoreFailed("killed", subject=f"{name} {left}")
        return real(store, name, *more, **how)

    def left_of() -> int:
        left[0] -= 1
        return left[0]

    with patch.object(LocalStore, "begin", begin):
        yield


def test_a_copy_that_is_killed_anywhere_is_read_as_of_an_older_point_and_goes_on(
    one_table: OneTable, place: Path
) -> None:
    one_table.source.subscribe("--keep", "all:90m,hourly:4")
    killed, between = 0, set[int]()
    for writes in range(16):
        one_table.work(20 * 60)
        with closing(Workspace()) as workspace, killed_after(writes):
            try:
                copy(workspace, "s", str(place), "")
            except StoreFailed:
                killed += 1
        if (place / "head.json").exists():
            second = ccpr.open_mirror(place)
            for point in second.points():
                assert rows(second.table(TABLE).to_arrow(at=point.lsn)) == rows(one_table.truth[point.lsn])
            between.add(second.points()[-1].lsn - one_table.lsns()[-1])
    assert killed > 3
    assert len(between) > 1, "a copy that was killed is sometimes at a point in between"
    command("copy", "s", "--to", str(place))
    assert_same(one_table, place)
    assert command("relay", "pins", "s")["pins"] == [], "no point stays because of copies that have ended"


def test_a_copy_can_be_encrypted_though_the_mirror_is_not_and_the_other_way_round(
    one_table: OneTable, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPY_KEY", new_key())
    one_table.source.subscribe()
    for _ in range(2):
        one_table.work()
    command("copy", "s", "--to", str(place), "--encrypt", "env:COPY_KEY")
    assert_same(one_table, f"{place}?encrypt=env:COPY_KEY")
    with pytest.raises(ccpr.MirrorEncrypted):
        ccpr.open_mirror(place).points()
    command("copy", "s", "--promote", str(place), "--encrypt", "env:COPY_KEY")
    one_table.work()
    plain = place.with_name("third")
    command("copy", "s", "--to", str(plain), "--in-clear")
    second = ccpr.open_mirror(plain)
    assert {one.lsn: rows(second.table(TABLE).to_arrow(at=one.lsn)) for one in second.points()} == {
        lsn: rows(expected) for lsn, expected in one_table.truth.items()
    }


def test_a_promoted_copy_is_the_mirror_and_the_former_one_is_written_no_more(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe()
    for _ in range(3):
        one_table.work()
    command("points", "hold", "s", "1", "--name", "one")
    command("copy", "s", "--to", str(place))
    error = command("alter", "s", "--mirror", str(place), code=1)["error"]
    assert (error["code"], "--promote" in error["remedy"]) == ("MIRROR_FOREIGN", True)
    one_table.work()
    shutil.rmtree(one_table.source.mirror_folder())
    assert command("run", "s", code=1)["error"]["code"] == "MIRROR_MISSING"
    done = command("copy", "s", "--promote", str(place))
    assert (done["points"], done["newest_point"], done["newest_before"]) == (3, 2, 3)
    one_table.work()
    assert one_table.lsns() == [0, 1, 2, 4]
    assert [hold["name"] for hold in command("points", "s")[1]["held"]] == ["one"]
    for lsn in one_table.lsns():
        assert rows(one_table.read(str(lsn))) == rows(one_table.truth[lsn])
    assert command("verify", "s")["sound"]
    assert command("copy", "s", "--to", str(place), code=1)["error"]["code"] == "MIRROR_IN_USE"
    assert not one_table.source.mirror_folder().exists()


def test_a_place_that_is_no_copy_of_this_mirror_is_refused_and_stays_as_it_is(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe()
    one_table.work()
    inside = one_table.source.mirror_folder() / "second"
    for where in (one_table.source.mirror_folder(), inside):
        assert command("copy", "s", "--to", str(where), code=1)["error"]["code"] == "MIRROR_IN_USE"
    shutil.copytree(one_table.source.mirror_folder(), place)
    before = {name: (place / name).read_bytes() for name in files(place)}
    assert command("copy", "s", "--to", str(place), code=1)["error"]["code"] == "MIRROR_FOREIGN"
    (place / "mirror.json").unlink()
    assert command("copy", "s", "--to", str(place), code=1)["error"]["code"] == "MIRROR_FOREIGN"
    before.pop("mirror.json")
    assert {name: (place / name).read_bytes() for name in files(place)} == before


def test_a_copy_that_is_ahead_of_a_restored_mirror_is_not_overwritten(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe()
    one_table.work()
    backup = place.with_name("backup")
    shutil.copytree(one_table.source.home / "home", backup)
    one_table.work()
    command("copy", "s", "--to", str(place))
    shutil.rmtree(one_table.source.home / "home")
    shutil.copytree(backup, one_table.source.home / "home")
    assert command("copy", "s", "--to", str(place), code=1)["error"]["code"] == "COPY_DIVERGED"
    assert rows(ccpr.open_mirror(place).table(TABLE).to_arrow(at=1)) == rows(one_table.truth[1])


def test_a_damaged_object_does_not_reach_the_copy(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe()
    one_table.work()
    file = next((one_table.source.mirror_folder() / "objects").iterdir())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)
    assert command("copy", "s", "--to", str(place), code=1)["error"]["code"] == "MIRROR_DAMAGED"
    assert not (place / "head.json").exists()
    assert list((place / "objects").glob("*")) == []
    command("verify", "s", "--repair")
    command("copy", "s", "--to", str(place))
    assert_same(one_table, place)


def test_what_the_mirror_has_lost_stays_in_the_copy(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe()
    one_table.work()
    command("copy", "s", "--to", str(place))
    for file in (one_table.source.mirror_folder() / "objects").iterdir():
        file.unlink()
    one_table.work()
    command("copy", "s", "--to", str(place))
    for lsn, expected in one_table.truth.items():
        assert rows(ccpr.open_mirror(place).table(TABLE).to_arrow(at=lsn)) == rows(expected)


def test_a_copy_says_whose_it_is_and_that_it_is_one(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe()
    one_table.work()
    command("copy", "s", "--to", str(place))
    own, original = (
        json.loads((folder / "mirror.json").read_text()) for folder in (place, one_table.source.mirror_folder())
    )
    assert (own["task_id"], own["is_copy"]) == (original["task_id"], True)
    assert own["epoch"] != original["epoch"]


def test_what_a_killed_copy_has_pinned_may_go_with_the_next_one(one_table: OneTable, place: Path) -> None:
    """Else all points would stay from then on. That of a copy to another place is its own."""
    one_table.source.subscribe("--retain", "1")
    one_table.work()
    pins = {}
    for where in (place, place.with_name("third")):
        with closing(Workspace()) as workspace:
            records, point = Pins(workspace.log.engine, workspace.log.row("s").task_id), workspace.mirror("s").point()
            pins[where] = f"ccpr_copy_{copy_id(where.as_uri())}_killed"
            records.add(Pin(pins[where], point.lsn, point.at.physical, None, NOW, NOW))
    for _ in range(2):
        one_table.work()
    assert one_table.lsns() == [0, 1, 2]
    command("copy", "s", "--to", str(place))
    assert [pin["snapshot"] for pin in command("relay", "pins", "s")["pins"]] == [pins[place.with_name("third")]]
    command("copy", "s", "--to", str(place.with_name("third")))
    assert command("relay", "pins", "s")["pins"] == []
    one_table.work()
    assert one_table.lsns() == [3]
    assert rows(ccpr.open_mirror(place).table(TABLE).to_arrow(at=0)) == rows(one_table.truth[0])
    command("copy", "s", "--to", str(place))
    assert_same(one_table, place)


def test_of_two_copies_to_one_place_the_second_says_that_the_first_is_under_way(
    one_table: OneTable, place: Path
) -> None:
    one_table.source.subscribe()
    one_table.work()
    command("copy", "s", "--to", str(place))
    one_table.work()
    with claimed(LocalStore(place), "copy", Worker()):
        error = command("copy", "s", "--to", str(place), code=1)["error"]
        assert error["code"] == "SUBSCRIPTION_BUSY"
    (known,) = command("status", "s")["copies"]
    assert (known["lsn"], known["attempts"]) == (0, 0), "it has not failed"
    command("copy", "s", "--to", str(place))
    assert_same(one_table, place)


def change(shop: OneTable, *options: str) -> None:
    """An iteration of which no truth is kept."""
    with shop.source.storage.begin() as transaction:
        transaction.insert(DATABASE, "a", {"n": [1000 + len(shop.truth)], "v": ["x"]})
    shop.truth[-len(shop.truth)] = shop.truth[0]  # the next row has another key
    assert command("run", "s", *options)["point"]


@pytest.mark.parametrize("overlaid", [False, True])
@pytest.mark.parametrize("retain", ["0", "1"])
def test_a_mirror_of_another_history_never_goes_on_with_a_copy_until_somebody_decides(
    one_table: OneTable, place: Path, retain: str, overlaid: bool
) -> None:
    """Restored from a backup, it makes points with numbers that the copy's have, and in time drops those."""
    one_table.source.subscribe("--retain", retain, "--retain-files", "0")
    mirror, backup = one_table.source.mirror_folder(), place.with_name("backup")
    for _ in range(2):
        one_table.work()
    command("copy", "s", "--to", str(place))
    shutil.copytree(mirror, backup)
    for _ in range(3):
        one_table.work()
    command("copy", "s", "--to", str(place))
    newest = one_table.lsns()[-1]
    if not overlaid:
        shutil.rmtree(mirror)
    shutil.copytree(backup, mirror, dirs_exist_ok=True)
    command("state", "adopt", "s")
    before = {name: (place / name).read_bytes() for name in files(place)}
    for _ in range(4):
        assert command("copy", "s", "--to", str(place), code=1)["error"]["code"] == "COPY_DIVERGED"
        change(one_table, "--allow-resync")
    error = command("copy", "s", "--to", str(place), "--give-up", str(newest - 1), code=1)["error"]
    assert (error["code"], f"--give-up {newest}" in error["remedy"]) == ("COPY_DIVERGED", True)
    assert {name: (place / name).read_bytes() for name in files(place)} == before
    assert rows(ccpr.open_mirror(place).table(TABLE).to_arrow()) == rows(one_table.truth[newest])
    command("copy", "s", "--to", str(place), "--give-up", str(newest))
    change(one_table)
    command("copy", "s", "--to", str(place))
    ours, theirs = one_table.source.mirror(), ccpr.open_mirror(place)
    assert [point.lsn for point in theirs.points()] == [point.lsn for point in ours.points()]
    assert rows(theirs.table(TABLE).to_arrow()) == rows(ours.table(TABLE).to_arrow())


@pytest.mark.parametrize("writes", [None, 9, 14, 18])
def test_a_copy_whose_points_have_all_gone_from_the_mirror_goes_on(
    one_table: OneTable, place: Path, writes: int | None
) -> None:
    """The mirror noted which points it brought there, also of a copy that was killed between two of them."""
    one_table.source.subscribe("--retain", "3", "--retain-files", "0")
    for _ in range(3):
        one_table.work()
    with closing(Workspace()) as workspace, killed_after(writes if writes is not None else 10**6):
        try:
            copy(workspace, "s", str(place), "")
            assert writes is None
        except StoreFailed:
            assert (place / "head.json").exists()
    for _ in range(5):
        one_table.work()
    assert min(one_table.lsns()) > 2
    command("copy", "s", "--to", str(place))
    assert_same(one_table, place)


def test_a_copy_that_the_mirror_does_not_know_is_not_taken_for_its_own(one_table: OneTable, place: Path) -> None:
    """What it noted is lost, and it has dropped the points: nobody knows."""
    one_table.source.subscribe("--retain", "1")
    one_table.work()
    command("copy", "s", "--to", str(place))
    shutil.rmtree(one_table.source.mirror_folder() / "copies")
    command("copy", "s", "--to", str(place))
    one_table.work()
    one_table.work()
    assert command("copy", "s", "--to", str(place), code=1)["error"]["code"] == "COPY_DIVERGED"
    assert rows(ccpr.open_mirror(place).table(TABLE).to_arrow(at=0)) == rows(one_table.truth[0])


def test_a_full_mirror_can_be_copied(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe()
    one_table.work()
    real = LocalStore.replace

    def replace(store: LocalStore, name: str, content: bytes) -> None:
        if name.startswith("copies/"):
            raise StoreFailed("no space left on device", subject=name)
        real(store, name, content)

    with closing(Workspace()) as workspace, patch.object(LocalStore, "replace", replace):
        copy(workspace, "s", str(place), "")
    assert_same(one_table, place)


def test_of_two_machines_the_one_that_was_suspended_does_not_go_on(one_table: OneTable, place: Path) -> None:
    """It was away for longer than its claim lasts: neither the head goes back, nor does what the other brought."""
    one_table.source.subscribe()
    one_table.work()
    real = SecondCopy._bring

    def bring(work: SecondCopy, *more: Any) -> None:
        real(work, *more)
        if work is late:
            for claim in (place / "work" / "copy-claims").iterdir():
                before = claim.stat().st_mtime - 2 * TTL_SECONDS
                os.utime(claim, (before, before))
            one_table.work()
            command("copy", "s", "--to", str(place))

    with closing(Workspace()) as workspace, patch.object(SecondCopy, "_bring", bring):
        late = SecondCopy(workspace.mirror("s"), Mirror(LocalStore(place)))
        with pytest.raises(SubscriptionBusy):
            late.run()
    assert_same(one_table, place)
    assert command("copy", "s", "--to", str(place))["points"] == 0


@pytest.mark.parametrize("by_setting", [False, True])
def test_a_copy_is_encrypted_as_the_mirror_is_unless_it_is_asked_for_in_clear(
    one_table: OneTable, place: Path, monkeypatch: pytest.MonkeyPatch, by_setting: bool
) -> None:
    monkeypatch.setenv("MIRROR_KEY", new_key())
    one_table.source.subscribe("--encrypt", "env:MIRROR_KEY")
    one_table.work()

    def copied(to: str, *options: str) -> None:
        if by_setting:
            command("alter", "s", "--copy-to", f"{to}?encrypt=none" if options else to)
        command("copy", "s", *([] if by_setting else ["--to", to, *options]))

    copied(str(place))
    assert_reads(one_table, f"{place}?encrypt=env:MIRROR_KEY")
    with pytest.raises(ccpr.MirrorEncrypted):
        ccpr.open_mirror(place).points()
    plain = place.with_name("plain")
    copied(str(plain), "--in-clear")
    assert_reads(one_table, plain)
    one_table.work()
    error = command("copy", "s", "--to", str(plain), code=1)["error"]
    assert (error["code"], "--in-clear" in error["remedy"]) == ("MIRROR_NOT_ENCRYPTED", True)
    copied(str(plain), "--in-clear")
    assert_reads(one_table, plain)
    command("copy", "s", "--promote", str(place))
    one_table.work()
    assert command("verify", "s")["sound"]


def test_a_copy_or_a_drill_has_no_place_that_is_in_use_however_it_is_spelled(one_table: OneTable, place: Path) -> None:
    one_table.source.subscribe()
    one_table.work()
    command("copy", "s", "--to", str(place))
    mirror, link = one_table.source.mirror_folder(), place.with_name("link")
    link.symlink_to(mirror)
    command("target", "add", "s", "lake", "--to", str(place.with_name("lake")))
    taken = [
        mirror,
        f"{mirror}/",
        mirror.as_uri(),
        mirror / "inside",
        mirror.parent,
        mirror / ".." / mirror.name,
        link,
        link / "inside",
        link.as_uri(),
        place.with_name("lake"),
        place.with_name("lake") / "d",
        place / "inside",
    ]
    for where in map(str, taken):
        for words in (("copy", "s", "--to", where), ("alter", "s", "--copy-to", where)):
            assert command(*words, code=1)["error"]["code"] == "MIRROR_IN_USE", words
    for where in map(str, taken[:4]):
        assert command("alter", "s", "--drill-into", where, code=1)["error"]["code"] == "MIRROR_IN_USE", where
    other = ("target", "add", "s", "other", "--to", str(place))
    assert command(*other, code=1)["error"]["code"] == "MIRROR_IN_USE"
    command("alter", "s", "--copy-to", str(place), "--copy-every", "1h")
    command("copy", "s", "--promote", str(place))
    one_table.work()
    command("alter", "s", "--retain", "5")
