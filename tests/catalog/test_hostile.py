"""Clients that lie, are slow or send too much: each is answered with an error or hung up on, and the next is served."""

import json
import socket
import time
from typing import Any

import pytest

from ccpr.base import http_server
from ccpr.catalog import embedded_catalog, rest_routes
from tests.support.iceberg_lake import DATABASE, SCHEMA, IcebergLake
from tests.support.ports import all_of

pytestmark = pytest.mark.integration
TABLES, ROOT = f"shop.lake/namespaces/{DATABASE}/tables", f"shop.lake/namespaces/{DATABASE}"


def still_served(lake: IcebergLake) -> bool:
    return lake.ask("GET", "config?warehouse=shop.lake").status_code == 200


def raw(lake: IcebergLake, content: bytes, pause: float = 0.0) -> bytes:
    place = lake.address.uri.removeprefix("http://").split(":")
    with socket.create_connection((place[0], int(place[1])), 30) as connection:
        connection.sendall(content)
        time.sleep(pause)
        return all_of(connection)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("", 404),
        ("x", 404),
        ("shop.lake", 404),
        ("shop.lake/views", 404),
        ("nobody.lake/namespaces", 404),
        ("shop.other/namespaces", 404),
        ("shop.lake/namespaces/..%2f..%2fetc/tables/passwd", 404),
        (f"{TABLES}/..%2F..%2F..%2Fetc%2Fpasswd", 404),
        (f"{TABLES}/%00", 404),
        (f"{TABLES}/{'a' * 600}", 404),
        (f"{ROOT}%1Fx/tables", 200),  # the committer's own namespaces are what it says
        ("config?warehouse=../../etc", 404),
        ("config?warehouse=shop.lake@1e9", 400),
        (f"config?warehouse=shop.lake@{'9' * 5000}", 400),
        (f"config?{'&'.join(['a=b'] * 100)}", 400),
        ("config?warehouse=%ff%fe", 404),
    ],
)
def test_a_path_is_looked_up_and_never_followed(lake: IcebergLake, path: str, status: int) -> None:
    answer = lake.ask("GET", path)
    assert answer.status_code == status, answer.text
    assert still_served(lake)


