"""Sample objects of every kind and every column type, each with its rows as Parquet, for testing other readers.

`python -m tests.support.sample_objects DIR` writes a folder for each: the object under its name, `rows.parquet` (all
stored columns, in stored order; commit times as `commit_physical` and `commit_logical`), `about.json` (columns, kind,
stats). A README.md describes the format. The files are the same bytes each time.
"""

import argparse
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ccpr.matrixone.objects import types
from ccpr.matrixone.objects.convert import UNIX_EPOCH_DAYS, UNIX_EPOCH_US
from ccpr.matrixone.objects.identifiers import ROWID_DTYPE
from ccpr.matrixone.objects.object_layout import TIMESTAMP_DTYPE
from ccpr.matrixone.objects.types import arrow_schema, arrow_type
from ccpr.matrixone.objects.writing.packed_keys import packed_keys
from ccpr.matrixone.objects.writing.writer import (
    BLOCK_ROWS,
    WrittenObject,
    cut_blocks,
    sorted_blocks,
    write_data,
    write_tombstones,
)
from ccpr.matrixone.schema import CLUSTER_KEY_PREFIX, COMPOSITE_KEY, FAKE_KEY, Column, Kind, SqlType, Table

_ROWS, _MANY_ROWS = 300, 20_000
FIRST_COMMIT = 1_780_000_000_000_000_000
_EACH_ABORTED = 5
_LONG = "a text that is longer than the 23 bytes of a slot: grün, 緑"
_LARGEST_16, _LARGEST_38, _LARGEST_60 = 10**16 - 1, 10**38 - 1, 10**60 - 1
_ZERO, _FRACTION = "0." + 5 * "0", f"{str(_LARGEST_60)[:-5]}.{str(_LARGEST_60)[-5:]}"

