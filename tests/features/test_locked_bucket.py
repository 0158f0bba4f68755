"""A mirror in a bucket with object lock: it is written and swept as in any, the doctor says what the bucket enforces,
and a thief with all of our credentials cannot make a locked point unreadable for good."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ccpr
from tests.support.one_table import DATABASE, OneTable
from tests.support.replica import command
from tests.support.simulated import rows

TABLE, PREFIX = f"{DATABASE}.a", "shop"
NUMBERS = itertools.count()


@dataclass(frozen=True)
class S3:
    """
    Attributes
    ----------
    locked, saved : names of buckets of this test: one in which versions can be locked, and an ordinary one.
    """

    client: Any
    server: str
    locked: str
    saved: str

    def place(self, bucket: str) -> str:
        return f"s3://{bucket}/{PREFIX}?endpoint_override=http://{self.server}&region=us-east-1"

    def versions(self) -> list[dict[str, Any]]:
        """Of each name newest first."""
        pages = self.client.get_paginator("list_object_versions").paginate(Bucket=self.locked, Prefix=PREFIX)
        return [version for page in pages for version in page.get("Versions", [])]

    def lock(self) -> None:
        """What the bucket's owner does now and then, with a login of their own."""
        until = datetime.now(UTC) + timedelta(days=1)
        for version in self.versions():
            retention = {"Mode": "COMPLIANCE", "RetainUntilDate": until}
            name = {"Bucket": self.locked, "Key": version["Key"], "VersionId": version["VersionId"]}
            self.client.put_object_retention(**name, Retention=retention)

    def steal(self) -> None:
        """With all of our credentials: overwrite every name with rubbish, delete it, and delete every version."""
        from botocore.exceptions import ClientError

        found = self.versions()
        for version in found:
            with pytest.raises(ClientError, match="AccessDenied"):
                self.client.delete_object(Bucket=self.locked, Key=version["Key"], VersionId=version["VersionId"])
        with pytest.raises(ClientError):
            self.client.delete_bucket(Bucket=self.locked)
        for key in {version["Key"] for version in found}:
            self.client.put_object(Bucket=self.locked, Key=key, Body=b"{}")
            if not key.endswith("/head.json"):
                self.client.delete_object(Bucket=self.locked, Key=key)

    def save(self, before: list[dict[str, Any]]) -> None:
        """The newest of some versions, of each name, to the other bucket."""
        for key, version in {one["Key"]: one for one in reversed(before)}.items():
            source = {"Bucket": self.locked, "Key": key, "VersionId": version["VersionId"]}
            self.client.copy_object(Bucket=self.saved, Key=key, CopySource=source)


@pytest.fixture
def s3(s3_server: str) -> Iterator[S3]:
    import boto3

    number = next(NUMBERS)
    client: Any = boto3.client("s3", endpoint_url=f"http://{s3_server}", region_name="us-east-1")
    made = S3(client, s3_server, f"locked-{number}", f"saved-{number}")
    client.create_bucket(Bucket=made.locked, ObjectLockEnabledForBucket=True)
    client.create_bucket(Bucket=made.saved)
    yield made
    client.close()


def test_a_thief_with_all_credentials_cannot_take_what_the_lock_keeps(one_table: OneTable, s3: S3) -> None:
    """Every point that was there when the versions were locked is restored, the held one by its name."""
    mirror = s3.place(s3.locked)
    one_table.source.subscribe("--mirror", mirror, "--retain", "2", "--retain-files", "0")
    one_table.work()
    command("points", "hold", "s", "0", "--name", "audit")
    for _ in range(4):
        one_table.work()
    kept = one_table.lsns()
    assert kept == [0, 3, 4]
    assert command("verify", "s")["sound"]
    s3.lock()
    before = s3.versions()
    s3.steal()
    with pytest.raises(ccpr.MirrorDamaged):
        ccpr.open_mirror(mirror).points()
    s3.save(before)
    saved = ccpr.open_mirror(s3.place(s3.saved))
    assert [point.lsn for point in saved.points()] == kept
    for lsn in kept:
        assert rows(saved.table(TABLE).to_arrow(at=lsn)) == rows(one_table.truth[lsn])
    assert rows(saved.table(TABLE).to_arrow(at="audit")) == rows(one_table.truth[0])
    command("alter", "s", "--mirror", s3.place(s3.saved))
    one_table.work()
    assert one_table.lsns()[-2:] == [4, 5]
    assert rows(one_table.read("5")) == rows(one_table.truth[5])


