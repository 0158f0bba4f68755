"""A mirror's files in a folder of this machine. The interface is that of `ccpr.mirror.store`."""

import ctypes
import errno
import hashlib
import os
import secrets
import shutil
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path

import pyarrow as pa

from ccpr.base.file_modes import make_folder, opener
from ccpr.matrixone.objects.object_layout import FileContent, ObjectBytes
from ccpr.mirror.errors import MirrorDamaged, StoreFailed
from ccpr.mirror.store import Chunk, Hashing, PutEnd, Store, StoredFile, check_name, check_same

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # of a file system without hard links
_SYNC_FILE_RANGE, _BEGIN = getattr(ctypes.CDLL(None), "sync_file_range", None), 2  # of Linux: SYNC_FILE_RANGE_WRITE
_MOST_OPEN = 16
_UNFINISHED = ".unfinished"  # a folder, so that what killed writers leave is found without reading every folder


class LocalStore(Store):
    """Files below one folder. A file is written under a temporary name, fsynced, and then gets its name; `sync`
    does the folder. Paths are texts: `pathlib` interns each part of a path, and a service has very many names.

    Parameters
    ----------
    shared : whether other users of the machine may read what is written, as far as the umask lets them.
    """

    def __init__(self, root: Path, *, shared: bool = False) -> None:
        self.root = root.absolute()
        self.folder: Path | None = self.root
        self.url = self.root.as_uri()
        self._root = str(self.root)
        self.shared = shared
        self._open = deque[weakref.ref[_Opened]]()

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def _temporary(self) -> str:
        return f"{self._root}/{_UNFINISHED}/{secrets.token_hex(8)}"

    def begin(
        self,
        name: str,
        chunks: Iterable[Chunk],
        *,
        check: Callable[[ObjectBytes], None] | None = None,
        overwrite: bool = False,
        hashing: Callable[[], Hashing] = hashlib.sha256,
    ) -> PutEnd:
        check_name(name)  # a bad one is refused before anything is written
        temporary = self._temporary()
        digest, size = hashing(), 0
        with ExitStack() as held:
            held.callback(_unlink, temporary)
            try:
                file = held.enter_context(self._create(temporary))
                for chunk in chunks:
                    _write_all(file.fileno(), chunk)
                    _start_writing(file.fileno(), size, len(chunk))
                    digest.update(chunk)
                    size += len(chunk)
                    del chunk  # a chunk is large: it must not be held while the next one arrives
                if check is not None:
                    check(FileContent(file.fileno()))
            except OSError as error:
                raise self._failed("write", name, error) from error
            left = held.pop_all()

        def end() -> StoredFile:
            with left:
                try:
                    with file:
                        os.fsync(file.fileno())
                    stored = StoredFile(size, digest.digest())
                    if overwrite:
                        self._replace(temporary, name)
                    else:
                        self._place(temporary, name, stored)
                except OSError as error:
                    raise self._failed("write", name, error) from error
            return stored

        return end

    def put_together(self, contents: Sequence[tuple[str, Chunk]]) -> list[StoredFile]:
        """Begins to write all files to disk before waiting for the first, since one fsync then does most of the work
        of the following ones."""
        temporaries = [self._temporary() for name, _ in contents if check_name(name)]
        stored = []
        try:
            with ExitStack() as held:
                files = []
                for (_, content), temporary in zip(contents, temporaries, strict=True):
                    files.append(file := held.enter_context(self._create(temporary)))
                    _write_all(file.fileno(), content)
                    _start_writing(file.fileno(), 0, len(content))
                for (name, content), file, temporary in zip(contents, files, temporaries, strict=True):
                    os.fsync(file.fileno())
                    stored.append(StoredFile(len(content), hashlib.sha256(content).digest()))
                    self._place(temporary, name, stored[-1])
        except OSError as error:
            raise self._failed("write", f"{contents[0][0]} and others", error) from error
        finally:
            for temporary in temporaries:
                _unlink(temporary)
        return stored

    def replace(self, name: str, content: bytes) -> None:
        self.put(name, [content], overwrite=True)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file with its whole content, unless it exists; says whether it was written. Raises StoreFailed, also
        where the file system has no hard links."""
        check_name(name)
        temporary, path = self._temporary(), self._path(name)
        try:
            with self._create(temporary) as file:
                _write_all(file.fileno(), content)
                os.fsync(file.fileno())
            self._move(os.link, temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._failed("create", name, error) from error
        finally:
            _unlink(temporary)
        return True

    def _replace(self, temporary: str, name: str) -> None:
        self._move(os.rename, temporary, self._path(name))

    def sync(self, folder: str) -> None:
        path = Path(self._path(folder)) if folder else self.root
        try:
            for level in (path, *path.parents):  # a folder that is itself new has to survive, too
                if not level.is_dir():  # no file was put there
                    continue
                descriptor = os.open(level, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                if level == self.root:
                    break
        except OSError as error:
            raise self._failed("sync", folder, error) from error

    def read(self, name: str) -> pa.Buffer:
        try:
            with FileIO(self._path(name)) as file:
                return pa.py_buffer(file.readall())
        except OSError as error:
            raise self.unread(name, error) from error

    def open(self, name: str) -> ObjectBytes:
        """Not mapped: where a disk fails under a map the process dies by SIGBUS; a read is an error of this file."""
        try:
            return _Opened(self, name, self._path(name))
        except OSError as error:
            raise self.unread(name, error) from error

    def fresh(self, name: str) -> ObjectBytes:
        return self.open(name)

    def size(self, name: str) -> int | None:
        found = self._stat(name)
        return None if found is None else found.st_size

    def written_at(self, name: str) -> float | None:
        found = self._stat(name)
        return None if found is None else found.st_mtime

    def _stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(self._path(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", name, error) from error

    def each_name(self, folder: str) -> Iterator[str]:
        return self._below(check_name(folder))

    def _below(self, folder: str) -> Iterator[str]:
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        yield from self._below(name)
                    elif entry.is_file():
                        yield name
        except (FileNotFoundError, NotADirectoryError):  # it may also have gone meanwhile
            return
        except OSError as error:
            raise self._failed("list", folder, error) from error

    def delete(self, name: str) -> None:
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._path(name))
        except OSError as error:
            raise self._failed("delete", name, error) from error

    def delete_folder(self, folder: str) -> None:
        try:
            if (path := Path(self._path(folder))).is_dir():
                shutil.rmtree(path)
        except OSError as error:
            raise self._failed("delete", folder, error) from error

    def sweep(self) -> int:
        count = 0
        try:
            for path in (self.root / _UNFINISHED).glob("*"):
                path.unlink(missing_ok=True)
                count += 1
        except OSError as error:
            raise self._failed("sweep", _UNFINISHED, error) from error
        return count

    def _create(self, temporary: str) -> FileIO:
        """Creates the folder when it turns out to be missing: to check first would cost more than to write a small
        object."""
        try:
            return FileIO(temporary, "x+", opener=opener(shared=self.shared))
        except FileNotFoundError:
            make_folder(Path(temporary).parent, shared=self.shared)
            return FileIO(temporary, "x+", opener=opener(shared=self.shared))

    def _place(self, temporary: str, name: str, stored: StoredFile) -> None:
        """A link never takes the place of a file, as a rename would."""
        path = self._path(name)
        try:
            self._move(os.link, temporary, path)
        except FileExistsError:
            check_same(self, name, stored)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.exists(path):
                check_same(self, name, stored)
            else:
                self._move(os.rename, temporary, path)

    def _move(self, move: Callable[[str, str], None], temporary: str, path: str) -> None:
        """By a link or a rename; with the folder, if it is missing."""
        try:
            move(temporary, path)
        except FileNotFoundError:
            make_folder(Path(path).parent, shared=self.shared)
            move(temporary, path)

    def keep_open(self, opened: "_Opened") -> None:
        """It has a descriptor now; the one that has had one for longest gives its own up."""
        self._open.append(weakref.ref(opened))
        if len(self._open) > _MOST_OPEN and (oldest := self._open.popleft()()) is not None:
            oldest.descriptor = None

    def unread(self, name: str, error: OSError) -> MirrorDamaged | StoreFailed:
        if isinstance(error, FileNotFoundError):
            return MirrorDamaged("a file of the mirror is missing", subject=f"{self.url}/{name}")
        return self._failed("read", name, error)

    def _failed(self, verb: str, name: str, error: OSError) -> StoreFailed:
        return StoreFailed(f"could not {verb}: {error.strerror or error}", subject=f"{self.url}/{name}")


class _Opened:
    """A file that is read in parts. Those that were read last keep a descriptor; a delta has thousands of files open.

    A descriptor is closed when nobody has it any more: another thread may read by it when it is given up.
    """

    def __init__(self, store: LocalStore, name: str, path: str) -> None:
        self._store, self._name, self._path = store, name, path
        self.size = os.stat(path).st_size
        self.descriptor: _Descriptor | None = None

    def slice(self, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """So many bytes, exactly. Raises as `LocalStore.read`, and MirrorDamaged for a file that has become shorter."""
        length = self.size - offset if length is None else length
        try:
            descriptor = self.descriptor
            if descriptor is None:
                descriptor = self.descriptor = _Descriptor(self._path)
                self._store.keep_open(self)
            data = _read_all(descriptor.number, offset, length)
        except OSError as error:
            raise self._store.unread(self._name, error) from error
        if len(data) < length:
            subject = f"{self._store.url}/{self._name}"
            raise MirrorDamaged("a file of the mirror has become shorter", subject=subject)
        return pa.py_buffer(data)


class _Descriptor:
    """Of a file that is open for reading."""

    __slots__ = ("number",)

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.number = -1
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


def _read_all(descriptor: int, offset: int, length: int) -> bytes:
    """So many bytes, or all that there are."""
    parts = [os.pread(descriptor, length, offset)]
    while parts[-1] and (left := length - sum(map(len, parts))):
        parts.append(os.pread(descriptor, left, offset + length - left))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_all(descriptor: int, data: Chunk) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _unlink(temporary: str) -> None:
    with suppress(OSError):
        os.unlink(temporary)


def _start_writing(descriptor: int, offset: int, length: int) -> None:
    """Let the kernel begin to write a part of a file to disk, so that there is little left to wait for at its fsync."""
    if _SYNC_FILE_RANGE is not None:
        _SYNC_FILE_RANGE(descriptor, ctypes.c_int64(offset), ctypes.c_int64(length), _BEGIN)