BODIES: list[Any] = [
    b"",
    b"[]",
    b"{",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    {"table-changes": []},
    {"table-changes": [1]},
    {"table-changes": [{}]},
    {"table-changes": [{"identifier": {"namespace": ["a", "b"], "name": "a"}}]},
    {"table-changes": [{"identifier": {"namespace": [DATABASE], "name": "\n"}}]},
]
IDENTIFIER = {"namespace": [DATABASE], "name": "a"}
UPDATES: list[Any] = [
    None,
    [1],
    [{"action": "drop-everything"}],
    [{"action": "add-snapshot", "snapshot": {}}],
    [{"action": "set-location", "location": "file:///etc"}],
    [{"action": "assign-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}],
    [{"action": "set-properties", "updates": 7}],
    [{"action": "remove-properties", "removals": ["nothing"]}],
    [{"action": "set-statistics"}],
    [{"action": "upgrade-format-version", "format-version": 9}],
    [{"action": "upgrade-format-version", "format-version": 1}],
    [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7}],
    [{"action": "set-current-schema", "schema-id": 9}],
    [{"action": "add-schema", "schema": {"type": "struct", "fields": [{"id": "x"}]}}],
]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_is_no_commit_is_refused(lake: IcebergLake, body: Any) -> None:
    answer = lake.ask("POST", "shop.lake/transactions/commit", body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")
    assert still_served(lake)


@pytest.mark.parametrize("updates", UPDATES)
def test_an_update_that_is_unknown_or_not_allowed_changes_nothing(lake: IcebergLake, updates: Any) -> None:
    lake.create("a")
    before = lake.pointer("a")
    change = {"identifier": IDENTIFIER, "requirements": [], "updates": updates}
    answer = lake.ask("POST", "shop.lake/transactions/commit", {"table-changes": [change]})
    assert answer.status_code == 400, answer.text
    assert lake.pointer("a") == before
    assert still_served(lake)


@pytest.mark.parametrize("requirements", [None, [{"type": "assert-nothing"}], [{"type": "assert-table-uuid"}], {}, "x"])
def test_a_requirement_that_is_unknown_is_refused(lake: IcebergLake, requirements: Any) -> None:
    lake.create("a")
    body = {"requirements": requirements, "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    answer = lake.ask("POST", f"{TABLES}/a", body)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    "location", ["file:///etc", "../x", "s3://b/x", "{lake}/a/b", "{lake}/../x", "{lake}/", "{lake}/.."]
)
def test_a_table_is_a_folder_of_the_lake(lake: IcebergLake, location: str) -> None:
    asked = {"name": "x", "schema": SCHEMA, "location": location.format(lake=lake.target.uri)}
    answer = lake.ask("POST", TABLES, asked)
    assert answer.status_code == 400, answer.text
    assert lake.pointers.all() == []


@pytest.mark.parametrize("name", ["", "\x00", "a\nb", "x" * 300, 7, None, ["a"]])
def test_a_name_is_a_short_text_without_control_characters(lake: IcebergLake, name: Any) -> None:
    assert lake.ask("POST", TABLES, {"name": name, "schema": SCHEMA}).status_code == 400
    assert lake.pointers.all() == []


def test_any_other_name_becomes_a_folder_inside_the_lake(lake: IcebergLake) -> None:
    for name in ("..", "a/b", "%", "Ü😀", "a b"):
        lake.asked("POST", f"namespaces/{DATABASE}/tables", {"name": name, "schema": SCHEMA})
    assert {one.parent for one in lake.folder.rglob("metadata")} == set(lake.folder.glob("[!.]*"))
    assert len({one.folder for one in lake.pointers.all()}) == 5


def test_a_body_is_read_as_far_as_its_sender_may_send(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_routes, "COMMIT_BYTES", 1000)
    answer = lake.ask("POST", "shop.lake/transactions/commit", b"x" * 1001)
    assert answer.status_code == 413
    token = f"Authorization: Bearer {lake.address.token}\r\n".encode()
    head = b"POST /v1/shop.lake/transactions/commit HTTP/1.1\r\n"
    assert raw(lake, head + token + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")[9:12] == b"411"
    for size in (b"-1", b"1e3", b"9" * 40, "१".encode()):
        assert raw(lake, head + token + b"Content-Length: " + size + b"\r\n\r\n")[9:12] == b"411"
    assert raw(lake, head + b"Content-Length: 99999999999\r\n\r\n")[9:12] == b"401", "nothing is read of a stranger"
    assert still_served(lake)


def test_slow_senders_are_cut_and_no_more_than_a_few_are_served(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(http_server, "BODY_SECONDS", 0.5)
    token = f"Authorization: Bearer {lake.address.token}\r\n".encode()
    began = time.monotonic()
    answer = raw(lake, b"POST /v1/shop.lake/transactions/commit HTTP/1.1\r\nContent-Length: 9\r\n" + token + b"\r\n{")
    assert answer[9:12] == b"413"
    assert "does not come" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]
    assert raw(lake, b"GET /v1/config HTTP/1.1\r\n") == b""
    assert time.monotonic() - began < 10
    host, port = lake.address.uri.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port)), 30) for _ in range(3 * embedded_catalog.AT_ONCE)]
    try:
        for connection in silent:
            assert connection.recv(1) == b""
    finally:
        for connection in silent:
            connection.close()
    assert still_served(lake)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x", "Basic eDp4", "bearer \x7f", "Bearer " + "x" * 5000])
def test_without_the_token_nothing_is_told(lake: IcebergLake, header: str) -> None:
    answer = lake.ask("GET", "config?warehouse=shop.lake", headers={"Authorization": header})
    assert (answer.status_code, answer.headers.get("WWW-Authenticate")) == (401, "Bearer")
    assert lake.ask("POST", "oauth/tokens", b"client_id=a&client_secret=b").status_code == 400
