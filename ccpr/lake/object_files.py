"""What becomes of one object when a point is published: its file, and which of its rows the point hides.

A function of the mirror and of what is known, so that a thread of this process or a Spark task runs it. Source:
decision lake-files.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ccpr.base.carrying import Carry, Work, WorkKind, share_out
from ccpr.lake.deletion_vectors import Reader, digest_of_rows, rows_of, serialized_of
from ccpr.lake.errors import LakeChanged
from ccpr.lake.hidden_rows import hidden_rows
from ccpr.lake.parquet import FileShape, WrittenFile, write_file
from ccpr.matrixone.objects.reader import ObjectFile
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.objects.visibility import ListedObject, not_after, open_listed
from ccpr.mirror.errors import MirrorDamaged
from ccpr.mirror.mirror import Mirror, files_of
from ccpr.mirror.open_store import open_store
from ccpr.mirror.store import Store

Made = TypeVar("Made")
THREADS = max(2, min(4, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class KnownFile:
    """The file of an object as the version before has it.

    Attributes
    ----------
    rows : digest of the rows that it hides.
    vector : as the log has it; None if it hides none.
    at : of the point that the version shows.
    """

    rows: str
    vector: Mapping[str, Any] | None
    at: Timestamp


@dataclass(frozen=True, slots=True)
class ObjectTask:
    """
    Attributes
    ----------
    deletions : rows that tombstones name, as `deleted_rows` gives them; None without any.
    known : None for an object that has no file yet.
    """

    listed: ListedObject
    deletions: np.ndarray | None
    known: KnownFile | None


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """
    Attributes
    ----------
    name : of the object.
    hidden : numbers of the rows that the point hides; None if they are those of the version before.
    rows : digest of them.
    file : None if the file of the version before stays.
    pending : whether a later point may show more rows, although the object is the same.
    shown : whether the point shows any of its rows; else it has no file.
    """

    name: str
    hidden: np.ndarray | None
    rows: str
    file: WrittenFile | None
    pending: bool
    shown: bool = True


def publish_objects(
    carry: Carry, mirror: Mirror, store: Store, shape: FileShape, at: Timestamp, tasks: Sequence[ObjectTask]
) -> Iterable[ObjectResult]:
    """All objects of a table. The next attempt finds the files that a task wrote before another one failed. Raises what
    `publish_object` raises."""
    urls, sizes = (mirror.store.url, store.url), [task.listed.stats.size for task in tasks]
    function = partial(_publish_elsewhere, *urls, shape, at)
    work = Work(WorkKind.PUBLISH, store.url.partition("?")[0], urls, function, tasks, sizes)
    return share_out(carry, work, partial(_publish_here, mirror, store, shape, at, tasks))


def _publish_elsewhere(
    mirror_url: str, lake_url: str, shape: FileShape, at: Timestamp, tasks: Sequence[ObjectTask]
) -> Iterator[ObjectResult]:
    mirror, store = Mirror(open_store(mirror_url)), open_store(lake_url, shared=True)
    return (publish_object(mirror, store, shape, at, task) for task in tasks)


def _publish_here(
    mirror: Mirror, store: Store, shape: FileShape, at: Timestamp, tasks: Sequence[ObjectTask]
) -> Iterator[ObjectResult]:
    """In threads of this process: what encodes and compresses releases the interpreter."""
    run = partial(publish_object, mirror, store, shape, at)
    if len(tasks) < 2:
        yield from map(run, tasks)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            yield from pool.map(run, tasks)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def publish_object(mirror: Mirror, store: Store, shape: FileShape, at: Timestamp, task: ObjectTask) -> ObjectResult:
    """Raises MirrorDamaged, ObjectDamaged, ObjectMismatch, ObjectUnsupported, ValueRefused, StoreFailed,
    LakeChanged."""
    listed, known = task.listed, task.known
    name = listed.stats.name
    with files_of(shape.table.qualified_name):
        file = open_listed(listed, mirror.open_object)
        found = hidden_rows(listed, file, task.deletions, at)
        rows = digest_of_rows(found.hidden)
        if len(found.hidden) == file.rows:
            return ObjectResult(name, found.hidden, rows, None, found.pending, shown=False)
        if known is not None and known.rows == rows:
            return ObjectResult(name, None, rows, None, found.pending)
        if known is not None and not shape.visible_only and _only_hides_more(store, shape, file, known, found.hidden):
            return ObjectResult(name, found.hidden, rows, None, found.pending)
        nulls = found.hidden if shape.visible_only else found.gone
        written = write_file(store, shape, file, name, nulls)
        return ObjectResult(name, found.hidden, rows, written, found.pending)


def _only_hides_more(store: Store, shape: FileShape, file: ObjectFile, known: KnownFile, hidden: np.ndarray) -> bool:
    """Whether no row is shown again that the file may hold as nulls: one that was hidden before, and not because it was
    committed later. It can only be if the upstream was restored to an earlier state. Raises LakeChanged."""
    again = np.setdiff1d(stored_rows(store, shape.folder, known.vector), hidden, assume_unique=True)
    return not len(again) or bool(_committed_after(file, again, known.at).all())


def stored_rows(store: Store, folder: str, vector: Mapping[str, Any] | None) -> np.ndarray:
    """The rows that a vector of the log hides; sorted, int64. Raises LakeChanged, StoreFailed."""
    return _of_vector(rows_of, store, folder, vector)


def stored_vector(store: Store, folder: str, vector: Mapping[str, Any]) -> bytes:
    """A vector of the log, as `serialized` made it. Raises LakeChanged, StoreFailed."""
    return _of_vector(serialized_of, store, folder, vector)


def _of_vector(of: Callable[[Any, Reader], Made], store: Store, folder: str, vector: Mapping[str, Any] | None) -> Made:
    def read(name: str, offset: int, size: int) -> bytes:
        return bytes(store.open(f"{folder}/{name}").slice(offset, size))

    try:
        return of(vector, read)
    except (MirrorDamaged, ValueError) as error:
        what = f"a deletion vector cannot be read: {error!s:.120}"
        raise LakeChanged(what, subject=f"{store.url.partition('?')[0]}/{folder}") from error


def _committed_after(file: ObjectFile, rows: np.ndarray, at: Timestamp) -> np.ndarray:
    """bool for each of some rows, given by sorted numbers in the file."""
    found, first = [np.empty(0, bool)], 0
    for block in file.blocks:
        mine = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + block.rows)] - first
        if len(mine):
            times = file.commit_timestamps(block.number) if file.appendable else None
            found.append(np.zeros(len(mine), bool) if times is None else ~not_after(times[mine], at))
        first += block.rows
    return np.concatenate(found)
