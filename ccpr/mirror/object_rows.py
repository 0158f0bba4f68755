"""Tables of objects: the rows of object lists and of manifests in one schema, and operations on sets of them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.objects.identifiers import OBJECT_ID_SIZE
from ccpr.matrixone.objects.stats import STATS_SIZE, stats_columns
from ccpr.mirror.layout import MANIFEST_SCHEMA, MANIFEST_SCHEMA_1

CHECKSUMS = (MANIFEST_SCHEMA.field("sha256"), MANIFEST_SCHEMA.field("sums"))

LISTED_SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("stats", pa.binary()),
        pa.field("stats_bytes", pa.int32()),
        pa.field("name_agrees", pa.bool_()),
        pa.field("size", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("blocks", pa.int64()),
        pa.field("appendable", pa.bool_()),
        pa.field("create_physical", pa.int64()),
        pa.field("create_logical", pa.int64()),
        pa.field("delete_physical", pa.int64()),  # null = not deleted as of the snapshot
        pa.field("delete_logical", pa.int64()),
        pa.field("is_tombstone", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class ObjectDiff:
    """The difference between the mirror's last point and a snapshot.

    Attributes
    ----------
    added : LISTED_SCHEMA; objects that are live at the snapshot and not in the manifest of their table.
    removed : LISTED_SCHEMA; objects of the manifests that are no longer live.
    """

    added: pa.Table
    removed: pa.Table

    @property
    def table_ids(self) -> set[int]:
        return set(pc.unique(pa.concat_tables([self.added, self.removed]).column("table_id")).to_pylist())

    def without(self, table_ids: Collection[int]) -> "ObjectDiff":
        """The difference of all but some tables."""
        if not table_ids:
            return self
        return ObjectDiff(rows_without(self.added, table_ids), rows_without(self.removed, table_ids))

    def joined(self, other: "ObjectDiff") -> "ObjectDiff":
        """Together with the difference of other tables."""
        return ObjectDiff(pa.concat_tables([self.added, other.added]), pa.concat_tables([self.removed, other.removed]))


def without_objects(rows: pa.Table, others: pa.Table) -> pa.Table:
    """The rows whose table and object are not in `others`."""
    return join_objects(rows, others, "left anti")


def rows_without(rows: pa.Table, table_ids: Collection[int]) -> pa.Table:
    return rows.filter(pc.invert(of_tables(rows, table_ids)))


def rows_of(rows: pa.Table, table_ids: Collection[int]) -> pa.Table:
    return rows.filter(of_tables(rows, table_ids))


def of_tables(rows: pa.Table, table_ids: Collection[int]) -> pa.ChunkedArray:
    return pc.is_in(rows.column("table_id"), pa.array(sorted(table_ids), pa.int64()))


def as_listed(table_id: int, manifest: pa.Table) -> pa.Table:
    """A manifest (MANIFEST_SCHEMA) in the schema of object lists, to be compared with one."""
    rows = manifest.select(MANIFEST_SCHEMA_1.names).replace_schema_metadata(None)
    batches = rows.combine_chunks().to_batches()  # older releases wrote many
    listed = [decode_stats(_with_list_columns(batch, table_id)) for batch in batches]
    return pa.Table.from_batches(listed, LISTED_SCHEMA)


def as_manifest(listed: pa.Table) -> pa.Table:
    """The objects of one table, with their checksums, in the schema of manifests."""
    return listed.select(MANIFEST_SCHEMA.names).replace_schema_metadata(None).cast(MANIFEST_SCHEMA)


def are_of(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """Which objects of a table are among others of it, by the ids in their stats, from which names are derived: nothing
    else is decoded (decision manifests-have-parts)."""
    return pc.is_in(object_ids(rows), value_set=object_ids(others).combine_chunks(), skip_nulls=True)


def named_in(listed: pa.Table) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What leaves those objects of a manifest that a list of the same table names (`read_manifest`)."""
    ids = object_ids(listed).combine_chunks()
    return lambda batch: batch.filter(pc.is_in(object_ids(batch), value_set=ids, skip_nulls=True))


def object_ids(rows: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
    return pc.binary_slice(rows.column("stats"), 0, OBJECT_ID_SIZE).cast(pa.binary())


def with_checksums(listed: pa.Table, copied: pa.Table) -> pa.Table:
    """Objects with the CHECKSUMS that each was copied with (columns `name`, `sha256`, `sums`); null for one that was
    not."""
    places = pc.index_in(listed.column("name"), copied.column("name").combine_chunks()).combine_chunks()
    for field in CHECKSUMS:
        listed = listed.append_column(field, copied.column(field.name).combine_chunks().cast(field.type).take(places))
    return listed


def _with_list_columns(batch: pa.RecordBatch, table_id: int) -> pa.RecordBatch:
    rows = batch.num_rows
    for name, value in (("table_id", table_id), ("delete_physical", None), ("delete_logical", None)):
        batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows))
    return batch


def decode_stats(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns that the stats contain; null for stats of a wrong length, which validation reports."""
    stats = batch.column("stats").cast(pa.binary())
    lengths = pc.binary_length(stats)
    sound = pc.fill_null(pc.equal(lengths, STATS_SIZE), False)
    decoded = stats_columns(stats.filter(sound))
    places = pa.array([], pa.int64())
    if len(stats):
        places = pc.if_else(sound, pc.subtract(pc.cumulative_sum(sound.cast(pa.int64())), 1), None)
    columns = {
        "stats": stats,
        "stats_bytes": pc.fill_null(lengths, 0).cast(pa.int32()),
        **{
            name: decoded.column(name).take(places)
            for name in ("name", "name_agrees", "size", "rows", "blocks", "appendable")
        },
    }
    arrays = [
        columns[field.name] if field.name in columns else batch.column(field.name).cast(field.type)
        for field in LISTED_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=LISTED_SCHEMA)


def join_objects(left: pa.Table, right: pa.Table, kind: str) -> pa.Table:
    """Semi or anti join by table and object, in the order of `left`. Arrow's own join does not keep the order, and
    imports its engine for queries."""
    found = pc.is_in(_object_keys(left), value_set=_object_keys(right).combine_chunks(), skip_nulls=True)
    return left.filter(found if kind == "left semi" else pc.invert(found))


def matched(left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of both that are of the same table and object, side by side; `right` has each once."""
    places = pc.index_in(_object_keys(left), value_set=_object_keys(right).combine_chunks(), skip_nulls=True)
    return left.filter(pc.is_valid(places)), right.take(places.drop_null())


def count_objects(rows: pa.Table) -> int:
    """How many there are, by table and object. Without Arrow's engine for queries, which `group_by` imports: 40 MB."""
    return pc.count_distinct(_object_keys(rows), mode="all").as_py()


def first_of_each_name(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the first rows of the names, in order; and of each row, which of these is its own."""
    codes = rows.column("name").combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.unique(codes, return_index=True)[1]  # codes are given in the order of the rows
    return first, codes


def in_order(rows: pa.Table) -> pa.Table:
    """By table and name."""
    return rows.take(pc.sort_indices(rows, sort_keys=[("table_id", "ascending"), ("name", "ascending")]))


def _object_keys(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(rows.column("table_id").cast(pa.string()), rows.column("name"), "/")
