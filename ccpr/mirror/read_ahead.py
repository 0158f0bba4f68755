"""Reading a table for DuckDB, whose own threads decode objects while others use the rows before them. Out of a bucket
several threads of ours read ahead, as they wait for it. Source: decision duckdb-decodes-by-its-own-threads.
"""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from ccpr.mirror.manifests import Manifest
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.table_read import TableRead

SHARE_BYTES = 4 << 20  # of object files: what a thread decodes at once, and what is in memory for each of them
_MOST_THREADS = 4


def batches_ahead(read: TableRead, mirror: Mirror) -> Iterator[pa.RecordBatch]:
    """The rows of a read. Out of a bucket as many shares as there are threads, and one, are in memory. Raises what
    `Mirror.rows` raises."""
    threads = min(_MOST_THREADS, os.cpu_count() or 1) if mirror.store.folder is None else 1
    shares: dict[int, list[str]] = {}
    for share in read.shares(SHARE_BYTES).to_pylist() if threads > 1 else ():
        shares.setdefault(share["task"], []).append(share["name"])
    if len(shares) < 2:
        yield from read.batches(mirror=mirror)
        return
    waiting, manifest = deque(shares.values()), mirror.manifest(read.ref)
    ahead: deque[Future[list[pa.RecordBatch]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        while waiting or ahead:
            while waiting and len(ahead) <= threads:
                names = waiting.popleft()
                ahead.append(pool.submit(_decoded, read, names, mirror, manifest))
            yield from ahead.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _decoded(read: TableRead, names: list[str], mirror: Mirror, manifest: Manifest) -> list[pa.RecordBatch]:
    return list(read.batches(names, mirror=mirror, manifest=manifest))
