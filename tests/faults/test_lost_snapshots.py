"""Snapshots upstream of a history that was lost: found by the subscription's uid in their names, and dropped when
asked; nobody else's."""

import shutil
from pathlib import Path

import pytest

from ccpr_emulator.engine.storage import Storage
from ccpr_emulator.simulated_upstream import SimulatedUpstream
from tests.support.replica import command


@pytest.fixture
def storage() -> Storage:
    storage = Storage()
    storage.create_database("shop")
    storage.create_table("shop", "a", {"id": "int not null"}, primary_key=["id"])
    return storage


def subscribe(emulator: SimulatedUpstream, publisher: str, account: str) -> None:
    source = f"mysql://{account}#dump:env:UPSTREAM_PASSWORD@127.0.0.1:{emulator.port}"
    command("subscribe", "s", "--from", source, "--database", "shop", "--publication", "p", "--publisher", publisher)


def roles() -> dict[str, str]:
    return {entry["name"]: entry["role"] for entry in command("snapshots", "s")}


def test_snapshots_of_a_lost_history_are_listed_and_dropped(storage: Storage, home: Path) -> None:
    storage.create_publication("p", "shop")
    with SimulatedUpstream(storage, password="111") as emulator:
        subscribe(emulator, "sys", "sys")
        command("run", "s")
        copy = home.with_name("copy")
        shutil.copytree(home, copy)
        command("run", "s")  # of which the copy knows nothing
        shutil.rmtree(home)
        copy.rename(home)
        (known,) = [name for name, role in roles().items() if role != "lost"]
        lost = {name for name, role in roles().items() if role == "lost"}
        assert (len(lost), known in lost) == (1, False)
        uid = known.split("_")[1]
        foreign = {f"xr_{uid}x_1_0_abcdef", f"xr_{uid[::-1]}_1_0_abcdef", f"xr_{uid}_mine", f"xr-{uid}_1_0_abcdef"}
        for name in foreign:
            storage.create_snapshot(name, database="shop")
        assert {name for name, role in roles().items() if role == "lost"} == lost
        left = command("snapshots", "s", "--lost")
        assert [entry["name"] for entry in left] == [known]
        assert {name for _, name in storage.snapshots} == foreign | {known}
        command("run", "s", "--allow-resync")


def test_a_login_of_another_account_sees_none_and_says_so(storage: Storage, home: Path) -> None:
    storage.create_account("acme")
    storage.create_database("shop", account="acme")
    storage.create_table("shop", "a", {"id": "int not null"}, primary_key=["id"], account="acme")
    storage.create_publication("p", "shop", account="acme")
    with SimulatedUpstream(storage, password="111") as emulator:
        subscribe(emulator, "acme", "sys")
        command("run", "s")
        assert set(roles().values()) == {"current"}
        error = command("snapshots", "s", "--lost", code=1)["error"]
        assert (error["code"], "account acme" in error["message"]) == ("SNAPSHOTS_HIDDEN", True)