# Name, type, values (nulls are added to them), labels.
_TYPES: list[tuple[str, SqlType, list[Any], tuple[str, ...]]] = [
    ("bool", SqlType(types.BOOL), [True, False], ()),
    ("bit10", SqlType(types.BIT, 10, -1), [Decimal(0), Decimal(1023)], ()),
    ("tinyint", SqlType(types.INT8, 8, -1), [-128, 0, 127], ()),
    ("smallint", SqlType(types.INT16, 16, -1), [-(2**15), 0, 2**15 - 1], ()),
    ("int", SqlType(types.INT32, 32, -1), [-(2**31), 0, 2**31 - 1], ()),
    ("bigint", SqlType(types.INT64, 64, -1), [-(2**63), 0, 2**63 - 1], ()),
    ("tinyint_unsigned", SqlType(types.UINT8, 8, -1), [0, 255], ()),
    ("smallint_unsigned", SqlType(types.UINT16, 16, -1), [0, 2**16 - 1], ()),
    ("int_unsigned", SqlType(types.UINT32, 32, -1), [0, 2**32 - 1], ()),
    ("bigint_unsigned", SqlType(types.UINT64, 64, -1), [Decimal(0), Decimal(2**64 - 1)], ()),
    ("float", SqlType(types.FLOAT32, 0, -1), [-1.5, 0.0, 3.25e38], ()),
    ("double", SqlType(types.FLOAT64, 0, -1), [-1.5, 0.1, 1.7e308], ()),
    ("decimal16_2", SqlType(types.DECIMAL64, 16, 2), [Decimal(-_LARGEST_16).scaleb(-2), Decimal("0.01")], ()),
    ("decimal38_10", SqlType(types.DECIMAL128, 38, 10), [Decimal(f"-{_LARGEST_38}E-10"), Decimal("0.0000000001")], ()),
    ("decimal60_5", SqlType(types.DECIMAL256, 60, 5), [f"-{_FRACTION}", _ZERO, _FRACTION], ()),
    ("date", SqlType(types.DATE), [-719_162, 0, 2_932_896], ()),
    (
        "time6",
        SqlType(types.TIME, 6, 6),
        [np.timedelta64(-3_020_399_000_001, "us"), np.timedelta64(3_020_399_999_999, "us")],
        (),
    ),
    ("datetime6", SqlType(types.DATETIME, 6, 6), [-62_135_596_800_000_000, 0, 253_402_300_799_999_999], ()),
    ("timestamp6", SqlType(types.TIMESTAMP, 6, 6), [-62_135_596_800_000_000, 0, 253_402_300_799_999_999], ()),
    ("year", SqlType(types.YEAR, 4), [0, 1901, 2155], ()),
    ("char10", SqlType(types.CHAR, 10), ["", "ten chars!", "ä"], ()),
    ("varchar200", SqlType(types.VARCHAR, 200), ["", "23 bytes stand in a slot", _LONG], ()),
    ("text", SqlType(types.TEXT), ["", _LONG * 100], ()),
    ("binary8", SqlType(types.BINARY, 8), [bytes(8), b"\xff" * 8], ()),
    ("varbinary200", SqlType(types.VARBINARY, 200), [b"", b"\xff" * 40, bytes(range(200))], ()),
    ("blob", SqlType(types.BLOB), [b"", bytes(range(256)) * 16], ()),
    ("json", SqlType(types.JSON), ["null", '{"a": [1, 2.5, "ü"], "b": {"c": true}}', "18446744073709551615", "[]"], ()),
    ("uuid", SqlType(types.UUID), [str(uuid.UUID(int=0)), "01a1fbac-0e0a-76cf-9a9e-edfe00740d11"], ()),
    ("enum", SqlType(types.ENUM), ["red", "green", ""], ("red", "green", "blue")),
    ("set", SqlType(types.UINT64, 64, -1), ["red", "red,blue", ""], ("red", "green", "blue")),
    ("geometry", SqlType(types.GEOMETRY), ["POINT(24 12)"], ()),
    ("datalink", SqlType(types.DATALINK), ["file:///a/b.csv?offset=1"], ()),
    ("vecf32_3", SqlType(types.VECF32, 3), [[1.0, -2.5, 0.0], [0.5, 0.25, 3.0]], ()),
    ("vecf64_2", SqlType(types.VECF64, 2), [[1.0, -2.5], [0.1, 1e300]], ()),
    ("geometry32", SqlType(types.GEOMETRY32), ["POINT(24 12)"], ()),
    ("vecbf16_2", SqlType(types.VECBF16, 2), [[1.0, -2.5], [0.0, 128.0]], ()),
    ("vecf16_2", SqlType(types.VECF16, 2), [[1.0, -2.5], [0.5, 1024.0]], ()),
    ("vecint8_2", SqlType(types.VECINT8, 2), [[1, -128], [0, 127]], ()),
    ("vecuint8_2", SqlType(types.VECUINT8, 2), [[0, 255], [1, 2]], ()),
]


_READ_ME = """# Sample objects

Each folder contains one object file of MatrixOne under its name, the rows that a reader must find in it
(`rows.parquet`) and `about.json`.

`rows.parquet` has all stored columns, including hidden ones, in the order of `columns` and in the order of the rows in
the file. If the object has commit times, they follow as `commit_physical` (nanoseconds) and `commit_logical`; if it
says which rows are of aborted transactions, that follows as `aborted`: such rows do not exist for a reader. Unsigned
64-bit integers and BIT are decimals; DECIMAL beyond 38 digits, JSON, UUID, ENUM and SET are texts; TIME is a duration;
a fake key is a decimal.

Keys of `about.json`:

| key | what it is |
|---|---|
| `kind` | data or tombstones, and which node writes such an object |
| `object` | name of the file |
| `columns` | `name`; `seqnum`, its index in the metadata; `type`: number (below), width, scale; `hidden`; \
`nullable`; `labels` |
| `stats` | the 154 bytes of the object list's cell, hexadecimal; the other keys are taken from it |
| `rows`, `blocks`, `size` | rows, blocks, bytes of the file |
| `appendable`, `sorted`, `created_by_cn`, `level` | its flags |
| `create_at` | its create time in the object list, `physical-logical`: that of its first commit, or, as since 4.2.0, \
an earlier one |

Folders `data-…`: the kinds of data objects, with a column of every type. `key-…`: tables with a composite key, without
a key, and with a cluster key. `tombstones-…`: deleted rows by rowid and key. `type-…`: two columns, the second of the
type. What is new in a release: `…-wkb` (geometries, 4.0.0-rc3), `data-zero-dates`, `data-created-early` and
`type-vecbf16-2` and the like (4.2.0), `…-aborted` (after 4.2.0).

| type number | column |
|---|---|
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One object, what it is, its columns as stored, and its rows."""

    label: str
    kind: str
    columns: tuple[Column, ...]
    written: WrittenObject
    rows: pa.Table
    created: int = FIRST_COMMIT


