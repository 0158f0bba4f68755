"""The keys of encrypted mirrors: where they are, and what they look like. A key never is in a setting, a URL, a log or
an error; what these have is a reference:

    file:/etc/ccpr/shop.key     a file
    env:SHOP_KEY                a variable of the environment
    command                     what the command of CCPR_KEY_COMMAND prints

A key is 32 random bytes, as 43 characters of base64url, or as 64 hexadecimal digits. There may be several, one a line:
new files are encrypted with the first, older ones opened with the one that they name. Text behind # is no key. Source:
docs/decisions/mirror.md, encrypted-before-it-leaves. A mirror's URL can have it, too: `s3://bucket/prefix?encrypt=env:NAME`.
"""

import base64
import binascii
import hmac
import os
import re
import secrets
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qsl, urlencode

from ccpr.mirror.errors import BadName, KeyUnusable, KeyWrong

KEY_BYTES, ID_BYTES = 32, 8
COMMAND_VARIABLE = "CCPR_KEY_COMMAND"
REFERENCE = re.compile(r"(file:.+|env:[A-Za-z_][A-Za-z0-9_]*|command)", re.DOTALL)
_LARGEST_TEXT, _COMMAND_SECONDS, _REMEMBERED_SECONDS = 64 << 10, 60.0, 300.0
_HEX, _BASE64 = re.compile("[0-9a-fA-F]{64}"), re.compile("[A-Za-z0-9_-]{43}=?")
_printed: dict[str, tuple[float, str]] = {}  # by command: when it was run, and what it printed
_PRINTING = Lock()
IN_CLEAR = "none"  # in the place of where a copy's or a lake's key is: it is not encrypted, whatever the mirror is
_ENCRYPT = "encrypt"


@dataclass(frozen=True, slots=True)
class Key:
    """`id` says which one it is, and nothing about it; it is computed from the key."""

    id: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> "Key":
        return cls(hmac.digest(secret, b"ccpr key id", "sha256")[:ID_BYTES], secret)


@dataclass(frozen=True, slots=True)
class Keyring:
    """
    Attributes
    ----------
    keys : the first encrypts.
    reference : where they come from.
    """

    keys: tuple[Key, ...]
    reference: str

    def find(self, key_id: bytes, subject: str) -> Key:
        """Raises KeyWrong."""
        for key in self.keys:
            if hmac.compare_digest(key.id, key_id):
                return key
        have = ", ".join(key.id.hex() for key in self.keys)
        raise KeyWrong(f"it is encrypted with key {key_id.hex()}, and {self.reference} has {have}", subject=subject)


def new_key() -> str:
    """A key as text."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode().rstrip("=")


def check_reference(reference: str) -> str:
    """Raises BadName."""
    if not REFERENCE.fullmatch(reference):
        remedy = f"Write file:/path, env:NAME, or command, which runs what {COMMAND_VARIABLE} says."
        raise BadName("not where a key can be", subject=f"encrypt = {reference[:80]!r}", remedy=remedy)
    return reference


def absolute_reference(reference: str) -> str:
    """The same from any working directory. Raises BadName."""
    kind, _, where = check_reference(reference).partition(":")
    return f"file:{Path(where).absolute()}" if kind == "file" else reference


def keyring(reference: str) -> Keyring:
    """The keys that a reference leads to. What a command printed is remembered for five minutes. Raises BadName,
    KeyUnusable."""
    kind, _, where = check_reference(reference).partition(":")
    if kind == "file":
        text = _of_file(Path(where), reference)
    elif kind == "env":
        text = os.environ.get(where, "")
        if not text:
            raise KeyUnusable(f"the variable {where} is not set", subject=reference)
    else:
        text = _of_command(reference)
    return parse_keys(text, reference)


def parse_keys(text: str, reference: str) -> Keyring:
    """Raises KeyUnusable, which does not repeat the text."""
    lines = [found for line in text.splitlines() if (found := line.partition("#")[0].strip())]
    keys = [_parse(line, number, reference) for number, line in enumerate(lines, 1)]
    if not keys:
        raise KeyUnusable("there is no key", subject=reference)
    return Keyring(tuple(dict.fromkeys(keys)), reference)


def _parse(line: str, number: int, reference: str) -> Key:
    try:
        if _HEX.fullmatch(line):
            return Key.of(bytes.fromhex(line))
        if _BASE64.fullmatch(line):
            return Key.of(base64.urlsafe_b64decode(line.rstrip("=") + "="))
    except binascii.Error:
        pass
    raise KeyUnusable(f"key {number} is not 32 bytes in base64 or hexadecimal digits", subject=reference)


def _of_file(path: Path, reference: str) -> str:
    try:
        with path.open("rb") as file:
            return _text(file.read(_LARGEST_TEXT + 1), reference)
    except OSError as error:
        raise KeyUnusable(f"the file cannot be read: {error.strerror}", subject=reference) from error


def _of_command(reference: str) -> str:
    command = os.environ.get(COMMAND_VARIABLE, "")
    if not command:
        raise KeyUnusable(f"the variable {COMMAND_VARIABLE} is not set", subject=reference)
    with _PRINTING:
        known = _printed.get(command)
        if known is None or time.monotonic() - known[0] > _REMEMBERED_SECONDS:
            known = _printed[command] = time.monotonic(), _text(_run(command, reference), reference)
        return known[1]


def _run(command: str, reference: str) -> bytes:
    """What a command prints; neither that nor what it says of an error is shown. Raises KeyUnusable."""
    try:
        words, nothing = shlex.split(command), subprocess.DEVNULL
        done = subprocess.run(words, stdin=nothing, capture_output=True, timeout=_COMMAND_SECONDS, check=False)
    except (OSError, ValueError) as error:
        raise KeyUnusable(f"the command cannot be run: {error}", subject=reference) from error
    except subprocess.TimeoutExpired as error:
        raise KeyUnusable(f"the command took longer than {_COMMAND_SECONDS:g} s", subject=reference) from error
    if done.returncode != 0:
        raise KeyUnusable(f"the command ended with {done.returncode}", subject=reference)
    return done.stdout


def _text(content: bytes, reference: str) -> str:
    if len(content) > _LARGEST_TEXT:
        raise KeyUnusable("it is too long for keys", subject=reference)
    try:
        return content.decode("ascii")
    except UnicodeDecodeError as error:
        raise KeyUnusable("it is not text", subject=reference) from error


def without_key(url: str) -> tuple[str, str]:
    """The URL without the option that says where the key is, and that."""
    place, question, query = url.partition("?")
    if "://" not in place and not query.startswith(f"{_ENCRYPT}="):
        return url, ""  # a plain path, which may have any characters
    options = parse_qsl(query, keep_blank_values=True)
    others = [(name, value) for name, value in options if name != _ENCRYPT]
    if not question or len(others) == len(options):
        return url, ""
    rest = f"?{urlencode(others, safe=':/')}" if others else ""
    return f"{place}{rest}", dict(options)[_ENCRYPT]


def with_key(place: str, encrypt: str) -> str:
    """The inverse of `without_key`."""
    if not encrypt:
        return place
    return f"{place}{'&' if '?' in place else '?'}{urlencode({_ENCRYPT: encrypt}, safe=':/')}"
