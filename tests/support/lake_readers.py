"""Other programs that read a lake's tables, and the rows that they have to give."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.schema import DEFAULT_READING, Reading
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.points import Point
from ccpr.mirror.table_read import plan_read

ReadVersion = Callable[[str, int], pa.Table]


def read_delta_rs(uri: str, version: int) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(uri, version=version)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))


def read_polars(uri: str, version: int) -> pa.Table:
    import polars as pl

    return pl.scan_delta(uri, version=version).collect().to_arrow()


READERS: Mapping[str, ReadVersion] = {"delta-rs": read_delta_rs, "polars": read_polars}


def truth(mirror: Mirror, point: Point, name: str, reading: Reading = DEFAULT_READING) -> pa.Table:
    """What a table of a lake shows at a point: the mirror's rows, times as microseconds."""
    read = plan_read(mirror, name, point.lsn, reading=reading)
    return pa.Table.from_batches(list(read.batches(mirror=mirror)), read.schema)


def assert_same_rows(found: pa.Table, expected: pa.Table, what: str) -> None:
    assert found.column_names == expected.column_names, what
    assert found.num_rows == expected.num_rows, f"{what}: {found.num_rows} rows instead of {expected.num_rows}"
    ours, theirs = Counter(rows(found)), Counter(rows(expected))
    assert ours == theirs, f"{what}: read {list(ours - theirs)[:3]}, expected {list(theirs - ours)[:3]}"


def rows(table: pa.Table) -> list[str]:
    """Each row as text, so that values of one meaning are equal whatever type a reader gives them."""
    columns = [_plain(column.combine_chunks()).to_pylist() for column in table.columns]
    return [repr(row) for row in zip(*columns, strict=True)] if columns else [""] * table.num_rows


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    kind = values.type
    if pa.types.is_duration(kind):
        return values.cast(pa.int64())
    if pa.types.is_decimal(kind):
        return pc.cast(values, pa.decimal128(38, kind.scale)).cast(pa.string())
    if pa.types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = pa.float64() if pa.types.is_floating(kind.value_type) else pa.int64()
        return values.cast(pa.large_list(inner))
    if pa.types.is_string_view(kind):
        return values.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return values.cast(pa.binary())
    return values


def version_of(folder: Path) -> int:
    """The newest version of a Delta table."""
    return max(int(path.stem) for path in (folder / "_delta_log").glob("*.json"))
