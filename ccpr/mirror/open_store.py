"""The store of a URL."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ccpr.mirror.errors import BadName
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.store import Store

if TYPE_CHECKING:
    from ccpr.mirror.buckets import Credentials


def open_store(url: str, *, shared: bool = False, credentials: "Credentials | None" = None) -> Store:
    """The store of a `file:` or `s3:` URL or a plain path.

    Parameters
    ----------
    shared : of a folder, as in LocalStore.
    credentials : of a bucket; without them the environment's, its files' or the machine's.

    Raises BadName for any other URL.
    """
    if url.startswith("s3://"):
        from ccpr.mirror.s3_store import open_s3  # loads a client library that a local mirror does not need

        return open_s3(url, credentials)
    return LocalStore(folder_of(url), shared=shared)


def folder_of(url: str) -> Path:
    """The folder of a `file:` URL or a plain path. Raises BadName for any other URL."""
    if url.startswith("file:"):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise BadName("a file URL with a host", subject=url, remedy="Write file:///path or a plain path.")
        return Path(unquote(parts.path))
    if "://" in url:
        raise BadName(
            "an unknown kind of store", subject=url, remedy="Write file:///path, s3://bucket/prefix or a plain path."
        )
    return Path(url)