def _name(label: str) -> str:
    """An object's name, derived from its label so that it is the same each time."""
    return f"{uuid.uuid5(uuid.NAMESPACE_URL, label)}_00000"


def _columns() -> tuple[Column, ...]:
    """An integer key and a column of each type."""
    kinds = [Column(name, number + 1, kind, labels=labels) for number, (name, kind, _, labels) in enumerate(_TYPES)]
    return (Column("id", 0, SqlType(types.INT64, 64, -1), nullable=False), *kinds)


def _rows(columns: tuple[Column, ...], count: int) -> pa.Table:
    """Rows in descending order of `id`; each fifth value of the other columns is null."""
    random = np.random.default_rng(count)
    values = {name: pool for name, _, pool, _ in _TYPES}
    arrays: list[pa.Array] = [pa.array(np.arange(count)[::-1] * 3)]
    for column in columns[1:]:
        pool = pa.array(values[column.name], arrow_type(column))
        arrays.append(pool.take(pa.array(random.integers(0, len(pool), count), mask=random.random(count) < 0.2)))
    return pa.table(arrays, arrow_schema(columns))


def _times(blocks: list[pa.RecordBatch]) -> list[np.ndarray]:
    """Commit times that never decrease, several rows to each."""
    times, before = [], 0
    for block in blocks:
        some = np.zeros(block.num_rows, TIMESTAMP_DTYPE)
        some["physical"] = FIRST_COMMIT + (before + np.arange(block.num_rows)) // 7 * 1_000_000
        some["logical"] = block.num_rows % 3
        times.append(some)
        before += block.num_rows
    return times


def _data(label: str, kind: str, columns: tuple[Column, ...], rows: pa.Table, *, timed: bool, **options: Any) -> Sample:
    table = Table(1, 1, "samples", label, Kind.TABLE, columns)
    appendable, by_cn = options.pop("appendable", False), options.pop("by_cn", False)
    key, created = options.get("primary_key", options.get("cluster_by")), options.pop("created", FIRST_COMMIT)
    blocks = sorted_blocks(table, rows, None if appendable else key)
    times = _times(blocks) if timed else None
    aborted = _aborted(blocks) if options.pop("with_aborted", False) else None
    flags = {"appendable": appendable, "by_cn": by_cn, "commit_ts": times, "aborted": aborted}
    written = write_data(table, blocks, name=_name(label), **flags, **options)
    stored = pa.Table.from_batches(blocks, rows.schema)
    return Sample(label, kind, columns, written, _with_times(stored, times, aborted), created)


def _with_times(rows: pa.Table, times: list[np.ndarray] | None, aborted: list[np.ndarray] | None = None) -> pa.Table:
    if times is None:
        return rows
    whole = np.concatenate(times)
    rows = rows.append_column("commit_physical", pa.array(whole["physical"].astype(np.int64)))
    rows = rows.append_column("commit_logical", pa.array(whole["logical"].astype(np.int64)))
    return rows if aborted is None else rows.append_column("aborted", pa.array(np.concatenate(aborted)))


def _aborted(blocks: list[pa.RecordBatch]) -> list[np.ndarray]:
    """Every fifth row, and the last one."""
    flags = [np.arange(block.num_rows) % _EACH_ABORTED == 0 for block in blocks]
    flags[-1][-1] = True
    return flags


