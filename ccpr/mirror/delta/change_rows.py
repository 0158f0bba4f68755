"""The changes of a table as rows: one column that says what becomes of the row, and the columns of the table."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.errors import ObjectUnsupported
from ccpr.matrixone.schema import DEFAULT_READING, InvalidText, Reading, ZeroDates
from ccpr.mirror.as_asked import as_asked, checked_keys, read_schema
from ccpr.mirror.delta.row_keys import partners
from ccpr.mirror.delta.split import DeltaPart, DeltaShape, DeltaSplit, Side, SplitRun, doubtful_rows, lost_rows
from ccpr.mirror.mirror import Mirror, files_of

KIND = "__ccpr_kind"
UPSERT, DELETE = "upsert", "delete"  # a row that is to be written whole; a key that is to be deleted, all else null


def change_schema(shape: DeltaShape, reading: Reading = DEFAULT_READING) -> pa.Schema:
    """KIND, then the columns of upserts. Those of the key are never null. Raises ObjectUnsupported for a table that has
    a column of the name KIND itself: columns are found by name."""
    for column in shape.columns:
        if column.name.lower() == KIND:
            text = f"its changes have a column {KIND} of their own, which says what becomes of a row"
            remedy = "Rename the column. Its rows can be read, exported and synced as they are."
            raise ObjectUnsupported(text, subject=f"column {column.name} of table {shape.table}", remedy=remedy)
    schema = pa.schema([pa.field(KIND, pa.string(), nullable=False), *shape.upsert_schema])
    return read_schema(schema, shape.columns, reading)


def change_batches(
    shape: DeltaShape, parts: Iterable[DeltaPart], reading: Reading = DEFAULT_READING
) -> Iterator[pa.RecordBatch]:
    """The rows of some parts, of `change_schema`. Raises ValueRefused for a key that the reading would change."""
    keys, subject = shape.key.columns, f"table {shape.table}"
    checked = checked_keys(_batches(shape, parts), keys, reading, subject)
    return as_asked(checked, shape.columns, reading, subject, keys=keys)


def _batches(shape: DeltaShape, parts: Iterable[DeltaPart]) -> Iterator[pa.RecordBatch]:
    schema = change_schema(shape)
    for part in parts:
        for kind, rows in ((UPSERT, part.upserts), (DELETE, part.deletes)):
            columns = [
                rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
                for field in shape.upsert_schema
            ]
            kinds = pa.repeat(pa.scalar(kind), rows.num_rows)
            yield from pa.Table.from_arrays([kinds, *columns], schema=schema).to_batches()


def part_of(changes: pa.Table, shape: DeltaShape) -> DeltaPart:
    """Rows of `change_schema` as upserts and deletes."""
    deleted = pc.equal(changes.column(KIND), DELETE)
    upserts = changes.filter(pc.invert(deleted)).select(shape.upsert_schema.names)
    deletes = changes.filter(deleted).select(shape.delete_schema.names)
    return DeltaPart(upserts, deletes)


def for_database(reading: Reading) -> Reading:
    """What is asked for where a database gets the rows: a text column stays text, and there are zero dates."""
    how = InvalidText.ESCAPE if reading.invalid_text is InvalidText.BINARY else reading.invalid_text
    return Reading(how, ZeroDates.ERROR if reading.zero_dates is ZeroDates.ERROR else ZeroDates.KEEP)


def readable_part(part: DeltaPart, shape: DeltaShape, reading: Reading) -> DeltaPart:
    """A part for a target: its text columns stay text, its keys different, and zero dates what they are, since a target
    has them. Raises ValueRefused."""
    reading, tables = for_database(reading), []
    for rows in (part.upserts, part.deletes):
        batches = as_asked(
            iter(rows.to_batches()), shape.columns, reading, f"table {shape.table}", keys=shape.key.columns
        )
        tables.append(pa.Table.from_batches(batches, rows.schema))
    return DeltaPart(*tables, replaced=part.replaced)


class Image(StrEnum):
    """What a whole row of a change data feed is."""

    INSERT = "insert"
    BEFORE = "update_preimage"
    AFTER = "update_postimage"
    DELETE = "delete"


def row_images(mirror: Mirror, split: DeltaSplit) -> Iterator[tuple[Image, pa.RecordBatch]]:
    """The changes of one split, columns as `DeltaShape.columns`; of the earlier point nulls where it had no such
    column. A row with the values that it had is no change. Raises what `run_split` raises."""
    columns = split.shape.columns
    with files_of(split.shape.table):
        run = SplitRun(mirror, split)
        before, rows_after = run.rows()
        after = Side(list(rows_after))
        none = np.full(after.count, -1, np.int64)
        subject = f"table {split.shape.table}"
        partner = partners(before.keys, after.keys, run.match, subject) if before.count and after.count else none
        for batch in before.read(columns, lost_rows(before, partner)):
            yield Image.DELETE, batch
        for chosen, values, differ in run.compared_rows(before, after, doubtful_rows(after, partner), partner):
            known = partner[chosen] >= 0
            for image, wanted in ((Image.INSERT, differ & ~known), (Image.AFTER, differ & known)):
                for batch in values.filter(pa.array(wanted)).to_batches():
                    yield image, batch
            for batch in before.read(columns, np.sort(partner[chosen][differ & known])):
                yield Image.BEFORE, batch
