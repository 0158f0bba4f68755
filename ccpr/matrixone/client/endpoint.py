"""Where the upstream is and who logs in there: the URI of a subscription, as a value without its password.

    mysql://<account>#<user>[#<role>]:<password>@<host>[:<port>][?ssl-mode=…&ssl-ca=…&ssl-cert=…&ssl-key=…]

How it is parsed (docs/upstream.md 2; the server's own two parsers differ: this is the more permissive one, without its
ambiguities):

* The last '@' ends the password, so a password may contain '@' ':' '#' '/' '?'. It is taken literally, without
  %-decoding. An '@' inside an option is written %40.
* The first ':' ends the user part. So `a:b:c@h` is user a with password `b:c`, as for the server. Account and user with
  a colon between them are written `account%3Auser` (and `account%3Auser%3Arole`), since a password may contain ':' and
  both readings would be possible.
* No account, or an empty one, means account sys. No ':' means no password (None), a ':' with nothing after it an empty
  one.

A publication is a value here, too: what the endpoint lets read (found by `ccpr.matrixone.client.publication_offers`),
or none, where the login's own account has the database (decision logical-mode).
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qsl, quote

from ccpr.matrixone.client.errors import BadUri

DEFAULT_PORT = 6001
SYS_ACCOUNT = "sys"
TlsMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]
_SCHEME = "mysql://"
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<name>[^\s:/\[\]?#@]+))(?::(?P<port>[^:]*))?")
_OPTIONS = {"ssl-mode": "mode", "ssl-ca": "ca", "ssl-cert": "cert", "ssl-key": "key"}


@dataclass(frozen=True, slots=True)
class Tls:
    """How the connection is encrypted.

    Attributes
    ----------
    mode : `disabled`; `preferred` (encrypted if the server offers it, without a check: no protection against a man in
        the middle); `required` (encrypted, without a check); `verify_ca` (the certificate is checked);
        `verify_identity` (and the host name in it).
    ca, cert, key : paths of PEM files: the authority to trust (None: the system's), the client's certificate and its
        key.
    """

    mode: TlsMode = "preferred"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An upstream and a login there, without the password.

    Attributes
    ----------
    host : a name or an address; IPv6 without brackets.
    port : TCP port.
    account : the account that logs in; `sys` if the URI names none.
    user : the user inside the account.
    role : the role of the login, or None for the user's default role.
    tls : see `Tls`.
    account_named : false if the URI names no account; the user name alone is sent then.
    """

    host: str
    port: int
    account: str
    user: str
    role: str | None = None
    tls: Tls = Tls()
    account_named: bool = True

    @property
    def login(self) -> str:
        """The user name that is sent to the server."""
        if self.role is not None:
            return f"{self.account}#{self.user}#{self.role}"
        return f"{self.account}#{self.user}" if self.account_named else self.user

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def masked(self) -> str:
        """The URI for messages: with stars for the password, and without options."""
        return f"{_SCHEME}{self.login}:***@{self.address}"


def parse_uri(uri: str) -> tuple[Endpoint, str | None]:
    """The endpoint and the password (None if the URI has none). Raises BadUri, whose text shows nothing of the URI."""
    if not uri[: len(_SCHEME)].lower() == _SCHEME:
        raise _bad("it does not begin with mysql://")
    credentials, at, place = uri[len(_SCHEME) :].rpartition("@")
    if not at:
        raise _bad("it has no '@' between the login and the host")
    account, user, role = _parse_login(credentials.partition(":")[0])
    _, colon, secret = credentials.partition(":")
    address, _, query = place.partition("?")
    host, port = _parse_address(address)
    endpoint = Endpoint(
        host=host,
        port=port,
        account=account or SYS_ACCOUNT,
        user=user,
        role=role,
        tls=_parse_tls(query),
        account_named=bool(account) or role is not None,
    )
    return endpoint, secret if colon else None


def format_uri(endpoint: Endpoint, password: str | None = None) -> str:
    """The URI that `parse_uri` reads back as the same endpoint and password. It has the password: never show it."""
    secret = "" if password is None else f":{password}"
    tls = endpoint.tls
    parts = [("ssl-mode", tls.mode), ("ssl-ca", tls.ca), ("ssl-cert", tls.cert), ("ssl-key", tls.key)]
    query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in parts if value is not None)
    options = "" if tls == Tls() else f"?{query}"
    return f"{_SCHEME}{endpoint.login}{secret}@{endpoint.address}{options}"


