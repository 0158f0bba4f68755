"""Encrypted files: what is in them, and how any part of one is read.

A file is a header and segments: a key is derived for the file (HKDF-SHA256, by a random salt, the mirror's subscription
and the file's name), and each segment of 64 KiB is sealed with AES-256-GCM under it, with its number and whether it is
the last as nonce. So segments cannot be moved, left out or taken from another file, name or mirror, and each can be
opened alone. It is the construction STREAM (Hoang, Reyhanitabar, Rogaway, Vizár 2015), as Tink's
AES-GCM-HKDF-streaming has it. Source: docs/format/mirror.md, "Encrypted mirrors"; decision encrypted-before-it-leaves.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.mirror.encryption_keys import ID_BYTES, KEY_BYTES, Key, Keyring
from ccpr.mirror.errors import MirrorDamaged

MAGIC, MAGIC_1 = b"ccprenc2", b"ccprenc1"
SALT_BYTES, TAG_BYTES, SEGMENT_BYTES = 32, 16, 64 << 10
HEADER_BYTES = len(MAGIC) + ID_BYTES + SALT_BYTES
_SEALED_BYTES = SEGMENT_BYTES + TAG_BYTES
_LAST = 1
_SEALED_AT_ONCE = 16  # segments, 1 MB: each part of a file is a write
_KEPT_AT_ONCE = 4  # segments; of a longer part only the ends could be of use again
Chunk = bytes | memoryview


def sealed_size(size: int) -> int:
    """Of the file with so many bytes inside."""
    segments = max(1, -(-size // SEGMENT_BYTES))
    return HEADER_BYTES + size + segments * TAG_BYTES


def plain_size(size: int) -> int | None:
    """How many bytes are in a file of this size; None if no file has it."""
    sealed = size - HEADER_BYTES
    segments = -(-sealed // _SEALED_BYTES)
    found = sealed - segments * TAG_BYTES
    return found if segments > 0 and found >= 0 and sealed_size(found) == size else None


@dataclass(frozen=True, slots=True)
class Binding:
    """What the files of a mirror have in common.

    Attributes
    ----------
    magic : with which they begin. Those of a mirror of before have MAGIC_1, and are bound to their names alone.
    mirror : id of its subscription, which a second copy has, too.
    """

    magic: bytes = MAGIC
    mirror: str = ""

    def about(self, name: str) -> bytes:
        return name.encode() if self.magic == MAGIC_1 else f"{self.mirror}\0{name}".encode()


@dataclass(frozen=True, slots=True)
class FileCipher:
    """The cipher of one file."""

    header: bytes
    cipher: AESGCM

    @classmethod
    def new(cls, key: Key, binding: Binding, name: str) -> "FileCipher":
        """For a file that is about to be written."""
        return cls._of(key, binding, name, binding.magic + key.id + secrets.token_bytes(SALT_BYTES))

    @classmethod
    def read(cls, keys: Keyring, binding: Binding, name: str, header: bytes, subject: str) -> "FileCipher":
        """Raises KeyWrong, and MirrorDamaged for a file that is not encrypted as those of this mirror are."""
        if len(header) != HEADER_BYTES or not header.startswith(binding.magic):
            raise MirrorDamaged("the file is not encrypted, as those of this mirror are", subject=subject)
        return cls._of(keys.find(header[len(MAGIC) :][:ID_BYTES], subject), binding, name, header)

    @classmethod
    def _of(cls, key: Key, binding: Binding, name: str, header: bytes) -> "FileCipher":
        salt, about = header[-SALT_BYTES:], header[:-SALT_BYTES] + binding.about(name)
        derived = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=about).derive(key.secret)
        return cls(header, AESGCM(derived))

    def seal(self, chunks: Iterable[Chunk]) -> Iterator[memoryview]:
        """The file's bytes, many segments at once where a chunk has them."""
        yield memoryview(self.header)
        number, waiting = 0, bytearray()  # what waits is a segment at most, as the last one has another nonce
        for chunk in chunks:
            data = memoryview(chunk).cast("B")
            if waiting and len(waiting) + len(data) > SEGMENT_BYTES:
                taken = SEGMENT_BYTES - len(waiting)
                waiting += data[:taken]
                yield self._sealed(waiting, number)
                number, data = number + 1, data[taken:]
                waiting.clear()
            while len(data) > SEGMENT_BYTES:
                segments = min((len(data) - 1) // SEGMENT_BYTES, _SEALED_AT_ONCE)
                yield self._sealed(data[: segments * SEGMENT_BYTES], number)
                number, data = number + segments, data[segments * SEGMENT_BYTES :]
            waiting += data
            del chunk, data  # a chunk is large: it must not be held while the next one arrives
        yield self._sealed(waiting, number, last=True)

    def _sealed(self, data: bytearray | memoryview, first: int, *, last: bool = False) -> memoryview:
        """Whole segments, or the last one."""
        source, count = memoryview(data), max(1, -(-len(data) // SEGMENT_BYTES))
        sealed = memoryview(bytearray(len(data) + count * TAG_BYTES))
        for place in range(count):
            part = source[place * SEGMENT_BYTES : (place + 1) * SEGMENT_BYTES]
            into = sealed[place * _SEALED_BYTES : (place + 1) * _SEALED_BYTES]
            self.cipher.encrypt_into(_nonce(first + place, last=last), part, None, into)
        return sealed

    def open(self, sealed: pa.Buffer, first: int, last: int, subject: str) -> pa.Buffer:
        """The content of whole segments; the file has `last` + 1. Raises MirrorDamaged."""
        count = -(-sealed.size // _SEALED_BYTES)
        plain = pa.allocate_buffer(sealed.size - count * TAG_BYTES)
        source, into = memoryview(sealed).cast("B"), memoryview(plain).cast("B")
        try:
            for number in range(count):
                part = source[number * _SEALED_BYTES : (number + 1) * _SEALED_BYTES]
                place = into[number * SEGMENT_BYTES : (number + 1) * SEGMENT_BYTES]
                self.cipher.decrypt_into(_nonce(first + number, last=first + number == last), part, None, place)
        except InvalidTag as error:
            raise MirrorDamaged("the file is not what was written: it cannot be decrypted", subject=subject) from error
        return plain


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11) + bytes([_LAST if last else 0])


class OpenedContent:
    """An encrypted file, whose parts are opened when they are asked for.

    Parameters
    ----------
    keep : gets the number of a segment and what reads it, and returns it, perhaps from what was kept.
    """

    def __init__(
        self,
        sealed: ObjectBytes,
        cipher: Callable[[bytes], FileCipher],
        subject: str,
        keep: Callable[[int, Callable[[], pa.Buffer]], pa.Buffer] | None = None,
    ) -> None:
        size = plain_size(sealed.size)
        if size is None:
            raise MirrorDamaged("the file is not encrypted, or was cut off", subject=subject)
        self._sealed, self._read_cipher, self._size, self._subject = sealed, cipher, size, subject
        self._cipher: FileCipher | None = None
        self._last = max(0, (size - 1) // SEGMENT_BYTES)
        self._keep = keep

    @property
    def size(self) -> int:
        return self._size

    def slice(self, offset: int = 0, length: int | None = None) -> pa.Buffer:
        length = self._size - offset if length is None else length
        first, last = offset // SEGMENT_BYTES, max(offset, offset + length - 1) // SEGMENT_BYTES
        last = min(last, self._last)
        if self._keep is None or last - first > _KEPT_AT_ONCE:
            found = self._segments(first, last)
        elif first == last:
            found = self._kept(first)
        else:
            found = pa.py_buffer(b"".join(map(self._kept, range(first, last + 1))))
        return found.slice(offset - first * SEGMENT_BYTES, length)

    def _kept(self, number: int) -> pa.Buffer:
        """A segment: the end of one column's values and the beginning of the next one's are often in the same."""
        assert self._keep is not None
        return self._keep(number, lambda: self._segments(number, number))

    def _segments(self, first: int, last: int) -> pa.Buffer:
        cipher = self._cipher = self._cipher or self._read_cipher(self._sealed.slice(0, HEADER_BYTES).to_pybytes())
        begin = HEADER_BYTES + first * _SEALED_BYTES
        end = min(HEADER_BYTES + (last + 1) * _SEALED_BYTES, self._sealed.size)
        return cipher.open(self._sealed.slice(begin, end - begin), first, self._last, self._subject)
