"""Targets as a person makes and changes them, and the carrying of a subscription's points into all of them
(requirement B6).

The mirror is the first destination, and a target is fed from it: a target that fails keeps neither the mirror nor
another target.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from matrixone.errors import CcprError
from replication.errors import BadSetting, LeaseLost, TargetExists, TargetInUse
from replication.failure import Failure
from replication.iteration.iteration import Iteration
from replication.schema.policy import DdlPolicy
from replication.service.workspace import Workspace
from replication.state.history import GlobalPoint, PointHistory
from replication.state.subscription import check_subscription_name
from replication.state.targets import Target, TargetRecords, TargetState
from replication.targets.address import Address, format_target_uri, parse_target_uri
from replication.targets.base import TableState
from replication.targets.database import DatabaseTarget
from replication.targets.errors import TargetChangeStuck, TargetTableUnknown
from replication.targets.plan import TargetPlan, TargetRules, plan_target
from replication.targets.sync import OnRows, SyncResult, TargetSync


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """How the carrying to one target ended.

    Attributes
    ----------
    result : None if it stood at the newest point before, or failed.
    failure : of the target as a whole; failures of its tables are in `result.behind`.
    """

    target: str
    result: SyncResult | None
    failure: Failure | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """A table that is an ordinary one now. `left_out`: what could not be brought back."""

    target: str
    table: str
    left_out: tuple[str, ...]


def records_of(workspace: Workspace, name: str) -> TargetRecords:
    """Raises SubscriptionMissing."""
    return TargetRecords(workspace.log.engine, workspace.log.row(name).task_id)


def address_of(target: Target) -> Address:
    return parse_target_uri(target.uri)[0]


# ---- add, alter, remove


def add(
    workspace: Workspace,
    name: str,
    target_name: str,
    address: Address,
    password: str,
    policy: DdlPolicy,
    as_text: tuple[str, ...] = (),
) -> Target:
    """Connect, make the registry there, then write one row; nothing is result yet.

    Raises SubscriptionMissing, BadName, BadSetting, TargetExists, and what the target has against it.
    """
    check_subscription_name(target_name)
    records = records_of(workspace, name)
    _check_columns(records, as_text)
    for other in records.all():
        known = address_of(other)
        if other.name == target_name or _place(known) == _place(address):
            raise TargetExists(f"target {other.name} is {known.masked()}", subject=f"target {target_name}")
    with DatabaseTarget(address, password, records.task_id) as opened:
        dialect = opened.dialect
    now = datetime.fromtimestamp(workspace.clock(), UTC)
    target = Target(
        records.task_id,
        target_name,
        format_target_uri(address),
        workspace.vault.seal(password),
        dialect,
        policy,
        now,
        as_text=as_text,
    )
    records.add(target)
    return target


def alter(
    workspace: Workspace,
    name: str,
    target_name: str,
    policy: DdlPolicy | None,
    login: tuple[Address, str] | None,
    as_text: tuple[str, ...] = (),
) -> Target:
    """Another policy, another way to the same database, more columns as text. Raises TargetMissing, BadSetting, and
    what the target has against it.
    """
    records = records_of(workspace, name)
    target = records.get(target_name)
    _check_columns(records, as_text)
    values: dict[str, str] = {} if policy is None else {"ddl_policy": policy.value}
    if as_text:
        values["as_text"] = json.dumps(list(dict.fromkeys((*target.as_text, *as_text))), ensure_ascii=False)
    if login is not None:
        address, password = login
        if address.database != address_of(target).database:
            raise BadSetting(
                "a target stays the same database", subject="--to", remedy="Add another target for another database."
            )
        with DatabaseTarget(address, password, records.task_id) as opened:
            if target.lsn is not None and not opened.tables():
                raise BadSetting(
                    "the database there has no table of this subscription",
                    subject="--to",
                    remedy="Add it as another target.",
                )
        values |= {"uri": format_target_uri(address), "sealed_password": workspace.vault.seal(password)}
    records.change(target_name, **values)
    return records.get(target_name)


def _check_columns(records: TargetRecords, names: Sequence[str]) -> None:
    """`table.column` each; of the newest point's tables, once there is a point."""
    history = PointHistory(records.engine, records.task_id)
    newest = history.newest() if names else None
    points = history.tables(newest.lsn).values() if newest is not None else ()
    known = {f"{point.table.name}.{column.name}" for point in points for column in point.table.user_columns}
    for name in names:
        if not all(name.rpartition(".")[::2]) or (newest is not None and name not in known):
            raise BadSetting(
                f"{name!r:.80} is no table.column",
                subject="--as-text",
                remedy="Name a column as it is upstream, `orders.duration`.",
            )


def remove(workspace: Workspace, name: str, target_name: str, *, force: bool = False) -> None:
    """Forget a target. Raises TargetMissing; TargetInUse if it has tables that were not released, unless `force`."""
    records = records_of(workspace, name)
    target = records.get(target_name)
    if not force:
        with _opened(workspace, target) as destination:
            held = [
                entry for entry in destination.tables().values() if entry.state in (TableState.LIVE, TableState.LOADING)
            ]
        if held:
            raise TargetInUse(f"{len(held)} tables in it are being synced", subject=f"target {target_name}")
    records.remove(target_name)