def _bad(reason: str) -> BadUri:
    return BadUri(f"this is not the URI of an upstream: {reason}", subject="upstream URI")


def _parse_login(text: str) -> tuple[str, str, str | None]:
    """Account ('' if none is named), user and role. If there is a colon, it separates them and not '#', as for the
    server."""
    text = re.sub("%3a", ":", text, flags=re.I)
    parts = text.split(":" if ":" in text else "#")
    separators = any(character in part for part in parts for character in "#:?@")
    if separators or any(ord(character) < 32 for character in text):
        raise _bad("the user part contains a character with a special meaning ('#', ':', '?')")
    match parts:
        case [user] if user:
            return "", user, None
        case [account, user] if user:
            return account, user, None
        case [account, user, role] if user and role:
            return account, user, role
    raise _bad("the user part is not <user>, <account>#<user> or <account>#<user>#<role>")


def _parse_address(text: str) -> tuple[str, int]:
    text = text.removesuffix("/")
    if "/" in text:
        raise _bad("there is a path after the host; the database belongs in the subscription, not in the URI")
    found = _HOST.fullmatch(text)
    if found is None:
        raise _bad("the host is missing or malformed (an IPv6 address is written in brackets)")
    port = found["port"]
    if port is None:
        return found["v6"] or found["name"], DEFAULT_PORT
    if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise _bad("the port is not a number from 1 to 65535")
    return found["v6"] or found["name"], int(port)


def _parse_tls(query: str) -> Tls:
    values: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        field = _OPTIONS.get(name.lower().replace("_", "-"))
        if field is None or field in values or not value:
            raise _bad("an option is unknown, empty or given twice; known are ssl-mode, ssl-ca, ssl-cert and ssl-key")
        values[field] = value
    # The same defaults as those of the MySQL command line.
    implied = "verify_ca" if "ca" in values else "required" if values else "preferred"
    wanted = values.pop("mode", implied).lower().replace("-", "_")
    mode: TlsMode | None = next((known for known in get_args(TlsMode) if known == wanted), None)
    if mode is None:
        raise _bad("ssl-mode is none of disabled, preferred, required, verify_ca and verify_identity")
    if values and mode in ("disabled", "preferred"):
        raise _bad("ssl-ca, ssl-cert and ssl-key need ssl-mode required, verify_ca or verify_identity")
    if "key" in values and "cert" not in values:
        raise _bad("ssl-key needs ssl-cert")
    return Tls(mode=mode, **values)


AUTO, PHYSICAL, LOGICAL = "auto", "physical", "logical"  # modes (decision logical-mode)
_SYS_ID = 0
EVERYTHING = "*"  # in the place of a database or of tables: all of them


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication, which every internal statement has to name.

    Attributes
    ----------
    name : of the publication; empty if there is none, since the login is of the account that has the database.
    publisher : the account that owns it, or the database.
    publisher_id : that account's number, from `account_id`.
    """

    name: str
    publisher: str
    publisher_id: int

    @property
    def is_own(self) -> bool:
        """Whether nothing goes through a publication."""
        return not self.name

    @property
    def is_readable(self) -> bool:
        """Whether the login sees rows of the account's tables: a login of account sys that goes through another
        account's publication does not."""
        return self.is_own or self.publisher_id == _SYS_ID