def samples() -> Iterator[Sample]:
    """Every kind of object, then an object for each column type."""
    columns = _columns()
    few, many = _rows(columns, _ROWS), _rows(columns, _MANY_ROWS)
    flags = {"primary_key": 0}
    yield _data("data-appendable", "data, appendable", columns, few, timed=True, appendable=True, **flags)
    yield _data("data-sorted", "data, flushed or merged by the transaction node", columns, few, timed=True, **flags)
    blocks = "data, merged by the transaction node, several blocks"
    yield _data("data-several-blocks", blocks, columns, many, timed=True, level=2, **flags)
    yield _data("data-by-cn", "data, inserted by a compute node", columns, few, timed=False, by_cn=True, **flags)
    merged = "data, merged by a compute node: neither commit times nor the flag"
    yield _data("data-merged-by-cn", merged, columns, few, timed=False, **flags)
    early = {"appendable": True, "created": FIRST_COMMIT - 60_000_000_000}
    yield _data("data-created-early", "data, appendable, as since 4.2.0", columns, few, timed=True, **early, **flags)
    aborted = {"appendable": True, "with_aborted": True}
    yield _data("data-aborted", "data, appendable, with aborted rows", columns, few, timed=True, **aborted, **flags)
    yield _zero_dates()
    yield from _keys(few)
    yield from _tombstones()
    for column, (name, kind, _, labels) in zip(columns[1:], _TYPES, strict=True):
        pair, rows = (columns[0], Column(name, 1, kind, labels=labels)), few.select(["id", column.name])
        label = f"type-{name.replace('_', '-')}"
        yield _data(label, f"data, a column of type {name}", pair, rows, timed=True, **flags)
        if kind.oid in types.GEOMETRY_TYPES:
            yield _data(
                f"{label}-wkb", f"data, a column of type {name} as WKB", pair, rows, timed=True, wkb=True, **flags
            )


def _zero_dates() -> Sample:
    """`0000-00-00` beside the first day that a date can be."""
    kinds = {"d": SqlType(types.DATE), "dt": SqlType(types.DATETIME, 6, 6), "ts": SqlType(types.TIMESTAMP, 6, 6)}
    columns = (
        Column("id", 0, SqlType(types.INT64, 64, -1), nullable=False),
        *(Column(name, number, kind) for number, (name, kind) in enumerate(kinds.items(), start=1)),
    )
    first = [-UNIX_EPOCH_DAYS, -UNIX_EPOCH_US, -UNIX_EPOCH_US]
    arrays = [pa.array([3, 2, 1])] + [
        pa.array([day - 1, day, None], pa.int64()).cast(pa.int32() if number == 0 else pa.int64()).view(field.type)
        for number, (day, field) in enumerate(zip(first, list(arrow_schema(columns))[1:], strict=True))
    ]
    rows = pa.table(arrays, arrow_schema(columns))
    return _data("data-zero-dates", "data, zero dates, as since 4.2.0", columns, rows, timed=True, primary_key=0)


def _keys(rows: pa.Table) -> Iterator[Sample]:
    """Tables whose primary key is not one column: composite, none, and with a cluster key."""
    chosen = [column for column in _columns() if column.name in ("id", "int", "char10")]
    user = tuple(Column(column.name, number, column.type) for number, column in enumerate(chosen))
    plain = rows.select([column.name for column in user])
    filled = plain.set_column(1, "int", plain.column("int").fill_null(0)).combine_chunks()
    packed = packed_keys(user[:2], [filled.column(place).combine_chunks() for place in range(2)])
    key = Column(COMPOSITE_KEY, 3, SqlType(types.VARCHAR, 65535), hidden=True)
    yield _data(
        "key-composite",
        "data, primary key (id, int)",
        (*user, key),
        filled.append_column(COMPOSITE_KEY, packed),
        timed=True,
        primary_key=3,
    )
    fake = Column(FAKE_KEY, 3, SqlType(types.UINT64), hidden=True)
    numbers = pa.array(map(Decimal, range(1, len(plain) + 1)), pa.decimal128(20, 0))
    keyless = plain.append_column(FAKE_KEY, numbers)
    yield _data("key-none", "data, no key", (*user, fake), keyless, timed=True)
    cluster = Column(f"{CLUSTER_KEY_PREFIX}006char10003int", 4, SqlType(types.VARCHAR, 65535), hidden=True)
    parts = [plain.column(name).combine_chunks() for name in ("char10", "int")]
    clustered = keyless.append_column(cluster.name, packed_keys([user[2], user[1]], parts, full=True))
    yield _data(
        "key-cluster-by", "data, cluster by (char10, int)", (*user, fake, cluster), clustered, timed=True, cluster_by=4
    )


