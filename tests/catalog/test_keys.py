"""The keys for a table's files that the catalog hands out: of whose role, for which files, to whom."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from moto.sts.models import sts_backends
from pyiceberg.io import S3_ACCESS_KEY_ID

from ccpr.catalog.table_keys import ROLE, TableKeys
from ccpr.lake.stores import open_lake
from ccpr.matrixone.server.wrong_passwords import password_digest
from ccpr.mirror.errors import StoreFailed
from ccpr.state.logins import LoginRole, PortLogin, PortLogins, ReadLimits
from tests.support.iceberg_lake import DATABASE, IcebergLake, attached, iceberg_lake, ids, served
from tests.support.values import NOW

pytestmark = pytest.mark.integration
READERS = "arn:aws:iam::123456789012:role/readers"


@pytest.fixture
def bucket(tmp_path: Path, s3_url: str) -> Iterator[IcebergLake]:
    with iceberg_lake(tmp_path, s3_url) as lake:
        lake.create("a", "b")
        lake.publish(1, {"a": [1], "b": [1]})
        lake.publish(2, {"a": [2]})
        yield lake


def asked(root: str, table: str, token: str = "reader:secret") -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(f"{root}/{table}/credentials", headers=headers, timeout=60)


def given() -> list[Any]:
    """The roles that were assumed."""
    return [role for account in sts_backends.values() for one in account.values() for role in one.assumed_roles]


def test_a_reader_gets_keys_for_the_files_of_a_table_alone(
    bucket: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(bucket.workspace) as port:
        root = f"http://{port.address}/v1/shop.lake/namespaces/{DATABASE}/tables"
        assert asked(root, "a").json() == {"storage-credentials": []}, "nobody named a role"
        monkeypatch.setenv(ROLE, READERS)
        before = len(given())
        (found,) = asked(root, "a").json()["storage-credentials"]
        role = given()[before]
        assert (role.role_arn, found["config"]["s3.access-key-id"]) == (READERS, role.access_key_id)
        (statement,) = json.loads(role.policy)["Statement"]
        files = f"arn:aws:s3:::{found['prefix'].removeprefix('s3://')}*"
        assert statement == {"Effect": "Allow", "Action": "s3:GetObject", "Resource": files}
        assert files.endswith(f"/{DATABASE}.a/*")
        assert asked(root.replace(f"/{DATABASE}/", f"/{DATABASE}@1/"), "a").json()["storage-credentials"] == [found]
        assert len(given()) == before + 1, "they are handed out again"
        for warehouse, rows in (("shop.lake", [1, 2]), ("shop.lake@1", [1])):
            catalog = attached(port, warehouse)
            table = catalog.load_table((DATABASE, "a"))
            assert table.io.properties[S3_ACCESS_KEY_ID] == role.access_key_id
            assert ids(catalog, "a") == rows


def test_who_does_not_see_a_table_gets_no_keys_for_it(bucket: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROLE, READERS)
    logins = PortLogins(bucket.workspace.log.engine, bucket.workspace.vault)
    some = PortLogin("some", NOW, LoginRole.READER, limits=ReadLimits(tables=("b",)))
    logins.add(some, password_digest("secret"))
    logins.add(replace(some, name="narrow", limits=ReadLimits(hidden=("id",))), password_digest("secret"))
    with served(bucket.workspace) as port:
        root = f"http://{port.address}/v1/shop.lake/namespaces/{DATABASE}/tables"
        before = len(given())
        assert [asked(root, table, "some:secret").status_code for table in ("a", "nothing", "b")] == [404, 404, 200]
        assert asked(root.replace(f"/{DATABASE}/", f"/{DATABASE}@1/"), "a", "some:secret").status_code == 404
        assert asked(root, "b", "narrow:secret").status_code == 403
        assert asked(root, "b", "nobody").status_code == 401
        assert len(given()) == before + 1


def test_a_folder_needs_none(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROLE, READERS)
    lake.create("a")
    lake.publish(1, {"a": [1]})
    with served(lake.workspace) as port:
        root = f"http://{port.address}/v1/shop.lake/namespaces/{DATABASE}/tables"
        assert asked(root, "a").json() == {"storage-credentials": []}


def test_keys_end_and_are_asked_for_anew(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROLE, READERS)
    now, before = [0.0], len(given())
    keys, store = TableKeys(lambda: now[0]), open_lake(s3_url)
    (first,) = keys.of(store, "shop.a")
    now[0] = 1799.0
    assert keys.of(store, "shop.a") == [first]
    now[0] = 1801.0
    assert keys.of(store, "shop.a") != [first]
    assert keys.of(store, "shop.b")[0]["prefix"] != first["prefix"]
    assert len(given()) == before + 3


def test_a_role_that_cannot_be_assumed_is_said(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROLE, "x")
    with pytest.raises(StoreFailed, match="no keys for its readers"):
        TableKeys().of(open_lake(s3_url), "shop.a")
