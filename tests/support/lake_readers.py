"""Other programs that read a lake's tables, and the rows that they have to give."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ccpr.lake.deletion_vectors import rows_of
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


def visible_in_files(folder: Path, adds: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Counter[str]:
    """The rows of some files of a table, as the log has them, without any library of Delta Lake. `names` are columns
    of the files; one that a file lacks is null."""

    def read(name: str, offset: int, size: int) -> bytes:
        return (folder / name).read_bytes()[offset : offset + size]

    found: Counter[str] = Counter()
    for add in adds:
        stored = pq.read_table(folder / add["path"], partitioning=None)
        missing = [name for name in names if name not in stored.column_names]
        for name in missing:
            stored = stored.append_column(name, pa.nulls(stored.num_rows))
        hidden = rows_of(add.get("deletionVector"), read)
        found.update(rows(stored.select(names).take(np.setdiff1d(np.arange(stored.num_rows), hidden))))
    return found


@dataclass
class Consumer:
    """A copy of a table that is kept by its change data feed alone, by the names of columns: as
    docs/how-to/lake.md, "What has changed", says. delta-rs reads each version's changes in its own columns.

    Attributes
    ----------
    names, types : of the columns, at `version`.
    rows : a tuple each.
    """

    uri: str
    version: int = -1
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    rows: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def follow(self) -> None:
        """Up to the newest version. Raises AssertionError if rows are deleted that the copy has not."""
        from deltalake import DeltaTable

        operations = {one["version"]: one["operation"] for one in DeltaTable(self.uri).history()}
        for version in range(self.version + 1, max(operations) + 1):
            table = DeltaTable(self.uri, version=version)
            names, types = zip(*((one.name, str(one.type)) for one in table.schema().fields), strict=True)
            feed = pa.table(table.load_cdf(starting_version=version, ending_version=version))
            self._apply(feed.select([*names, "_change_type"]), names, types, operations[version])
            self.version = version

    def _apply(self, feed: pa.Table, names: tuple[str, ...], types: tuple[str, ...], operation: str) -> None:
        kinds = pa.array(feed.column("_change_type").to_pylist(), pa.string())  # delta-rs gives a dictionary of views
        gone, come = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for kind, row in zip(kinds.to_pylist(), _tuples(feed.select(names)), strict=True):
            (gone if kind in ("delete", "update_preimage") else come)[row] += 1
        where = f"version {self.version + 1} of {self.uri}, {operation}"
        if operation == "REPLACE TABLE":
            same = set(zip(names, types, strict=True)) & set(zip(self.names, self.types, strict=True))
            both = tuple(sorted(name for name, _ in same))
            assert _only(self.rows, self.names, both) == _only(gone, names, both), where
            self.rows = come
        else:
            known = dict(zip(self.names, self.types, strict=True))
            assert all(known.get(name, kind) == kind for name, kind in zip(names, types, strict=True)), where
            rows = _only(self.rows, self.names, names)
            assert not gone - rows, (where, gone - rows)
            self.rows = rows - gone + come
        self.names, self.types = names, types

    def assert_is(self, table: pa.Table) -> None:
        """Raises AssertionError unless the copy has these rows."""
        expected = Counter(_tuples(table.select(self.names)))
        where = f"version {self.version} of {self.uri}"
        assert self.rows == expected, (where, list(self.rows - expected)[:3], list(expected - self.rows)[:3])


def _only(found: Counter[tuple[str, ...]], names: Sequence[str], wanted: Sequence[str]) -> Counter[tuple[str, ...]]:
    """Rows with other columns; those that there are not are null."""
    places = [names.index(name) if name in names else -1 for name in wanted]
    rows: Counter[tuple[str, ...]] = Counter()
    for row, count in found.items():
        rows[tuple("None" if place < 0 else row[place] for place in places)] += count
    return rows


def _tuples(table: pa.Table) -> list[tuple[str, ...]]:
    columns = [[repr(value) for value in _plain(column).to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def changes_of(feed: pa.Table) -> tuple[Counter[str], Counter[str]]:
    """The rows that a change data feed, or Iceberg's changelog, took away, and those that it brought."""
    kinds = pa.array(feed.column("_change_type").to_pylist(), pa.string())  # delta-rs gives a dictionary of views
    values = feed.drop_columns([name for name in feed.column_names if name.startswith(("_change_", "_commit_"))])
    gone, come = Counter[str](), Counter[str]()
    for kind, row in zip(kinds.to_pylist(), rows(values), strict=True):
        (gone if kind.lower() in ("delete", "update_preimage") else come)[row] += 1
    return gone, come


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
    if pa.types.is_dictionary(kind):
        return _plain(pa.array(values.to_pylist(), kind.value_type))
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
