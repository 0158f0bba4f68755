"""How a login proves that it knows its password: mysql_native_password."""

import hashlib
import hmac


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
