"""The local store's own, beside the contract that all stores keep (test_store_contract): what lies on the disk, names, URLs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixone.objects.content import Content
from replication.errors import BadName, StoreFailed
from replication.store import LocalStore, check_name, open_store


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "mirror")


def test_a_refused_content_leaves_nothing(store: LocalStore) -> None:
    def refuse(content: Content) -> None:
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


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreFailed):
        LocalStore(tmp_path / "file").put("a", [b"x"])


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


def test_urls_and_paths_open_the_same_store(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    LocalStore(folder).put("a", [b"x"])
    assert open_store(LocalStore(folder).url).size("a") == 1
    assert open_store(str(folder)).size("a") == 1


@pytest.mark.parametrize("url", ["gs://bucket/x", "file://host/x", "http://x"])
def test_a_store_of_an_unknown_kind_is_refused(url: str) -> None:
    with pytest.raises(BadName):
        open_store(url)
