"""Who may read what through `ccpr serve --catalog`: tokens of logins, their limits, wrong passwords."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, OAuthError, RESTError

from ccpr.base.http_server import HttpRequest
from ccpr.catalog.login_tokens import MOST_TOKENS, LoginTokens
from ccpr.matrixone.server.wrong_passwords import FREE, password_digest
from ccpr.relay.client_port import Listen
from ccpr.relay.errors import RelayListen, RelayTls
from ccpr.serve.catalog_port import CatalogPort
from ccpr.service.running import CATALOGS, addresses, counted_by_ports
from ccpr.state.logins import LoginRole, PortLogin, PortLogins, ReadLimits
from tests.support.certificates import self_signed
from tests.support.iceberg_lake import DATABASE, IcebergLake, attached, ids, served
from tests.support.values import NOW

pytestmark = pytest.mark.integration
READER = PortLogin("reader", NOW, LoginRole.READER)


@pytest.fixture
def port(lake: IcebergLake) -> Iterator[CatalogPort]:
    lake.create("a", "b", "unborn")
    lake.publish(1, {"a": [1], "b": [1]})
    with served(lake.workspace) as found:
        yield found


@pytest.fixture
def logins(lake: IcebergLake) -> PortLogins:
    return PortLogins(lake.workspace.log.engine, lake.workspace.vault)


def test_a_reader_attaches_and_sees_what_its_login_may_use(port: CatalogPort, logins: PortLogins) -> None:
    whole = attached(port, "shop.lake")
    assert sorted(whole.list_tables(DATABASE)) == [(DATABASE, "a"), (DATABASE, "b")], "none without a snapshot"
    assert ids(whole, "a") == [1]
    assert ids(attached(port, "shop"), "b") == [1], "the subscription has one lake"
    limited = replace(READER, name="some", limits=ReadLimits(tables=("b",)))
    logins.add(limited, password_digest("secret"))
    catalog = attached(port, "shop", "some:secret")
    assert catalog.list_tables(DATABASE) == [(DATABASE, "b")]
    for name in ("a", "unborn"):
        with pytest.raises(NoSuchTableError):
            catalog.load_table((DATABASE, name))
    with pytest.raises(NoSuchTableError):
        catalog.load_table((f"{DATABASE}@1", "a"))
    logins.add(replace(READER, name="other", publications=frozenset({"another"})), password_digest("secret"))
    with pytest.raises(RESTError, match="does not exist"):
        attached(port, "shop", "other:secret")
    logins.add(replace(READER, name="none", limits=ReadLimits(tables=("x",))), password_digest("secret"))
    with pytest.raises(NoSuchNamespaceError):
        attached(port, "shop", "none:secret").list_tables(DATABASE)


@pytest.mark.parametrize("limits", [ReadLimits(hidden=("id",)), ReadLimits(rows=(("a", "id > 1"),))])
def test_a_login_with_limits_that_files_cannot_keep_is_refused_by_name(
    port: CatalogPort, logins: PortLogins, limits: ReadLimits
) -> None:
    logins.add(replace(READER, name="narrow", limits=limits), password_digest("secret"))
    with pytest.raises(OAuthError, match="login narrow has limits of columns or rows"):
        attached(port, "shop", "narrow:secret")


def token_of(port: CatalogPort, **form: str) -> requests.Response:
    return requests.post(f"http://{port.address}/v1/oauth/tokens", data=form, timeout=60)


def asked(port: CatalogPort, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(f"http://{port.address}/v1/shop.lake/namespaces", headers=headers, timeout=60).status_code


SECRET = {"grant_type": "client_credentials", "client_id": "Reader", "client_secret": "secret"}


def test_a_token_ends_with_its_login_and_password(
    port: CatalogPort, logins: PortLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpr.catalog.login_tokens.LOOK_SECONDS", 0.0)
    token = token_of(port, **SECRET).json()["access_token"]
    assert asked(port, token) == 200
    kind = "urn:ietf:params:oauth:grant-type:token-exchange"
    again = token_of(port, grant_type=kind, subject_token=token).json()["access_token"]
    assert asked(port, again) == 200
    logins.change(READER, password_digest("another"))
    assert (asked(port, token), asked(port, again)) == (401, 401)
    assert token_of(port, grant_type=kind, subject_token=token).status_code == 401
    token = token_of(port, **{**SECRET, "client_secret": "another"}).json()["access_token"]
    assert asked(port, token) == 200
    logins.change(replace(READER, limits=ReadLimits(hidden=("id",))))
    assert asked(port, token) == 403
    logins.change(replace(READER, role=LoginRole.RELAY))
    assert asked(port, token) == 401
    logins.drop("reader")
    assert asked(port, token) == 401


def test_name_and_password_are_a_token_for_clients_that_know_no_other(
    port: CatalogPort, logins: PortLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccpr.catalog.login_tokens.LOOK_SECONDS", 0.0)
    assert [asked(port, token) for token in ("Reader:secret", "reader:wrong", "nobody:", ":")] == [200, 401, 401, 401]
    assert port.wrong_passwords == 3
    logins.change(READER, password_digest("another:one"))
    assert [asked(port, token) for token in ("reader:secret", "reader:another:one")] == [401, 200]
    logins.change(replace(READER, limits=ReadLimits(hidden=("id",))))
    assert asked(port, "reader:another:one") == 403


@pytest.mark.parametrize(
    "form",
    [
        {},
        {**SECRET, "client_secret": "wrong"},
        {**SECRET, "client_id": "nobody"},
        {**SECRET, "client_secret": ""},
        {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": "x"},
    ],
)
def test_who_has_no_password_gets_no_token(port: CatalogPort, form: dict[str, str]) -> None:
    answer = token_of(port, **form)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    assert asked(port, "x") == 401


def test_wrong_passwords_are_answered_slowly_and_an_address_has_few_of_them_at_once(logins: PortLogins) -> None:
    pauses: list[float] = []
    tokens = LoginTokens(logins, pause=pauses.append)
    logins.add(READER, password_digest("secret"))
    head = b"POST /v1/oauth/tokens HTTP/1.1\r\nHost: x"
    request = HttpRequest(head, None, address="192.0.2.1")  # type: ignore[arg-type]
    for _ in range(FREE + 3):
        assert tokens.grant(request, b"client_id=reader&client_secret=x").status == 401
    assert pauses[:FREE] == [0.0] * FREE
    assert pauses[FREE:] == [0.5, 1.0, 2.0]
    assert tokens.guesses.wrong_passwords == FREE + 3
    assert tokens.grant(request, b"client_id=reader&client_secret=secret").status == 200

    def meanwhile(_seconds: float) -> None:
        depth.append(tokens.grant(request, b"client_id=reader&client_secret=x").status)

    depth: list[int] = []
    tokens._pause = meanwhile
    tokens.grant(request, b"client_id=reader&client_secret=x")
    assert 429 in depth
    assert tokens.grant(request, b"client_id=reader&client_secret=secret").status == 200


def test_tokens_take_no_more_memory_than_for_so_many(logins: PortLogins, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tokens = LoginTokens(logins, monotonic=lambda: now[0])
    for _ in range(MOST_TOKENS + 10):
        tokens._give("x", b"")
    assert len(tokens._tokens) == MOST_TOKENS
    now[0] = 4000.0
    tokens._give("x", b"")
    assert len(tokens._tokens) == 1


def test_where_it_listens_is_marked_and_what_it_did_counted(lake: IcebergLake, port: CatalogPort) -> None:
    assert addresses(lake.workspace.home, CATALOGS) == (port.address,)
    attached(port, "shop").list_namespaces()
    assert asked(port, "x") == 401
    found = {sample.name: sample.value for metric in port.collect() for sample in metric.samples if not sample.labels}
    results = {one.labels["result"]: one.value for metric in port.collect() for one in metric.samples if one.labels}
    assert results["done"] >= 3
    assert (results["refused"], results["failed"]) == (1, 0)
    assert set(found) == {"ccpr_catalog_sessions", "ccpr_catalog_refused_total", "ccpr_catalog_wrong_passwords_total"}
    counted = f"{int(results['done']) + 1} requests, 1 refused, 0 wrong passwords since it began"
    assert counted_by_ports(lake.workspace.home, CATALOGS) == (f"{port.address}: {counted}",)


def test_with_a_certificate_it_is_https_which_clients_check(
    lake: IcebergLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # before which a client's own is not looked at
        monkeypatch.delenv(name, raising=False)
    lake.create("a")
    lake.publish(1, {"a": [1]})
    certificate = self_signed(tmp_path / "catalog.pem", "localhost")
    with served(lake.workspace, Listen("127.0.0.1", 0, certificate)) as port:
        address = port.address.replace("127.0.0.1", "localhost")
        login = {"credential": "reader:secret", "oauth2-server-uri": f"https://{address}/v1/oauth/tokens"}
        trusting: Any = {"ssl": {"cabundle": str(certificate)}, **login}
        assert ids(RestCatalog("lake", uri=f"https://{address}", warehouse="shop.lake@1", **trusting), "a") == [1]
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(f"https://{address}/v1/config", timeout=60)
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(f"https://{port.address}/v1/config", verify=str(certificate), timeout=60)
        with pytest.raises(requests.exceptions.ConnectionError):
            requests.get(f"http://{address}/v1/config", timeout=60)
    with pytest.raises(RelayListen, match="would read the data"):
        CatalogPort(lake.workspace, Listen("0.0.0.0", 0)).start()
    with pytest.raises(RelayTls):
        CatalogPort(lake.workspace, Listen("127.0.0.1", 0, tmp_path / "missing.pem")).start()


def test_nobody_commits(lake: IcebergLake, port: CatalogPort) -> None:
    token = token_of(port, **SECRET).json()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    root = f"http://{port.address}/v1/shop.lake"
    table = f"namespaces/{DATABASE}/tables/a"
    for method, path in (
        ("POST", "transactions/commit"),
        ("POST", table),
        ("DELETE", table),
        ("POST", "tables/rename"),
        ("POST", "namespaces"),
        ("POST", f"namespaces/{DATABASE}/tables"),
    ):
        answer = requests.request(method, f"{root}/{path}", json={}, headers=headers, timeout=60)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "ForbiddenException"), path
    assert lake.pointer("a").at == 10**9