def release(
    workspace: Workspace, name: str, target_name: str | None = None, table: str | None = None
) -> list[ReleasedTable]:
    """End the subscription of a table, or of all, in one target or in all: they become ordinary tables, and later runs
    leave them alone.

    A released table is remembered in the target's registry. Raises TargetMissing, TargetTableUnknown for a name that
    no target has.
    """
    records = records_of(workspace, name)
    chosen = [records.get(target_name)] if target_name is not None else records.all()
    found: list[ReleasedTable] = []
    for target in chosen:
        if target.state is TargetState.RELEASED:
            continue
        with _opened(workspace, target) as destination:
            for table_id, entry in sorted(destination.tables().items()):
                known = entry.table.source
                if table not in (None, known.qualified_name, known.name):
                    continue
                if entry.state is TableState.LIVE:
                    found.append(ReleasedTable(target.name, entry.table.qualified_name, destination.release(table_id)))
                elif entry.state is TableState.LOADING and table is None:
                    destination.drop([table_id])
        if table is None:
            records.change(target.name, state=TargetState.RELEASED.value)
    if table is not None and not found:
        raise TargetTableUnknown(
            "no target has such a table that is being synced",
            subject=f"table {table}",
            remedy="Give its name upstream, t or db.t. One that was released before is an ordinary table already.",
        )
    return found


# ---- carry, plan


def sync_targets(
    workspace: Workspace,
    iteration: Iteration,
    *,
    on_target: Callable[[str], None] = lambda _: None,
    on_rows: OnRows = lambda _, __: None,
) -> list[TargetOutcome]:
    """Carry each target to the newest point; the caller has just ended an iteration and holds its lease.

    A target that fails is written down and the next one result. Raises LeaseLost, and what the catalog database has
    against it.
    """
    records = TargetRecords(workspace.log.engine, iteration.subscription.task_id)
    history = PointHistory(records.engine, records.task_id)
    newest = history.newest()
    outcomes: list[TargetOutcome] = []
    for target in records.all():
        if newest is None or target.state is TargetState.RELEASED:
            continue
        if target.lsn == newest.lsn and not target.behind and target.failing is None:
            outcomes.append(TargetOutcome(target.name, None, None, 0.0))
            continue
        on_target(target.name)
        started = time.monotonic()
        result, failure = None, None
        if target.needed_lsn is None:  # a first load that is interrupted goes on at this point
            records.change(target.name, needed_lsn=newest.lsn)
        try:
            with _target_sync(workspace, iteration, target, history, newest, on_rows) as sync:
                result = sync.run()
        except LeaseLost:
            raise
        except CcprError as error:
            failure = Failure.of(error)
        if result is not None:
            _record_result(records, target, result)
        elif failure is not None:
            records.record_failure(target, failure, datetime.fromtimestamp(workspace.clock(), UTC))
        outcomes.append(TargetOutcome(target.name, result, failure, time.monotonic() - started))
    return outcomes


def rebuild(
    workspace: Workspace, iteration: Iteration, target_name: str, table: str, *, on_rows: OnRows = lambda _, __: None
) -> SyncResult:
    """Make a table of a target anew from the newest point of the mirror, `t` or `db.t` by its name upstream; the
    others are result, too.

    The caller holds the subscription's lease. Raises TargetMissing, TargetTableUnknown, and what `TargetSync.rebuild`
    raises.
    """
    records = TargetRecords(workspace.log.engine, iteration.subscription.task_id)
    target = records.get(target_name)
    history = PointHistory(records.engine, records.task_id)
    newest = history.newest()
    if newest is None or target.state is TargetState.RELEASED:
        what = "the mirror has no point yet" if newest is None else "the target was released as a whole"
        raise TargetTableUnknown(
            what, subject=f"target {target_name}", remedy="Run `ccpr run`; a released target has to be added again."
        )
    with _target_sync(workspace, iteration, target, history, newest, on_rows) as sync:
        result = sync.rebuild(table)
    _record_result(records, target, result)
    return result


def plan_targets(workspace: Workspace, iteration: Iteration) -> dict[str, TargetPlan | Failure]:
    """What the open iteration's catalog means for each target, by its name. Only the definitions are looked at, no
    rows."""
    records = TargetRecords(workspace.log.engine, iteration.subscription.task_id)
    catalog = iteration.diff_catalog()
    found: dict[str, TargetPlan | Failure] = {}
    for target in records.all():
        if target.state is TargetState.RELEASED:
            continue
        try:
            with _opened(workspace, target) as destination:
                registered = destination.tables()
                stuck = {
                    table_id: Failure.of(
                        TargetChangeStuck(text, subject=f"table {registered[table_id].table.qualified_name}")
                    )
                    for table_id, text in destination.stuck().items()
                }
                kept = {**stuck, **catalog.failures}
                tables = [table for table_id, table in catalog.tables.items() if table_id not in kept]
                found[target.name] = plan_target(_rules(target), registered, tables, kept=kept)
        except CcprError as error:
            found[target.name] = Failure.of(error)
    return found


def _rules(target: Target) -> TargetRules:
    return TargetRules(target.dialect, address_of(target).database, target.policy, target.as_text, target.task_id)


def _place(address: Address) -> tuple[str, int, str]:
    return address.endpoint.host.lower(), address.endpoint.port, address.database


@contextmanager
def _target_sync(
    workspace: Workspace,
    iteration: Iteration,
    target: Target,
    history: PointHistory,
    newest: GlobalPoint,
    on_rows: OnRows,
) -> Iterator[TargetSync]:
    with _opened(workspace, target) as destination:
        yield TargetSync(
            destination, iteration.mirror, history, newest, _rules(target), confirm=iteration.confirm, on_rows=on_rows
        )


def _record_result(records: TargetRecords, target: Target, result: SyncResult) -> None:
    records.record_sync(target.name, result.lsn, result.snapshot_ts, result.needed_lsn, result.behind)


@contextmanager
def _opened(workspace: Workspace, target: Target) -> Iterator[DatabaseTarget]:
    with DatabaseTarget(
        address_of(target), workspace.vault.open(target.sealed_password), target.task_id
    ) as destination:
        yield destination
