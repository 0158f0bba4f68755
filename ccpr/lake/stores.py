"""Where a lake's files are: a store as that of a mirror, in which a file can also be created only if it is not there. A
commit of a table is such a file, so that of two publishers one fails. Source: decision lake-commits.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ccpr.base.extras import require
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.open_store import folder_of
from ccpr.mirror.store import Store


class Creating(Protocol):
    """The part of a store that the mirror's stores need not have."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file with its whole content, unless it exists; says whether it was written. Raises StoreFailed: then
        it is there or not."""
        ...


@dataclass(frozen=True, slots=True)
class LakeStore:
    """
    Attributes
    ----------
    url : without secrets.
    """

    files: Store
    creating: Creating

    @property
    def url(self) -> str:
        return self.files.url

    def create(self, name: str, content: bytes) -> bool:
        """As `Creating.create`; true also where the file is there with these bytes, from an attempt whose answer was
        lost."""
        return self.creating.create(name, content) or self.read(name) == pa.py_buffer(content)

    def read(self, name: str) -> pa.Buffer | None:
        """None for a file that does not exist."""
        try:
            return self.files.read(name)
        except MirrorDamaged:
            if self.files.size(name) is None:
                return None
            raise


def open_lake(url: str) -> LakeStore:
    """The store of a `file:` or `s3:` URL or a plain path. It does not connect yet. Raises BadName, ExtraMissing."""
    require("lake", "pyroaring")
    if url.startswith("s3://"):
        from ccpr.lake.s3 import open_s3_lake

        return LakeStore(*open_s3_lake(url))
    store = LocalStore(folder_of(url), shared=True)  # a lake is there for other programs
    return LakeStore(store, store)
