"""What an open iteration has done and what it still has to copy, by what it has left in the mirror's work folder."""

from dataclasses import dataclass
from itertools import islice, takewhile

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Kind
from ccpr.mirror.layout import object_path
from ccpr.mirror.mirror import Mirror
from ccpr.mirror.object_rows import LISTED_SCHEMA, first_of_each_name
from ccpr.pipeline.step_names import COPIER, Stage, Step, step_under_way
from ccpr.service.workspace import Workspace
from ccpr.state.subscription import Subscription

_MOST_SINGLE_LOOKUPS = 500  # objects; for more the store's folder is listed
_LISTED_NAMES = 10_000  # of a page
_UNDER_WAY = {  # the first stage that may not be done when a step is under way
    Step.CATALOG: Stage.SNAPSHOT,
    Step.OBJECT_LIST: Stage.CATALOG,
    Step.COPY: Stage.COPY,
    Step.APPLY: Stage.APPLY,
}


@dataclass(frozen=True, slots=True)
class StepUnderWay:
    """The step of the open iteration. `number`, `name`, `title`: of the step (docs/requirements.md N2). `done`: what
    was done before it. `snapshot`: the iteration's snapshot upstream."""

    number: int
    name: str
    title: str
    done: tuple[str, ...]
    snapshot: str


@dataclass(frozen=True, slots=True)
class OpenWork:
    """The open iteration by what it has left in the mirror's work folder."""

    step: StepUnderWay | None = None
    objects_pending: int | None = None
    bytes_pending: int | None = None
    bytes_to_copy: int | None = None
    copier: str | None = None
    warnings: tuple[str, ...] = ()


def read_open_work(
    workspace: Workspace, task_id: str, subscription: Subscription, ref: SnapshotRef, lsn: int
) -> OpenWork:
    """Of the iteration whose snapshot is `ref`. If the mirror cannot be read, a warning says so."""
    shown = None
    try:
        mirror = workspace.mirror_of(subscription)
        step = step_under_way(ref, mirror.store)
        if step is None:
            return OpenWork()
        done = tuple(stage.value for stage in takewhile(lambda stage: stage is not _UNDER_WAY[step], Stage))
        shown = StepUnderWay(step.value, step.label, step.title, done, ref.name)
        listed = _listed(mirror, ref) if step is Step.COPY else None
        if listed is None:
            return OpenWork(shown)
        pending = _pending(mirror, listed, _tables_not_copied(workspace, task_id, subscription, lsn))
        return OpenWork(shown, *pending, _copier(mirror, ref))
    except CcprError as error:
        return OpenWork(shown, warnings=(f"the mirror cannot be read: {error.code}: {error.message}",))


def _listed(mirror: Mirror, ref: SnapshotRef) -> pa.Table | None:
    """The objects that the open iteration has found to be copied (LISTED_SCHEMA). None if it has ended meanwhile."""
    files = [f"{ref.work}/{name}" for name in ("added.arrow", "refetched.arrow")]
    if any(mirror.store.size(file) is None for file in files):
        return None
    return pa.concat_tables([mirror.files.read_arrow(file, LISTED_SCHEMA) for file in files])


def _copier(mirror: Mirror, ref: SnapshotRef) -> str | None:
    """Who copies, and why; None if that was not written."""
    path = f"{ref.work}/{COPIER}"
    if mirror.store.size(path) is None:
        return None
    return mirror.store.read(path).to_pybytes().decode(errors="replace")


def _tables_not_copied(workspace: Workspace, task_id: str, subscription: Subscription, lsn: int) -> pa.Array:
    """Ids of the tables whose objects are not copied: hidden index tables, if a point has them."""
    tables = workspace.log.of(task_id).history.tables(lsn).values()
    hidden = [point.table for point in tables if point.table.kind is Kind.INDEX]
    return pa.array([table.id for table in hidden if not subscription.copies(table)], pa.int64())


def _pending(mirror: Mirror, listed: pa.Table, not_copied: pa.Array) -> tuple[int, int, int]:
    """Number and bytes of the listed objects that are not in the store yet, and bytes of all that are listed."""
    copied = listed.filter(pc.invert(pc.is_in(listed.column("table_id"), not_copied)))
    wanted = copied.take(pa.array(first_of_each_name(copied)[0]))
    missing = wanted.filter(pc.invert(pc.is_in(wanted.column("name"), _present(mirror, wanted.column("name")))))
    pending, whole = (pc.sum(rows.column("size")).as_py() or 0 for rows in (missing, wanted))
    return missing.num_rows, pending, whole


def _present(mirror: Mirror, wanted: pa.ChunkedArray) -> pa.Array:
    """Names of objects that are in the store; at least those of the wanted ones."""
    if len(wanted) <= _MOST_SINGLE_LOOKUPS:
        names = wanted.to_pylist()
        return pa.array([name for name in names if mirror.store.size(object_path(name)) is not None], pa.string())
    paths, pages = mirror.store.each_name("objects"), [pa.array([], pa.string())]
    while page := list(islice(paths, _LISTED_NAMES)):
        pages.append(pa.array([path.rpartition("/")[2] for path in page], pa.string()))
    return pa.concat_arrays(pages)
