"""The object store's own: URLs, what is said when the server does not answer, and a mirror on it that Spark reads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ccpr.mirror.errors import BadName, StoreFailed
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.open_store import open_store
from ccpr.mirror.s3_store import open_s3
from ccpr.mirror.table_read import plan_read
from tests.support.expected import assert_rows_equal
from tests.support.recorded import Snapshot
from tests.support.spark_fixtures import RecordedMirror
from tests.support.spark_tables import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "url",
    [
        "s3://user:hunter2@bucket/x",
        "s3://bucket/x?access_key=hunter2",
        "s3://bucket/x?secret_key=hunter2&region=a",
        "s3://bucket/x?session_token=hunter2",
        "s3://bucket/x?endpoint_override=http://user:hunter2@host",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadName, match="AWS_ACCESS_KEY_ID") as refused:
        open_store(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///x", "s3://b/../c", "s3://b/x?colour=red", "s3://b/x#y", "s3://b:80/x", "s3://b/x?scheme=ftp"],
)
def test_what_is_no_url_of_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(BadName):
        open_store(url)


def test_the_url_is_kept_in_one_form() -> None:
    one = open_s3("s3://bucket/a/b/?region=eu-west-1&endpoint_override=http://127.0.0.1:9000")
    other = open_s3("s3://bucket/a/b?scheme=http&endpoint_override=127.0.0.1:9000&region=eu-west-1")
    assert one.url == other.url == "s3://bucket/a/b?endpoint_override=127.0.0.1:9000&region=eu-west-1&scheme=http"


def test_a_server_that_does_not_answer_is_a_failure_to_try_again(s3_credentials: None) -> None:
    store = open_store("s3://bucket/x?endpoint_override=http://127.0.0.1:1&region=us-east-1")
    for act in (
        lambda: store.read("a"),
        lambda: store.put("a", [b"x"]),
        lambda: list(store.names("a")),
        lambda: store.size("a"),
    ):
        with pytest.raises(StoreFailed, match=r"s3://bucket/x/a.*AWS_ACCESS_KEY_ID"):
            act()


@pytest.mark.long
def test_a_folder_of_more_names_than_a_page_holds_is_listed_and_deleted_whole(s3_url: str) -> None:
    store = open_store(s3_url)
    names = [f"work/0-0/{number:04}=a_b.c-d" for number in range(1005)]  # a page of S3 has a thousand
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, [b"x"]), names))
    store.put("work/1-0/other", [b"x"])
    assert list(store.names("work/0-0")) == names
    store.delete_folder("work/0-0")
    assert list(store.names("work")) == ["work/1-0/other"]


def test_a_bucket_that_does_not_exist_is_reported(s3_server: str) -> None:
    store = open_store(f"s3://nowhere/x?endpoint_override=http://{s3_server}&region=us-east-1")
    with pytest.raises(StoreFailed, match="could not write"):
        store.put("a", [b"x"])


@pytest.mark.spark
@pytest.mark.recordings
def test_a_mirror_on_s3_is_read_by_the_process_and_by_spark(
    spark: "SparkSession", recordings: Path, recorded_mirror: RecordedMirror, s3_url: str
) -> None:
    local, store = recorded_mirror("dml"), open_store(s3_url)
    snapshot = Snapshot(recordings / "dml/snapshot-004")
    names = {listed.stats.name for listed in snapshot.objects["acc"]}
    for name in [
        *local.store.names("points"),
        *local.store.names("manifests"),
        "head.json",
        *(f"objects/{name}" for name in names),
    ]:
        store.put(name, [local.store.read(name).to_pybytes()])

    mirror = Mirror(open_store(store.url))
    assert mirror.lsns() == local.lsns()
    schema, batches = mirror.read(mirror.point(4), "gd_dml.acc")
    expected = snapshot.expected("acc")
    assert_rows_equal(pa.Table.from_batches(batches, schema), expected)
    assert_rows_equal(read_table(spark, store.url, "gd_dml.acc", 4, task_bytes=4096).toArrow(), expected)
    loaded = spark.read.format("matrixone").options(mirror=store.url, table="gd_dml.acc", at="4").load()
    assert_rows_equal(loaded.toArrow(), expected)
    assert plan_read(store.url, "gd_dml.acc").store_url == store.url
