"""Adding, altering, removing and releasing the targets of a subscription (docs/requirements.md B6).

A target is a database that is synced from the mirror, see `ccpr.service.target_sync`. One that has nothing to do is
asked where it is, so that it does not look current until the next change if it is away, or was restored from a copy
(decision registry-tells-what-lacks).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ccpr.base.carrying import Carry, carry_here
from ccpr.base.errors import Failure
from ccpr.base.loops import unexpected
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Table
from ccpr.schema.choices import DuplicateKeys
from ccpr.service.errors import SeveralDatabases, TargetInUse
from ccpr.service.workspace import Workspace
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.errors import (
    BadSetting,
    SubscriptionBusy,
    SubscriptionMissing,
    SubscriptionPaused,
    TargetExists,
    TargetMissing,
)
from ccpr.state.history import PointHistory
from ccpr.state.settings import TargetSettings
from ccpr.state.subscription import Subscription, check_subscription_name
from ccpr.state.targets import NOT_RETRYING, Target, TargetRecords, TargetState
from ccpr.targets.address import Address, address_of, format_target_uri
from ccpr.targets.base import TableState
from ccpr.targets.database_server import DatabaseServer, reached
from ccpr.targets.database_target import DatabaseTarget
from ccpr.targets.errors import TargetMoved, TargetTableUnknown
from ccpr.targets.expected_tables import ExpectedTables


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """A table that is an ordinary one now. `left_out`: what of it is not as in the source."""

    target: str
    table: str
    left_out: tuple[str, ...]


@contextmanager
def open_target(workspace: Workspace, target: Target, carry: Carry = carry_here) -> Iterator[DatabaseTarget]:
    """A session with the target's database. Raises what `DatabaseTarget.open` raises."""
    password = workspace.vault.open(target.sealed_password, address_of(target).endpoint)
    place = workspace, address_of(target), password, target.task_id, target.settings.as_text
    with _database(*place, carry=carry, sealed_password=target.sealed_password) as opened:
        yield opened


def _database(
    workspace: Workspace, address: Address, password: str, task_id: str, as_text: Sequence[str], **carried: Any
) -> DatabaseTarget:
    own = ExpectedTables(workspace.log.of(task_id).history.known_definitions, tuple(as_text))
    return DatabaseTarget(address, password, task_id, own=own, **carried)


def add(
    workspace: Workspace,
    name: str,
    target_name: str,
    address: Address,
    password: str,
    settings: TargetSettings,
    source_database: str = "",
) -> Target:
    """Connect, make the registry there, then write one row. Nothing is synced yet. `source_database`: of a subscription
    to several databases the one whose tables are synced.

    Raises SubscriptionMissing, BadName, BadSetting, SeveralDatabases, TargetExists, and what `DatabaseTarget.open`
    raises.
    """
    records, source_database = check_new(workspace, name, target_name, address, settings, source_database)
    with _database(workspace, address, password, records.task_id, settings.as_text) as opened:
        dialect = opened.dialect
    now = workspace.now()
    target = Target(
        records.task_id,
        target_name,
        format_target_uri(address),
        workspace.vault.seal(password, address.endpoint),
        dialect,
        settings,
        now,
        source_database=source_database,
    )
    records.add(target)
    return target


def check_new(
    workspace: Workspace,
    name: str,
    target_name: str,
    address: Address,
    settings: TargetSettings,
    source_database: str,
    *,
    leaving: Collection[str] = (),
) -> tuple[TargetRecords, str]:
    """Whether a target fits to the subscription and its other targets, but for those that are `leaving`; no server is
    asked. Returns `source_database` as it is stored, too. Raises SubscriptionMissing, BadName, BadSetting,
    SeveralDatabases, TargetExists."""
    check_subscription_name(target_name)
    row = workspace.log.row(name)
    records, history = workspace.of(row).targets, workspace.of(row).history
    source_database = _source_database(history, Subscription.from_row(row), source_database)
    _check_columns(history, settings.as_text, source_database)
    if any(lake.name == target_name for lake in records.lakes() if lake.name not in leaving):
        raise TargetExists("the subscription has a lake of that name", subject=f"target {target_name}")
    for other in records.databases():
        known = address_of(other)
        if other.name in leaving:
            continue
        if other.name == target_name or _server_and_database(known) == _server_and_database(address):
            raise TargetExists(f"target {other.name} is {known.masked()}", subject=f"target {target_name}")
    return records, source_database


