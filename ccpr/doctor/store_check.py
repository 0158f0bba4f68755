"""Whether the upstream's storage that objects are read from has what the upstream has, and what the buckets of a mirror
and of its second copies enforce: whether they keep versions, and lock them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from ccpr.base.errors import absent
from ccpr.doctor.check import Check, Verdict, failed
from ccpr.doctor.upstream_check import connect_once
from ccpr.matrixone.client.object_answers import get_object
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.objects.errors import ObjectMismatch
from ccpr.matrixone.objects.stats import ObjectStats
from ccpr.mirror.buckets import open_client
from ccpr.mirror.errors import PointNotReached
from ccpr.mirror.layout import HEAD
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.storage import open_storage
from ccpr.service.workspace import Workspace
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription

_UNLOCKED = ("ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration", "NotImplemented")
_ACCESS, _BYTES = "storage", "storage's bytes"
_MISSING = ("404", "NoSuchKey", "NotFound")
_SELF_LOCKING = (
    "Take the default retention away: it wants a checksum with each upload, which is not sent. Have the versions "
    "locked by a login of the bucket's owner (docs/how-to/mirror-in-a-bucket.md)."
)


def check_buckets(workspace: Workspace, row: LogRow) -> Iterator[Check]:
    """A check for each place that is a bucket. Nothing is written there."""
    subscription = Subscription.from_row(row)
    places = {"mirror's bucket": workspace.mirror_place(subscription.name, subscription.settings)}
    for number, copy in enumerate(workspace.of(row).copies.all(), 1):
        places[f"bucket of second copy {number}"] = copy.place
    for what, place in places.items():
        if place.startswith("s3://"):
            yield _check(what, place)


def _check(what: str, place: str) -> Check:
    if absent("botocore"):
        remedy = "pip install 'matrixone-ccpr[lake]'"
        return Check("here", what, Verdict.SKIPPED, "botocore is not installed, which can ask for it", remedy)
    from botocore.exceptions import BotoCoreError, ClientError

    parts = urlsplit(place)
    try:
        client = open_client(place)
        versions = client.get_bucket_versioning(Bucket=parts.netloc).get("Status")
        lock = _lock(client, parts.netloc)
        retention = lock.get("Rule", {}).get("DefaultRetention")
        locked = _locked_until(client, parts.netloc, f"{parts.path.strip('/')}/{HEAD}") if lock else None
    except (BotoCoreError, ClientError) as error:
        return Check("here", what, Verdict.SKIPPED, f"{parts.netloc} does not say what it enforces: {error}")
    keeps = "keeps versions" if versions == "Enabled" else "keeps no versions: what is deleted there is gone"
    if retention is not None:
        span = f"{retention.get('Days', 0)} days" if "Days" in retention else f"{retention.get('Years', 0)} years"
        told = f"{parts.netloc} locks by itself, {retention.get('Mode')} for {span}: it refuses what is written there"
        return Check("here", what, Verdict.FAILED, told, _SELF_LOCKING)
    if not lock:
        return Check("here", what, Verdict.OK, f"{parts.netloc} {keeps}, and has no Object Lock")
    until = "not locked" if locked is None else f"locked until {locked:%Y-%m-%d %H:%M} UTC"
    told = f"{parts.netloc} {keeps}, and has Object Lock; the present version of {HEAD} is {until}"
    return Check("here", what, Verdict.OK, told)


def _lock(client: Any, bucket: str) -> dict[str, Any]:
    """Its configuration; empty if there is none. Raises ClientError, BotoCoreError."""
    from botocore.exceptions import ClientError

    try:
        found = client.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"]
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _UNLOCKED:
            return {}
        raise
    return found if found.get("ObjectLockEnabled") == "Enabled" else {}


def _locked_until(client: Any, bucket: str, key: str) -> datetime | None:
    """Raises as `_lock`."""
    from botocore.exceptions import ClientError

    try:
        return client.head_object(Bucket=bucket, Key=key).get("ObjectLockRetainUntilDate")
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _MISSING:
            return None
        raise


def check_storage(workspace: Workspace, row: LogRow) -> Iterator[Check]:
    """Nothing if the subscription does not read from storage."""
    subscription = Subscription.from_row(row)
    if not subscription.settings.objects_from:
        return
    storage = open_storage(subscription.settings.objects_from)
    try:
        storage.check()
    except CcprError as error:
        yield failed("upstream", _ACCESS, error)
        return
    yield Check("upstream", _ACCESS, Verdict.OK, f"{storage.url} can be asked for objects")
    try:
        yield _compared(workspace, subscription)
    except CcprError as error:
        yield failed("upstream", _BYTES, error)


def _compared(workspace: Workspace, subscription: Subscription) -> Check:
    stats = _smallest(workspace.mirror_of(subscription))
    if stats is None:
        return Check("upstream", _BYTES, Verdict.SKIPPED, "no object is known before the first point")
    stored = open_storage(subscription.settings.objects_from).open(stats.name, stats.size)
    if stored is None:
        told = f"object {stats.name} is not there: the upstream is asked for such objects"
        remedy = "If that is so for all of them, this is not the place of the upstream's objects: --objects-from."
        return Check("upstream", _BYTES, Verdict.WARNING, told, remedy)
    password = workspace.vault.open(subscription.sealed_password, subscription.endpoint)
    with connect_once(subscription.endpoint, password) as session:
        sent = b"".join(get_object(session, subscription.publication, stats.name, stats.size))
    if b"".join(stored.pieces()) != sent:
        raise ObjectMismatch("storage and get_object give different bytes", subject=f"object {stats.name}")
    told = f"object {stats.name}, {stats.size} bytes, {stored.form}: the same by get_object"
    return Check("upstream", _BYTES, Verdict.OK, told)


def _smallest(mirror: Mirror) -> ObjectStats | None:
    """Of the objects of a table of the newest point."""
    try:
        point = mirror.point()
    except PointNotReached:
        return None
    table = min((ref for ref in point.tables.values() if ref.objects), key=lambda ref: ref.bytes, default=None)
    if table is None:
        return None
    return min((listed.stats for listed in mirror.manifest(table).listed_objects()), key=lambda stats: stats.size)