def test_a_second_copy_in_a_locked_bucket_survives_a_thief_who_deletes_the_mirror_too(
    one_table: OneTable, s3: S3, home: Any
) -> None:
    """By our own commands, with our own state."""
    one_table.source.subscribe("--copy-to", s3.place(s3.locked))
    for _ in range(3):
        one_table.work()
    command("copy", "s")
    s3.lock()
    before = s3.versions()
    command("drop", "s", "--purge", "--force", "--yes")
    assert not one_table.source.mirror_folder().exists()
    s3.steal()
    s3.save(before)
    saved = ccpr.open_mirror(s3.place(s3.saved))
    assert [point.lsn for point in saved.points()] == [0, 1, 2]
    for lsn, expected in one_table.truth.items():
        assert rows(saved.table(TABLE).to_arrow(at=lsn)) == rows(expected)


def test_a_bucket_that_locks_by_itself_is_refused_before_anything_is_there(one_table: OneTable, s3: S3) -> None:
    """It wants a checksum with each upload, which the library that uploads does not send."""
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    configuration = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    s3.client.put_object_lock_configuration(Bucket=s3.locked, ObjectLockConfiguration=configuration)
    error = one_table.source.subscribe("--mirror", s3.place(s3.locked), code=1)["error"]
    assert error["code"] == "STORE_FAILED"
    assert "Object Lock" in error["remedy"]
    assert "Contents" not in s3.client.list_objects_v2(Bucket=s3.locked)


def told(what: str, code: int | None = None) -> tuple[str, str]:
    """What the doctor says."""
    checks = command("doctor", "s", code=code)["checks"]
    (found,) = (check for check in checks if check["what"] == what)
    return found["result"], found["told"]


def test_the_doctor_says_what_a_bucket_enforces(one_table: OneTable, s3: S3) -> None:
    one_table.source.subscribe("--mirror", s3.place(s3.saved))
    one_table.work()
    assert told("mirror's bucket") == (
        "ok",
        f"{s3.saved} keeps no versions: what is deleted there is gone, and has no Object Lock",
    )
    s3.client.put_bucket_versioning(Bucket=s3.saved, VersioningConfiguration={"Status": "Enabled"})
    assert told("mirror's bucket") == ("ok", f"{s3.saved} keeps versions, and has no Object Lock")
    command("copy", "s", "--to", s3.place(s3.locked))
    begin = f"{s3.locked} keeps versions, and has Object Lock; the present version of head.json is"
    assert told("bucket of second copy 1") == ("ok", f"{begin} not locked")
    s3.lock()
    result, says = told("bucket of second copy 1")
    assert (result, says.startswith(f"{begin} locked until 20")) == ("ok", True)
    locking = f"locking-{next(NUMBERS)}"
    s3.client.create_bucket(Bucket=locking, ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}
    configuration = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    s3.client.put_object_lock_configuration(Bucket=locking, ObjectLockConfiguration=configuration)
    assert command("copy", "s", "--to", s3.place(locking), code=1)["error"]["code"] == "STORE_FAILED"
    found = {check["told"] for check in command("doctor", "s", code=1)["checks"] if check["result"] == "failed"}
    assert found == {f"{locking} locks by itself, GOVERNANCE for 3 days: it refuses what is written there"}
    one_table.work()
    assert rows(ccpr.open_mirror(s3.place(s3.saved)).table(TABLE).to_arrow(at=1)) == rows(one_table.truth[1])


def test_a_bucket_that_is_gone_hinders_no_other_check(one_table: OneTable, s3: S3) -> None:
    one_table.source.subscribe("--mirror", s3.place(s3.saved))
    one_table.work()
    gone = f"gone-{next(NUMBERS)}"
    s3.client.create_bucket(Bucket=gone)
    command("copy", "s", "--to", s3.place(gone))
    for one in s3.client.list_objects_v2(Bucket=gone)["Contents"]:
        s3.client.delete_object(Bucket=gone, Key=one["Key"])
    s3.client.delete_bucket(Bucket=gone)
    result, says = told("bucket of second copy 1")
    assert result == "skipped"
    assert "NoSuchBucket" in says
    assert told("mirror's bucket")[0] == "ok"
    assert rows(one_table.read("0")) == rows(one_table.truth[0])
