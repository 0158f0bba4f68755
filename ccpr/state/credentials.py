"""Passwords at rest and on their way to executors: encrypted with a key that stays in a file of mode 600. Source:
decision sealed-secrets.

What is sealed is bound to the address and the login that it is for, so that an edited row or an edited export of the
state cannot send it elsewhere. Fernet authenticates what it encrypts: the binding is a digest before the secret. What
0.1.0 sealed has none, and is opened for any address.
"""

import hashlib
import hmac
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from ccpr.base.file_modes import make_folder, opener, sync_file
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.state.errors import KeyLost, StateUnreadable

KEY_FILE_VARIABLE = "CCPR_KEY_FILE"  # how Spark's workers find the key: a path, never the key itself


_BOUND = b"\0ccpr-bound-1\0"  # no password begins so


class Vault:
    """Seals (encrypts) and opens passwords with the key in one file. The file is created by the first `seal`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @classmethod
    def of_worker(cls) -> "Vault":
        """The vault of a worker process, which finds the key file by CCPR_KEY_FILE. Raises StateUnreadable."""
        path = os.environ.get(KEY_FILE_VARIABLE)
        if path is None:
            raise StateUnreadable(
                "a worker has no key to open the upstream's password with",
                subject=KEY_FILE_VARIABLE,
                remedy=f"Put the key file on each worker and set {KEY_FILE_VARIABLE} to its path there.",
            )
        return cls(Path(path))

    def seal(self, secret: str, endpoint: Endpoint | None) -> str:
        """The secret for an address and login, as text that may be stored (URL-safe base64). None: for none. The key is
        on disk before it returns, so that nothing is stored that a crash makes unreadable."""
        return self._cipher(create=True).encrypt(_BOUND + _binding(endpoint) + secret.encode()).decode()

    def bound(self, sealed: str, endpoint: Endpoint) -> str:
        """What is sealed, to be stored again: what 0.1.0 sealed gets bound. Raises StateUnreadable as `open`."""
        secret = self.open(sealed, endpoint)
        is_bound = self._cipher(create=False).decrypt(sealed.encode()).startswith(_BOUND)
        return sealed if is_bound else self.seal(secret, endpoint)

    def open(self, sealed: str, endpoint: Endpoint | None) -> str:
        """The secret again. Raises StateUnreadable, also for another address or login than it was sealed for."""
        try:
            plain = self._cipher(create=False).decrypt(sealed.encode())
            if not plain.startswith(_BOUND):
                return plain.decode()
            binding = _binding(endpoint)
            if not hmac.compare_digest(plain[len(_BOUND) :][: len(binding)], binding):
                raise StateUnreadable(
                    "the stored password was sealed for another address or login",
                    subject=endpoint.masked() if endpoint is not None else str(self.path),
                    remedy="The address was edited where it is stored. Set address and password again: "
                    "`ccpr alter NAME --from …`, or `ccpr target alter NAME TARGET --to …`.",
                )
            return plain[len(_BOUND) + len(binding) :].decode()
        except (InvalidToken, ValueError) as error:
            raise KeyLost("the stored password was sealed with another key", subject=str(self.path)) from error

    def _cipher(self, *, create: bool) -> Fernet:
        try:
            if create:
                if not self.path.exists():
                    self._create()
                sync_file(self.path)  # another process may have made it just now
                sync_file(self.path.parent)
            if self.path.stat().st_mode & 0o077:
                raise StateUnreadable(
                    "the key file is open to others", subject=str(self.path), remedy=f"chmod 600 {self.path}"
                )
            return Fernet(self.path.read_bytes())
        except FileNotFoundError as error:
            raise KeyLost("the key file is missing", subject=str(self.path)) from error
        except OSError as error:
            raise StateUnreadable(f"the key file cannot be used: {error.strerror}", subject=str(self.path)) from error
        except ValueError as error:
            raise StateUnreadable("the key file does not hold a key", subject=str(self.path)) from error

    def _create(self) -> None:
        """The first process wins; others read its key."""
        make_folder(self.path.parent)
        temporary = self.path.with_name(f".{self.path.name}-{secrets.token_hex(4)}")
        try:
            with open(temporary, "xb", opener=opener()) as file:
                file.write(Fernet.generate_key())
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)


def _binding(endpoint: Endpoint | None) -> bytes:
    """A digest of where a password is sent, and of how the server there is checked."""
    where = (
        None
        if endpoint is None
        else [endpoint.host.lower(), endpoint.port, endpoint.login, endpoint.tls.mode, endpoint.tls.ca]
    )
    return hashlib.sha256(json.dumps(where).encode()).digest()
