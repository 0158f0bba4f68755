"""Objects as files in the upstream's storage: what is one, what may still become one, and what is refused."""

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from ccpr.matrixone.client.errors import ObjectSizeMismatch
from ccpr.matrixone.errors import Transient
from ccpr.matrixone.objects.errors import BadObjectName, ObjectDamaged
from ccpr.mirror.errors import BadName, StoreFailed
from ccpr.mirror.s3_store import ObjectStore
from ccpr.pipeline.errors import StorageFailed, StorageMissing, StorageRefused
from ccpr.pipeline.storage import PIECE_BYTES, Storage, open_storage
from tests.support.bucket import Bucket, served
from tests.support.disk_files import framed

pytestmark = pytest.mark.integration

NAME = "018f0000-0000-7000-8000-000000000001_00000"
MAGIC = bytes.fromhex("ffffffff00000000")
CONTENT = MAGIC + random.Random(7).randbytes(2 * PIECE_BYTES + 4000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def bucket(s3_credentials: None) -> Iterator[Bucket]:
    with served(Bucket({f"server/data/{NAME}": CONTENT})) as bucket:
        yield bucket


def read(url: str, name: str = NAME, size: int = len(CONTENT)) -> bytes | None:
    found = open_storage(url).open(name, size)
    return None if found is None else b"".join(found.pieces())


@pytest.mark.parametrize("file", [CONTENT, framed(CONTENT)], ids=["bare", "disk"])
def test_a_file_is_read_in_either_form(file: bytes, folder: Path) -> None:
    (folder / NAME).write_bytes(file)
    assert read(folder.as_uri()) == read(str(folder)) == CONTENT


def test_pieces_of_a_framed_file_are_read_in_any_order(folder: Path) -> None:
    (folder / NAME).write_bytes(framed(CONTENT))
    found = open_storage(str(folder)).open(NAME, len(CONTENT))
    assert found is not None
    assert bytes(found.piece(2)) == CONTENT[2 * PIECE_BYTES :]
    assert bytes(found.piece(1)) == CONTENT[PIECE_BYTES : 2 * PIECE_BYTES]


def test_a_file_that_is_still_being_written_is_not_there_yet(folder: Path) -> None:
    """Of whatever length it is meanwhile, also if a framed one has just as many bytes as its object."""
    for file in (CONTENT, framed(CONTENT)):
        for length in {0, 1, 4, 12, 2048, 100_000, len(CONTENT) - 1, len(CONTENT), len(file) - 1} - {len(file)}:
            (folder / NAME).write_bytes(file[:length])
            assert read(str(folder)) is None, length
    (folder / NAME).unlink()
    assert read(str(folder)) is None


def test_a_longer_file_is_another_object(folder: Path) -> None:
    (folder / NAME).write_bytes(framed(CONTENT) + b"\0")
    with pytest.raises(ObjectSizeMismatch, match="more than its stats say"):
        read(str(folder))


def test_a_flipped_bit_of_a_framed_file_is_found_and_the_file_named(folder: Path) -> None:
    file = bytearray(framed(CONTENT))
    file[PIECE_BYTES + 9000] ^= 16
    (folder / NAME).write_bytes(file)
    with pytest.raises(ObjectDamaged, match="CRC32C") as raised:
        read(str(folder))
    assert raised.value.subject == f"{folder.as_uri()}/{NAME}"
    at = int(raised.value.message.split("byte ")[1].split()[0])
    assert at <= PIECE_BYTES + 9000 < at + 2048


def test_a_file_that_is_cut_while_it_is_read_can_be_tried_again(folder: Path) -> None:
    (folder / NAME).write_bytes(CONTENT)
    found = open_storage(str(folder)).open(NAME, len(CONTENT))
    assert found is not None
    os.truncate(folder / NAME, PIECE_BYTES)
    with pytest.raises(StorageFailed, match="became shorter"):
        list(found.pieces())


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", NAME + "/", NAME[:-1], "", "ckp/meta", NAME + "\n"]
)
def test_a_name_is_no_path(name: str, folder: Path) -> None:
    with pytest.raises(BadObjectName):
        read(str(folder), name)


def test_what_is_no_file_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / NAME)
    with pytest.raises(StorageFailed, match="not a file"):
        read(str(folder))
    (folder / NAME).unlink()
    (folder / NAME).mkdir()
    with pytest.raises(StorageFailed, match="not a file"):
        read(str(folder))


def test_a_folder_that_is_not_mounted_is_an_error_and_not_a_missing_object(folder: Path) -> None:
    storage = open_storage(str(folder / "shared"))
    for ask in (storage.check, lambda: storage.open(NAME, 1)):
        with pytest.raises(StorageMissing, match="no such folder"):
            ask()
    (folder / "shared").mkdir()
    storage.check()
    assert storage.open(NAME, 1) is None