def _tombstones() -> Iterator[Sample]:
    key = Column("id", 1, SqlType(types.INT64, 64, -1))
    columns = (Column("rowid", 0, SqlType(types.ROWID)), key)
    target = uuid.uuid5(uuid.NAMESPACE_URL, "data-sorted").bytes + b"\x00\x00"
    several = "tombstones, merged by the transaction node, several blocks"
    for label, kind, appendable, by_cn, count in (
        ("tombstones-appendable", "tombstones, appendable", True, False, 200),
        ("tombstones-merged", several, False, False, 10_000),
        ("tombstones-by-cn", "tombstones, written by a compute node", False, True, 200),
        ("tombstones-appendable-aborted", "tombstones, appendable, with aborted rows", True, False, 200),
        ("tombstones-merged-aborted", f"{several}, with aborted rows", False, False, 10_000),
    ):
        rowids = np.zeros(count, ROWID_DTYPE)
        rowids["object"] = np.void(target)
        rowids["block"], rowids["row"] = np.divmod(np.arange(count), BLOCK_ROWS)
        array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(24), count, [None, pa.py_buffer(rowids)])
        rows = pa.table([array, pa.array(np.arange(count))], pa.schema([("rowid", pa.binary(24)), ("id", pa.int64())]))
        blocks = cut_blocks(rows)
        times = None if by_cn else _times(blocks)
        aborted = _aborted(blocks) if label.endswith("-aborted") else None
        first, second = ([block.column(place) for block in blocks] for place in range(2))
        written = write_tombstones(
            first, second, key, name=_name(label), appendable=appendable, by_cn=by_cn, commit_ts=times, aborted=aborted
        )
        yield Sample(label, kind, columns, written, _with_times(rows, times, aborted))


def about(sample: Sample) -> dict[str, Any]:
    """The contents of `about.json`: columns, kind, and the object list's stats, also whole in hexadecimal digits."""
    stats = sample.written.stats
    return {
        "kind": sample.kind,
        "object": stats.name,
        "columns": [column.to_json() for column in sample.columns],
        "stats": stats.raw.hex(),
        "rows": stats.rows,
        "blocks": stats.blocks,
        "size": stats.size,
        "appendable": stats.appendable,
        "sorted": stats.sorted,
        "created_by_cn": stats.created_by_cn,
        "level": stats.level,
        "create_at": f"{sample.created}-0",
    }


def read_me() -> str:
    """The folder's README.md."""
    names: dict[int, str] = {types.ROWID: "rowid: object id (18 bytes), u16 block, u32 row"}
    for name, kind, _, labels in _TYPES:
        known = [names[kind.oid]] if kind.oid in names else []
        names[kind.oid] = ", or ".join(
            [*known, f"{name} (a bit a label)" if labels and kind.oid != types.ENUM else name]
        )
    return _READ_ME + "".join(f"| {oid} | {name} |\n" for oid, name in sorted(names.items()))


def write_samples(folder: Path) -> list[str]:
    """Write all samples into folders under `folder`; returns their labels. Raises OSError."""
    labels = []
    for sample in samples():
        place = folder / sample.label
        place.mkdir(parents=True, exist_ok=True)
        (place / sample.written.stats.name).write_bytes(sample.written.content)
        pq.write_table(sample.rows, place / "rows.parquet")
        (place / "about.json").write_text(json.dumps(about(sample), indent=1, ensure_ascii=False) + "\n")
        labels.append(sample.label)
    (folder / "README.md").write_text(read_me())
    return labels


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print the samples' labels as a JSON array")
    arguments = parser.parse_args()
    labels = write_samples(arguments.folder)
    print(json.dumps(labels) if arguments.json else f"{len(labels)} objects in {arguments.folder}")


if __name__ == "__main__":
    main()
