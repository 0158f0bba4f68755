"""The storage that the upstream's objects lie in, read without the upstream (decision straight-from-storage): a bucket
with bare files, or the folder of a DISK file service, whose files have checksums in them.

What a file is says its length: that of the object in its stats, or that with the checksums. A file that is not there,
or is shorter, may still come: it is None here, and the upstream is asked for the object. Credentials are those of the
environment, and are never stored.
"""

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from threading import Lock
from typing import Generic, NoReturn, TypeVar

import pyarrow as pa
from pyarrow import fs

from ccpr.matrixone.client.errors import ObjectSizeMismatch
from ccpr.matrixone.objects.disk import BLOCK_BYTES, CONTENT_BYTES, framed_size, unframe
from ccpr.matrixone.objects.object_layout import MAGIC
from ccpr.matrixone.objects.stats import ObjectStats, check_object_name
from ccpr.mirror.buckets import CLIENT_ERRORS, open_bucket
from ccpr.mirror.errors import BadName
from ccpr.mirror.open_store import folder_of
from ccpr.mirror.store import Chunk
from ccpr.pipeline.errors import StorageFailed, StorageMissing, StorageRefused

_BUCKETS = ("s3://", "gs://")
_BLOCKS = 1024  # of a piece
PIECE_BYTES = _BLOCKS * CONTENT_BYTES  # of content, that is; so that pieces of framed files begin with a block
_NOBODYS = "00000000-0000-0000-0000-000000000000_00000"  # an object name that no object has
# What the object stores' client libraries say, which have no classes for it.
_REFUSALS = ("ACCESS_DENIED", "HTTP status 403", "PERMISSION_DENIED", "Forbidden")
_UNKNOWN_KEYS = ("INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "UNAUTHENTICATED", "MISSING_AUTHENTICATION_TOKEN")
_RIGHTS = {"s3": ("s3:GetObject", "s3:ListBucket"), "gcs": ("storage.objects.get", "storage.objects.list")}
_REMEDY = (
    "Write s3://bucket/prefix, gs://bucket/prefix or file:///data-dir/shared: the place that holds the objects by name."
)


def pieces_of(size: int) -> int:
    """How many pieces an object of `size` bytes has; at least one."""
    return max(1, -(-size // PIECE_BYTES))


class Storage:
    """Objects as files below a prefix or folder, each under its name.

    Attributes
    ----------
    url : canonical, without secrets.
    """

    def __init__(self, files: fs.FileSystem, root: str, url: str) -> None:
        self._files, self._root, self.url = files, root, url
        self._is_local = isinstance(files, fs.LocalFileSystem)
        self._lock, self._is_there = Lock(), False

    def open(self, name: str, size: int) -> "StoredObject | None":
        """The object of this name with `size` bytes of content; None if it is not there, or not all of it is. Raises
        BadObjectName, ObjectSizeMismatch, StorageFailed, StorageMissing, StorageRefused."""
        file = self._open(name)
        if file is None:
            self._require_place()
            return None
        try:
            length = file.size()
            if length > framed_size(size):
                message = f"its file in storage has {length} bytes, more than its stats say ({size})"
                raise ObjectSizeMismatch(message, subject=self.subject(name))
            framed = length == framed_size(size)
            if not framed and (length != size or self._begins_framed(file)):
                return None
        except CLIENT_ERRORS as error:
            self.fail(error, name)
        return StoredObject(self, file, name, size, framed=framed)

    def check(self) -> None:
        """Whether objects can be read there, as far as that shows without one. Raises StorageFailed, StorageMissing,
        StorageRefused."""
        if self._open(_NOBODYS) is None:
            self._require_place()

    def subject(self, name: str) -> str:
        return f"{self.url.partition('?')[0]}/{name}"

    def fail(self, error: Exception, name: str) -> NoReturn:
        """Raise the error that the file system's error is."""
        text = str(error)
        if isinstance(error, PermissionError) or any(word in text for word in _REFUSALS):
            raise StorageRefused(self._missing_right(), subject=self.subject(name)) from error
        if any(word in text for word in _UNKNOWN_KEYS):
            raise StorageRefused("the storage does not accept the credentials", subject=self.subject(name)) from error
        raise StorageFailed(f"it could not be read: {text:.300}", subject=self.subject(name)) from error

    def _open(self, name: str) -> "pa.NativeFile | None":
        """None if it is not there."""
        path = f"{self._root}/{check_object_name(name)}"
        try:
            # In a bucket there is nothing but files, and the question would cost a request.
            if self._is_local and not self._is_regular(path):
                return None
            return self._files.open_input_file(path)
        except FileNotFoundError:
            return None
        except CLIENT_ERRORS as error:
            self.fail(error, name)

    def _is_regular(self, path: str) -> bool:
        """A pipe would be waited for."""
        info = self._files.get_file_info(path)
        if info.type in (fs.FileType.File, fs.FileType.NotFound):
            return info.type == fs.FileType.File
        raise OSError("it is not a file")

    def _begins_framed(self, file: "pa.NativeFile") -> bool:
        """Of a framed file there may be by chance as many bytes as the object has. In a bucket there are none."""
        return self._is_local and file.read_at(len(MAGIC), BLOCK_BYTES - CONTENT_BYTES) == MAGIC

    def _require_place(self) -> None:
        """A file is missing: whether its folder or bucket is (a disk that is not mounted) is looked up once."""
        with self._lock:
            if self._is_there:
                return
            place = self._root if self._is_local else self._root.partition("/")[0]
            with suppress(*CLIENT_ERRORS):  # a login that may read objects need not be allowed to look at the bucket
                if self._files.get_file_info(place).type == fs.FileType.NotFound:
                    message = f"there is no such {'folder' if self._is_local else 'bucket'}"
                    raise StorageMissing(message, subject=self.url.partition("?")[0])
            self._is_there = True

    def _missing_right(self) -> str:
        if self._is_local:
            may_enter = os.access(self._root, os.X_OK, effective_ids=os.access in os.supports_effective_ids)
            return f"this user may not {'read the file (r)' if may_enter else 'enter the folder (x)'}"
        get, list_ = _RIGHTS[self._files.type_name]
        try:
            self._files.open_input_file(f"{self._root}/{_NOBODYS}")
        except FileNotFoundError:
            return f"the credentials lack {get}"
        except CLIENT_ERRORS:
            pass
        return f"the credentials lack {list_}, without which a missing object is refused as well, or {get}"


class StoredObject:
    """An object's file, open; several threads may read it."""

    def __init__(self, storage: Storage, file: "pa.NativeFile", name: str, size: int, *, framed: bool) -> None:
        self._storage, self._file, self._name, self._size, self._framed = storage, file, name, size, framed

    @property
    def form(self) -> str:
        return "with the checksums of a DISK file service" if self._framed else "bare"

    def pieces(self) -> Iterator[Chunk]:
        """The whole content."""
        return (self.piece(number) for number in range(pieces_of(self._size)))

    def piece(self, number: int) -> Chunk:
        """PIECE_BYTES of content, or the rest. Raises ObjectDamaged for a wrong checksum, StorageFailed,
        StorageRefused."""
        begin = number * PIECE_BYTES
        length = min(PIECE_BYTES, self._size - begin)
        if self._framed:
            begin, length = framed_size(begin), framed_size(length)
        try:
            found = self._file.read_at(length, begin)
        except CLIENT_ERRORS as error:
            self._storage.fail(error, self._name)
        subject = self._storage.subject(self._name)
        if len(found) != length:
            raise StorageFailed("it became shorter while it was read", subject=subject)
        return unframe(found, at=begin, subject=subject) if self._framed else found


def is_folder(url: str) -> bool:
    """Whether the URL of a storage is a folder of this machine's."""
    return not url.startswith(_BUCKETS)


def open_storage(url: str) -> Storage:
    """The storage of `s3://bucket/prefix?…`, `gs://bucket/prefix`, `file:///folder` or an absolute path; does not
    connect yet. Raises BadName."""
    if not is_folder(url):
        bucket = open_bucket(url)
        return Storage(bucket.files, bucket.root, bucket.url)
    folder = folder_of(url)
    if not folder.is_absolute():
        raise BadName("not an absolute path", subject=url, remedy=_REMEDY)
    return Storage(fs.LocalFileSystem(), str(folder), folder.as_uri())


# ---- objects read ahead of their writing
#
# Some requests are always under way, for parts of one large object or for several small ones.

REQUESTS = 8  # under way, or answered and not used yet: with PIECE_BYTES each, what is in memory
_Item = TypeVar("_Item")


class _Reading(Generic[_Item]):
    """An item, and its object's file, which the first of its pieces opens."""

    def __init__(self, storage: Storage, item: _Item, stats: ObjectStats | None) -> None:
        self.item, self.pieces = item, 1 if stats is None else pieces_of(stats.size)
        self._storage, self._stats = storage, stats
        self._lock, self._opened, self._file = Lock(), stats is None, None

    def piece(self, number: int) -> Chunk | None:
        file = self._open()
        return None if file is None else file.piece(number)

    def _open(self) -> StoredObject | None:
        with self._lock:
            if not self._opened and self._stats is not None:
                self._file = self._storage.open(self._stats.name, self._stats.size)
                self._opened = True
            return self._file


def read_ahead(
    storage: Storage, wanted: Iterable[tuple[_Item, ObjectStats | None]]
) -> Generator[tuple[_Item, Iterator[Chunk] | None]]:
    """Each item, in order, with the content of its object; None for one without stats, and for an object that storage
    does not have. `wanted` is read ahead, too. A content has to be used before the next item is asked for. What it
    raises is of its object alone: see `Storage.open` and `StoredObject.piece`.
    """
    pieces = ((one, number) for one in (_Reading(storage, *entry) for entry in wanted) for number in range(one.pieces))
    ahead: deque[tuple[_Reading[_Item], Future[Chunk | None]]] = deque()
    pool = ThreadPoolExecutor(REQUESTS, "storage")

    def next_piece() -> tuple[_Reading[_Item], Future[Chunk | None]] | None:
        ahead.extend((one, pool.submit(one.piece, number)) for one, number in islice(pieces, REQUESTS - len(ahead)))
        return ahead.popleft() if ahead else None

    def content(first: Future[Chunk | None], more: int) -> Iterator[Chunk]:
        future = first
        del first
        while True:
            chunk = future.result()
            del future
            assert chunk is not None, "a file is there, or not, for all of its pieces"
            yield chunk
            del chunk
            if not more:
                return
            more -= 1
            found = next_piece()
            assert found is not None
            future = found[1]
            del found

    last: _Reading[_Item] | None = None
    try:
        while (found := next_piece()) is not None:
            reading, future = found
            del found
            if reading is last:  # its object failed, or is not there
                future.cancel()
                continue
            last = reading
            missing = future.exception() is None and future.result() is None
            chunks = None if missing else content(future, reading.pieces - 1)
            del future
            yield reading.item, chunks
    finally:
        pool.shutdown(cancel_futures=True)
