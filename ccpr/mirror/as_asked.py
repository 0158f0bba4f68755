"""How rows are given to who reads them, where Arrow's type does not hold what MatrixOne stores: text that is not UTF-8,
zero dates.

Inside, such text is escaped (`ccpr.matrixone.objects.invalid_text`) and such dates are as they are stored, so that
different values stay different: filters, keys and deltas work on that. What the reader asked for is made of it at the
end, here. Source: decision text-that-is-not-utf-8.
"""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.convert import is_zero_date, without_zero_dates
from ccpr.matrixone.objects.errors import ValueRefused
from ccpr.matrixone.objects.invalid_text import count_escaped, replaced_text, stored_bytes
from ccpr.matrixone.objects.types import JSON, TEXT_TYPES, ZERO_DATE_TYPES, is_packed
from ccpr.matrixone.schema import Column, InvalidText, Reading, ZeroDates


def read_schema(schema: pa.Schema, columns: Sequence[Column], reading: Reading) -> pa.Schema:
    """The schema of `as_asked`."""
    if reading.invalid_text is not InvalidText.BINARY:
        return schema
    for column in columns:
        if _is_text(column):
            place = schema.get_field_index(column.name)
            schema = schema.set(place, schema.field(place).with_type(pa.binary()))
    return schema


def as_asked(
    batches: Iterator[pa.RecordBatch],
    columns: Sequence[Column],
    reading: Reading,
    subject: str,
    *,
    keys: Collection[Column] = (),
) -> Iterator[pa.RecordBatch]:
    """The batches with values as they were asked for. Batches may have more columns than `columns`, and lack some.

    Texts of `keys` keep their escapes where others get replacement characters: two keys must not become one. Raises
    `ValueRefused`.
    """
    texts, dates = _texts(columns, reading.invalid_text), []
    if reading.invalid_text is InvalidText.REPLACE:
        texts = [column for column in texts if column not in keys]
    if reading.zero_dates is not ZeroDates.KEEP:
        dates = [column for column in columns if column.type.oid in ZERO_DATE_TYPES]
    return (_changed(batch, texts, dates, reading, subject) for batch in batches) if texts or dates else batches


def checked_keys(
    batches: Iterator[pa.RecordBatch], keys: Sequence[Column], reading: Reading, subject: str
) -> Iterator[pa.RecordBatch]:
    """The batches as they are, if a reader can find every key of theirs again among rows that `as_asked` gives: a zero
    date that is read as null, and a text with replacement characters, are equal to no key, or to another one.

    Raises `ValueRefused`, which says what to ask for.
    """
    texts = [key for key in keys if reading.invalid_text is InvalidText.REPLACE and _is_text(key)]
    dates = [key for key in keys if reading.zero_dates is ZeroDates.NULL and key.type.oid in ZERO_DATE_TYPES]
    for batch in batches:
        for key in dates:
            if pc.any(is_zero_date(batch.column(key.name))).as_py():
                raise zero_date_in_key(key, subject)
        for key in texts:
            if count_escaped(batch.column(key.name)):
                remedy = 'Ask for another reading, of rows as well: `open_mirror(…, invalid_text="escape")`, or binary.'
                message = "a key is text that is not UTF-8, which has no replacement in a key"
                raise ValueRefused(message, subject=f"column {key.name} of {subject}", remedy=remedy)
        yield batch


def check_counted_keys(keys: Sequence[Column], reading: Reading, subject: str) -> None:
    """As `checked_keys`, by what was counted when the files came: before a file is read. What was not counted passes.
    Raises `ValueRefused`."""
    for key in keys:
        if reading.zero_dates is ZeroDates.NULL and key.zero_dates:
            raise zero_date_in_key(key, subject)


def zero_date_in_key(key: Column, subject: str) -> ValueRefused:
    remedy = 'Ask for them as they are stored, for rows as well as for changes: `open_mirror(…, zero_dates="keep")`.'
    message = "a key has the zero date 0000-00-00, which would be null"
    return ValueRefused(message, subject=f"column {key.name} of {subject}", remedy=remedy)


def _texts(columns: Sequence[Column], how: InvalidText) -> list[Column]:
    if how is InvalidText.ESCAPE:
        return []
    json = () if how is InvalidText.BINARY else (JSON,)  # text in Arrow only
    return [column for column in columns if _is_text(column) or column.type.oid in json]


def _is_text(column: Column) -> bool:
    return column.type.oid in TEXT_TYPES and not is_packed(column)


def _changed(
    batch: pa.RecordBatch, texts: Sequence[Column], dates: Sequence[Column], reading: Reading, subject: str
) -> pa.RecordBatch:
    for column in (*texts, *dates):
        place = batch.schema.get_field_index(column.name)
        if place < 0:
            continue
        values, where = batch.column(place), f"column {column.name} of {subject}"
        if column.type.oid in ZERO_DATE_TYPES:
            changed = _dates(values, reading.zero_dates, where)
        else:
            changed = _text_as_asked(values, reading.invalid_text, where)
        if changed is not values:
            batch = batch.set_column(place, batch.schema.field(place).with_type(changed.type), changed)
    return batch


def _dates(values: pa.Array, how: ZeroDates, subject: str) -> pa.Array:
    if how is ZeroDates.ERROR and pc.any(is_zero_date(values)).as_py():
        remedy = "Read the other columns, or choose --zero-dates null or keep."
        raise ValueRefused("it has the zero date 0000-00-00", subject=subject, remedy=remedy)
    return without_zero_dates(values)


def _text_as_asked(values: pa.Array, how: InvalidText, subject: str) -> pa.Array:
    if how is InvalidText.BINARY:
        return stored_bytes(values)
    if how is InvalidText.REPLACE:
        return replaced_text(values)
    if count := count_escaped(values):
        remedy = "Read the other columns, or choose --invalid-text escape, replace or binary."
        raise ValueRefused(f"{count} texts of a block are not UTF-8", subject=subject, remedy=remedy)
    return values
