"""Reads and writes the mirror's own files: JSON and Arrow. Each is compared with the digest that vouches for it: that
in its name, or, for the files that are replaced (`head.json`, `mirror.json`), one in the file itself.

Source: docs/format/mirror.md; decision a-name-has-its-digest.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ccpr.mirror.arrow_files import read_arrow_file
from ccpr.mirror.errors import MirrorDamaged, MirrorEncrypted
from ccpr.mirror.layout import ENCRYPTED, ENCRYPTED_1, FORMAT, GUARDED, digest_in, digest_of
from ccpr.mirror.store import Store

_READABLE = (FORMAT, GUARDED)
_DIGEST = "digest"


class MirrorFiles:
    """The files of one store. What reads raises MirrorDamaged for what was not written by this program, and
    StoreFailed."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def read(self, name: str) -> pa.Buffer:
        """The content, if it is what was written: that of a name with a digest is compared with it."""
        content = self.store.read(name)
        digest = digest_in(name)
        if digest is not None and digest_of(content) != digest:
            raise MirrorDamaged("the file is not what was written: its digest differs", subject=self.subject(name))
        return content

    def read_arrow(
        self, name: str, *schemas: pa.Schema, through: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> pa.Table:
        """A table with one of these schemas, of what `through` leaves of each batch."""
        return read_arrow_file(self.read(name), schemas, self.subject(name), through=through)

    def read_json(self, name: str) -> dict[str, Any]:
        """An object with a `format` that this program knows. A file without a digest in its name has one in its
        content."""
        content = self.read(name).to_pybytes()
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise MirrorDamaged("the file is not JSON", subject=self.subject(name)) from error
        found = value.get("format") if isinstance(value, dict) else None
        if found in (ENCRYPTED, ENCRYPTED_1):
            raise MirrorEncrypted(f"it is encrypted with key {value.get('key')!s:.16}", subject=self.subject(name))
        if found not in _READABLE or isinstance(found, bool):
            raise MirrorDamaged(
                f"the file is not of format {' or '.join(map(str, _READABLE))}",
                subject=self.subject(name),
                remedy="Read it with the release that wrote it. `ccpr run` of release 0.2.0 renews one of 0.1.0.",
            )
        with self.understood(name):
            if digest_in(name) is None and not _is_sealed(content):
                raise MirrorDamaged("the file is not what was written: its digest differs", subject=self.subject(name))
        return value

    def write(self, path: Callable[[str], str], content: bytes) -> str:
        """Write an immutable file. `path` makes its name from its digest; returns the name."""
        name = path(digest_of(content))
        self.store.put(name, [content])
        return name

    def write_json(self, path: Callable[[str], str], value: Mapping[str, Any]) -> str:
        """As `write`."""
        return self.write(path, json_bytes(value))

    def write_sealed(self, name: str, value: Mapping[str, Any], *, new: bool = False) -> None:
        """Write a file that may change, with its digest inside. Raises StoreConflict for a `new` one that exists."""
        content = sealed({"format": FORMAT, **value})
        if new:
            self.store.put(name, [content])
        else:
            self.store.replace(name, content)
        self.store.sync("")

    def subject(self, name: str) -> str:
        return f"{self.store.url}/{name}"

    @contextmanager
    def understood(self, name: str) -> Iterator[None]:
        """What the JSON of a file holds instead of what was written becomes MirrorDamaged."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            message = f"a field is missing or is not what was written: {type(error).__name__} {error!s:.200}"
            raise MirrorDamaged(message, subject=self.subject(name)) from error


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """The content of an immutable JSON file."""
    return json.dumps({"format": FORMAT, **value}, ensure_ascii=False, indent=1).encode()


@lru_cache(maxsize=4096)  # the files of a mirror are read several times in an iteration, and mostly are as they were
def _is_sealed(content: bytes) -> bool:
    """Whether JSON is what `sealed` makes of it."""
    return sealed(json.loads(content)) == content


def sealed(value: Mapping[str, Any]) -> bytes:
    """The value as JSON, with a digest of everything else as its last field."""
    content = {key: cell for key, cell in value.items() if key != _DIGEST}
    digest = digest_of(json.dumps(content, ensure_ascii=False).encode())
    return json.dumps({**content, _DIGEST: digest}, ensure_ascii=False, indent=1).encode()
