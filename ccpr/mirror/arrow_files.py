"""The Arrow files of the mirror: written as they are, read as hostile input.

Arrow checks the framing of such a file, but trusts what is inside: it checks the lengths of arrays against nothing,
and allocates whatever inflated size a compressed buffer claims. So each claim is compared with the bytes that are
there before a batch is created, and each batch is validated before it is used. Source: docs/architecture.md, "What bad
input gets"; the format is Arrow's "IPC file format".
"""

import struct
from collections.abc import Callable, Collection, Iterator

import pyarrow as pa

from ccpr.mirror.errors import MirrorDamaged

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
