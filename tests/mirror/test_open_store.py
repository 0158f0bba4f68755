"""Which store a URL opens."""

from pathlib import Path

import pytest

from ccpr.mirror.errors import BadName
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.open_store import open_store


def test_urls_and_paths_open_the_same_store(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    LocalStore(folder).put("a", [b"x"])
    assert open_store(LocalStore(folder).url).size("a") == 1
    assert open_store(str(folder)).size("a") == 1


@pytest.mark.parametrize("url", ["gs://bucket/x", "file://host/x", "http://x"])
def test_a_store_of_an_unknown_kind_is_refused(url: str) -> None:
    with pytest.raises(BadName):
        open_store(url)


@pytest.mark.parametrize(
    "url", ["file:///tmp/%00x", "/tmp/\0x", "/tmp/\ud800", "/tmp/" + "x" * 300, "/tmp/" + "x/" * 3000]
)
def test_a_path_that_no_file_system_has_is_refused(url: str) -> None:
    with pytest.raises(BadName):
        open_store(url)
