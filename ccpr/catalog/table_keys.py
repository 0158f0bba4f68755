"""Keys for the files of one table in a bucket, which the catalog hands out: those of a role that the operator names,
narrowed to reads in the table's folder, for an hour. Without a role it hands out none. Source: decision lake-keys.
"""

import json
import os
import time
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

from ccpr.base.newest import Newest
from ccpr.lake.stores import LakeStore
from ccpr.mirror.buckets import open_client
from ccpr.mirror.errors import StoreFailed

Keys: TypeAlias = dict[str, str | dict[str, str]]  # what the specification calls a StorageCredential

ROLE = "CCPR_CATALOG_ROLE"
SECONDS = 3600
_MOST_KEPT = 1000


class TableKeys:
    """Thread-safe. Keys are handed out again while half of their time is left."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kept = Newest[tuple[str, str, str], tuple[Keys, float]](_MOST_KEPT)

    def of(self, store: LakeStore, folder: str) -> list[Keys]:
        """For a table's folder. Raises StoreFailed."""
        role = os.environ.get(ROLE)
        if not role or not store.url.startswith("s3://"):
            return []
        key, now = (role, store.url, folder), self._monotonic()
        found, until = self._kept.get(key) or ({}, now)
        if until <= now:
            found = _asked(role, store, folder)
            self._kept.put(key, (found, now + SECONDS / 2))
        return [found]


def _asked(role: str, store: LakeStore, folder: str) -> Keys:
    from botocore.exceptions import BotoCoreError, ClientError

    place = store.location(folder, "")
    partition = role.split(":")[1] if role.startswith("arn:aws") else "aws"
    files = f"arn:{partition}:s3:::{place.removeprefix('s3://')}*"
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": files}]}
    about = {"RoleArn": role, "RoleSessionName": "ccpr-catalog", "DurationSeconds": SECONDS}
    try:
        given = open_client(store.url, "sts").assume_role(**about, Policy=json.dumps(policy))["Credentials"]
        bucket = open_client(store.url).meta
    except (BotoCoreError, ClientError) as error:
        raise StoreFailed(f"no keys for its readers: {error}", subject=store.url.partition("?")[0]) from error
    config = {
        "s3.access-key-id": given["AccessKeyId"],
        "s3.secret-access-key": given["SecretAccessKey"],
        "s3.session-token": given["SessionToken"],
        "s3.session-token-expires-at-ms": str(int(given["Expiration"].timestamp() * 1000)),
        "s3.endpoint": bucket.endpoint_url,
        "s3.region": bucket.region_name,
        "client.region": bucket.region_name,
    }
    if "endpoint_override" in dict(parse_qsl(urlsplit(store.url).query)):
        config["s3.path-style-access"] = "true"
    return {"prefix": place, "config": config}
