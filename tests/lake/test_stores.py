"""A file that is to be created only if it is not there: in a folder, and in a bucket."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from ccpr.lake.errors import LakeStoreUnsafe
from ccpr.lake.stores import LakeStore, open_lake
from ccpr.mirror.errors import BadName, StoreFailed

pytestmark = pytest.mark.integration


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LakeStore:
    return open_lake(tmp_path.as_uri() if request.param == "folder" else request.getfixturevalue("s3_url"))


def test_a_file_is_created_once(store: LakeStore) -> None:
    assert store.create("a/b.json", b"first")
    assert not store.create("a/b.json", b"second")
    assert store.create("a/b.json", b"first"), "of an attempt whose answer was lost"
    assert store.read("a/b.json") == pa.py_buffer(b"first")
    assert store.read("a/c.json") is None
    assert list(store.files.names("a")) == ["a/b.json"]


def test_of_several_writers_one_creates_it(store: LakeStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(10):
            created = pool.map(lambda writer: store.create(f"x/{number}", str(writer).encode()), range(8))  # noqa: B023
            assert sum(created) == 1


def test_a_name_that_is_no_path_is_refused(store: LakeStore) -> None:
    with pytest.raises(BadName):
        store.create("../x", b"")


def test_a_file_system_without_hard_links_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreFailed, match="could not create"):
        open_lake(tmp_path.as_uri()).create("x", b"")
    assert not (tmp_path / "x").exists()


def test_a_bucket_that_does_not_answer_is_tried_again(s3_credentials: None) -> None:
    store = open_lake("s3://bucket/x?endpoint_override=http://127.0.0.1:1&region=us-east-1")
    with pytest.raises(StoreFailed, match="could not write"):
        store.create("x", b"")


def test_a_bucket_that_refuses_is_an_error_with_its_words(s3_url: str) -> None:
    store = open_lake(s3_url.replace("mirrors/", "nobodys/"))
    with pytest.raises(StoreFailed, match="NoSuchBucket"):
        store.create("x", b"")


def test_a_server_that_does_not_know_conditions_is_unsafe(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    store = open_lake(s3_url)

    class Client:
        def put_object(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": "NotImplemented", "Message": ""}}, "PutObject")

    monkeypatch.setitem(store.creating.__dict__, "_client", Client())
    with pytest.raises(LakeStoreUnsafe):
        store.create("x", b"")
