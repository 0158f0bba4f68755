"""What every store promises, asked of each: a whole file or none, typed errors, no path from an unchecked name."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.mirror.encrypted_store import EncryptedStore
from ccpr.mirror.encryption_keys import new_key
from ccpr.mirror.errors import BadName, MirrorDamaged
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.open_store import open_store
from ccpr.mirror.s3_store import ObjectStore
from ccpr.mirror.store import Store
from ccpr.pipeline.write_queue import WriteQueue

pytestmark = pytest.mark.integration


@pytest.fixture(params=["local", "s3", "local encrypted", "s3 encrypted"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("STORE_KEY", new_key())
    place = (tmp_path / "mirror").as_uri() if "local" in request.param else request.getfixturevalue("s3_url")
    return open_store(place, encrypt="env:STORE_KEY" if "encrypted" in request.param else "")


def refuse(content: ObjectBytes) -> None:
    assert content.slice(0, content.size).to_pybytes() == b"bad"
    raise ValueError("no")


def test_what_is_put_is_read_with_its_checksum(store: Store) -> None:
    seen: list[bytes] = []
    stored = store.put(
        "objects/a",
        [b"one", b"", b"two"],
        check=lambda content: seen.append(content.slice(0, content.size).to_pybytes()),
    )
    assert store.read("objects/a").to_pybytes() == b"onetwo" == seen[0]
    assert (stored.size, stored.sha256) == (6, hashlib.sha256(b"onetwo").digest())
    assert (store.size("objects/a"), store.size("objects/b"), store.size("objects")) == (6, None, store.size("objects"))


def test_an_empty_file_can_be_read(store: Store) -> None:
    store.put("a", [])
    assert (store.read("a").size, store.size("a")) == (0, 0)


def test_a_file_of_several_parts_is_whole(store: Store) -> None:
    chunk = bytes(range(256)) * 4096
    stored = store.put("objects/large", [chunk] * 25)
    assert stored.size == store.size("objects/large") == 25 << 20
    assert hashlib.sha256(store.read("objects/large")).digest() == stored.sha256


@pytest.mark.parametrize("kind", [LocalStore, ObjectStore, EncryptedStore])
def test_a_store_defines_all_that_has_no_body(kind: type) -> None:
    methods = {name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")}
    assert methods - set(vars(kind)) <= {"put", "put_together", "stored", "names"}


def test_what_is_put_together_is_as_if_put_one_by_one(store: Store) -> None:
    contents = [(f"objects/{number}", bytes([number]) * number) for number in range(20)]
    stored = store.put_together(contents)
    assert [(value.size, value.sha256) for value in stored] == [
        (len(data), hashlib.sha256(data).digest()) for _, data in contents
    ]
    assert {name: store.read(name).to_pybytes() for name in store.names("objects")} == dict(contents)
    assert store.put_together([]) == []
    with pytest.raises(BadName):
        store.put_together([("objects/good", b"x"), ("../bad", b"x")])
    assert store.sweep() == 0


def test_a_refused_content_leaves_nothing(store: Store) -> None:
    with pytest.raises(ValueError, match="no"):
        store.put("objects/a", [b"bad"], check=refuse)
    assert store.size("objects/a") is None
    assert list(store.names("objects")) == []
    assert store.sweep() == 0


def test_a_refused_content_leaves_what_was_there(store: Store) -> None:
    store.put("objects/a", [b"good"])
    with pytest.raises(ValueError, match="no"):
        store.put("objects/a", [b"bad"], check=refuse)
    assert store.read("objects/a").to_pybytes() == b"good"


def test_chunks_that_fail_half_way_leave_nothing(store: Store) -> None:
    def chunks():
        yield b"half"
        raise RuntimeError("line down")

    with pytest.raises(RuntimeError, match="line down"):
        store.put("objects/a", chunks())
    assert store.size("objects/a") is None


def test_a_missing_file_is_a_damaged_mirror(store: Store) -> None:
    with pytest.raises(MirrorDamaged, match="objects/a"):
        store.read("objects/a")


def test_the_one_mutable_name_is_replaced(store: Store) -> None:
    store.replace("head.json", b"1")
    store.replace("head.json", b"22")
    store.sync("")
    assert store.read("head.json").to_pybytes() == b"22"


def test_names_come_in_order_and_from_below_the_folder_only(store: Store) -> None:
    for name in ("points/2", "points/10", "points/a/b", "points/a-b", "pointsx/1", "other/1"):
        store.put(name, [b"x"])
    store.sync("points")
    assert list(store.names("points")) == ["points/10", "points/2", "points/a/b", "points/a-b"]
    assert sorted(store.each_name("points")) == sorted(store.names("points"))
    assert list(store.names("nothing")) == list(store.each_name("nothing")) == []


def test_deleting_leaves_the_neighbours(store: Store) -> None:
    for name in ("work/1-0/a", "work/1-0/b/c", "work/1-1/a", "objects/a", "objects/b"):
        store.put(name, [b"x"])
    for _ in range(2):  # what is gone may be deleted again
        store.delete_folder("work/1-0")
        store.delete("objects/a")
    assert list(store.names("work")) == ["work/1-1/a"]
    assert list(store.names("objects")) == ["objects/b"]


@pytest.mark.parametrize(
    "act", [Store.read, Store.size, Store.delete, Store.delete_folder], ids=lambda act: act.__name__
)
@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a//b", "a/.", "..", "a\0b", "a b", "a\\b", "é", "a/"])
def test_a_name_that_is_no_plain_path_is_refused(store: Store, act: Callable, name: str) -> None:
    with pytest.raises(BadName):
        getattr(store, act.__name__)(name)
    with pytest.raises(BadName):
        store.put(name, [b"x"])


def test_the_url_opens_the_same_store(store: Store) -> None:
    store.put("a", [b"x"])
    again = open_store(store.url)
    assert (again.url, again.read("a").to_pybytes()) == (store.url, b"x")


def test_objects_are_written_by_another_thread(store: Store) -> None:
    with WriteQueue(store) as queue:
        landed = [
            queue.put(f"objects/{number}", 3 * number, [b"x" * number] * 3, lambda content: None)
            for number in range(20)
        ]
    assert [stored.result().size for stored in landed] == [3 * number for number in range(20)]
    assert len(list(store.names("objects"))) == 20
