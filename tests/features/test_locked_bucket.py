"""A mirror in a bucket with object lock: it is written and swept as in any, and a thief with all of its credentials
cannot make it unreadable for good."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ccpr
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import command
from tests.support.simulated import rows

TABLE, PREFIX = f"{DATABASE}.a", "shop"
BUCKET, SAVED, LOCKING = "locked", "saved", "locking"


@pytest.fixture
def s3(s3_server: str) -> Iterator[Any]:
    """A client, with a bucket in which versions can be locked, and an ordinary one."""
    import boto3

    client: Any = boto3.client("s3", endpoint_url=f"http://{s3_server}", region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
    client.create_bucket(Bucket=SAVED)
    yield client
    client.close()


def versions(client: Any) -> list[dict[str, Any]]:
    pages = client.get_paginator("list_object_versions").paginate(Bucket=BUCKET, Prefix=PREFIX)
    return [version for page in pages for version in page.get("Versions", [])]


def place(bucket: str, s3_server: str) -> str:
    return f"s3://{bucket}/{PREFIX}?endpoint_override=http://{s3_server}&region=us-east-1"


def lock(client: Any) -> None:
    """What the bucket's owner does now and then, with a login of their own."""
    until = datetime.now(UTC) + timedelta(days=1)
    for version in versions(client):
        retention = {"Mode": "COMPLIANCE", "RetainUntilDate": until}
        name = {"Bucket": BUCKET, "Key": version["Key"], "VersionId": version["VersionId"]}
        client.put_object_retention(**name, Retention=retention)


def steal(client: Any) -> None:
    """With all of our credentials: every version is to be deleted, every name, and the head is to be another."""
    from botocore.exceptions import ClientError

    for version in versions(client):
        with pytest.raises(ClientError, match="AccessDenied"):
            client.delete_object(Bucket=BUCKET, Key=version["Key"], VersionId=version["VersionId"])
    for key in {version["Key"] for version in versions(client)}:
        client.delete_object(Bucket=BUCKET, Key=key)
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/head.json", Body=b"{}")


def test_a_thief_with_all_credentials_cannot_take_what_the_lock_keeps(
    one_table: OneTable, s3: Any, s3_server: str
) -> None:
    mirror = place(BUCKET, s3_server)
    one_table.source.subscribe("--mirror", mirror, "--retain", "2", "--retain-files", "0")
    for _ in range(5):
        one_table.work()
    kept = one_table.lsns()
    assert kept == [3, 4]
    assert command("verify", "s")["sound"]
    lock(s3)
    before = versions(s3)
    steal(s3)
    with pytest.raises(ccpr.MirrorDamaged):
        ccpr.open_mirror(mirror).points()
    newest = {one["Key"]: one for one in reversed(before)}  # of each name they are listed newest first
    for key, version in newest.items():
        source = {"Bucket": BUCKET, "Key": key, "VersionId": version["VersionId"]}
        s3.copy_object(Bucket=SAVED, Key=key, CopySource=source)
    saved = ccpr.open_mirror(place(SAVED, s3_server))
    assert [point.lsn for point in saved.points()] == kept
    for lsn in kept:
        assert rows(saved.table(TABLE).to_arrow(at=lsn)) == rows(one_table.truth[lsn])
    command("alter", "s", "--mirror", place(SAVED, s3_server))
    one_table.work()
    assert one_table.lsns()[-2:] == [4, 5]
    assert rows(one_table.read("5")) == rows(one_table.truth[5])


def test_a_bucket_that_locks_by_itself_is_refused_before_anything_is_there(
    one_table: OneTable, s3: Any, s3_server: str
) -> None:
    """It wants a checksum with each upload, which the library that uploads does not send."""
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    configuration = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    s3.create_bucket(Bucket=LOCKING, ObjectLockEnabledForBucket=True)
    s3.put_object_lock_configuration(Bucket=LOCKING, ObjectLockConfiguration=configuration)
    error = one_table.source.subscribe("--mirror", place(LOCKING, s3_server), code=1)["error"]
    assert error["code"] == "STORE_FAILED"
    assert "Object Lock" in error["remedy"]
    assert "Contents" not in s3.list_objects_v2(Bucket=LOCKING)
