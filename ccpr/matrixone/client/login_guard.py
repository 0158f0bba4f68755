"""Logins that do not give the password away, for every session that speaks the MySQL protocol: with the upstream, with
a target, and with the catalog database.

The server chooses how the client logs in, and so does any server that answers in its place. What is sent then:

* `mysql_native_password`, and the first exchange of `caching_sha2_password`: a digest over the server's random bytes,
  from which the password cannot be read. Always allowed.
* The full authentication of `caching_sha2_password`, and `sha256_password`: with TLS the password itself, without TLS
  the password encrypted with a key that the server chooses. Only over TLS with a certificate that was checked
  (`verify_ca`, `verify_identity`); MatrixOne has neither, so never with an upstream.
* `mysql_clear_password`, `mysql_old_password`, `dialog`: the password, or nearly so. Never.

PyMySQL obeys the greeting in its first packet already. So the greeting's choice counts only if it is the native login;
a server that wants another one asks for it in a packet of its own, which comes to the classes here.
"""

import hashlib
import ssl
import struct
from typing import Any

import pymysql
from pymysql.connections import Connection

from ccpr.matrixone.client.endpoint import Tls

NATIVE_LOGIN = "mysql_native_password"  # the only one of MatrixOne
# What PyMySQL raises, in addition to its own errors, if the bytes do not follow the protocol.
NOT_THE_PROTOCOL = (
    struct.error,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    RuntimeError,
    NameError,
    ArithmeticError,
)
_ACCESS_DENIED = 1045
_NONCE_BYTES = 20
_FAST_LOGIN_DONE, _FULL_LOGIN_WANTED = 3, 4
_Wire: Any = Connection  # the published type stubs lack private members


class PasswordWanted(pymysql.err.OperationalError):
    """The server asks for the password in a form that it does not get."""

    def __init__(self, text: str) -> None:
        super().__init__(_ACCESS_DENIED, text)
        self.text = text


class _Refused:
    """Replaces a login that sends the password in clear text, or nearly so."""

    def __init__(self, connection: Connection) -> None:
        pass

    def authenticate(self, packet: object) -> None:
        raise PasswordWanted("the server asks for the password in clear text, or nearly so, which is refused")


class _Sha256:
    """`sha256_password` over a line that is guarded."""

    def __init__(self, connection: "GuardedConnection") -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        return self._connection.send_password()


class _CachingSha2:
    """`caching_sha2_password`: the first exchange, and the full authentication over a line that is guarded."""

    def __init__(self, connection: "GuardedConnection") -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        """`packet` asks for this login; its name has been read."""
        connection = self._connection
        answer = connection.exchange(_scramble(connection.password, packet.read_all()[:_NONCE_BYTES]))
        if not answer.is_extra_auth_data():
            return answer
        answer.advance(1)
        state = answer.read_uint8()
        if state == _FAST_LOGIN_DONE:
            return connection.exchange(None)
        if state != _FULL_LOGIN_WANTED:
            raise pymysql.err.OperationalError(2027, "the server's login has an unknown step")
        return connection.send_password()


_LOGINS: dict[bool, dict[str, type]] = {
    sha2: {
        **dict.fromkeys(("mysql_clear_password", "mysql_old_password", "dialog"), _Refused),
        "sha256_password": _Sha256 if sha2 else _Refused,
        "caching_sha2_password": _CachingSha2 if sha2 else _Refused,
    }
    for sha2 in (False, True)
}


# PyMySQL has no public way to do the following, so private members of it are overridden and used here. Tests in
# tests/matrixone/client/test_login_guard.py fail if a version of PyMySQL no longer has them, or uses them
# differently: _get_server_information, _auth_plugin_name, _create_ssl_ctx, _read_timeout, _read_packet, _sock
class GuardedConnection(_Wire):
    """PyMySQL's connection with logins as above, TLS as `tls_arguments` has it, and a short timeout until the login is
    done. `password` is bytes.

    Parameters
    ----------
    sha2 : whether the server may have the SHA-2 logins.
    """

    def __init__(self, *, sha2: bool, **options: Any) -> None:
        super().__init__(auth_plugin_map=_LOGINS[sha2], **options)

    def connect(self, sock: Any = None) -> None:
        # A server that accepts the connection and stays silent fails as fast as one that does not listen.
        timeout, self._read_timeout = self._read_timeout, self.connect_timeout
        try:
            super().connect(sock)
        finally:
            self._read_timeout = timeout

    @property
    def encrypted(self) -> bool:
        return isinstance(self._sock, ssl.SSLSocket)

    @property
    def verified(self) -> bool:
        """Whether the line is encrypted, and the server has shown a certificate of an authority that we trust."""
        return self.encrypted and self._sock.context.verify_mode is ssl.CERT_REQUIRED

    def send_password(self) -> Any:
        """Send the password itself. Returns the answer's packet. Raises PasswordWanted unless the line is guarded."""
        if self.password and not self.verified:
            raise PasswordWanted(
                "the server asks for the password in clear text, or nearly so, and its certificate was not checked"
            )
        return self.exchange(self.password + b"\0")

    def exchange(self, data: bytes | None) -> Any:
        """Send a packet of a login (None: nothing), and read the next one. Raises the server's error."""
        if data is not None:
            self.write_packet(data)
        packet = self._read_packet()
        packet.check_error()
        return packet

    def _get_server_information(self) -> None:
        super()._get_server_information()
        if self._auth_plugin_name in _LOGINS[False]:  # the first packet to the server could contain the password
            self._auth_plugin_name = NATIVE_LOGIN

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if isinstance(sslp, ssl.SSLContext):
            return sslp
        return super()._create_ssl_ctx(sslp) if sslp else _unchecked()  # none is given for `preferred`


def tls_arguments(tls: Tls) -> dict[str, Any]:
    """PyMySQL's arguments for a TLS mode. Raises OSError for certificate files that cannot be read."""
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred":
        return {}
    if tls.mode == "required":
        context = _unchecked()
    else:
        context = ssl.create_default_context(cafile=tls.ca)
        # Strict checks would refuse the certificates that MySQL-like servers generate for themselves.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = tls.mode == "verify_identity"
        context.verify_mode = ssl.CERT_REQUIRED
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, keyfile=tls.key)
    return {"ssl": context}


def out_of_step(error: Exception) -> pymysql.err.OperationalError:
    """PyMySQL's error for bytes that do not follow the protocol."""
    return pymysql.err.OperationalError(2027, f"the answer is not MySQL protocol: {type(error).__name__}")


def _scramble(password: bytes, nonce: bytes) -> bytes:
    """What the first exchange of caching_sha2_password sends (https://dev.mysql.com/doc/dev/mysql-server/latest/
    page_caching_sha2_authentication_exchanges.html)."""
    if not password:
        return b""
    once = hashlib.sha256(password).digest()
    mask = hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest()
    return bytes(left ^ right for left, right in zip(once, mask, strict=True))


def _unchecked() -> ssl.SSLContext:
    """Encryption without a check of the certificate. The default context would read the system's authorities, which
    takes 27 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
