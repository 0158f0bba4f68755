"""Where a lake's files are: a store as that of a mirror, in which a file can also be created only if it is not there. A
commit of a table is such a file, so that of two publishers one fails. Source: decision lake-commits.

In an object store with the S3 protocol it is put with `If-None-Match: *`, which the client of `pyarrow.fs` does not
offer and `botocore`, Amazon's own, does. Both find credentials in the same places.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from ccpr.base.errors import require
from ccpr.lake.errors import LakeStoreUnsafe
from ccpr.mirror.encryption_keys import without_key
from ccpr.mirror.errors import BadName, MirrorDamaged, StoreFailed
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.open_store import folder_of
from ccpr.mirror.store import Store, check_name

_EXISTS = ("PreconditionFailed", "412")
_UNDECIDED = ("ConditionalRequestConflict", "409")  # another put of the name is under way
_UNKNOWN = ("NotImplemented", "501")


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

    def location(self, *parts: str) -> str:
        """Of a file or folder, as Iceberg's metadata name it: nothing is escaped, and the options of a bucket's address
        are not in it."""
        plain = self.url.partition("?")[0].rstrip("/")
        return "/".join((f"file://{unquote(urlsplit(plain).path)}" if plain.startswith("file:") else plain, *parts))

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
        return self.files.read(name)  # it has come meanwhile, or is damaged


class ConditionalPuts:
    """Puts below a prefix of a bucket. `url` is canonical (`ccpr.mirror.buckets.Bucket.url`)."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url, self._bucket, self._prefix = url, parts.netloc, parts.path.strip("/")

    def create(self, name: str, content: bytes) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        key = "/".join(part for part in (self._prefix, check_name(name)) if part)
        subject = f"{self.url.partition('?')[0]}/{name}"
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=content, IfNoneMatch="*")
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _EXISTS:
                return False
            if code in _UNKNOWN:
                raise LakeStoreUnsafe(f"it refuses a conditional put: {code}", subject=subject) from error
            what = "another put of it is under way" if code in _UNDECIDED else f"could not write: {error}"
            raise StoreFailed(what, subject=subject) from error
        except BotoCoreError as error:
            raise StoreFailed(f"could not write: {error}", subject=subject) from error
        return True

    @cached_property
    def _client(self) -> Any:
        from ccpr.mirror.buckets import open_client

        return open_client(self.url)


def open_lake(url: str) -> LakeStore:
    """The store of a `file:` or `s3:` URL or a plain path. It does not connect yet. Raises BadName, ExtraMissing."""
    require("lake", "pyroaring")
    if url.startswith("s3://"):
        require("lake", "botocore")
        from ccpr.mirror.s3_store import open_s3

        store = open_s3(url)
        return LakeStore(store, ConditionalPuts(store.url))
    store = LocalStore(folder_of(url), shared=True)  # a lake is there for other programs
    return LakeStore(store, store)


def canonical_url(url: str) -> str:
    """The URL of a lake's place in the one form in which it is stored; a text that is no URL stays as it is."""
    url, _ = without_key(url)
    with suppress(BadName):
        if url.startswith("s3://"):
            from ccpr.mirror.buckets import open_bucket  # loads a client library

            return open_bucket(url).url
        return folder_of(url).absolute().as_uri()
    return url
