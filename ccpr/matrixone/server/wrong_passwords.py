"""How a login proves that it knows its password (mysql_native_password), and wrong passwords, slowed down: the answer
to each comes later than the one before, for one login and one address.

A right password is answered at once, whatever was wrong before it, so that guesses cannot keep an owner out. Who
hears nothing at once knows that a guess was wrong, and may hang up; the connection counts as one that has not logged in
until the pause is over, and of those an address has so many (`ccpr.matrixone.server.server.Server`). So guesses come no
faster.
"""

import hashlib
import hmac
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ccpr.matrixone.client.retry import doubled

FREE: Final = 3  # slips of the keyboard
FIRST_SECONDS: Final = 0.5  # then twice as long each time
LONGEST_SECONDS: Final = 8.0  # clients wait ten for their connection, and are to read why they have none
FORGET_SECONDS: Final = 900.0  # after the last one
MOST_KNOWN: Final = 10_000  # logins are strangers' words
_NAME_CHARACTERS = 64
_log = logging.getLogger(__name__)


def password_digest(password: str) -> bytes:
    """What a server has to keep of a password to check logins: SHA1(SHA1(password)), 20 bytes. It is no password, but
    who has it and has listened to a login can log in."""
    return hashlib.sha1(hashlib.sha1(password.encode()).digest()).digest()


def native_scramble(password: bytes, salt: bytes) -> bytes:
    """The proof of mysql_native_password: SHA1(password) XOR SHA1(salt + SHA1(SHA1(password)))."""
    once = hashlib.sha1(password).digest()
    mask = hashlib.sha1(salt + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def proves(proof: bytes, digest: bytes | None, salt: bytes) -> bool:
    """Whether the proof is that of the password with this `password_digest`; never for a login that does not exist."""
    known = bytes(20) if digest is None else digest
    mask = hashlib.sha1(salt + known).digest()
    once = bytes(a ^ b for a, b in zip(proof, mask, strict=False))
    return hmac.compare_digest(hashlib.sha1(once).digest(), known) and len(proof) == 20 and digest is not None


@dataclass(frozen=True, slots=True)
class _Row:
    """Wrong passwords in a row, and when the last one came."""

    count: int
    at: float


class Guesses:
    """Thread-safe. Takes no more memory than for MOST_KNOWN logins and addresses."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic, self._lock = monotonic, threading.Lock()
        self._rows: OrderedDict[tuple[str, str], _Row] = OrderedDict()
        self._wrong = 0

    @property
    def wrong_passwords(self) -> int:
        """How many there were."""
        return self._wrong

    def wrong(self, login: str, address: str) -> float:
        """Another one. Returns how many seconds its answer has to wait."""
        key, now = (login[:_NAME_CHARACTERS], address), self._monotonic()
        with self._lock:
            self._wrong += 1
            before = self._rows.pop(key, None)
            count = 1 if before is None or now - before.at > FORGET_SECONDS else before.count + 1
            self._rows[key] = _Row(count, now)
            if len(self._rows) > MOST_KNOWN:
                self._rows.popitem(last=False)
        if count == FREE + 1:
            _log.warning("wrong passwords for login %r from %s are answered slowly now", *key)
        return 0.0 if count <= FREE else doubled(FIRST_SECONDS, count - FREE - 1, LONGEST_SECONDS)

    def right(self, login: str, address: str) -> None:
        """The row is over."""
        with self._lock:
            self._rows.pop((login[:_NAME_CHARACTERS], address), None)
