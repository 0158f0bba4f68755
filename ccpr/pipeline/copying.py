"""Step 3: object files from the upstream, or straight from its storage, into the store. One pure function over batches
of object rows; Spark runs it in its tasks, the process itself for small changes.

An object is written under a temporary name, checked against its stats, and only then appears; so what is there with
the right size is complete, and a re-run fetches the rest. Source: decision spark-dataframes; docs/architecture.md,
"What bad input gets"; docs/upstream.md 5.8.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.errors import Failure
from ccpr.matrixone.client.endpoint import Endpoint
from ccpr.matrixone.client.errors import ObjectGone, ObjectSizeMismatch
from ccpr.matrixone.client.malloc import keep_large_blocks
from ccpr.matrixone.client.object_answers import get_object
from ccpr.matrixone.client.publication_offers import Publication
from ccpr.matrixone.client.upstream_session import Session
from ccpr.matrixone.errors import CcprError, Terminal
from ccpr.matrixone.objects.errors import ObjectDamaged, ObjectMismatch, ObjectUnsupported
from ccpr.matrixone.objects.object_layout import ObjectBytes
from ccpr.matrixone.objects.stats import STATS_SIZE, ObjectStats
from ccpr.mirror.layout import LEDGER_SCHEMA, object_path
from ccpr.mirror.open_store import open_store
from ccpr.mirror.store import Chunk, Store, StoredFile
from ccpr.pipeline.findings import Findings
from ccpr.pipeline.storage import is_folder, open_storage, read_ahead
from ccpr.pipeline.write_queue import WriteQueue
from ccpr.state.credentials import Vault
from ccpr.state.settings import Budget
from ccpr.state.subscription import Subscription

COPY_INPUT = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("stats", pa.binary(STATS_SIZE), nullable=False),
    ]
)
COPY_OUTPUT = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("sha256", pa.binary(32)),
        pa.field("fetched", pa.bool_(), nullable=False),
        pa.field("failure", pa.string()),  # JSON of `Failure` where the object cannot be had; then there is no checksum
        pa.field("found", pa.string()),  # of `Findings`
        pa.field("direct", pa.bool_()),  # whether it came straight from storage; null where an earlier release copied
        pa.field("sums", pa.binary()),  # of `Findings`; null where an earlier release copied, too
    ]
)
# Failures of one object alone.
OBJECT_FAILURES = (ObjectGone, ObjectSizeMismatch, ObjectDamaged, ObjectMismatch, ObjectUnsupported)
T = TypeVar("T")
_REPORT_SECONDS = 0.1  # between reports: one for each small object would cost more than its check
TIMEOUT_SECONDS = 120.0  # fits a chunk of 100 MiB over a slow line


@dataclass(frozen=True, slots=True)
class CopyJob:
    """Where from and where to, as it travels to a worker: the password is sealed, the key is a file there
    (decision sealed-secrets).

    Attributes
    ----------
    collect_failures : an object that cannot be had (OBJECT_FAILURES) becomes a row with its failure, and the others go
        on.
    key_file : the key of this process. None in a worker, which finds its key file by CCPR_KEY_FILE.
    shared : of the store.
    objects_from : the URL of the storage that objects are read from; empty to ask the upstream for all of them.
    """

    endpoint: Endpoint
    sealed_password: str
    publication: Publication
    store_url: str
    budget: Budget = field(default_factory=Budget)
    collect_failures: bool = False
    key_file: Path | None = None
    shared: bool = False
    objects_from: str = ""

    @classmethod
    def of(cls, subscription: Subscription, store_url: str, key_file: Path | None = None) -> "CopyJob":
        settings = subscription.settings
        return cls(
            subscription.endpoint,
            subscription.sealed_password,
            subscription.publication,
            store_url,
            settings.budget,
            collect_failures=settings.isolated,
            key_file=key_file,
            shared=settings.shared,
            objects_from=settings.objects_from,
        )

    @property
    def source(self) -> str:
        """Where the bytes come from, for comparing rates."""
        return self.objects_from or f"{self.endpoint.host}:{self.endpoint.port}"

    def for_workers(self) -> "CopyJob":
        """The job for other processes, which find their key file by CCPR_KEY_FILE."""
        return replace(self, key_file=None)

    def connect(self) -> Session:
        vault = Vault.of_worker() if self.key_file is None else Vault(self.key_file)
        return Session(
            self.endpoint,
            vault.open(self.sealed_password, self.endpoint),
            read_timeout=TIMEOUT_SECONDS,
            write_timeout=TIMEOUT_SECONDS,
        )


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What copying did.

    Attributes
    ----------
    rows : COPY_OUTPUT, every object that is there now, those found in the store included.
    failed : COPY_OUTPUT, those that could not be had, each with its failure; empty unless the job collects failures.
    """

    rows: pa.Table
    failed: pa.Table = field(default_factory=COPY_OUTPUT.empty_table)

    @classmethod
    def of(cls, rows: pa.Table) -> "CopyReport":
        """Out of the rows of an engine (COPY_OUTPUT)."""
        failed = pc.is_valid(rows.column("failure"))
        return cls(rows.filter(pc.invert(failed)), rows.filter(failed))

    @property
    def failures(self) -> dict[str, Failure]:
        """By object name. Raises ValueError for one that is not as it was written."""
        names, texts = (self.failed.column(column).to_pylist() for column in ("name", "failure"))
        return {name: Failure.from_text(text) for name, text in zip(names, texts, strict=True)}

    @property
    def found(self) -> dict[str, str | None]:
        """JSON of `Findings` by object name, of those that are there."""
        names, texts = (self.rows.column(column).to_pylist() for column in ("name", "found"))
        return dict(zip(names, texts, strict=True))

    @property
    def ledger(self) -> pa.Table:
        return self.rows.select(LEDGER_SCHEMA.names).cast(LEDGER_SCHEMA)

    @property
    def objects_fetched(self) -> int:
        return pc.sum(self.rows.column("fetched")).as_py() or 0

    @property
    def objects_direct(self) -> int:
        """Of those fetched, how many came straight from storage."""
        return pc.sum(self.rows.column("direct")).as_py() or 0

    @property
    def bytes_fetched(self) -> int:
        return pc.sum(self.rows.filter(self.rows.column("fetched")).column("size")).as_py() or 0


