"""URIs of targets."""

import pytest

from ccpr.targets.address import format_target_uri, parse_target_uri
from ccpr.targets.errors import BadTargetUri


@pytest.mark.parametrize(
    ("uri", "database"),
    [
        ("mysql://u:p@h:3306/db", "db"),
        ("mysql://u:p:/?#@h/d%2Fb", "d/b"),
        ("mysql://a#u:p@[::1]:6001/db?ssl-mode=required", "db"),
    ],
)
def test_a_target_uri_is_read_back(uri: str, database: str):
    address, password = parse_target_uri(uri)
    assert address.database == database
    assert parse_target_uri(format_target_uri(address, password)) == (address, password)
    assert str(password) not in address.masked()


BAD = [
    "",
    "mysql://u:sesame@h:3306",
    "mysql://u:sesame@h/a/b",
    "http://u:sesame@h/db",
    "mysql://u:sesame@h:x/db",
    "mysql://h/db",
]


@pytest.mark.parametrize("uri", BAD)
def test_the_error_of_a_bad_target_uri_does_not_show_its_password(uri: str):
    with pytest.raises(BadTargetUri) as caught:
        parse_target_uri(uri)
    assert "sesame" not in str(caught.value)