def test_a_file_that_may_not_be_read_is_refused_with_the_right(as_nobody: Path) -> None:
    file = as_nobody / NAME
    file.write_bytes(CONTENT)
    file.chmod(0)
    with pytest.raises(StorageRefused, match=r"may not read the file \(r\)"):
        read(str(as_nobody))
    as_nobody.chmod(0)
    with pytest.raises(StorageRefused, match=r"may not enter the folder \(x\)"):
        read(str(as_nobody))
    as_nobody.chmod(0o700)


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder of a user whom modes concern: not of root."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() != 0:
            yield Path(name)
            return
        os.chown(name, 65534, -1)
        os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


def test_a_bucket_is_read_by_ranges(bucket: Bucket) -> None:
    assert read(bucket.url()) == CONTENT
    assert sorted(last - first + 1 for _, first, last in bucket.ranges) == [4008, PIECE_BYTES, PIECE_BYTES]
    assert read(bucket.url(), NAME.replace("1_", "2_")) is None
    assert read(bucket.url(), size=len(CONTENT) + 1) is None


def test_a_bucket_that_is_not_there_is_an_error(bucket: Bucket) -> None:
    bucket.exists = False
    with pytest.raises(StorageMissing, match="no such bucket"):
        open_storage(bucket.url()).check()
    with pytest.raises(StorageMissing, match="no such bucket"):
        read(bucket.url())


@pytest.mark.parametrize(
    ("may_read", "may_list", "told"),
    [
        (False, True, "the credentials lack s3:GetObject"),
        (False, False, "the credentials lack s3:ListBucket, without which .* or s3:GetObject"),
    ],
)
def test_a_refusal_names_the_right_that_is_missing(may_read: bool, may_list: bool, told: str, bucket: Bucket) -> None:
    bucket.may_read, bucket.may_list = may_read, may_list
    with pytest.raises(StorageRefused, match=told) as raised:
        read(bucket.url())
    assert raised.value.subject == f"s3://storage/server/data/{NAME}"


def test_without_the_right_to_list_what_is_there_is_read_and_what_is_not_is_a_refusal(bucket: Bucket) -> None:
    bucket.may_list = False
    assert read(bucket.url()) == CONTENT
    with pytest.raises(StorageRefused, match="s3:ListBucket"):
        read(bucket.url(), NAME.replace("1_", "2_"))
    with pytest.raises(StorageRefused, match="s3:ListBucket"):
        open_storage(bucket.url()).check()


def test_what_the_storage_refuses_is_tried_again_as_keys_are_changed_one_place_after_another() -> None:
    assert issubclass(StorageRefused, Transient)


@pytest.mark.parametrize(
    "error", [pa.ArrowCapacityError("RESOURCE_EXHAUSTED"), pa.ArrowException("Unknown error: try later")]
)
def test_an_error_of_the_client_library_that_nobody_knows_can_be_tried_again(
    error: Exception,
) -> None:
    """As Google's client has them, which are no OSError."""

    class Failing:
        def __getattr__(self, name: str) -> Callable[..., NoReturn]:
            def fail(*_: object, **options: object) -> NoReturn:
                raise error

            return fail

    files: Any = Failing()
    with pytest.raises(StorageFailed):
        Storage(files, "bucket/prefix", "gs://bucket/prefix").open(NAME, 10)
    store = ObjectStore(files, "bucket/prefix", "s3://bucket/prefix")
    for act in (
        lambda: store.read("a"),
        lambda: store.size("a"),
        lambda: store.replace("a", b"x"),
        lambda: store.put("a", [b"x"], overwrite=True),
        lambda: list(store.names("a")),
        lambda: store.delete("a"),
    ):
        with pytest.raises(StoreFailed):
            act()


def test_a_storage_that_does_not_answer_can_be_tried_again(bucket: Bucket) -> None:
    url = bucket.url().replace(f":{bucket.port}", ":1")
    with pytest.raises(StorageFailed):
        read(url)


@pytest.mark.parametrize(
    "url",
    [
        "shared",
        "./shared",
        "ftp://host/x",
        "file://host/x",
        "s3://key:secret@bucket/x",
        "s3://bucket/x?access_key=a",
        "s3://bucket/../x",
        "gs://bucket/x?token=a",
        "gs://bucket/x?region=a",
        "s3://",
    ],
)
def test_a_place_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadName) as raised:
        open_storage(url)
    assert "secret" not in str(raised.value)


def test_a_place_of_google_is_one() -> None:
    assert open_storage("gs://bucket/server/data").url == "gs://bucket/server/data"
    assert (
        open_storage("s3://b-1/p?endpoint=http://h:1").url
        == open_storage("s3://b-1/p?scheme=http&endpoint_override=h:1").url
    )
