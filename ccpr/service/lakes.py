"""Adding, showing, rebuilding and removing the lakes of a subscription.

A lake is a target of its own kind: tables of files that are published from the mirror. It is synced as targets are, see
`ccpr.service.target_sync`; its tables are in `ccpr.lake`. Source: decision lakes-are-targets.
"""

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ccpr.base.carrying import Carry, carry_here
from ccpr.base.errors import Failure
from ccpr.base.progress import SILENT, Progress
from ccpr.catalog.own_tables import OwnTables
from ccpr.catalog.warehouses import Warehouses
from ccpr.lake.commit import Lake
from ccpr.lake.errors import LakeStoreUnsafe
from ccpr.lake.iceberg import IcebergCatalog, IcebergTables
from ccpr.lake.iceberg_jvm import catalog_properties, require_iceberg, running_jvm, store_properties
from ccpr.lake.iceberg_rest import RestTables
from ccpr.lake.lake_catalog import LakeCatalog, LakeContents, each_point
from ccpr.lake.lake_options import LakeOptions, options_of
from ccpr.lake.lake_plan import PlannedLakeTable, plan_lake
from ccpr.lake.lake_sync import LakeScope, LakeSync
from ccpr.lake.stores import LakeStore, open_lake
from ccpr.matrixone.errors import CcprError
from ccpr.mirror.encryption_keys import IN_CLEAR, with_key, without_key
from ccpr.mirror.mirror import Mirror
from ccpr.pipeline.driver import catalog_of, listed_of
from ccpr.pipeline.iteration import Iteration
from ccpr.pipeline.plan import sums_by_table
from ccpr.pipeline.spark.java import find_java
from ccpr.retention.retention import Retention
from ccpr.schema.choices import DdlPolicy
from ccpr.service.mirror_places import check_apart, is_within, readable_subscriptions
from ccpr.service.workspace import SyncedUnder, Workspace
from ccpr.state.checkpoint.checkpoint_store import Location
from ccpr.state.errors import BadSetting, TargetExists
from ccpr.state.history import GlobalPoint
from ccpr.state.settings import TargetSettings
from ccpr.state.subscription import Subscription, check_subscription_name
from ccpr.state.table_pointers import PointerMove, TablePointers
from ccpr.state.targets import Target


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of a lake, as it is there now. `uri`: of the table, as an engine opens it. `version`: that shows the
    point `lsn`."""

    table: str
    uri: str
    version: int
    lsn: int
    rows: int
    size: int
    behind: bool


@dataclass(frozen=True, slots=True)
class LakeShown:
    """What is in a lake now. `lsn`, `snapshot_ts`: the point that it shows; None before the first. `points_uri`: of the
    table of points."""

    lsn: int | None
    snapshot_ts: int | None
    points_uri: str
    tables: tuple[LakeTable, ...]


def add(workspace: Workspace, name: str, lake_name: str, url: str, options: LakeOptions, database: str = "") -> Target:
    """Look at the place, then write one row. Nothing is published yet.

    Raises SubscriptionMissing, BadName, BadSetting, TargetExists, MirrorInUse, LakeForeign, LakeStoreUnsafe,
    StoreFailed, ExtraMissing.
    """
    store = check_new(workspace, name, lake_name, url, options, database)
    _probe(store)
    if options.has_iceberg:
        require_iceberg(_java(workspace), s3=store.url.startswith("s3:"))
    records = workspace.of(name).targets
    now = workspace.now()
    target = Target(
        records.task_id,
        lake_name,
        store.url,
        "",
        None,
        TargetSettings(DdlPolicy.FULL),
        now,
        source_database=database,
        lake=options.to_text(),
    )
    records.add(target)
    return target


def check_new(
    workspace: Workspace,
    name: str,
    lake_name: str,
    url: str,
    options: LakeOptions,
    database: str,
    *,
    leaving: Collection[str] = (),
) -> LakeStore:
    """Whether a lake fits to the subscription and its other targets, but for those that are `leaving`, and what is at
    its place; nothing is written. Raises what `add` raises, but for LakeStoreUnsafe."""
    check_subscription_name(lake_name)
    row = workspace.log.row(name)
    subscription = Subscription.from_row(row)
    _check_options(subscription, options, database)
    for other in workspace.of(row).targets.all():
        if other.name == lake_name and other.name not in leaving:
            raise TargetExists(f"it is {other.uri}", subject=f"lake {lake_name}")
    url, encrypt = without_key(url)
    store = check_place(workspace, url, leaving=[(row.task_id, one) for one in leaving])
    if encrypt not in ("", IN_CLEAR) or (subscription.settings.encrypt and not encrypt):
        remedy = f"To publish its rows in clear, write {with_key(store.url, IN_CLEAR)}"
        raise BadSetting("a lake is not encrypted", subject=store.url, remedy=remedy)
    LakeCatalog(Lake(store, workspace.mirror_of(subscription), row.task_id)).read()
    return store


def _check_options(subscription: Subscription, options: LakeOptions, database: str) -> None:
    """Raises BadSetting."""
    if database and not (
        subscription.chooses(database) if subscription.of_account else database == subscription.database
    ):
        raise BadSetting(f"the subscription has no database {database}", subject="--database", remedy="Leave it out.")
    if options.catalog and options.has_iceberg:
        catalog_properties(options.catalog)
    elif options.catalog or (options.iceberg_version != LakeOptions().iceberg_version and not options.has_iceberg):
        which = "--catalog" if options.catalog else "--iceberg-version"
        raise BadSetting("the lake has no Iceberg tables", subject=which, remedy="Add --format delta,iceberg.")


def check_place(workspace: Workspace, place: str, *, leaving: Collection[tuple[str, str]] = ()) -> LakeStore:
    """A lake is in no mirror, no mirror in a lake, and no two lakes in one place. `leaving`: task ids and names of
    lakes that do not count. Raises MirrorInUse, TargetExists, StoreFailed, ExtraMissing."""
    store = open_lake(place)
    url = store.url
    for other in readable_subscriptions(workspace.log.rows()):
        whose = f"of subscription {other.name}'s"
        check_apart(url, workspace.mirror_place(other.name, other.settings), f"{whose} mirror")
        for copy in workspace.of(other).copies.all():
            check_apart(url, copy.place, f"{whose} second copy")
        for lake in workspace.of(other).targets.lakes():
            if (other.task_id, lake.name) in leaving:
                continue
            if is_within(url, lake.uri) or is_within(lake.uri, url):
                raise TargetExists(f"lake {lake.name} of subscription {other.name} is {lake.uri}", subject=url)
    return store


def _probe(store: LakeStore) -> None:
    """Whether a file can be created only if it is not there. Raises LakeStoreUnsafe, StoreFailed."""
    name = f"_ccpr_probe_{secrets.token_hex(8)}"
    try:
        if not store.create(name, b"1") or store.create(name, b"2"):
            raise LakeStoreUnsafe("it replaced a file that it was to create", subject=store.url)
    finally:
        store.files.delete(name)


def alter(workspace: Workspace, name: str, lake_name: str, **changes: Any) -> Target:
    """Change some of a lake's options: what stays readable (`keep`, `keep_for`; both None: as in the mirror), and whose
    metadata its tables have (`format`, and where that brings Iceberg's `iceberg_version` and `catalog`). Raises
    TargetMissing, BadSetting, BadName, ExtraMissing, IcebergJarMissing, JavaMissing."""
    row = workspace.log.row(name)
    records = workspace.of(row).targets
    target = records.lake(lake_name)
    before, options = options_of(target), replace(options_of(target), **changes)
    if before.has_iceberg and not options.has_iceberg:
        options = replace(options, iceberg_version=LakeOptions().iceberg_version, catalog="")
    _check_options(Subscription.from_row(row), options, "")
    if before.has_iceberg and options.has_iceberg:
        for key in ("iceberg_version", "catalog"):
            if getattr(before, key) != getattr(options, key):
                option = f"--{key.replace('_', '-')}"
                remedy = "Write --format delta, and then add Iceberg's tables anew."
                raise BadSetting("the lake has Iceberg tables already", subject=option, remedy=remedy)
    elif options.has_iceberg:
        require_iceberg(_java(workspace), s3=target.uri.startswith("s3:"))
        pointers = TablePointers(workspace.log.engine, row.task_id, lake_name)
        pointers.move([PointerMove(one, None) for one in pointers.all()])  # of tables that it had before
    records.change(lake_name, lake=options.to_text())
    return records.lake(lake_name)


def remove(workspace: Workspace, name: str, lake_name: str, *, purge: bool = False) -> str:
    """Forget a lake. Its files stay, unless `purge`: then those of its tables and of the table of points are deleted.
    Returns its URL. Raises TargetMissing; LakeChanged, StoreFailed."""
    records = workspace.of(name).targets
    target = records.lake(lake_name)
    if purge:
        store = open_lake(target.uri)
        lake = Lake(store, workspace.mirror(name, published=False), target.task_id)
        catalog = LakeCatalog(lake)
        folders = {entry.folder for entry in catalog.read().tables.values()}
        for folder in sorted(folders):
            store.files.delete_folder(folder)
        store.files.delete_folder(catalog.log.folder)  # last: it says what else is there
    records.remove(lake_name)
    return target.uri


def shown(target: Target, workspace: Workspace, name: str) -> LakeShown:
    """What is there now: the lake is read. Raises LakeChanged, LakeForeign, StoreFailed."""
    contents = _catalog(target, workspace.mirror(name, published=False)).read()
    newest = contents.newest
    shows = (None, None) if newest is None else (newest.lsn, newest.at.physical)
    return LakeShown(*shows, uri_of(target.uri, LakeCatalog.FOLDER), _tables(contents, target.uri))


def versions(target: Target, workspace: Workspace, name: str) -> dict[int, tuple[LakeTable, ...]]:
    """By the time of each point that the lake shows, its tables there: nanoseconds by the upstream's clock. Raises
    LakeChanged, LakeForeign, StoreFailed."""
    catalog = _catalog(target, workspace.mirror(name, published=False))
    catalog.read()
    return {
        found.points[-1].at.physical: _tables(found, target.uri) for found in each_point(catalog.rows) if found.points
    }


def _tables(contents: LakeContents, url: str) -> tuple[LakeTable, ...]:
    """Those that are there, by name."""
    return tuple(
        LakeTable(entry.name, uri_of(url, entry.folder), entry.version, entry.lsn, entry.rows, entry.size, entry.behind)
        for entry in sorted(contents.tables.values(), key=lambda entry: entry.name)
        if not entry.dropped
    )


def _catalog(target: Target, mirror: Mirror) -> LakeCatalog:
    """It is not read yet."""
    return LakeCatalog(Lake(open_lake(target.uri), mirror, target.task_id))


def uri_of(url: str, folder: str) -> str:
    """Of a table, as an engine opens it: without the options of a bucket's address."""
    return f"{url.partition('?')[0].rstrip('/')}/{folder}"


# ---- syncing


def opened_sync(
    workspace: Workspace,
    under: SyncedUnder,
    target: Target,
    newest: GlobalPoint,
    *,
    progress: Progress = SILENT,
    carry: Carry = carry_here,
) -> LakeSync:
    """To publish what the lake lacks, or one table anew. The caller holds the subscription's lease."""
    options, history = options_of(target), workspace.of(target).history
    lake = lake_of(target, under, progress)
    lake.carry = carry
    own = options.keep is not None or options.keep_for is not None
    retention = (
        Retention(options.keep or 0, options.keep_for or 0) if own else Retention.of(under.subscription.settings)
    )
    scope = LakeScope(target.source_database, options.patterns)
    opened, shown, held = None, None, frozenset[int]()
    if options.has_iceberg:
        held = frozenset(one.at for one in Warehouses(workspace.log).holds(target.task_id) if one.at is not None)
        opened = partial(_iceberg_tables, workspace, under.subscription.name, target)
        shown = None if options.catalog else TablePointers(workspace.log.engine, target.task_id, target.name).shown
    about = (lake, scope, newest, history.points_later_than, history.watermark(), retention)
    return LakeSync(*about, opened, shown, held)


def _iceberg_tables(workspace: Workspace, subscription: str, target: Target, lake: Lake) -> IcebergTables:
    """The JVM goes on with the process. Raises IcebergFailed, IcebergJarMissing, JavaMissing, ExtraMissing."""
    options, s3 = options_of(target), target.uri.startswith("s3:")
    jvm = running_jvm(_java(workspace), s3=s3)
    store = store_properties(target.uri) if s3 else {}
    catalog: IcebergCatalog
    if options.catalog:
        catalog = RestTables(lake, options.iceberg_version, jvm, {**store, **catalog_properties(options.catalog)})
    else:
        catalog = OwnTables(Warehouses(workspace.log).of(subscription, target), jvm, store)
    return IcebergTables(lake, options.iceberg_version, jvm, catalog)


def _java(workspace: Workspace) -> Callable[[], Path]:
    return lambda: find_java(workspace.home / "java").home / "bin" / "java"


def shown_location(workspace: Workspace, subscription: Subscription, target: Target) -> Location | None:
    """The newest point that a lake shows, as it says itself; None if it shows none. Raises LakeChanged, LakeForeign,
    StoreFailed."""
    newest = _catalog(target, workspace.mirror_of(subscription)).read().newest
    return None if newest is None else Location(newest.lsn, newest.at.physical)


def lake_of(target: Target, under: SyncedUnder, progress: Progress = SILENT) -> Lake:
    """Opened; it is not read yet. Raises BadName, ExtraMissing."""
    return Lake(
        open_lake(target.uri),
        under.mirror,
        target.task_id,
        options_of(target).rules,
        under.subscription.settings.reading,
        confirm=under.confirm,
        on_rows=progress.on_rows,
    )


def plan_lakes(workspace: Workspace, iteration: Iteration) -> dict[str, list[PlannedLakeTable] | Failure]:
    """By the lake's name. The lakes are read; the iteration's catalog and list are those of its plan."""
    records = workspace.of(iteration.subscription).targets
    found: dict[str, list[PlannedLakeTable] | Failure] = {}
    lakes = records.lakes()
    if not lakes:
        return found
    catalog, added = catalog_of(iteration), sums_by_table(listed_of(iteration).diff.added)
    for target in lakes:
        try:
            lake, scope = lake_of(target, iteration), LakeScope(target.source_database, options_of(target).patterns)
            found[target.name] = plan_lake(lake, scope, catalog.tables.values(), added, catalog.failures)
        except CcprError as error:
            found[target.name] = Failure.of(error)
    return found
