import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpr.matrixone.client.endpoint import Endpoint, Tls, format_uri, parse_uri
from ccpr.matrixone.client.errors import BadUri


@pytest.mark.parametrize(
    ("uri", "login", "password", "address"),
    [
        ("mysql://acct#user:password@host:6001", "acct#user", "password", "host:6001"),
        ("mysql://acct#user#role:password@host:1", "acct#user#role", "password", "host:1"),
        ("mysql://user:password@host", "user", "password", "host:6001"),
        ("mysql://#user:password@host", "user", "password", "host:6001"),
        ("mysql://acct%3Auser:password@host", "acct#user", "password", "host:6001"),
        ("mysql://acct%3auser%3arole:password@host", "acct#user#role", "password", "host:6001"),
        ("mysql://a:b:c@host", "a", "b:c", "host:6001"),
        ("mysql://a#b:p@ss:w#o/r?d@host:6001", "a#b", "p@ss:w#o/r?d", "host:6001"),
        ("mysql://a#b:p%40@host", "a#b", "p%40", "host:6001"),
        ("mysql://a#b@host", "a#b", None, "host:6001"),
        ("mysql://a#b:@host", "a#b", "", "host:6001"),
        ("mysql://a#b:p@[::1]:7", "a#b", "p", "[::1]:7"),
        ("mysql://a#b:p@[fe80::1%eth0]", "a#b", "p", "[fe80::1%eth0]:6001"),
        ("MySQL://a#b:p@10.0.0.1/", "a#b", "p", "10.0.0.1:6001"),
    ],
)
def test_a_uri_is_taken_apart(uri: str, login: str, password: str | None, address: str):
    endpoint, found = parse_uri(uri)
    assert (endpoint.login, found, endpoint.address) == (login, password, address)


def test_the_account_is_sys_where_the_uri_has_none():
    assert parse_uri("mysql://user:p@host")[0].account == "sys"
    assert parse_uri("mysql://sys#user:p@host")[0].login == "sys#user"


def test_the_masked_form_shows_everything_but_the_password():
    assert (
        parse_uri("mysql://acct#user:secret@host:6001?ssl-mode=required")[0].masked()
        == "mysql://acct#user:***@host:6001"
    )
    assert parse_uri("mysql://user:secret@[::1]")[0].masked() == "mysql://user:***@[::1]:6001"


@pytest.mark.parametrize(
    ("query", "tls"),
    [
        ("", Tls()),
        ("?ssl-mode=disabled", Tls("disabled")),
        ("?ssl-mode=VERIFY-IDENTITY&ssl-ca=/etc/ca.pem", Tls("verify_identity", ca="/etc/ca.pem")),
        ("?ssl_mode=verify_ca", Tls("verify_ca")),
        ("?ssl-ca=/c%40a.pem", Tls("verify_ca", ca="/c@a.pem")),
        ("?ssl-cert=c.pem&ssl-key=k.pem", Tls("required", cert="c.pem", key="k.pem")),
    ],
)
def test_options_say_how_the_connection_is_encrypted(query: str, tls: Tls):
    assert parse_uri(f"mysql://a#b:p@host{query}")[0].tls == tls


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "host",
        "postgres://a:SECRET@host",
        "mysql://SECRET",
        "mysql://a#b:SECRET@",
        "mysql://:SECRET@host",
        "mysql://a#:SECRET@host",
        "mysql://a#b#:SECRET@host",
        "mysql://a#b#c#d:SECRET@host",
        "mysql://a%3Ab#c:SECRET@host",
        "mysql://a?b:SECRET@host",
        "mysql://a\nb:SECRET@host",
        "mysql://a#b:SECRET@host:",
        "mysql://a#b:SECRET@host:0",
        "mysql://a#b:SECRET@host:65536",
        "mysql://a#b:SECRET@host:6OO1",
        "mysql://a#b:SECRET@host:1:2",
        "mysql://a#b:SECRET@::1",
        "mysql://a#b:SECRET@[::1",
        "mysql://a#b:SECRET@ho st",
        "mysql://a#b:SECRET@host/database",
        "mysql://a#b:SECRET@host?ssl-mode=some",
        "mysql://a#b:SECRET@host?charset=utf8",
        "mysql://a#b:SECRET@host?ssl-ca=",
        "mysql://a#b:SECRET@host?ssl-mode=required&ssl-mode=disabled",
        "mysql://a#b:SECRET@host?ssl-mode=preferred&ssl-ca=x",
        "mysql://a#b:SECRET@host?ssl-key=k",
        "mysql://a#b:hidden@SECRET:port",
    ],
)
def test_a_bad_uri_is_refused_with_a_remedy_and_without_the_password(uri: str):
    with pytest.raises(BadUri) as raised:
        parse_uri(uri)
    assert raised.value.remedy
    assert "SECRET" not in f"{raised.value} {raised.value!r} {raised.value.subject}"


_NAMES = st.text(st.characters(exclude_characters="#:?@%", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
_HOSTS = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True) | st.ip_addresses().map(str)
_PATHS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
_TLS = st.sampled_from([Tls(), Tls("disabled"), Tls("required"), Tls("verify_ca")]) | st.builds(
    Tls,
    mode=st.sampled_from(["required", "verify_ca", "verify_identity"]),
    ca=_PATHS,
    cert=_PATHS,
    key=_PATHS | st.none(),
)
_ENDPOINTS = st.builds(
    Endpoint, host=_HOSTS, port=st.integers(1, 65535), account=_NAMES, user=_NAMES, role=_NAMES | st.none(), tls=_TLS
) | st.builds(
    Endpoint,
    host=_HOSTS,
    port=st.integers(1, 65535),
    account=st.just("sys"),
    user=_NAMES,
    tls=_TLS,
    account_named=st.just(False),
)


@given(_ENDPOINTS, st.text(st.characters(exclude_categories=("Cs",))) | st.none())
def test_what_is_formatted_is_parsed_back(endpoint: Endpoint, password: str | None):
    assert parse_uri(format_uri(endpoint, password)) == (endpoint, password)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str):
    for uri in (text, f"mysql://{text}"):
        with contextlib.suppress(BadUri):
            parse_uri(uri)
