"""Reads and writes the mirror's own files: JSON and Arrow. Each is compared with the digest that vouches for it: that
in its name, or, for the files that are replaced (`head.json`, `mirror.json`), one in the file itself.

Source: docs/format/mirror.md; decision a-name-has-its-digest.
"""

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa

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


# ---- Arrow files, read as hostile input
#
# Arrow checks the framing of such a file, but trusts what is inside: it checks the lengths of arrays against nothing,
# and allocates whatever inflated size a compressed buffer claims. So each claim is compared with the bytes that are
# there before a batch is created, and each batch is validated before it is used. Source: docs/architecture.md, "What
# bad input gets"; the format is Arrow's "IPC file format".

_BATCH_ROWS = 1 << 16
_MAGIC_SIZE = 8  # "ARROW1" and padding, before the stream of messages
_LZ4_BEST_RATIO = 255
_SCHEMA, _RECORD_BATCH = "schema", "record batch"
_HEADER, _BUFFERS, _COMPRESSION = 2, 2, 3  # numbers of fields in the FlatBuffers tables Message and RecordBatch
_U16, _I32, _U32, _I64 = (struct.Struct(kind) for kind in ("<H", "<i", "<I", "<q"))
_BUFFER = struct.Struct("<qq")  # offset, length
_STORED_AS_IS = -1  # the inflated size of a buffer that is not compressed


def arrow_file(table: pa.Table) -> bytes:
    """A table as a file, in batches of _BATCH_ROWS, so in one as a rule: each more has a cost of its own wherever it is
    read, and manifests that are made of the ones before would get one with each point. A larger table is not copied as
    a whole."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for first in range(0, max(table.num_rows, 1), _BATCH_ROWS):
            writer.write_table(table.slice(first, _BATCH_ROWS).combine_chunks())
    return sink.getvalue().to_pybytes()


def read_arrow_file(
    content: pa.Buffer,
    schemas: Collection[pa.Schema],
    subject: str,
    *,
    through: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
) -> pa.Table:
    """The table of a file, which must have one of these schemas (metadata excepted) and no null where that allows none;
    of each batch what `through` leaves.

    Raises MirrorDamaged.
    """
    try:
        schema = _schema(content, schemas)
        batches = _batches(content, schema.remove_metadata())
        return pa.Table.from_batches(map(through, batches) if through else batches, schema=schema)
    except (pa.ArrowException, OSError, struct.error) as error:
        raise MirrorDamaged(f"the file cannot be read: {error}", subject=subject) from error


def _schema(content: pa.Buffer, expected: Collection[pa.Schema]) -> pa.Schema:
    schema = pa.ipc.open_file(content).schema
    if not any(schema.equals(one) for one in expected):
        raise pa.ArrowInvalid("its columns are not the expected ones")
    return schema


def _batches(content: pa.Buffer, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches in the order of the file. The footer, which could name one of them many times, is only used for their
    number."""
    expected = pa.ipc.open_file(content).num_record_batches
    messages = pa.ipc.MessageReader.open_stream(content.slice(_MAGIC_SIZE))
    _next(messages, _SCHEMA)  # skipped: the footer's schema was checked
    for _ in range(expected):
        message = _next(messages, _RECORD_BATCH)
        _check_claims(message.metadata, message.body)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        _check_nulls(batch)
        yield batch


def _next(messages: pa.ipc.MessageReader, kind: str) -> pa.ipc.Message:
    try:
        message = messages.read_next_message()
    except StopIteration as end:
        raise pa.ArrowInvalid(f"it ends where a {kind} should be") from end
    if message.type != kind:
        raise pa.ArrowInvalid(f"it has a message of kind {message.type} where a {kind} should be")
    return message


def _check_nulls(batch: pa.RecordBatch) -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"column {field.name} has nulls")


def _check_claims(metadata: pa.Buffer, body: pa.Buffer) -> None:
    """Raises ArrowInvalid if a buffer of a compressed batch claims to inflate to more than its bytes can."""
    raw = metadata.to_pybytes()
    batch = _followed(raw, _field(raw, _followed(raw, 0), _HEADER))
    if not _field(raw, batch, _COMPRESSION):
        return
    vector = _followed(raw, _field(raw, batch, _BUFFERS))
    for place in range(_U32.unpack_from(raw, vector)[0]):
        offset, length = _BUFFER.unpack_from(raw, vector + _U32.size + _BUFFER.size * place)
        if not 0 <= offset <= offset + length <= body.size:
            raise pa.ArrowInvalid(f"a buffer ends at {offset + length} of {body.size} bytes")
        if length == 0:
            continue
        (claimed,) = _I64.unpack_from(body, offset) if length >= _I64.size else (_STORED_AS_IS - 1,)
        if claimed != _STORED_AS_IS and not 0 <= claimed <= _LZ4_BEST_RATIO * length:
            raise pa.ArrowInvalid(f"a buffer of {length} bytes claims to inflate to {claimed}")


def _field(raw: bytes, table: int, number: int) -> int:
    """Offset of a field of a FlatBuffers table; 0 if it is absent."""
    layout = table - _I32.unpack_from(raw, table)[0]
    entry = _U16.size * (2 + number)
    if entry >= _U16.unpack_from(raw, layout)[0]:
        return 0
    offset = _U16.unpack_from(raw, layout + entry)[0]
    return table + offset if offset else 0


def _followed(raw: bytes, at: int) -> int:
    """The position that the offset at `at` refers to."""
    return at + _U32.unpack_from(raw, at)[0]
