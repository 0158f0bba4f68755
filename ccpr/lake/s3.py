"""A lake in an object store with the S3 protocol. Files are read and written as those of a mirror; a file that must not
exist yet is put with `If-None-Match: *`, which the client of `pyarrow.fs` does not offer and `botocore`, Amazon's own,
does. Both find credentials in the same places.
"""

from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from ccpr.base.extras import require
from ccpr.lake.errors import LakeStoreUnsafe
from ccpr.mirror.buckets import open_client
from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.s3_store import ObjectStore, open_s3
from ccpr.mirror.store import check_name

_EXISTS = ("PreconditionFailed", "412")
_UNDECIDED = ("ConditionalRequestConflict", "409")  # another put of the name is under way
_UNKNOWN = ("NotImplemented", "501")


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
        return open_client(self.url)


def open_s3_lake(url: str) -> tuple[ObjectStore, ConditionalPuts]:
    """Raises BadName, ExtraMissing."""
    require("lake", "botocore")
    store = open_s3(url)
    return store, ConditionalPuts(store.url)
