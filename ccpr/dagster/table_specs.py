"""What the code location defines for the subscriptions that there are when it is loaded: the health of each and of its
followers, and its tables with their lineage: upstream table → replica → table of a target.

A table that came later has its events at once (`ccpr.dagster.tables`); the overview of its page and its lineage come
when the definitions are loaded again. Loading a table takes about a millisecond, and the UI asks for all of them. So
there is a limit for all subscriptions together. The process of a run loads none.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

from ccpr.dagster import metadata
from ccpr.dagster.copies import copy_database, has_copy
from ccpr.dagster.events import MIRROR
from ccpr.dagster.followers import follower_asset, follower_check
from ccpr.dagster.health_assets import health_asset, health_check, target_asset, target_check
from ccpr.dagster.keys import prefixed
from ccpr.dagster.tables import column_schema, table_key, target_key, upstream_key
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.schema import Kind, Table
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.workspace import Workspace
from ccpr.state.followers import FollowerRecords
from ccpr.state.history import PointHistory
from ccpr.state.log_rows import LogRow
from ccpr.state.subscription import Subscription
from ccpr.state.targets import Target, TargetRecords, TargetState

TABLES_VARIABLE = "CCPR_DAGSTER_TABLES"
DEFAULT_TABLES = 1_000


@dataclass(slots=True)
class Loaded:
    """Definitions of all subscriptions.

    Attributes
    ----------
    left_out : tables for which there was no room.
    subscriptions, intervals : their names and intervals in seconds.
    prefix : of the keys of all.
    """

    assets: list[dg.AssetSpec] = field(default_factory=list)
    checks: list[dg.AssetChecksDefinition] = field(default_factory=list)
    left_out: int = 0
    subscriptions: list[str] = field(default_factory=list)
    intervals: list[float] = field(default_factory=list)
    prefix: tuple[str, ...] = ()

    def add(self, spec: dg.AssetSpec) -> None:
        """A spec with the keys of this package."""
        deps = [prefixed(dep.asset_key, self.prefix) for dep in spec.deps]
        self.assets.append(spec.replace_attributes(key=prefixed(spec.key, self.prefix), deps=deps))

    def left_out_text(self) -> str:
        return (
            f"{self.left_out} more tables have no lineage here, and a page once they change: {TABLES_VARIABLE} is the "
            "limit."
        )


def load_subscriptions(workspace: Workspace | None = None, prefix: Sequence[str] = ()) -> Loaded:
    """What there is to define, by keys with a prefix. Nothing where the state cannot be read, so that the rest can be
    loaded, and say why."""
    loaded = Loaded(prefix=tuple(prefix))
    with closing(workspace or Workspace()) as opened:
        if not opened.has_catalog:
            return loaded
        try:
            rows, _ = opened.log.all_rows()
        except CcprError:
            return loaded
        room = most_tables(os.environ.get(TABLES_VARIABLE, ""))
        is_run = DefinitionsLoadContext.get().load_type is DefinitionsLoadType.RECONSTRUCTION
        for row in rows:
            try:
                _load_health(opened, row, loaded)
                _load_followers(opened, row, loaded)
                if not is_run:  # which executes none of the tables
                    room = _load_tables(opened, row, loaded, room)
            except CcprError:
                continue  # its row or a point cannot be read: the sensor's ticks and `ccpr status` say so
    return loaded


def most_tables(text: str) -> int:
    """From the setting; the default for what is not a number."""
    return int(text) if text.isdecimal() else DEFAULT_TABLES


def _load_health(workspace: Workspace, row: LogRow, loaded: Loaded) -> None:
    name, interval = row.subscription_name, Subscription.from_row(row).settings.sync_interval
    loaded.subscriptions.append(name)
    loaded.intervals.append(interval)
    loaded.add(health_asset(name, interval))
    loaded.checks.append(health_check(name, loaded.prefix))
    for target in TargetRecords(workspace.log.engine, row.task_id).all():
        loaded.add(target_asset(name, target))
        loaded.checks.append(target_check(name, target.name, loaded.prefix))


def _load_followers(workspace: Workspace, row: LogRow, loaded: Loaded) -> None:
    name = row.subscription_name
    for follower in FollowerRecords(workspace.log.engine, row.task_id).all():
        loaded.add(follower_asset(name, follower, _group("followers", name)))
        loaded.checks.append(follower_check(name, follower, loaded.prefix))


def _load_tables(workspace: Workspace, row: LogRow, loaded: Loaded, room: int) -> int:
    """Returns how much room is left."""
    history = PointHistory(workspace.log.engine, row.task_id)
    total = history.count_tables()
    tables = (
        [point.table for point in history.after(-1, -1, room) if point.table.kind is not Kind.INDEX] if room else []
    )
    loaded.left_out += total - len(tables)
    targets = [one for one in TargetRecords(workspace.log.engine, row.task_id).all() if one.state is TargetState.ACTIVE]
    for table in tables:
        for spec in _specs(row.subscription_name, table, targets):
            loaded.add(spec)
    return room - len(tables)


def _specs(subscription: str, table: Table, targets: list[Target]) -> Iterator[dg.AssetSpec]:
    source, replica = upstream_key(subscription, table), table_key(subscription, table)
    name = printable(table.qualified_name)
    yield dg.AssetSpec(
        source,
        group_name=_group("upstream", subscription),
        kinds={"matrixone"},
        description=f"Table {name} of the published database. Dagster only looks at it.",
    )
    yield dg.AssetSpec(
        replica,
        deps=[source, MIRROR],
        group_name=_group("tables", subscription),
        kinds={"arrow"},
        description=f"The replica of {name}: `ccpr export {printable(subscription)} {name}`, or read it with Python or "
        "Spark. Its figures are those of the last point that changed it.",
        metadata={metadata.COLUMN_SCHEMA: column_schema(table), "dagster/table_name": name},
    )
    for target in targets:
        if not has_copy(target, table):
            continue
        database, kind = copy_database(target, table.database), "target" if target.lake is None else "lake"
        yield dg.AssetSpec(
            target_key(subscription, target.name, database, table.name),
            deps=[replica],
            group_name=_group("targets", subscription),
            kinds={target.dialect.server if target.dialect is not None else "delta"},
            description=f"{name} in the {kind} {printable(target.name)}, as it was synced last. If it is behind now, "
            "its newest event (tab Events) says why and what to do, and so does `ccpr status`.",
        )


def _group(kind: str, subscription: str) -> str:
    """Dagster allows letters, digits and underscores."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in f"{kind}_{subscription}")
