"""Step 3: the new objects, fetched, and all of them in the store."""

from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import first_of_each_name
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.copying import COPY_INPUT, CopyEngine, CopyJob, CopyReport, copy_known
from ccpr.pipeline.errors import ObjectsNotStored
from ccpr.pipeline.iteration import Iteration, IterationRecord
from ccpr.pipeline.results import Listed
from ccpr.pipeline.step_names import Step
from ccpr.state.subscription import Subscription

_LOOKING, _MANY = 16, 50  # threads at most, and objects for each at least


def objects_to_copy(subscription: Subscription, catalog: CatalogDiff, listed: Listed) -> pa.Table:
    """COPY_INPUT: new objects of the tables whose objects the mirror keeps, each name once."""
    copied = pa.array(catalog.copied(subscription), pa.int64())
    wanted = listed.wanted.filter(pc.is_in(listed.wanted.column("table_id"), copied))
    return wanted.take(first_of_each_name(wanted)[0]).select(COPY_INPUT.names).cast(COPY_INPUT)


def copy_objects(
    iteration: Iteration, record: IterationRecord, listed: Listed, objects: pa.Table, engine: CopyEngine
) -> CopyReport:
    """Fetch the objects (COPY_INPUT). What an interrupted run brought is not fetched again. Raises ObjectsNotStored,
    also for what that run brought, and what the engine raises."""
    iteration.enter(Step.COPY)
    kept = record.results.copied()
    report = _copied(iteration, listed, objects, engine) if kept is None else kept
    check_stored(iteration.mirror, report)
    if kept is None:
        record.results.keep_copied(report)
    return report


def _copied(iteration: Iteration, listed: Listed, objects: pa.Table, engine: CopyEngine) -> CopyReport:
    store = iteration.mirror.store
    for name in listed.refetched.column("name").to_pylist():  # damaged: a soundness check alone might keep it
        store.delete(object_path(name))
    iteration.options.progress.on_copy(pc.sum(objects.column("size")).as_py() or 0)
    known = iteration.committer.ledger.checksums(objects.column("name").to_pylist())
    job = CopyJob.of(iteration.subscription, store.url, iteration.key_file)
    return copy_known(job, objects, engine, known, store)


def check_stored(mirror: Mirror, report: CopyReport) -> None:
    """Raises ObjectsNotStored unless the store has each object that was copied in its size: a point names it next."""
    names, sizes = (report.rows.column(name).to_pylist() for name in ("name", "size"))

    def missing_of(share: slice) -> list[str]:
        pairs = zip(names[share], sizes[share], strict=True)
        return [name for name, size in pairs if mirror.store.size(object_path(name)) != size]

    threads = max(1, min(_LOOKING, len(names) // _MANY))  # in a bucket each look is a request
    with ThreadPoolExecutor(threads, "stored") as pool:
        missing = sorted(chain(*pool.map(missing_of, [slice(first, None, threads) for first in range(threads)])))
    if missing:
        raise ObjectsNotStored.of(missing, checked=len(names))
