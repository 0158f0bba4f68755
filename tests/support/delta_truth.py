"""The row delta that is right, found by brute force from all rows of both points; and its effect on a table."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ccpr.mirror.delta.delta import TableAt
from ccpr.mirror.delta.split import DeltaPart, DeltaShape
from ccpr.mirror.mirror import Mirror
from tests.support.recorded import visible_batches

_TIMES = (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us"))  # some values are outside Python's range
_DAYS = pa.date32()  # likewise


def row_texts(table: pa.Table) -> Iterator[str]:
    """A text for each row, of Arrow's own values, so that nothing is rounded."""
    columns = [column.cast(pa.int64()) if column.type in _TIMES else column for column in table.columns]
    columns = [column.cast(pa.int32()) if column.type == _DAYS else column for column in columns]
    return (repr(row) for row in zip(*(column.to_pylist() for column in columns), strict=True))


def together(parts: Iterable[DeltaPart], shape: DeltaShape) -> DeltaPart:
    parts = list(parts)
    assert all(part.rows for part in parts), "no part is empty"
    for part in parts:
        assert part.upserts.schema == shape.upsert_schema
        assert part.deletes.schema == shape.delete_schema
    upserts = pa.concat_tables([shape.upsert_schema.empty_table(), *(part.upserts for part in parts)])
    return DeltaPart(upserts, pa.concat_tables([shape.delete_schema.empty_table(), *(part.deletes for part in parts)]))


@dataclass(frozen=True)
class Rows:
    """All rows of a table at a point, and their texts."""

    table: pa.Table
    key: tuple[str, ...]

    @cached_property
    def texts(self) -> Counter[str]:
        return Counter(row_texts(self.table))

    @cached_property
    def keys(self) -> list[str]:
        return list(row_texts(self.table.select(self.key)))


def rows_at(mirror: Mirror, table: TableAt | None, shape: DeltaShape) -> Rows:
    """All rows of a table, with the columns of its delta; none if there is no table."""
    batches = (
        visible_batches(mirror.manifest(table.ref).listed_objects(), mirror.open_object, shape.columns, table.at)
        if table
        else ()
    )
    return Rows(pa.Table.from_batches(batches, shape.upsert_schema), tuple(shape.delete_schema.names))


def assert_is_delta(change: DeltaPart, before: Rows, after: Rows) -> None:
    """Fail unless the upserts are the rows that only `after` has and the deletes the keys that only `before` has, each
    once."""
    _assert_same("upserts", Counter(row_texts(change.upserts)), after.texts - before.texts)
    _assert_same("deletes", Counter(row_texts(change.deletes)), Counter(before.keys) - Counter(after.keys))


def applied(change: DeltaPart, before: Rows) -> pa.Table:
    """The table after a destination has applied the delta: delete by key, then insert."""
    changed = {*row_texts(change.upserts.select(before.key)), *row_texts(change.deletes)}
    kept = [number for number, text in enumerate(before.keys) if text not in changed]
    return pa.concat_tables([before.table.take(pa.array(kept, pa.int64())), change.upserts])


def _assert_same(what: str, found: Counter[str], expected: Counter[str]) -> None:
    if found != expected:
        surplus, missing = list((found - expected).elements()), list((expected - found).elements())
        raise AssertionError(f"{what}: {len(surplus)} too many {surplus[:3]}, {len(missing)} missing {missing[:3]}")
