"""The URL of a lake's place in the one form in which it is stored."""

from contextlib import suppress

from ccpr.mirror.errors import BadName
from ccpr.mirror.open_store import folder_of


def canonical_url(url: str) -> str:
    """The URL itself where it is none."""
    with suppress(BadName):
        if url.startswith("s3://"):
            from ccpr.mirror.buckets import open_bucket  # loads a client library

            return open_bucket(url).url
        return folder_of(url).absolute().as_uri()
    return url
