"""Clients that lie, are slow or send too much: each is answered with an error or hung up on, and the next is served."""

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ccpr.base import http_server
from ccpr.catalog import rest_routes
from ccpr.serve import catalog_port
from tests.support.committing_catalog import CatalogAddress
from tests.support.iceberg_lake import DATABASE, IcebergLake, served
from tests.support.ports import all_of

pytestmark = pytest.mark.integration
TABLES, ROOT = f"shop.lake/namespaces/{DATABASE}/tables", f"shop.lake/namespaces/{DATABASE}"


@pytest.fixture
def lake(lake: IcebergLake) -> Iterator[IcebergLake]:
    """As `ccpr serve --catalog` serves it."""
    with served(lake.workspace) as port:
        yield replace(lake, address=CatalogAddress(f"http://{port.address}", "shop.lake", "reader:secret"))


def still_served(lake: IcebergLake) -> bool:
    return lake.ask("GET", "config?warehouse=shop.lake").status_code == 200


def raw(lake: IcebergLake, content: bytes) -> bytes:
    place = lake.address.uri.removeprefix("http://").split(":")
    with socket.create_connection((place[0], int(place[1])), 30) as connection:
        connection.sendall(content)
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
        (f"{ROOT}%1Fx/tables", 404),
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


def test_a_body_is_read_as_far_as_its_sender_may_send(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_routes, "SMALL_BYTES", 1000)
    assert lake.ask("POST", "oauth/tokens", b"x" * 1001).status_code == 413
    head = b"POST /v1/oauth/tokens HTTP/1.1\r\n"
    assert raw(lake, head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")[9:12] == b"411"
    for size in (b"-1", b"1e3", b"9" * 40, "१".encode()):
        assert raw(lake, head + b"Content-Length: " + size + b"\r\n\r\n")[9:12] == b"411"
    commit = b"POST /v1/shop.lake/transactions/commit HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"
    assert raw(lake, commit)[9:12] == b"401", "nothing is read of a stranger"
    assert still_served(lake)


def test_slow_senders_are_cut_and_no_more_than_a_few_are_served(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "BODY_SECONDS", 0.5)
    began = time.monotonic()
    answer = raw(lake, b"POST /v1/oauth/tokens HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
    assert answer[9:12] == b"413"
    assert "does not come" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]
    assert time.monotonic() - began < 25, "the ordinary time is 30"
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.5)
    assert raw(lake, b"GET /v1/config HTTP/1.1\r\n") == b""
    host, port = lake.address.uri.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port)), 30) for _ in range(3 * catalog_port.MOST_CONNECTIONS)]
    try:
        for connection in silent:
            assert connection.recv(1) == b""
    finally:
        for connection in silent:
            connection.close()
    monkeypatch.undo()
    assert still_served(lake)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer x", "Basic eDp4", "bearer \x7f", "Bearer " + "x" * 5000])
def test_without_the_token_nothing_is_told(lake: IcebergLake, header: str) -> None:
    answer = lake.ask("GET", "config?warehouse=shop.lake", headers={"Authorization": header})
    assert (answer.status_code, answer.headers.get("WWW-Authenticate")) == (401, "Bearer")
