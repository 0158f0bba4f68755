"""Where a target is: mysql://user:password@host[:port]/database[?ssl-mode=…], as a value that holds no password.

It is parsed as the URI of an upstream is (`ccpr.matrixone.client.endpoint`: the last '@' ends the password, which is
taken literally), with a database after the host. The port is 3306 if none is given.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from ccpr.matrixone.client.endpoint import Endpoint, format_uri, parse_uri
from ccpr.matrixone.client.errors import BadUri
from ccpr.targets.errors import BadTargetUri

if TYPE_CHECKING:
    from ccpr.state.targets import Target

DEFAULT_PORT = 3306
_PLACE = re.compile(r"(?P<host>\[[^\]/]*\]|[^:/?\[\]]+)(?P<port>:\d+)?/(?P<database>[^/?]+)/?(?P<options>\?.*)?", re.S)


@dataclass(frozen=True, slots=True)
class Address:
    """A target's server, login and database. `endpoint.login` is the user name as it is sent."""

    endpoint: Endpoint
    database: str

    def masked(self) -> str:
        """For people: stars for the password, no options."""
        return f"{self.endpoint.masked()}/{self.database}"


def parse_target_uri(uri: str) -> tuple[Address, str | None]:
    """The address and the password (None if the URI has none). Raises BadTargetUri, whose text repeats nothing of the
    URI."""
    credentials, at, place = uri.rpartition("@")
    found = _PLACE.fullmatch(place)
    if not at or found is None:
        raise BadTargetUri("it is not mysql://user:password@host:port/database", subject="target URI")
    database = unquote(found["database"])
    if "\0" in database or len(database) > 64:
        raise BadTargetUri("no server accepts this database name", subject="target URI")
    try:
        endpoint, password = parse_uri(
            f"{credentials}@{found['host']}{found['port'] or f':{DEFAULT_PORT}'}{found['options'] or ''}"
        )
    except BadUri as error:
        reason = error.message.partition(": ")[2] or "it cannot be parsed"
        raise BadTargetUri(reason, subject="target URI") from None  # the cause names an upstream
    return Address(endpoint, database), password


def address_of(target: "Target") -> Address:
    """Of a database. Raises BadTargetUri."""
    return parse_target_uri(target.uri)[0]


def format_target_uri(address: Address, password: str | None = None) -> str:
    """The URI that `parse_target_uri` reads back. It holds the password: never for people."""
    credentials, _, place = format_uri(address.endpoint, password).rpartition("@")
    host, mark, options = place.partition("?")
    return f"{credentials}@{host}/{quote(address.database, safe='')}{mark}{options}"
