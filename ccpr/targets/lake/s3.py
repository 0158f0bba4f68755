"""A lake in an object store with the S3 protocol. Files are read and written as those of a mirror; a file that must not
exist yet is put with `If-None-Match: *`, which the client of `pyarrow.fs` does not offer and `botocore`, Amazon's own,
does. Both find credentials in the same places.
"""

from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ccpr.base.extras import require
from ccpr.mirror.buckets import CONNECT_SECONDS, REQUEST_SECONDS
from ccpr.mirror.errors import StoreFailed
from ccpr.mirror.s3_store import ObjectStore, open_s3
from ccpr.mirror.store import check_name
from ccpr.targets.lake.errors import LakeStoreUnsafe

_EXISTS = ("PreconditionFailed", "412")
_UNDECIDED = ("ConditionalRequestConflict", "409")  # another put of the name is under way
_UNKNOWN = ("NotImplemented", "501")


class ConditionalPuts:
    """Puts below a prefix of a bucket. `url` is canonical (`ccpr.mirror.buckets.Bucket.url`)."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url, self._bucket, self._prefix = url, parts.netloc, parts.path.strip("/")
        self._options = dict(parse_qsl(parts.query))

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
        from botocore.config import Config
        from botocore.session import get_session

        endpoint = self._options.get("endpoint_override")
        address = endpoint and f"{self._options.get('scheme', 'https')}://{endpoint}"
        style = {"addressing_style": "path" if endpoint else "auto"}
        config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=REQUEST_SECONDS, s3=style)
        region = self._options.get("region")
        session = get_session()
        if region is None and endpoint and session.get_config_variable("region") is None:
            region = "us-east-1"  # a signature needs one; servers with an address of their own do not look at it
        return session.create_client("s3", region_name=region, endpoint_url=address, config=config)


def open_s3_lake(url: str) -> tuple[ObjectStore, ConditionalPuts]:
    """Raises BadName, ExtraMissing."""
    require("lake", "botocore")
    store = open_s3(url)
    return store, ConditionalPuts(store.url)
