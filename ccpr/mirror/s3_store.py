"""A mirror's files in an object store with the S3 protocol, through `pyarrow.fs`. The interface is that of
`ccpr.mirror.store`.

A file appears by one upload of its whole content and is never moved: closing a stream of pyarrow's would complete an
object even after an error. The content is first written to a local temporary
file (under TMPDIR), so that checks get all of it before it is uploaded, and little memory is used. An upload of more
than 10 MB is sent in parts; the object does not exist until the last part has arrived. Parts of an upload that was
killed cannot be seen here. They use storage until the bucket's rule `AbortIncompleteMultipartUpload` removes them;
`sweep` cannot, because pyarrow has no call for it.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from ccpr.matrixone.objects.object_layout import FileContent, ObjectBytes
from ccpr.mirror.buckets import CLIENT_ERRORS, Credentials, open_bucket
from ccpr.mirror.errors import MirrorDamaged, StoreFailed
from ccpr.mirror.store import BlockCache, Chunk, Hashing, PutEnd, Store, StoredFile, check_name, check_same, ranged

_REFUSED_REMEDY = (
    "Check the address and region, and that AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the instance's role) "
    "may read and write there; then run it again: the iteration continues where it stopped."
)
_LOCKED_REMEDY = (
    "A bucket with Object Lock may not have a default retention: take it away, and have the versions locked by a login "
    "of the bucket's owner (docs/how-to/mirror-in-a-bucket.md)."
)


class ObjectStore(Store):
    """Files below a prefix of a file system whose files appear when they are closed, as those of object stores do.

    Attributes
    ----------
    url : as for `open_store`; without secrets.
    """

    def __init__(self, filesystem: fs.FileSystem, root: str, url: str) -> None:
        self._files = filesystem
        self._root = root.strip("/")
        self.url = url
        self.folder: Path | None = None
        self.shared = False
        self._blocks = BlockCache()

    def begin(
        self,
        name: str,
        chunks: Iterable[Chunk],
        *,
        check: Callable[[ObjectBytes], None] | None = None,
        overwrite: bool = False,
        hashing: Callable[[], Hashing] = hashlib.sha256,
    ) -> PutEnd:
        path = self._path(name)
        digest, size = hashing(), 0
        with ExitStack() as held:
            try:
                spool = held.enter_context(tempfile.NamedTemporaryFile(prefix="ccpr-"))
                for chunk in chunks:
                    spool.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                    del chunk  # a chunk is large: it must not be held while the next one arrives
                spool.flush()
                if check is not None:
                    check(FileContent(spool.fileno()))
            except CLIENT_ERRORS as error:
                raise self._failed("write", name, error) from error
            left = held.pop_all()

        def end() -> StoredFile:
            stored = StoredFile(size, digest.digest())
            with left:
                try:
                    if overwrite or self.size(name) is None:
                        self._upload(path, _mapped(spool.name, size))
                    else:
                        check_same(self, name, stored)
                except CLIENT_ERRORS as error:
                    raise self._failed("write", name, error) from error
            return stored

        return end

    def replace(self, name: str, content: bytes) -> None:
        try:
            self._upload(self._path(name), pa.py_buffer(content))
        except CLIENT_ERRORS as error:
            raise self._failed("write", name, error) from error

    def sync(self, folder: str) -> None:
        """Does nothing: what was uploaded is durable."""

    def read(self, name: str) -> pa.Buffer:
        """Reads the whole file into memory."""
        try:
            with self._files.open_input_file(self._path(name)) as file:
                content = file.read_buffer()
        except CLIENT_ERRORS as error:
            raise self._unread(name, error) from error
        return content

    def fresh(self, name: str) -> ObjectBytes:
        """By one request, as `read`: what `open` keeps of a file may be older than its damage."""
        return self.read(name)

    def open(self, name: str) -> ObjectBytes:
        """Reads the whole of a small file, and of a large one what is asked for."""
        try:
            file = self._files.open_input_file(path := self._path(name))
            size = file.size()
        except CLIENT_ERRORS as error:
            raise self._unread(name, error) from error

        def read(length: int, offset: int) -> pa.Buffer:
            try:
                found = file.read_at(length, offset)
            except CLIENT_ERRORS as error:
                raise self._unread(name, error) from error
            if len(found) != length:
                raise MirrorDamaged("a file of the mirror has become shorter", subject=self._subject(name))
            return pa.py_buffer(found)

        return ranged(path, size, read, self._blocks)

    def size(self, name: str) -> int | None:
        info = self._info(name)
        return info.size if info.type == fs.FileType.File else None

    def written_at(self, name: str) -> float | None:
        info = self._info(name)
        return info.mtime_ns / 1e9 if info.type == fs.FileType.File else None

    def _info(self, name: str) -> fs.FileInfo:
        try:
            return self._files.get_file_info(self._path(name))
        except CLIENT_ERRORS as error:
            raise self._failed("read", name, error) from error

    def each_name(self, folder: str) -> Iterator[str]:
        """pyarrow has no call that lists in parts: it holds some 350 bytes for each file."""
        try:
            found = self._files.get_file_info(fs.FileSelector(self._path(folder), recursive=True, allow_not_found=True))
        except CLIENT_ERRORS as error:
            raise self._failed("list", folder, error) from error
        yield from (info.path.removeprefix(f"{self._root}/") for info in found if info.type == fs.FileType.File)

    def delete(self, name: str) -> None:
        self._delete(self._files.delete_file, name)

    def delete_folder(self, folder: str) -> None:
        self._delete(self._files.delete_dir, folder)

    def sweep(self) -> int:
        """Does nothing: unfinished uploads cannot be seen here."""
        return 0

    def _delete(self, delete: Callable[[str], None], name: str) -> None:
        path = self._path(name)
        self._blocks.forget(path)
        try:
            delete(path)
        except FileNotFoundError:
            pass
        except CLIENT_ERRORS as error:
            raise self._failed("delete", name, error) from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def _upload(self, path: str, content: pa.Buffer) -> None:
        """Writes everything at once. After an error between two writes, closing the stream would still complete the
        object."""
        self._blocks.forget(path)
        stream = self._files.open_output_stream(path, compression=None)
        stream.write(content)
        stream.close()

    def _subject(self, name: str) -> str:
        return f"{self.url.partition('?')[0]}/{name}"

    def _unread(self, name: str, error: Exception) -> MirrorDamaged | StoreFailed:
        if isinstance(error, FileNotFoundError):
            return MirrorDamaged("a file of the mirror is missing", subject=self._subject(name))
        return self._failed("read", name, error)

    def _failed(self, verb: str, name: str, error: Exception) -> StoreFailed:
        remedy = _LOCKED_REMEDY if "ObjectLock" in str(error) else _REFUSED_REMEDY
        return StoreFailed(f"could not {verb}: {error}", subject=self._subject(name), remedy=remedy)


def _mapped(path: str, size: int) -> pa.Buffer:
    """A file that this process has just written, so that an object need not be in memory for its upload."""
    if size == 0:  # an empty file cannot be mapped
        return pa.py_buffer(b"")
    with pa.memory_map(path) as source:
        return source.read_buffer()


def open_s3(url: str, credentials: Credentials | None = None) -> ObjectStore:
    """The store of `s3://bucket/prefix?…`; does not connect yet. Raises BadName."""
    bucket = open_bucket(url, credentials)
    return ObjectStore(bucket.files, bucket.root, bucket.url)
