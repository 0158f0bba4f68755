"""What only the local store does, besides what all stores do (test_store): files on the disk, names."""

import os
import random
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.mirror.errors import BadName, StoreFailed
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.store import check_name
from tests.support.descriptors import descriptors


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "mirror")


def test_a_refused_content_leaves_nothing(store: LocalStore) -> None:
    def refuse(content: ObjectBytes) -> None:
        assert content.slice(0, content.size).to_pybytes() == b"bad"
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.put("objects/a", [b"bad"], check=refuse)
    assert store.size("objects/a") is None
    assert list(store.root.rglob("*.*")) == [store.root / ".unfinished"]
    assert store.sweep() == 0


def test_what_a_killed_writer_left_is_swept(store: LocalStore) -> None:
    store.put("objects/a", [b"x"])
    (store.root / ".unfinished" / "left").write_bytes(b"half")
    assert store.sweep() == 1
    assert list(store.names("objects")) == ["objects/a"]


@pytest.mark.parametrize(("shared", "modes"), [(False, {0o700, 0o600}), (True, {0o775, 0o664})])
def test_files_and_folders_are_the_users_alone_unless_shared_and_at_no_moment_otherwise(
    tmp_path: Path, shared: bool, modes: set[int]
) -> None:
    store = LocalStore(tmp_path / "above" / "mirror", shared=shared)
    seen: list[int] = []

    def look() -> None:
        seen.extend(stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "above").rglob("*"))

    def chunks() -> Iterator[bytes]:
        look()
        yield b"12345"
        look()

    former = os.umask(0o002)
    try:
        store.put("objects/a", chunks(), check=lambda content: look())
        store.put_together([("objects/b", b"x"), ("manifests/1/c", b"y")])
        store.replace("head.json", b"{}")
    finally:
        os.umask(former)
    look()
    assert stat.S_IMODE((tmp_path / "above").stat().st_mode) in modes
    assert set(seen) == modes


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror").chmod(0o755)
    LocalStore(tmp_path / "mirror").put("objects/a", [b"x"])
    assert stat.S_IMODE((tmp_path / "mirror").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "mirror" / "objects").stat().st_mode) == 0o700


@pytest.mark.parametrize("together", [True, False])
def test_no_name_appears_before_its_file_is_on_the_disk(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    synced: set[int] = set()
    placed: list[str] = []
    link, fsync = os.link, os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def place(source: str, target: str) -> None:
        assert Path(source).stat().st_ino in synced
        assert Path(source).stat().st_size == 5
        link(source, target)
        placed.append(Path(target).name)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "link", place)
    if together:
        store.put_together([("objects/a", b"12345"), ("objects/b", b"67890")])
    else:
        store.put("objects/a", [b"12", b"345"])
        store.put("objects/b", [b"67890"])
    assert placed == ["a", "b"]


def test_a_disk_that_fails_among_several_files_leaves_whole_ones_only(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFailed, match="No space left"):
        store.put_together([(f"objects/{number}", b"12345") for number in range(5)])
    assert [store.size(name) for name in store.names("objects")] == [5, 5]
    assert store.sweep() == 0


def test_files_of_others_are_listed_whatever_their_names(store: LocalStore) -> None:
    store.put("objects/a", [b"x"])
    (store.root / "objects" / "of others").mkdir()
    (store.root / "objects" / "of others" / "a file").touch()
    (store.root / "objects" / "nowhere").symlink_to("gone")
    (store.root / "objects" / "around").symlink_to("..")
    assert list(store.names("objects")) == ["objects/a", "objects/of others/a file"]


def test_a_folder_that_cannot_be_read_is_reported(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "scandir", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(StoreFailed, match="could not list: Input/output error"):
        list(store.each_name("objects"))


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreFailed):
        LocalStore(tmp_path / "file").put("a", [b"x"])
    with pytest.raises(StoreFailed):
        LocalStore(tmp_path / "file").put_together([("a", b"x")])


@given(st.text())
def test_a_name_that_passes_stays_below_the_root(name: str) -> None:
    root = Path("/mirror")
    try:
        check_name(name)
    except BadName:
        return
    path = Path(f"{root}/{name}")
    assert path.is_relative_to(root)
    assert ".." not in path.parts


def test_files_that_were_read_last_keep_a_descriptor(store: LocalStore) -> None:
    """A delta has thousands of files open, and of a table all blocks are read one after another."""
    names = [f"objects/{number}" for number in range(100)]
    for name in names:
        store.put(name, [name.encode() * 10])
    before = descriptors()
    files = [store.open(name) for name in names]
    assert descriptors() == before, "only what is read needs one"
    for _ in range(2):
        for name, file in zip(names, files, strict=True):
            content = name.encode() * 10
            assert file.slice(0, 5).to_pybytes() == content[:5]
            assert file.slice(7, 5).to_pybytes() == content[7:12]
            assert len(descriptors() - before) <= 16
    del file, files
    assert descriptors() == before


def test_many_threads_read_many_files(store: LocalStore) -> None:
    """What gives up its descriptor may be read at that moment: another file must not be read for it."""
    contents = {f"objects/{number}": f"{number:03}".encode() * 1000 for number in range(40)}
    for name, content in contents.items():
        store.put(name, [content])
    files = {name: store.open(name) for name in contents}

    def all_equal(seed: int) -> bool:
        names = random.Random(seed).choices(list(files), k=2000)
        return all(files[name].slice(3, 600).to_pybytes() == contents[name][3:603] for name in names)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(all_equal, range(8)))
