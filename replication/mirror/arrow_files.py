"""Arrow files of the mirror, read as if somebody else had written them.

Arrow checks the framing of such a file, but believes what it says inside: lengths of arrays against nothing, and the
inflated size of each compressed buffer, which it allocates. So every claim is compared with what is there before a
batch is made, and each batch is validated before anybody looks at it. Source: architecture.md, "What bad input gets";
the format is Arrow's "IPC file format".
"""

import struct
from collections.abc import Iterator

import pyarrow as pa

from replication.errors import MirrorDamaged

_MAGIC_SIZE = 8  # "ARROW1" and padding, before the stream of messages
_LZ4_BEST_RATIO = 255
_SCHEMA, _RECORD_BATCH = "schema", "record batch"
_HEADER, _BUFFERS, _COMPRESSION = 2, 2, 3  # places of fields in the tables Message and RecordBatch
_I32, _U16, _U32, _I64, _BUFFER = (
    struct.Struct("<i"),
    struct.Struct("<H"),
    struct.Struct("<I"),
    struct.Struct("<q"),
    struct.Struct("<qq"),
)
_STORED_AS_IS = -1


def read_arrow_file(content: pa.Buffer, schema: pa.Schema, subject: str) -> pa.Table:
    """The table, which has this schema (its metadata apart) and no null where the schema allows none. Raises
    MirrorDamaged."""
    try:
        return pa.Table.from_batches(_batches(content, schema), schema=_schema(content, schema))
    except (pa.ArrowException, OSError, struct.error) as error:
        raise MirrorDamaged(f"the file cannot be read: {error}", subject=subject) from error


def _schema(content: pa.Buffer, expected: pa.Schema) -> pa.Schema:
    schema = pa.ipc.open_file(content).schema
    if not schema.equals(expected):
        raise pa.ArrowInvalid("it has other columns than it should")
    return schema


def _batches(content: pa.Buffer, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batch by batch as they stand in the file. The footer, which could name one of them many times, only tells how
    many there must be."""
    expected = pa.ipc.open_file(content).num_record_batches
    messages = pa.ipc.MessageReader.open_stream(content.slice(_MAGIC_SIZE))
    _next(messages, _SCHEMA)  # not looked into: the footer's has been, and Arrow's reading of a message trusts its kind
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
        raise pa.ArrowInvalid(f"a message of kind {message.type} where a {kind} should be")
    return message


def _check_nulls(batch: pa.RecordBatch) -> None:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"column {field.name} has nulls")


def _check_claims(metadata: pa.Buffer, body: pa.Buffer) -> None:
    """That no buffer of a compressed batch claims to inflate to more than its bytes can."""
    raw = metadata.to_pybytes()
    batch = _followed(raw, _field(raw, _followed(raw, 0), _HEADER))
    if not _field(raw, batch, _COMPRESSION):
        return
    vector = _followed(raw, _field(raw, batch, _BUFFERS))
    for number in range(_U32.unpack_from(raw, vector)[0]):
        offset, length = _BUFFER.unpack_from(raw, vector + _U32.size + _BUFFER.size * number)
        if not 0 <= offset <= offset + length <= body.size:
            raise pa.ArrowInvalid(f"a buffer ends at {offset + length} of {body.size} bytes")
        if length == 0:
            continue
        (claimed,) = _I64.unpack_from(body, offset) if length >= _I64.size else (_STORED_AS_IS - 1,)
        if claimed != _STORED_AS_IS and not 0 <= claimed <= _LZ4_BEST_RATIO * length:
            raise pa.ArrowInvalid(f"a buffer of {length} bytes claims to inflate to {claimed}")


def _field(raw: bytes, table: int, place: int) -> int:
    """Where a field of a FlatBuffers table stands; 0 if it has none."""
    layout = table - _I32.unpack_from(raw, table)[0]
    entry = _U16.size * (2 + place)
    if entry >= _U16.unpack_from(raw, layout)[0]:
        return 0
    offset = _U16.unpack_from(raw, layout + entry)[0]
    return table + offset if offset else 0


def _followed(raw: bytes, at: int) -> int:
    """The place that the offset at `at` leads to."""
    return at + _U32.unpack_from(raw, at)[0]
