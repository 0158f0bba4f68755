"""Reading a table for DuckDB, whose own threads use the rows before. Out of a folder one thread of ours decodes texts
ahead of them; out of a bucket several threads read ahead, as they wait for it. Where two threads of ours
decoded columns of one size ahead, they took twice the processor time and no less time: blocks are small, and each call
into numpy or LZ4 gives up Python's lock and asks for it again.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice

import pyarrow as pa

from ccpr.matrixone.objects.visibility import vary_in_size
from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.table_read import TableRead

SHARE_BYTES = 4 << 20  # of object files: what a thread decodes at once, and what is in memory for each of them
_MOST_THREADS = 4
_MOST_TOGETHER = 4  # batches of blocks, out of a folder: each time that a thread wakes another costs as much as a block
_Part = Callable[[], list[pa.RecordBatch]]


def batches_ahead(read: TableRead, mirror: Mirror) -> Iterator[pa.RecordBatch]:
    """The rows of a read. In memory are, out of a folder, twelve batches at most; out of a bucket as many shares as
    there are threads, and one. Raises what `Mirror.rows` raises."""
    if mirror.store.folder is not None:
        batches = read.batches(mirror=mirror)
        # A batch is of one block only if values have any length (`in_runs`).
        return _in_order(_some_each(batches), 1) if vary_in_size(read.schema.types) else batches
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    shares: dict[int, list[str]] = {}
    for share in read.shares(SHARE_BYTES).to_pylist() if threads > 1 else ():
        shares.setdefault(share["task"], []).append(share["name"])
    if len(shares) < 2:
        return read.batches(mirror=mirror)
    manifest = mirror.manifest(read.ref)
    return _in_order((partial(_decoded, read, names, mirror, manifest) for names in shares.values()), threads)


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