class Pace:
    """Keeps a stream of chunks under a rate (0 = none), on average since its start."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep
        self._started, self._bytes = clock(), 0

    def slow_down(self, chunks: Iterable[T], size: Callable[[T], int] = len) -> Iterator[T]:
        for chunk in chunks:
            self._bytes += size(chunk)
            yield chunk
            del chunk  # a chunk is large: it must not be held while the next one arrives
            if self._rate:
                self._sleep(max(0.0, self._started + self._bytes / self._rate - self._clock()))


CopyEngine = Callable[[CopyJob, pa.Table], Iterable[pa.RecordBatch]]  # COPY_INPUT in, COPY_OUTPUT out


def copy_objects(job: CopyJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Copy the objects of each batch (COPY_INPUT), straight from storage where the job names it, else through one
    upstream session; yields COPY_OUTPUT rows as objects are done.

    Raises what storage, the upstream, the store or the check raises (not OBJECT_FAILURES where the job collects them);
    what has been copied until then stays and is found by the next run.
    """
    keep_large_blocks()
    store = open_store(job.store_url, shared=job.shared)
    pace = Pace(job.budget.mb_s * 1e6 / job.budget.sessions)
    with WriteQueue(store) as queue, ExitStack() as held:
        session: Session | None = None
        under_way: deque[_UnderWay] = deque()
        report_at = 0.0
        for entry, chunks in held.enter_context(closing(_with_content(job, _looked_up(store, batches)))):
            stats, check = entry.stats, partial(_check, entry.stats, entry.found)
            entry.direct = chunks is not None
            if entry.fetched:
                if chunks is None:
                    session = session or held.enter_context(job.connect())
                    chunks = get_object(session, job.publication, stats.name, stats.size)
                try:
                    entry.stored = queue.put(object_path(stats.name), stats.size, pace.slow_down(chunks), check)
                except OBJECT_FAILURES as error:
                    entry.stored.set_exception(error)
            else:
                entry.stored = queue.run(partial(_hash, store, stats))
            under_way.append(entry)
            if time.monotonic() >= report_at and under_way[0].stored.done():
                report_at = time.monotonic() + _REPORT_SECONDS
                yield _report(under_way, collect_failures=job.collect_failures)
        queue.flush()
        while under_way:
            yield _report(under_way, collect_failures=job.collect_failures)
    store.sync("objects")


