"""Rows from DuckDB, and for it. Of what it gives for a statement, Arrow has each column under a name of its own, each
INTERVAL as a duration, and what Arrow has not (BIT, BIGNUM, a time of day with a zone) as text.

A TIME is an INTERVAL in DuckDB. Its way to Arrow counts nanoseconds, and 64 bits of these hold 292 years: a longer TIME
would come out as another one. So it is asked for in microseconds (decision one-text-of-a-value).
"""

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from ccpr.matrixone.objects.visibility import vary_in_size
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.table_read import TableRead

if TYPE_CHECKING:
    import duckdb

ZONE = "UTC"  # of TIMESTAMP unless another one is asked for: that of the machine would make another answer elsewhere
_INTERVAL, _TEXT = "INTERVAL", "VARCHAR"
# Also in the name of a list or a struct; a field's name has quotes.
_NESTED = re.compile(r'(?<!")\b(?:INTERVAL|BIT|BIGNUM|TIME WITH TIME ZONE)\b(?!")')
_BATCH_ROWS = 8192
_NO_LENGTH = "an interval of months or years has no fixed length; write CAST(... AS VARCHAR) for it"
_MICROSECONDS = (
    "CASE WHEN #{0} IS NULL THEN NULL WHEN datepart('year', #{0}) = 0 AND datepart('month', #{0}) = 0 "
    "THEN epoch_us(#{0}) ELSE error('{1}') END"
)


def rows_of(relation: "duckdb.DuckDBPyRelation") -> pa.RecordBatchReader:
    """The rows as a stream. An error of a statement comes while batches are taken, as duckdb.Error or pa.ArrowException
    (an interval of months is one)."""
    names, kinds = unique_names(relation.columns), [str(kind) for kind in relation.types]
    intervals = [place for place, kind in enumerate(kinds) if kind == _INTERVAL]
    cells = [_cell(number, kind) for number, kind in enumerate(kinds, 1)]
    if names != relation.columns or any(cell != f"#{number}" for number, cell in enumerate(cells, 1)):
        named = (f"{cell} AS {quoted(name)}" for cell, name in zip(cells, names, strict=True))
        relation = relation.project(", ".join(named))
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    if not intervals:
        return reader
    schema = reader.schema
    for place in intervals:
        schema = schema.set(place, schema.field(place).with_type(pa.duration("us")))
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in reader))


def _cell(number: int, kind: str) -> str:
    """A column as an expression; what Arrow has not, and intervals in lists and structs, are text as DuckDB writes
    it."""
    if kind == _INTERVAL:
        return _MICROSECONDS.format(number, _NO_LENGTH)
    plain = _NESTED.sub(_TEXT, kind)
    return f"#{number}" if plain == kind else f"CAST(#{number} AS {plain})"


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, with `_1`, `_2` and so on behind one that came before, in whatever letter case: as DuckDB calls the
    columns of a table that it makes of them."""
    unique, next_number = list[str](), dict[str, int]()
    for name in names:
        free = name
        while free.lower() in next_number:
            number = next_number[name.lower()]
            free, next_number[name.lower()] = f"{name}_{number}", number + 1
        next_number[free.lower()] = 1
        unique.append(free)
    return unique


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ---- rows for DuckDB, whose own threads use the rows before
#
# Out of a folder one thread of ours decodes texts ahead of them; out of a bucket several threads read ahead, as they
# wait for it. Where two threads of ours decoded columns of one size ahead, they took twice the processor time and no
# less time: blocks are small, and each call into numpy or LZ4 gives up Python's lock and asks for it again.

SHARE_BYTES = 4 << 20  # of object files: what a thread decodes at once, and what is in memory for each of them
_MOST_THREADS = 4
_MOST_TOGETHER = 4  # batches of blocks, out of a folder: each time that a thread wakes another costs as much as a block
_BEFORE_THREAD = 2  # batches
_Part = Callable[[], list[pa.RecordBatch]]


def batches_ahead(read: TableRead, mirror: Mirror) -> Iterator[pa.RecordBatch]:
    """The rows of a read. In memory are, out of a folder, twelve batches at most; out of a bucket as many shares as
    there are threads, and one. Raises what `Mirror.rows` raises."""
    if mirror.store.folder is not None:
        batches = read.batches(mirror=mirror)
        # A batch is of one block only if values have any length (`in_runs`).
        return _ahead_of_more(batches) if vary_in_size(read.schema.types) else batches
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    shares: dict[int, list[str]] = {}
    for share in read.shares(SHARE_BYTES).to_pylist() if threads > 1 else ():
        shares.setdefault(share["task"], []).append(share["name"])
    if len(shares) < 2:
        return read.batches(mirror=mirror)
    manifest = mirror.manifest(read.ref)
    return _in_order((partial(_decoded, read, names, mirror, manifest) for names in shares.values()), threads)


def _ahead_of_more(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Some batches without a thread: to start one takes longer than to find a row."""
    for _ in range(_BEFORE_THREAD):
        if (batch := next(batches, None)) is None:
            return
        yield batch
    yield from _in_order(_some_each(batches), 1)


def _some_each(batches: Iterator[pa.RecordBatch]) -> Iterator[_Part]:
    """One batch, then more at a time: who stops after some rows has not decoded much more than these."""
    most, ended = 1, False

    def taken(most: int) -> list[pa.RecordBatch]:
        nonlocal ended
        found = list(islice(batches, most))
        ended = ended or len(found) < most
        return found

    while not ended:
        yield partial(taken, most)
        most = min(2 * most, _MOST_TOGETHER)


def _decoded(read: TableRead, names: list[str], mirror: Mirror, manifest: Manifest) -> list[pa.RecordBatch]:
    return list(read.batches(names, mirror=mirror, manifest=manifest))


def _in_order(parts: Iterable[_Part], threads: int) -> Iterator[pa.RecordBatch]:
    """The batches of all parts, in order. Each of so many threads makes a part, and one more part waits."""
    waiting, ahead = iter(parts), deque[Future[list[pa.RecordBatch]]]()
    pool = ThreadPoolExecutor(threads, "read")
    try:
        while True:
            ahead.extend(pool.submit(part) for part in islice(waiting, threads + 1 - len(ahead)))
            if not ahead:
                return
            yield from ahead.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
