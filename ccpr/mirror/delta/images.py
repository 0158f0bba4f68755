"""The changes of a table as whole rows, before and after: what a change data feed has."""

from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import pyarrow as pa

from ccpr.mirror.delta.keys import partners
from ccpr.mirror.delta.split import DeltaSplit, Side, SplitRun, doubtful_rows, lost_rows
from ccpr.mirror.mirror import Mirror, files_of


class Image(StrEnum):
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