def _looked_up(store: Store, batches: Iterable[pa.RecordBatch]) -> "Iterator[_UnderWay]":
    """The objects of the batches, and which of them have to be fetched. A loop over objects, not rows."""
    for stats in (ObjectStats.parse(cell.as_py()) for batch in batches for cell in batch.column("stats")):
        path, found = object_path(stats.name), _CheckedObject()
        size = store.size(path)
        fetch = size != stats.size or not _is_sound(store, stats, found)
        if fetch and size is not None:
            store.delete(path)  # it is not the object, and nothing is written over a file
        yield _UnderWay(stats, fetch, found)


def _with_content(
    job: CopyJob, entries: "Iterator[_UnderWay]"
) -> "Generator[tuple[_UnderWay, Iterator[Chunk] | None]]":
    """With what storage has of them; None where the upstream is to be asked."""
    if job.objects_from:
        wanted = ((entry, entry.stats if entry.fetched else None) for entry in entries)
        yield from read_ahead(open_storage(job.objects_from), wanted)
    else:
        yield from ((entry, None) for entry in entries)


def copy_in_process(
    job: CopyJob, objects: pa.Table, *, on_progress: Callable[[int], None] = lambda size: None
) -> Iterator[pa.RecordBatch]:
    """The engine without Spark: a few threads, each with a session of its own; one where a folder is read, which is
    never waited for. `on_progress` is called with the bytes of objects that are done.

    An error of one, or an interrupt, ends the others with the object that they are at: an error is not
    reported terabytes later.
    """
    if job.objects_from and is_folder(job.objects_from):
        job = replace(job, budget=replace(job.budget, sessions=1))
    sessions = min(job.budget.sessions, objects.num_rows)
    shares = [objects.take(np.arange(first, objects.num_rows, sessions)) for first in range(sessions)]
    ended = threading.Event()

    def copy_share(share: pa.Table) -> list[pa.RecordBatch]:
        done = []
        try:
            for batch in copy_objects(job, share.to_batches()):
                on_progress(pc.sum(batch.column("size")).as_py())
                done.append(batch)
                if ended.is_set():
                    break
        except BaseException:
            ended.set()
            raise
        return done

    if not shares:
        return
    with ThreadPoolExecutor(len(shares)) as pool:
        try:
            for done in pool.map(copy_share, shares):
                yield from done
        finally:
            ended.set()


def copy(job: CopyJob, objects: pa.Table, engine: CopyEngine) -> CopyReport:
    """Run an engine over the objects (COPY_INPUT, names unique) and account for every one of them. Fewer objects than
    sessions share the whole budget.
    """
    job = replace(job, budget=replace(job.budget, sessions=max(1, min(job.budget.sessions, objects.num_rows))))
    batches = list(engine(job, objects)) if objects.num_rows else []
    done = pa.Table.from_batches(batches, COPY_OUTPUT)
    if not _names_in_order(done).equals(_names_in_order(objects)):
        raise AssertionError(f"{objects.num_rows} objects were asked for, {done.num_rows} accounted for")
    return CopyReport.of(done)


def copy_known(
    job: CopyJob, objects: pa.Table, engine: CopyEngine, known: Mapping[str, bytes], store: Store
) -> CopyReport:
    """`copy`, where points were made of some of the objects already: their checksums, by name.

    What lies there with another checksum was damaged, however sound it looks, and is fetched again. What comes from
    the upstream with another is not the object that the points are made of: ObjectMismatch, and nothing is left under
    its name. An object of a form that is not known, as no other one is, may have been damaged on its way: it is fetched
    a second time, and has to be the same (ObjectDamaged).
    """
    report = copy(job, objects, engine)
    doubtful = _doubtful(report.rows, known)
    damaged = [*_differing(report.rows, known), *doubtful]
    if not damaged:
        return report
    for name in damaged:
        store.delete(object_path(name))
    again = copy(job, objects.filter(_named(objects, damaged)), engine)
    others = _differing(again.rows, {**known, **doubtful})
    failures = [
        ObjectDamaged("it came twice, with other bytes each time", subject=f"object {name}")
        if name in doubtful
        else ObjectMismatch(
            "the upstream has other bytes under this name than the mirror's points are made of",
            subject=f"object {name}",
        )
        for name in others
    ]
    for name in others:
        store.delete(object_path(name))
    if failures and not job.collect_failures:
        raise failures[0]
    sizes = again.rows.filter(_named(again.rows, others)).column("size").to_pylist()
    wrong = pa.Table.from_batches(
        [_output([_failed(*one) for one in zip(others, sizes, failures, strict=True)])] if others else [], COPY_OUTPUT
    )
    rows = [
        report.rows.filter(pc.invert(_named(report.rows, damaged))),
        again.rows.filter(pc.invert(_named(again.rows, others))),
    ]
    return CopyReport(pa.concat_tables(rows), pa.concat_tables([report.failed, again.failed, wrong]))


