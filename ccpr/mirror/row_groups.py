"""Row groups of Parquet out of batches, which are as small as blocks and objects are: readers look at each group."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

GROUP_ROWS = 1 << 17


def row_groups(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, most_bytes: int | None = None
) -> Iterator[pa.Table]:
    """The rows of some batches, none copied, in tables that end with the batch by which they have GROUP_ROWS rows, or
    `most_bytes` in Arrow."""
    held, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or (most_bytes is not None and size >= most_bytes):
            yield pa.Table.from_batches(held, schema)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema)
