"""What an iteration is about to do, as a value to read before anything is copied (docs/requirements.md B1).

A plan's id is a digest of all that decides what is done: subscription and settings, snapshot, schema changes, objects.
So a run that is given the id carries out exactly that, or nothing.
"""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ccpr.base.errors import Failure
from ccpr.matrixone.client.snapshot_ref import SnapshotRef
from ccpr.matrixone.objects.timestamp import Timestamp
from ccpr.matrixone.schema import Kind
from ccpr.mirror.object_rows import in_order
from ccpr.pipeline.catalog_diff import CatalogDiff
from ccpr.pipeline.driver import catalog_of, listed_of, take, try_twice
from ccpr.pipeline.errors import NoOpenIteration, PlanOutdated
from ccpr.pipeline.iteration import Iteration
from ccpr.pipeline.results import Listed
from ccpr.pipeline.step_names import Stage
from ccpr.pipeline.steps.copy import objects_to_copy
from ccpr.pipeline.steps.snapshot import resume
from ccpr.schema.ddl_diff import ddl_diff, same_definition
from ccpr.schema.table_changes import CatalogChange, ChangeKind
from ccpr.state.subscription import Subscription

_ID_DIGITS = 12
_SETTINGS = ("with_indexes", "consistency", "mirror")  # the others change how it is done, not what
_LEFT_SCOPE, _REWRITTEN, _TRUNCATED = "left_scope", "rewritten", "truncated"
_ENDS = frozenset((ChangeKind.DROPPED.value, _LEFT_SCOPE, _TRUNCATED))


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """One table's objects: how many come and go, and bytes that come.

    Attributes
    ----------
    kind : as in `ccpr.matrixone.schema.Kind`.
    copied : whether its objects are copied; those of index tables are only if the subscription says so.
    rows, whole : in logical mode how many rows are read, and why all of them; empty if only those that changed.
    """

    table_id: int
    table: str
    added: int
    removed: int
    bytes: int
    kind: str = Kind.TABLE.value
    copied: bool = True
    rows: int = 0
    whole: str = ""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of schema.

    Attributes
    ----------
    kind : created, dropped, renamed, altered (in place), rewritten (by an ALTER that copies), truncated, or left_scope
        for a table that is there upstream and no longer the subscription's.
    before : the table's name at the last point where it was another.
    destructive : rows that the newest point shows are not shown by the next one. Older points keep them.
    index : whether it is a hidden index table.
    diff : of the definitions, unified; empty where they are the same, and for a table that came or went.
    """

    kind: str
    table: str
    before: str | None
    destructive: bool
    diff: str = ""
    index: bool = False


@dataclass(frozen=True, slots=True)
class IterationPlan:
    """
    Attributes
    ----------
    objects, bytes : that would be fetched, each object once; less what an interrupted run has brought already.
    way : the mode, why, and what it costs (`Subscription.way`).
    resync : why all of it is from a full list, empty for a difference.
    failures : `db.t` -> why the table would lag.
    unreplicated : (name, kind) of what stands in the database and is not replicated; see `CatalogDiff`.
    """

    id: str
    subscription: str
    lsn: int
    attempt: int
    snapshot: str
    at: Timestamp
    objects: int
    bytes: int
    tables: tuple[PlannedTable, ...]
    changes: tuple[PlannedChange, ...]
    resync: str
    failures: dict[str, Failure]
    unreplicated: tuple[tuple[str, str], ...]
    way: str = ""

    @property
    def destructive(self) -> tuple[PlannedChange, ...]:
        return tuple(change for change in self.changes if change.destructive)


def plan(iteration: Iteration) -> IterationPlan:
    """Open the iteration, or take it up again, as far as its object list, and say what it is about to do. Nothing is
    copied, and the iteration stays open."""

    def of_snapshot() -> IterationPlan:
        take(iteration, Stage.SNAPSHOT)
        return _of_open(iteration)

    return try_twice(iteration, of_snapshot)


def require_plan(iteration: Iteration, plan_id: str) -> None:
    """Go on only if the open iteration is about to do what this plan says; a resync in it is then allowed. Raises
    PlanOutdated."""
    try:
        found = _of_open(iteration)
    except NoOpenIteration as error:
        raise PlanOutdated(f"its iteration is no longer open: {error.message}", subject=f"plan {plan_id}") from error
    if found.id != plan_id:
        raise PlanOutdated(f"a run would now do plan {found.id}", subject=f"plan {plan_id}")
    iteration.allow_resync = True


def _of_open(iteration: Iteration) -> IterationPlan:
    listed, catalog, ref = listed_of(iteration), catalog_of(iteration), resume(iteration).snapshot
    objects = objects_to_copy(iteration.subscription, catalog, listed)
    size = pc.sum(objects.column("size")).as_py() or 0
    return make_plan(iteration.subscription, ref, catalog, listed, objects=objects.num_rows, size=size)


def make_plan(
    subscription: Subscription, ref: SnapshotRef, catalog: CatalogDiff, listed: Listed, *, objects: int, size: int
) -> IterationPlan:
    names = {table.id: table.qualified_name for table in catalog.catalog.tables}
    filled = set(sums_by_table(listed.wanted.filter(pc.invert(listed.wanted.column("is_tombstone").fill_null(False)))))
    return IterationPlan(
        id=_digest(subscription, ref, catalog, listed),
        subscription=subscription.name,
        lsn=ref.lsn,
        attempt=ref.attempt,
        snapshot=ref.name,
        at=ref.at,
        objects=objects,
        bytes=size,
        tables=tuple(_tables(subscription, listed, names, catalog)),
        changes=tuple(_change(change, subscription, names, filled) for change in catalog.changes),
        resync=listed.base_lost,
        failures={names[table_id]: failure for table_id, failure in listed.failures.items()},
        unreplicated=catalog.unreplicated,
        way=subscription.way,
    )


def _tables(
    subscription: Subscription, listed: Listed, names: dict[int, str], catalog: CatalogDiff
) -> Iterable[PlannedTable]:
    added, removed = sums_by_table(listed.wanted), sums_by_table(listed.diff.removed)
    if listed.reads:  # what was written for them is no part of the plan
        added, removed = {}, {}
    for table_id in sorted(added.keys() | removed.keys(), key=lambda table_id: names[table_id]):
        count, size = added.get(table_id, (0, 0))
        table = catalog.tables[table_id]
        kind, copied = table.kind.value, subscription.copies(table)
        yield PlannedTable(table_id, names[table_id], count, removed.get(table_id, (0, 0))[0], size, kind, copied)
    for table_id, read in listed.reads.items():
        yield PlannedTable(table_id, names[table_id], 0, 0, 0, rows=read.rows, whole=read.whole)


def sums_by_table(rows: pa.Table) -> dict[int, tuple[int, int]]:
    """By table id: how many objects there are, and their bytes."""
    sums = rows.group_by("table_id").aggregate([("size", "count"), ("size", "sum")])
    return {row["table_id"]: (row["size_count"], row["size_sum"]) for row in sums.to_pylist()}


def _change(
    change: CatalogChange, subscription: Subscription, names: dict[int, str], filled: Collection[int]
) -> PlannedChange:
    """`filled`: ids of tables that get rows."""
    kind = _kind(change, subscription, names, filled)
    before, now = change.before and change.before.qualified_name, change.table.qualified_name
    diff = ddl_diff(change.before, change.after) if change.before and change.after else ""
    is_index = change.table.kind is Kind.INDEX
    return PlannedChange(kind, now, None if before == now else before, kind in _ENDS, diff, is_index)


def _kind(change: CatalogChange, subscription: Subscription, names: dict[int, str], filled: Collection[int]) -> str:
    """A table with a new id has been truncated, or rewritten by an ALTER. If its definition is the same, or no rows
    come with the new one, rows may be lost, and it counts as truncated."""
    left_out = subscription.of_account and not subscription.chooses(change.table.database)
    if change.kind is ChangeKind.DROPPED and (left_out or change.table.id in names):
        return _LEFT_SCOPE
    if change.kind is not ChangeKind.REPLACED or change.before is None or change.after is None:
        return change.kind.value
    kept = change.after.id in filled and not same_definition(change.before, change.after)
    return _REWRITTEN if kept else _TRUNCATED


def _digest(subscription: Subscription, ref: SnapshotRef, catalog: CatalogDiff, listed: Listed) -> str:
    settings = asdict(subscription.settings)
    decides = [
        [subscription.task_id, subscription.endpoint.address, asdict(subscription.publication), subscription.scope],
        {name: settings[name] for name in _SETTINGS},
        [ref.name, ref.lsn, ref.attempt, ref.at.physical],
        [
            [change.kind.value, change.before and change.before.to_json(), change.after and change.after.to_json()]
            for change in catalog.changes
        ],
        [
            bool(listed.base_lost),
            sorted(listed.rebuilt),
            {str(key): failure.code for key, failure in sorted(listed.failures.items())},
        ],
    ]
    if listed.reads:
        decides.append({str(number): [read.whole, read.rows] for number, read in listed.reads.items()})
    digest = hashlib.sha256(json.dumps(decides, ensure_ascii=False, sort_keys=True).encode())
    for rows in () if listed.reads else (listed.diff.added, listed.diff.removed, listed.refetched):
        digest.update(f"|{rows.num_rows}|".encode())
        ordered = in_order(rows)
        for name in ("table_id", "name", "stats"):
            texts = ordered.column(name).cast(pa.string() if name != "stats" else pa.binary())
            joined = pc.binary_join(
                pa.ListArray.from_arrays([0, len(texts)], texts.combine_chunks().cast(pa.binary())), b","
            )
            digest.update(joined[0].as_buffer())
    return digest.hexdigest()[:_ID_DIGITS]