def try_login(address: Address, password: str) -> None:
    """Whether the server can be reached, is one that targets can be of, and has the database for this login; nothing is
    written there. Raises TargetUnavailable, TargetDenied, TargetUnsupported, TargetRefused."""
    with DatabaseServer(address.endpoint, password) as server:
        server.check(address.database)


def _source_database(history: PointHistory, subscription: Subscription, wanted: str) -> str:
    """As it is stored. Raises SeveralDatabases, BadSetting."""
    if not subscription.of_account:
        if wanted not in ("", subscription.database):
            raise BadSetting(
                f"the subscription is to database {subscription.database}",
                subject="--database",
                remedy="Omit it; it chooses one of several.",
            )
        return ""
    if not wanted:
        raise SeveralDatabases(
            "a target is one database, in which tables have their names upstream",
            subject=f"subscription {subscription.name}",
            remedy="Say whose tables it gets: --database DATABASE; for each of them a target.",
        )
    known = {table.database for table in _newest_tables(history) or ()}
    if not subscription.chooses(wanted) or (known and wanted not in known):
        raise BadSetting(
            f"the subscription has no database {wanted}",
            subject="--database",
            remedy=f"It has {', '.join(sorted(known)[:20]) or subscription.databases}. Letter case counts.",
        )
    return wanted


def _newest_tables(history: PointHistory) -> list[Table] | None:
    """Of the newest point; None if there is none."""
    newest = history.newest()
    return None if newest is None else [point.table for point in history.tables(newest.lsn).values()]


def alter(
    workspace: Workspace,
    name: str,
    target_name: str,
    login: tuple[Address, str] | None,
    settings: Mapping[str, Any],
) -> Target:
    """Set another address or login of the same database, or settings: those that are named, by name. Columns that are
    kept as text stay so, and `as_text` names more of them.

    Raises TargetMissing, BadSetting, and what `DatabaseTarget.open` raises.
    """
    records = workspace.of(name).targets
    target = records.get(target_name)
    before = target.settings
    more = [name for name in settings.get("as_text", ()) if name not in before.as_text]  # the others may be gone since
    _check_columns(workspace.of(target).history, more, target.source_database)
    as_text = (*before.as_text, *more)
    after = replace(before, **{**settings, "as_text": as_text})
    if before.duplicate_keys is DuplicateKeys.LAST and after.duplicate_keys is DuplicateKeys.ERROR and target.lsn:
        raise BadSetting(
            "tables may lack rows with the same key as other rows",
            subject="duplicate_keys",
            remedy="Release the target's tables, and add it again.",
        )
    values = after.columns(settings)
    if login is not None:
        address, password = login
        if address.database != address_of(target).database:
            raise BadSetting(
                "the database of a target cannot be changed",
                subject="--to",
                remedy="Add another target for another database.",
            )
        with _database(workspace, address, password, records.task_id, as_text) as opened:
            if target.lsn is not None and not opened.tables():
                raise BadSetting(
                    "the database at that address has no table of this subscription",
                    subject="--to",
                    remedy="Add it as another target.",
                )
        # It is tried at once, however long the wait after the last failure is.
        values |= {**NOT_RETRYING, "failure": None}
        values |= {
            "uri": format_target_uri(address),
            "sealed_password": workspace.vault.seal(password, address.endpoint),
        }
    records.change(target_name, **values)
    return records.get(target_name)


def _check_columns(history: PointHistory, names: Sequence[str], source_database: str) -> None:
    """Each is of the newest point's tables if there is a point. Raises BadSetting."""
    newest = _newest_tables(history) if names else None
    if newest is None:
        return
    tables = [table for table in newest if source_database in ("", table.database)]
    known = {f"{table.name}.{column.name}" for table in tables for column in table.user_columns}
    for name in names:
        if name not in known:
            raise BadSetting(
                f"{name!r:.80} is not a table.column",
                subject="as_text",
                remedy="Use the names upstream, for example `orders.duration`.",
            )


def remove(workspace: Workspace, name: str, target_name: str, *, force: bool = False) -> None:
    """Delete a target's row. Raises TargetMissing; TargetInUse if it has tables that were not released, unless
    `force`."""
    records = workspace.of(name).targets
    target = records.get(target_name)
    if not force:
        with open_target(workspace, target) as opened:
            states = [entry.state for entry in opened.tables().values()]
        synced = sum(state in (TableState.LIVE, TableState.LOADING) for state in states)
        if synced:
            raise TargetInUse(f"{synced} tables in it are being synced", subject=f"target {target_name}")
    records.remove(target_name)


