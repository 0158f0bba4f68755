"""Where a mirror's files live. A name appears with its whole content or not at all.

The contract (the local store here; `replication.mirror.s3_store` stands behind the same one): `put` writes an
immutable name, `replace` is for the one mutable name (`head.json`), `sync` makes names that were put in a folder
survive a power cut. Names are relative, `/`-separated, made by us from checked parts. Source: architecture.md, rooms.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from matrixone.objects.content import Content
from replication.errors import BadName

_NAME = re.compile(r"[A-Za-z0-9_.=-]+(?:/[A-Za-z0-9_.=-]+)*")
Chunk: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What was written.

    Attributes
    ----------
    size : bytes.
    sha256 : checksum of the content, 32 bytes.
    """

    size: int
    sha256: bytes


class Store(Protocol):
    """See the module's contract."""

    url: str

    def put(self, name: str, chunks: Iterable[Chunk], *, check: Callable[[Content], None] | None = None) -> StoredFile:
        """Write an immutable name. `check` sees the whole content before the name appears and raises to refuse it."""
        ...

    def put_together(self, contents: Sequence[tuple[str, Chunk]]) -> list[StoredFile]:
        """Write small immutable names. Each appears on its own; after an error some are there, and some not."""
        ...

    def replace(self, name: str, content: bytes) -> None: ...

    def sync(self, folder: str) -> None: ...

    def read(self, name: str) -> pa.Buffer:
        """The content, memory-mapped where the store can, else all of it in memory. Raises MirrorDamaged if the name
        is missing."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a name, None if it is not there."""
        ...

    def names(self, folder: str) -> Iterator[str]:
        """All names below a folder, in order."""
        ...

    def delete(self, name: str) -> None: ...

    def delete_folder(self, folder: str) -> None: ...

    def sweep(self) -> int:
        """Remove what killed writers left unfinished; the caller holds the lease, so nobody is writing. Returns how
        many there were."""
        ...


def check_name(name: str) -> str:
    """A store name made of plain parts; `..`, empty parts and absolute names are refused."""
    if not _NAME.fullmatch(name) or any(part.strip(".") == "" for part in name.split("/")):
        raise BadName("not a name that may become a path", subject=f"name {name[:80]!r}")
    return name
