"""What the code location defines for the subscriptions that there are when it is loaded: the health of each and of its
followers, and its tables with their lineage: upstream table → replica → table of a target.

A table that came later has its events at once (`ccpr.dagster.tables`); the overview of its page and its lineage come
when the definitions are loaded again. Loading a table takes about a millisecond, and the UI asks for all of them. So
there is a limit for all subscriptions together. The process of a run, which may check them, loads their keys.
"""

import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import dagster as dg

from ccpr.dagster import metadata
from ccpr.dagster.care import care_checks
from ccpr.dagster.events import MIRROR
from ccpr.dagster.followers import follower_asset, follower_check
from ccpr.dagster.health import HEALTH
from ccpr.dagster.health_assets import health_asset, health_check, target_asset, target_check
from ccpr.dagster.inventory import Inventory, KnownSubscription, KnownTable, read_inventory
from ccpr.dagster.keys import prefixed
from ccpr.dagster.table_checks import table_checks
from ccpr.dagster.tables import column_schema, table_key, target_key, upstream_key
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.workspace import Workspace

TABLES_VARIABLE = "CCPR_DAGSTER_TABLES"
DEFAULT_TABLES = 1_000
_TAG = re.compile(r"[\w.-]{1,63}", re.ASCII)


@dataclass(slots=True)
class TableDefinitions:
    """Definitions of all subscriptions.

    Attributes
    ----------
    left_out : tables for which there was no room.
    subscriptions : their names.
    target_kinds : of their targets.
    prefix : of the keys of all.
    trouble : what could not be read; empty if nothing.
    """

    assets: list[dg.AssetSpec] = field(default_factory=list)
    checks: list[dg.AssetChecksDefinition] = field(default_factory=list)
    left_out: int = 0
    subscriptions: list[str] = field(default_factory=list)
    target_kinds: set[str] = field(default_factory=set)
    prefix: tuple[str, ...] = ()
    trouble: str = ""

    def add(self, spec: dg.AssetSpec, subscription: str = "") -> None:
        """A spec with the keys of this package; of a subscription, which is its tag if Dagster allows the name."""
        deps = [prefixed(dep.asset_key, self.prefix) for dep in spec.deps]
        tags = {**spec.tags, metadata.SUBSCRIPTION_TAG: subscription} if _TAG.fullmatch(subscription) else spec.tags
        self.assets.append(spec.replace_attributes(key=prefixed(spec.key, self.prefix), deps=deps, tags=tags))

    def left_out_text(self) -> str:
        return (
            f"{self.left_out} more tables have no lineage here, and a page once they change: the first by name have "
            f"it. {TABLES_VARIABLE} is the limit; in a component `most_tables` is, and `tables` chooses them."
        )


def load_subscriptions(workspace: Workspace | None = None, prefix: Sequence[str] = ()) -> TableDefinitions:
    """What there is to define now, by keys with a prefix."""
    return define(read_inventory(workspace, room=most_tables()), prefix)


def define(found: Inventory, prefix: Sequence[str] = ()) -> TableDefinitions:
    """What is defined for what there is, by keys with a prefix. In the process of a run tables have their keys only:
    what has one as an input, or checks one, cannot be loaded without."""
    loaded = TableDefinitions(prefix=tuple(prefix), trouble=found.trouble)
    for one in found.known:
        loaded.subscriptions.append(one.name)
        loaded.left_out += one.left_out
        loaded.add(health_asset(one.name, one.objective, _group("tables", one.name)), one.name)
        loaded.checks.append(health_check(one.name, loaded.prefix))
        if one.has_care:
            loaded.checks += care_checks(one.name, loaded.prefix)
        for target in one.destinations:
            loaded.target_kinds.add(target.kind)
            loaded.add(target_asset(one.name, target, _group("targets", one.name, target.name)), one.name)
            loaded.checks.append(target_check(one.name, target.name, loaded.prefix))
        for name, database in one.followers:
            loaded.add(follower_asset(one.name, name, database, _group("followers", one.name)), one.name)
            loaded.checks.append(follower_check(one.name, name, database, loaded.prefix))
        if one.tables:
            loaded.checks.append(table_checks(one, loaded.prefix))
        for table in one.tables:
            for spec in [dg.AssetSpec(table_key(one.name, table.definition))] if is_run() else _specs(one, table):
                loaded.add(spec, one.name)
    return loaded


def most_tables(wanted: int | None = None) -> int:
    """For how many tables there is room: as many as are wanted, else the setting, or the default for what is not a
    number."""
    if wanted is not None:
        return wanted
    text = os.environ.get(TABLES_VARIABLE, "")
    return int(text) if text.isdecimal() else DEFAULT_TABLES


def is_run() -> bool:
    """Whether this process executes a run or a step: spawned by a code server or an executor, or by their command. The
    load type does not say it: a code server that loads `@definitions` reconstructs them, too."""
    return multiprocessing.parent_process() is not None or not {"execute_run", "execute_step"}.isdisjoint(sys.argv[:4])


def _specs(known: KnownSubscription, found: KnownTable) -> Iterator[dg.AssetSpec]:
    subscription, table = known.name, found.definition
    source, replica = upstream_key(subscription, table), table_key(subscription, table)
    name = printable(table.qualified_name)
    columns = column_schema(table)
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
        kinds={"mirror"},
        description=f"The replica of {name}: `ccpr export {printable(subscription)} {name}`, or read it with Python or "
        "Spark. Its figures are those of the last point that changed it.",
        metadata={metadata.COLUMN_SCHEMA: columns, metadata.TABLE_NAME: name, metadata.URI: known.mirror},
    )
    targets = {one.name: one for one in known.destinations}
    for copy in found.copies:
        target, there = targets[copy.target], f"{printable(copy.database)}.{printable(table.name)}"
        yield dg.AssetSpec(
            target_key(subscription, target.name, copy.database, table.name),
            deps=[replica],
            group_name=_group("targets", subscription, target.name),
            kinds={target.kind},
            description=f"{name} in the {'lake' if target.is_lake else 'target'} {printable(target.name)}, as it was "
            "synced last. If it waits now, its newest event (tab Events) says why and what to do, and so does "
            f"`{HEALTH}/{printable(subscription)}/{printable(target.name)}`.",
            metadata={metadata.COLUMN_SCHEMA: columns, metadata.TABLE_NAME: there, metadata.URI: target.uri},
        )


def _group(*parts: str) -> str:
    """Dagster allows letters, digits and underscores."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in "_".join(parts))