def _names_in_order(rows: pa.Table) -> pa.ChunkedArray:
    names = rows.column("name")
    return names.take(pc.sort_indices(names))


def _named(rows: pa.Table, names: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(rows.column("name"), pa.array(list(names), pa.string()))


def _differing(rows: pa.Table, known: Mapping[str, bytes]) -> list[str]:
    """Names of the objects (COPY_OUTPUT) whose checksum is not the known one."""
    ours = rows.filter(_named(rows, known))
    return [
        name
        for name, checksum in zip(ours.column("name").to_pylist(), ours.column("sha256").to_pylist(), strict=True)
        if checksum != known[name]
    ]


def _doubtful(rows: pa.Table, known: Collection[str]) -> dict[str, bytes]:
    """The objects (COPY_OUTPUT) of a form that is not known, as no other of them is; with their checksums. Those whose
    checksum was known are skipped."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for name, text in zip(rows.column("name").to_pylist(), rows.column("found").to_pylist(), strict=True):
        if text is not None and name not in known and (unread := Findings.from_text(text).unread):
            reasons.setdefault(tuple(unread.values()), []).append(name)
    alone = rows.filter(_named(rows, [names[0] for names in reasons.values() if len(names) == 1]))
    return dict(zip(alone.column("name").to_pylist(), alone.column("sha256").to_pylist(), strict=True))


@dataclass(slots=True)
class _CheckedObject:
    """Where the check of an object, on another thread, leaves what it found."""

    findings: Findings = field(default_factory=Findings)


@dataclass(slots=True)
class _UnderWay:
    stats: ObjectStats
    fetched: bool
    found: _CheckedObject
    direct: bool = False
    stored: Future[StoredFile] = field(default_factory=Future)


def _report(under_way: deque[_UnderWay], *, collect_failures: bool) -> pa.RecordBatch:
    """COPY_OUTPUT rows of the objects at the head of the queue that are done; waits for the first. Raises what its
    writing raised."""
    rows = []
    while under_way and (not rows or under_way[0].stored.done()):
        entry = under_way.popleft()
        try:
            stored = entry.stored.result()
            found = entry.found.findings
            checksums = stored.size, stored.sha256
            rows.append((entry.stats.name, *checksums, entry.fetched, None, found.to_text(), entry.direct, found.sums))
        except OBJECT_FAILURES as error:
            if not collect_failures:
                raise
            rows.append(_failed(entry.stats.name, entry.stats.size, error))
    return _output(rows)


def _failed(name: str, size: int, error: CcprError) -> tuple[Any, ...]:
    return name, size, None, False, Failure.of(error).to_text(), None, False, None


def _output(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows of COPY_OUTPUT, at least one."""
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), COPY_OUTPUT, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=COPY_OUTPUT)


def _is_sound(store: Store, stats: ObjectStats, found: _CheckedObject) -> bool:
    """Whether what an earlier, interrupted run or another table brought is the object. What is not is fetched again."""
    try:
        _check(stats, found, store.open(object_path(stats.name)))
    except Terminal:
        return False
    return True


def _hash(store: Store, stats: ObjectStats) -> StoredFile:
    """The ledger's checksum is of what is there, so it is read again."""
    return StoredFile(stats.size, store.stored(object_path(stats.name)).sha256)


def _check(stats: ObjectStats, found: _CheckedObject, content: ObjectBytes) -> None:
    """What this release does not read yet is copied as it is: a later one reads it from the same mirror."""
    found.findings = Findings.of(content, stats)
