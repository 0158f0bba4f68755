"""The changes of a table as rows: one column that says what becomes of the row, and the columns of the table."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from replication.delta.split import DeltaPart, DeltaShape

KIND = "__ccpr_kind"
UPSERT, DELETE = "upsert", "delete"  # a row that is to be written whole; a key that is to be deleted, all else null


def change_schema(shape: DeltaShape) -> pa.Schema:
    """KIND, then the columns of upserts. Those of the key are never null."""
    return pa.schema([pa.field(KIND, pa.string(), nullable=False), *shape.upsert_schema])


def change_batches(shape: DeltaShape, parts: Iterable[DeltaPart]) -> Iterator[pa.RecordBatch]:
    """The rows of some parts, of `change_schema`."""
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
    return DeltaPart(upserts.cast(shape.upsert_schema), deletes.cast(shape.delete_schema))
