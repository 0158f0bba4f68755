"""The store of a URL."""

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ccpr.mirror.encryption_keys import keyring, without_key
from ccpr.mirror.errors import BadName
from ccpr.mirror.local_store import LocalStore
from ccpr.mirror.store import Store

if TYPE_CHECKING:
    from ccpr.mirror.buckets import Credentials


def open_store(url: str, *, shared: bool = False, credentials: "Credentials | None" = None, encrypt: str = "") -> Store:
    """The store of a `file:` or `s3:` URL or a plain path.

    Parameters
    ----------
    shared : of a folder, as in LocalStore.
    credentials : of a bucket; without them the environment's, its files' or the machine's.
    encrypt : where the key is, if the files are encrypted (`ccpr.mirror.encryption_keys`). A URL can have it, too:
        `s3://bucket/prefix?encrypt=env:NAME`.

    Raises BadName for any other URL; KeyUnusable.
    """
    place, inside = without_key(url)
    store = _open(place, shared=shared, credentials=credentials)
    reference = encrypt or inside
    if not reference:
        return store
    from ccpr.mirror.encrypted_store import EncryptedStore  # loads a library that other mirrors do not need

    return EncryptedStore(store, keyring(reference))


def _open(url: str, *, shared: bool = False, credentials: "Credentials | None" = None) -> Store:
    if url.startswith("s3://"):
        from ccpr.mirror.s3_store import open_s3  # loads a client library that a local mirror does not need

        return open_s3(url, credentials)
    return LocalStore(folder_of(url), shared=shared)


def place_of(url: str) -> str:
    """The canonical URL of a place, without where its key is. Raises BadName."""
    return _open(without_key(url)[0]).url


def folder_of(url: str) -> Path:
    """The folder of a `file:` URL or a plain path, which need not be there. Raises BadName for any other URL, and for a
    path that the file system cannot have."""
    if url.startswith("file:"):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise BadName("a file URL with a host", subject=url, remedy="Write file:///path or a plain path.")
        return _possible(unquote(parts.path))
    if "://" in url:
        raise BadName(
            "an unknown kind of store", subject=url, remedy="Write file:///path, s3://bucket/prefix or a plain path."
        )
    return _possible(url)


def _possible(path: str) -> Path:
    remedy = "Name another folder."
    try:
        os.lstat(path)
    except ValueError as error:
        raise BadName("no path has such characters", subject=f"folder {path[:80]!r}", remedy=remedy) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise BadName("it is too long for a path", subject=f"folder {path[:80]!r}", remedy=remedy) from error
    return Path(path)
