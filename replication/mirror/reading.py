"""How rows are given to who reads them, where Arrow's type does not hold what MatrixOne stores: text that is not UTF-8.

Inside, such text is escaped (`matrixone.objects.invalid_text`), so that different values stay different: filters, keys
and deltas work on that. What the reader asked for is made of it at the end, here. Source: decision
text-that-is-not-utf-8.
"""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from matrixone.objects.errors import ValueRefused
from matrixone.objects.invalid_text import count_escaped, replaced_text, stored_bytes
from matrixone.objects.types import JSON, TEXT_TYPES, is_packed
from matrixone.schema import Column, InvalidText


def read_schema(schema: pa.Schema, columns: Sequence[Column], how: InvalidText) -> pa.Schema:
    """The schema of `as_asked`."""
    if how is not InvalidText.BINARY:
        return schema
    for column in columns:
        if _is_text(column):
            place = schema.get_field_index(column.name)
            schema = schema.set(place, schema.field(place).with_type(pa.binary()))
    return schema


def as_asked(
    batches: Iterator[pa.RecordBatch],
    columns: Sequence[Column],
    how: InvalidText,
    subject: str,
    *,
    keys: Collection[Column] = (),
) -> Iterator[pa.RecordBatch]:
    """The batches with text as it was asked for. Batches may have more columns than `columns`, and lack some.

    Texts of `keys` keep their escapes where others get replacement characters: two keys must not become one. Raises
    `ValueRefused`.
    """
    if how is InvalidText.ESCAPE:
        return batches
    texts = [column for column in columns if _is_text(column)]
    if how is not InvalidText.BINARY:  # json is text in Arrow only
        texts += [column for column in columns if column.type.oid == JSON]
    if how is InvalidText.REPLACE:
        texts = [column for column in texts if column not in keys]
    return (_changed(batch, texts, how, subject) for batch in batches) if texts else batches


def _is_text(column: Column) -> bool:
    return column.type.oid in TEXT_TYPES and not is_packed(column)


def _changed(batch: pa.RecordBatch, columns: Sequence[Column], how: InvalidText, subject: str) -> pa.RecordBatch:
    for column in columns:
        place = batch.schema.get_field_index(column.name)
        if place < 0:
            continue
        values, field = batch.column(place), batch.schema.field(place)
        match how:
            case InvalidText.BINARY:
                batch = batch.set_column(place, field.with_type(pa.binary()), stored_bytes(values))
            case InvalidText.REPLACE:
                batch = batch.set_column(place, field, replaced_text(values))
            case _:
                if count := count_escaped(values):
                    message = f"{count} texts of a block are not UTF-8"
                    remedy = "Read the other columns, or choose --invalid-text escape, replace or binary."
                    raise ValueRefused(message, subject=f"column {column.name} of {subject}", remedy=remedy)
    return batch
