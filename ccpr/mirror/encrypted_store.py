"""A store whose files are encrypted before they leave this process. The interface is that of `ccpr.mirror.store`; what
it holds is in a folder or a bucket, by a store of that kind. Names are not encrypted, and sizes can be computed.

`head.json` and `mirror.json` stay JSON, in which the content is sealed: so a reader without the key, and every older
release, finds a format that it does not know, and not what it would take for damage. Source: docs/format/mirror.md,
"Encrypted mirrors"; decision encrypted-before-it-leaves.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.matrixone.schema import text_of
from ccpr.mirror.encryption import HEADER_BYTES, MAGIC, MAGIC_1, Binding, FileCipher, OpenedContent, plain_size
from ccpr.mirror.encryption_keys import Keyring, with_key
from ccpr.mirror.errors import MirrorDamaged, MirrorNotEncrypted, StoreConflict
from ccpr.mirror.layout import ENCRYPTED, ENCRYPTED_1, HEAD, IDENTITY
from ccpr.mirror.store import BlockCache, Chunk, Hashing, PutEnd, Store, StoredFile, Unhashed, check_same, summed

_JSON = (HEAD, IDENTITY)
_FORMATS = {ENCRYPTED: MAGIC, ENCRYPTED_1: MAGIC_1}


class EncryptedStore(Store):
    """Files of another store, encrypted."""

    def __init__(self, store: Store, keys: Keyring) -> None:
        self._store, self._keys = store, keys
        self.url = with_key(store.url, keys.reference)
        self.folder: Path | None = store.folder
        self.shared = store.shared
        self._segments = BlockCache()
        self._known: Binding | None = None

    def begin(
        self,
        name: str,
        chunks: Iterable[Chunk],
        *,
        check: Callable[[ObjectBytes], None] | None = None,
        overwrite: bool = False,
        hashing: Callable[[], Hashing] = hashlib.sha256,
    ) -> PutEnd:
        if name in _JSON:
            return partial(self._put_json, name, b"".join(chunks))
        digest, size = hashing(), 0

        def measured() -> Iterator[Chunk]:
            nonlocal size
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield chunk
                del chunk

        cipher, subject = FileCipher.new(self._keys.keys[0], self._binding(), name), self._subject(name)
        self._segments.forget(name)

        def check_plain(sealed: ObjectBytes) -> None:
            if check is not None:
                check(OpenedContent(sealed, lambda _: cipher, subject))

        checked = check_plain if check else None
        inner = self._store.begin(name, cipher.seal(measured()), check=checked, overwrite=overwrite, hashing=Unhashed)

        def end() -> StoredFile:
            written = StoredFile(size, digest.digest())
            try:
                inner()
            except StoreConflict:  # the same content never has the same bytes
                check_same(self, name, written)
            return written

        return end

    def put_together(self, contents: Sequence[tuple[str, Chunk]]) -> list[StoredFile]:
        key, binding = self._keys.keys[0], self._binding()
        sealed = [(name, b"".join(FileCipher.new(key, binding, name).seal([content]))) for name, content in contents]
        for name, _ in contents:
            self._segments.forget(name)
        found = [StoredFile(len(content), hashlib.sha256(content).digest()) for _, content in contents]
        try:
            self._store.put_together(sealed)
        except StoreConflict:
            for (name, content), _ in zip(contents, found, strict=True):
                self.put(name, [content])
        return found

    def _put_json(self, name: str, content: bytes) -> StoredFile:
        written = StoredFile(len(content), hashlib.sha256(content).digest())
        try:
            self._store.put(name, [self._wrapped(name, content)])
        except StoreConflict:
            self._known = None  # of another who was faster
            check_same(self, name, written)
        return written

    def replace(self, name: str, content: bytes) -> None:
        self._segments.forget(name)
        if name in _JSON:
            self._store.replace(name, self._wrapped(name, content))
        else:
            cipher = FileCipher.new(self._keys.keys[0], self._binding(), name)
            self._store.replace(name, b"".join(cipher.seal([content])))

    def sync(self, folder: str) -> None:
        self._store.sync(folder)

    def read(self, name: str) -> pa.Buffer:
        content = self._store.read(name)
        if name in _JSON:
            return pa.py_buffer(self._unwrapped(name, content.to_pybytes()))
        return self._opened(name, content).slice()

    def open(self, name: str) -> ObjectBytes:
        return self._opened(name, self._store.open(name), kept=True)

    def fresh(self, name: str) -> ObjectBytes:
        return self._opened(name, self._store.fresh(name))

    def stored(self, name: str) -> StoredFile:
        return summed(self.read(name)) if name in _JSON else super().stored(name)

    def size(self, name: str) -> int | None:
        """Of a file that was not written here: of its bytes."""
        size = self._store.size(name)
        if size is None or name in _JSON:
            return size
        found = plain_size(size)
        return size if found is None else found

    def written_at(self, name: str) -> float | None:
        return self._store.written_at(name)

    def each_name(self, folder: str) -> Iterator[str]:
        return self._store.each_name(folder)

    def delete(self, name: str) -> None:
        self._segments.forget(name)
        self._store.delete(name)

    def delete_folder(self, folder: str) -> None:
        self._store.delete_folder(folder)

    def sweep(self) -> int:
        return self._store.sweep()

    # ----

    def _opened(self, name: str, sealed: ObjectBytes, *, kept: bool = False) -> OpenedContent:
        subject = self._subject(name)
        cipher = partial(self._cipher, name, subject)
        keep = partial(self._segments.get, name) if kept else None
        return OpenedContent(sealed, cipher, subject, keep)

    def _cipher(self, name: str, subject: str, header: bytes) -> FileCipher:
        return FileCipher.read(self._keys, self._binding(), name, header, subject)

    # ---- whose files they are

    def _binding(self) -> Binding:
        """As `mirror.json` says it; before there is one nothing but work is written, which nobody else reads."""
        if self._known is None:
            if self._store.size(IDENTITY) is None:
                return Binding(self._magic())
            self._known = self._binding_of(self._store.read(IDENTITY).to_pybytes())
        return self._known

    def _binding_of(self, content: bytes) -> Binding:
        """Raises MirrorNotEncrypted, MirrorDamaged."""
        value = self._wrapping(IDENTITY, content)
        try:
            return Binding(MAGIC, text_of(value["mirror"])) if value["format"] == ENCRYPTED else Binding(MAGIC_1)
        except (KeyError, TypeError, ValueError) as error:
            raise MirrorDamaged("the file is not what was written", subject=self._subject(IDENTITY)) from error

    def _magic(self) -> bytes:
        """That of the files that are there, where `mirror.json` does not say it; MAGIC if there are none."""
        for name in _JSON:
            with suppress(MirrorDamaged):
                return _FORMATS[self._wrapping(name, self._store.read(name).to_pybytes())["format"]]
        for name in self._store.names("points"):
            found = self._store.open(name).slice(0, len(MAGIC)).to_pybytes()
            if found in _FORMATS.values():
                return found
        return MAGIC

    def _wrapped(self, name: str, content: bytes) -> bytes:
        key, whose = self._keys.keys[0], {}
        if name == IDENTITY:
            magic = self._magic() if self._known is None else self._known.magic
            self._known = Binding(magic, _owner(content))
            whose = {"mirror": self._known.mirror} if magic == MAGIC else {}
        binding = self._binding()
        format_ = ENCRYPTED if binding.magic == MAGIC else ENCRYPTED_1
        sealed = b"".join(FileCipher.new(key, binding, name).seal([content]))
        value = {"format": format_, "key": key.id.hex(), **whose, "sealed": base64.b64encode(sealed).decode()}
        return json.dumps(value, indent=1).encode()

    def _wrapping(self, name: str, content: bytes) -> dict[str, Any]:
        """Raises MirrorNotEncrypted, MirrorDamaged."""
        try:
            value = json.loads(content)
            if value["format"] not in _FORMATS:
                raise MirrorNotEncrypted("its files are not encrypted, and a key was given", subject=self.url)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MirrorDamaged("the file is not what was written", subject=self._subject(name)) from error
        return value

    def _unwrapped(self, name: str, content: bytes) -> bytes:
        """Raises MirrorNotEncrypted, MirrorDamaged, KeyWrong."""
        subject, value = self._subject(name), self._wrapping(name, content)
        try:
            sealed = base64.b64decode(value["sealed"], validate=True)
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise MirrorDamaged("the file is not what was written", subject=subject) from error
        if len(sealed) <= HEADER_BYTES:
            raise MirrorDamaged("the file is not what was written", subject=subject)
        if name != IDENTITY:
            return self._opened(name, pa.py_buffer(sealed)).slice().to_pybytes()
        self._known = self._binding_of(content)
        inside = self._opened(name, pa.py_buffer(sealed)).slice().to_pybytes()
        if self._known.magic == MAGIC and _owner(inside) != self._known.mirror:
            raise MirrorDamaged("it is another mirror's than it says", subject=subject)
        return inside

    def _subject(self, name: str) -> str:
        return f"{self._store.url.partition('?')[0]}/{name}"


def _owner(identity: bytes) -> str:
    """The subscription that `mirror.json` says, or nothing that one can be."""
    try:
        return text_of(json.loads(identity)["task_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