def release(
    workspace: Workspace, name: str, target_name: str | None = None, table: str | None = None
) -> list[ReleasedTable]:
    """End the sync of a table, or of all, in one target or in all. They become ordinary tables, and later runs do not
    touch them.

    The target's registry keeps the released tables. Raises TargetMissing, TargetTableUnknown for a name that no target
    has.
    """
    records = workspace.of(name).targets
    chosen = [records.get(target_name)] if target_name is not None else records.databases()
    found: list[ReleasedTable] = []
    for target in chosen:
        if target.state is TargetState.RELEASED:
            continue
        with open_target(workspace, target) as opened:
            for table_id, entry in sorted(opened.tables().items()):
                known = entry.table.source
                if table not in (None, known.qualified_name, known.name):
                    continue
                if entry.state is TableState.LIVE:
                    found.append(ReleasedTable(target.name, entry.table.qualified_name, opened.release(table_id)))
                elif entry.state is TableState.LOADING and table is None:
                    opened.drop([table_id])
        if table is None:
            records.change(target.name, state=TargetState.RELEASED.value)
    if table is not None and not found:
        raise TargetTableUnknown(
            "no target has such a table that is being synced",
            subject=f"table {table}",
            remedy="Use its name upstream, t or db.t. A table that was released before is an ordinary table already.",
        )
    return found


def _server_and_database(address: Address) -> tuple[str, int, str]:
    return address.endpoint.host.lower(), address.endpoint.port, address.database


def verify_target(workspace: Workspace, subscription: Subscription, target: Target) -> Failure | None:
    """Ask a target whether it is where it is recorded, and record its answer: when it was verified, or the failure,
    after which it is synced again. The caller holds the subscription's lease. Raises errors of the catalog database."""
    records = workspace.of(target).targets
    try:
        with unexpected():
            _check(target, _reached(workspace, subscription, target))
    except CcprError as error:
        failure = Failure.of(error)
        records.record_failure(target, failure, workspace.now())
        return failure
    records.record_verified(target, workspace.now())
    return None


def is_still_away(workspace: Workspace, subscription: Subscription, target: Target) -> bool:
    """Ask a target that failed when it was synced last whether it answers. If it does not, that is its next failed
    attempt. The caller holds the subscription's lease. Raises errors of the catalog database."""
    if target.failing is None:
        return False
    try:
        with unexpected():
            _reached(workspace, subscription, target)
    except CcprError as error:
        workspace.of(target).targets.record_failure(target, Failure.of(error), workspace.now())
        return True
    return False


def verify_targets(workspace: Workspace, name: str, targets: Iterable[str]) -> None:
    """Verify some targets of a subscription that nothing runs now; nothing happens if something does. Raises errors of
    the catalog database."""
    with suppress(SubscriptionBusy, SubscriptionPaused, SubscriptionMissing), workspace.lease(name) as lease:
        subscription = Subscription.from_row(lease.claim.row)
        records = workspace.of(lease.claim.row).targets
        for target in targets:
            with suppress(TargetMissing):  # it was removed meanwhile
                found = records.any(target)
                if found.is_quiet and found.is_to_verify(workspace.now()):
                    verify_target(workspace, subscription, found)


def _reached(workspace: Workspace, subscription: Subscription, target: Target) -> Location | None:
    if target.lake is not None:
        from ccpr.service.lakes import shown_location

        return shown_location(workspace, subscription, target)
    address = address_of(target)
    return reached(address, workspace.vault.open(target.sealed_password, address.endpoint), target.task_id)


def _check(target: Target, reached: Location | None) -> None:
    """Raises TargetMoved. The mark of all tables waits for those that wait."""
    assert target.lsn is not None
    assert target.snapshot_ts is not None
    recorded = Location(target.lsn, target.snapshot_ts)
    if reached == recorded or (target.behind and (reached is None or reached < recorded)):
        return
    here = "at no point" if reached is None else f"at point {reached.lsn}"
    raise TargetMoved(f"it is {here}, and was left at point {target.lsn}", subject=f"target {target.name}")
