"""Bearer tokens of the catalog for logins of MySQL clients: a reader sees the subscriptions and tables of its login.
One with limits of columns or rows is refused, since files hide neither.

Tokens are in memory only. A login that is gone, or has another password or other limits, is noticed within a second.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs

from ccpr.base.http_server import HttpRequest, Page
from ccpr.base.newest import Newest
from ccpr.catalog.refusals import Refusal, forbidden, json_bytes
from ccpr.catalog.warehouses import Identifier
from ccpr.matrixone.server.wrong_passwords import Guesses, password_digest
from ccpr.state.errors import RelayUserMissing
from ccpr.state.logins import LoginRole, PortLogin, PortLogins

TOKEN_SECONDS, LOOK_SECONDS = 3600, 1.0
MOST_TOKENS, MOST_KNOWN, MOST_GUESSES = 10_000, 1000, 4  # the last: of one address at once
_ROLES = LoginRole.READER, LoginRole.OPERATOR
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_LIMITED = "has limits of columns or rows, which files do not keep: it reads at the port for MySQL clients"


@dataclass(frozen=True, slots=True)
class _KnownLogin:
    """A login as it was at a time; `digest` of its password, None if it does not exist."""

    login: PortLogin | None
    digest: bytes | None
    looked: float

    @property
    def is_limited(self) -> bool:
        return self.login is not None and bool(self.login.limits.hidden or self.login.limits.rows)


@dataclass(frozen=True, slots=True)
class _Granted:
    login: str
    digest: bytes
    until: float


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    login: PortLogin

    def check(self, subscription: str, warehouse: str) -> None:
        """Raises Refusal for a lake that it may not use."""
        names = self.login.publications
        if names is not None and subscription.lower() not in names:
            raise Refusal(404, "NoSuchWarehouseException", f"warehouse {warehouse:.200} does not exist")

    def sees(self, table: Identifier) -> bool:
        return self.login.role is LoginRole.OPERATOR or self.login.limits.shows(*table)


class LoginTokens:
    """Who has which token. Thread-safe."""

    def __init__(
        self,
        logins: PortLogins,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.guesses = Guesses(monotonic)
        self._logins, self._monotonic, self._pause, self._lock = logins, monotonic, pause, threading.Lock()
        self._tokens: OrderedDict[bytes, _Granted] = OrderedDict()  # by the token's digest, the oldest first
        self._known = Newest[str, _KnownLogin](MOST_KNOWN)
        self._guessing = Counter[str]()

    def caller(self, token: str, address: str) -> Caller | None:
        """None for a token that is none, or of a login that has changed. `name:password` is a token, too, for clients
        that know no OAuth2. Raises Refusal, StateUnavailable."""
        granted = self._granted(token)
        if granted is None and ":" in token:
            name, _, password = token.partition(":")
            if (found := self._guessed(name.lower(), password, address)) is None:
                return None
            granted = self._keep(token, name.lower(), found)
        if granted is None:
            return None
        known = self._look(granted.login)
        if known.login is None or known.digest is None or not hmac.compare_digest(known.digest, granted.digest):
            return None
        if known.is_limited:
            raise forbidden(f"login {known.login.name} {_LIMITED}")
        return Caller(known.login)

    def grant(self, request: HttpRequest, body: bytes) -> Page:
        """A token for a name and a password, or for a token that is still good. Raises StateUnavailable."""
        try:
            form = {name: found[0] for name, found in parse_qs(body.decode(), max_num_fields=32).items()}
        except ValueError:
            return _denied(400, "invalid_request", "the body is no form")
        kind, _, said = request.headers.get("authorization", "").partition(" ")
        name, password = form.get("client_id", ""), form.get("client_secret", "")
        if kind.lower() == "basic":
            name, password = _basic(said)
        elif form.get("grant_type") == _EXCHANGE or kind.lower() == "bearer":
            granted = self._granted(form.get("subject_token") or said)
            if granted is None or self._look(granted.login).digest != granted.digest:
                return _denied(401, "invalid_client", "the token is not valid any more")
            return self._give(granted.login, granted.digest)
        try:
            digest = self._guessed(name.lower(), password, request.address)
        except Refusal as refusal:
            return _denied(refusal.status, "invalid_request", refusal.message)
        if digest is None:
            return _denied(401, "invalid_client", "no login has that name and password")
        if self._look(name.lower()).is_limited:
            return _denied(400, "unauthorized_client", f"login {name.lower()} {_LIMITED}")
        return self._give(name.lower(), digest)

    def _guessed(self, name: str, password: str, address: str) -> bytes | None:
        """The digest of the password; None if it is wrong. Raises Refusal."""
        with self._guess(address):
            known, digest = self._look(name, at_once=True), password_digest(password)
            if not hmac.compare_digest(known.digest or bytes(20), digest) or known.digest is None:
                self._pause(self.guesses.wrong(name, address))
                return None
            self.guesses.right(name, address)
            return digest

    def _give(self, login: str, digest: bytes) -> Page:
        token = secrets.token_urlsafe(24)
        self._keep(token, login, digest)
        kind = "urn:ietf:params:oauth:token-type:access_token"
        found = {"access_token": token, "token_type": "bearer", "expires_in": TOKEN_SECONDS, "issued_token_type": kind}
        return Page(json_bytes(found))

    def _keep(self, token: str, login: str, digest: bytes) -> _Granted:
        now = self._monotonic()
        found = _Granted(login, digest, now + TOKEN_SECONDS)
        with self._lock:
            self._tokens.pop(_key(token), None)
            self._tokens[_key(token)] = found
            while len(self._tokens) > MOST_TOKENS or next(iter(self._tokens.values())).until <= now:
                self._tokens.popitem(last=False)
        return found

    def _granted(self, token: str) -> _Granted | None:
        with self._lock:
            found = self._tokens.get(_key(token))
        return found if found is not None and found.until > self._monotonic() else None

    def _look(self, name: str, *, at_once: bool = False) -> _KnownLogin:
        now = self._monotonic()
        found = self._known.get(name)
        if found is not None and now - found.looked < LOOK_SECONDS and not at_once:
            return found
        digest = self._logins.digest(name, _ROLES)
        try:
            login = None if digest is None else self._logins.get(name)
        except RelayUserMissing:
            login = None
        found = _KnownLogin(login, digest, now)
        self._known.put(name, found)
        return found

    @contextmanager
    def _guess(self, address: str) -> Iterator[None]:
        """Answers to wrong passwords wait: an address has few of them, and does not hold all threads. Raises
        Refusal."""
        with self._lock:
            free = self._guessing[address] < MOST_GUESSES
            self._guessing[address] += free
        try:
            if not free:
                raise Refusal(429, "BadRequestException", "too many logins at once from this address")
            yield
        finally:
            with self._lock:
                self._guessing[address] -= free
                self._guessing += Counter()  # without those that are none


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _basic(said: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(said, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return name, password


def _denied(status: int, kind: str, why: str) -> Page:
    return Page(json_bytes({"error": kind, "error_description": why}), status=status)
