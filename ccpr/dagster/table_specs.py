"""What a code location defines: the assets of an iteration, and what there is for the subscriptions when it is loaded:
the health of each and of its followers, and its tables with their lineage: upstream → replica → target.

A table that came later has its events at once (`ccpr.dagster.tables`); the overview of its page and its lineage come
when the definitions are loaded again. Loading a table takes a quarter of a millisecond and more of Dagster's, and the
UI asks for all of them. So there is a limit for all subscriptions together. The process of a run, which may check them,
loads their keys.
"""

import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from ccpr.dagster import documentation, metadata
from ccpr.dagster.actions import build_actions
from ccpr.dagster.care import care_checks
from ccpr.dagster.events import MIRROR, TARGET_DATABASES
from ccpr.dagster.followers import follower_asset, follower_check
from ccpr.dagster.health import HEALTH
from ccpr.dagster.health_assets import (
    all_health_check,
    build_all_health,
    health_asset,
    health_check,
    target_asset,
    target_check,
)
from ccpr.dagster.inventory import Inventory, KnownSubscription, read_inventory
from ccpr.dagster.keys import ProjectKeys, prefixed
from ccpr.dagster.mirror_io import MirrorIOManager
from ccpr.dagster.replication import Replication
from ccpr.dagster.spark_resource import SparkResource
from ccpr.dagster.table_checks import table_checks
from ccpr.dagster.tables import column_schema, table_key, target_key, upstream_key
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.workspace import Workspace
from ccpr.state.errors import BadSetting

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

TABLES_VARIABLE = "CCPR_DAGSTER_TABLES"
DEFAULT_TABLES = 1_000
_TAG = re.compile(r"[\w.-]{1,63}", re.ASCII)
Translate = Callable[[dg.AssetSpec], dg.AssetSpec]


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
    translate : what a project changes in each asset; None if nothing.
    tables : the project's keys of tables to which it gives other ones, by ours.
    """

    assets: list[dg.AssetSpec] = field(default_factory=list)
    checks: list[dg.AssetChecksDefinition] = field(default_factory=list)
    left_out: int = 0
    subscriptions: list[str] = field(default_factory=list)
    target_kinds: set[str] = field(default_factory=set)
    prefix: tuple[str, ...] = ()
    trouble: str = ""
    translate: Translate | None = None
    tables: dict[dg.AssetKey, dg.AssetKey] = field(default_factory=dict)
    _of_tables: dict[dg.AssetKey, dg.AssetKey] = field(default_factory=dict)

    @property
    def keys(self) -> ProjectKeys:
        return ProjectKeys(self.prefix, self.tables)

    def placed(self, spec: dg.AssetSpec, subscription: str = "") -> dg.AssetSpec:
        """A spec with the keys of this package, by the project's; of a subscription, which is its tag."""
        deps = [self.keys.of(dep.asset_key) for dep in spec.deps]
        tags = {**spec.tags, **_tags(subscription)}
        return spec.replace_attributes(key=self.keys.of(spec.key), deps=deps, tags=tags)

    def finished(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """A spec by the project's keys, with a link, as the project has it. Raises BadSetting."""
        spec = spec.merge_attributes(metadata={metadata.DOCUMENTATION: documentation.of_asset(spec)})
        changed = spec if self.translate is None else self.translate(spec)
        if changed.key != spec.key:
            remedy = "Change the keys of tables only; `key_prefix` is of all assets."
            raise BadSetting(
                "a translator changes this key", subject=f"asset {spec.key.to_user_string()}", remedy=remedy
            )
        return changed

    def add(self, spec: dg.AssetSpec, subscription: str) -> None:
        self.assets.append(self.finished(self.placed(spec, subscription)))

    def add_table(self, own: dg.AssetKey, deps: Sequence[dg.AssetKey], **attributes: Any) -> None:
        """A table, after those that it depends on. Raises BadSetting."""
        spec = dg.AssetSpec(prefixed(own, self.prefix), deps=list(map(self.keys.of, deps)), **attributes)
        changed = spec if self.translate is None else self.translate(spec)
        if changed.key != spec.key:
            self.tables[own] = changed.key
            changed = changed.merge_attributes(metadata={metadata.OWN_KEY: own.to_user_string()})
        if (other := self._of_tables.setdefault(changed.key, own)) != own:
            two = f"{own.to_user_string()} and {other.to_user_string()}"
            remedy = "Let get_asset_spec give each table a key of its own."
            raise BadSetting(f"a translator gives two tables the key {changed.key.path}", subject=two, remedy=remedy)
        self.assets.append(changed)

    def left_out_text(self) -> str:
        return (
            f"{self.left_out} more tables have no lineage here, and a page once they change: the first by name have "
            f"it. {TABLES_VARIABLE} is the limit; in a component `most_tables` is, and `tables` chooses them."
        )


def load_subscriptions(workspace: Workspace | None = None) -> TableDefinitions:
    """What there is to define now, by our keys."""
    return define(read_inventory(workspace, room=most_tables(), columns=not is_run()), only_keys=is_run())


def define(
    found: Inventory, prefix: Sequence[str] = (), translate: Translate | None = None, *, only_keys: bool = False
) -> TableDefinitions:
    """What is defined for what there is, by keys with a prefix. Raises BadSetting. `only_keys`: of tables, for the
    process of a run: what has one as an input, or checks one, needs them."""
    loaded = TableDefinitions(prefix=tuple(prefix), trouble=found.trouble, translate=translate)
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
        if only_keys:
            own = (table_key(one.name, table.database, table.name) for table in one.tables)
            loaded.assets += [dg.AssetSpec(prefixed(key, prefix)) for key in own]
        else:
            _add_tables(loaded, one)
        if one.tables:
            loaded.checks.append(table_checks(one, loaded.keys))
    return loaded


def build_definitions(
    *,
    steps: Sequence[dg.AssetsDefinition],
    others: Sequence[dg.AssetSpec],
    loaded: TableDefinitions,
    jobs: "Sequence[UnresolvedAssetJobDefinition]",
    sensors: Sequence[dg.SensorDefinition],
    replication: Replication,
    spark: SparkResource,
) -> dg.Definitions:
    """`steps` and `others`: the assets of `ccpr.dagster.iteration_assets`. `loaded` is of the same prefix."""

    def completed(spec: dg.AssetSpec) -> dg.AssetSpec:
        if spec.key == dg.AssetKey([*loaded.prefix, TARGET_DATABASES]):
            spec = spec.replace_attributes(kinds=set(sorted(loaded.target_kinds)[:3]))  # Dagster allows three
        if spec.key == dg.AssetKey([*loaded.prefix, HEALTH]) and loaded.trouble:
            text = f"**Not all was loaded.** {loaded.trouble}\n\n{spec.description}"
            spec = spec.replace_attributes(description=text)
        if spec.key == dg.AssetKey([*loaded.prefix, MIRROR]) and loaded.left_out:
            spec = spec.replace_attributes(description=f"{spec.description} {loaded.left_out_text()}")
        return loaded.finished(spec)

    health = loaded.placed(build_all_health(loaded.subscriptions))
    return dg.Definitions(
        assets=[*dg.map_asset_specs(completed, [*others, *steps, health]), *loaded.assets],
        asset_checks=[all_health_check(loaded.prefix), *loaded.checks],
        jobs=[*jobs, *build_actions(replication)],
        sensors=sensors,
        resources={"replication": replication, "spark": spark, "mirror": MirrorIOManager(home=replication.home)},
        # One process a run: one Spark session and one lease for all its steps. Without this the button in the UI would
        # use a process a step, which takes 22 s where this takes half a second.
        executor=dg.in_process_executor,
    )


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


def _add_tables(loaded: TableDefinitions, known: KnownSubscription) -> None:
    subscription, tags, printed = known.name, _tags(known.name), printable(known.name)
    targets = {one.name: (one, _group("targets", subscription, one.name)) for one in known.destinations}
    upstream, replicas = _group("upstream", subscription), _group("tables", subscription)
    of_tables, of_targets = documentation.of_group("tables"), documentation.of_group("targets")
    for table in known.tables:
        source = upstream_key(subscription, table.database, table.name)
        replica = table_key(subscription, table.database, table.name)
        name, columns = printable(table.qualified_name), column_schema(table.columns)
        loaded.add_table(
            source,
            [],
            group_name=upstream,
            kinds={"matrixone"},
            tags=tags,
            description=f"Table {name} of the published database. Dagster only looks at it.",
            metadata={metadata.DOCUMENTATION: of_tables},
        )
        shown = {metadata.COLUMN_SCHEMA: columns, metadata.URI: known.mirror, metadata.DOCUMENTATION: of_tables}
        loaded.add_table(
            replica,
            [source, dg.AssetKey(MIRROR)],
            group_name=replicas,
            kinds={"mirror"},
            tags=tags,
            description=f"The replica of {name}: `ccpr export {printed} {name}`, or read it with Python or "
            "Spark. Its figures are those of the last point that changed it.",
            metadata={metadata.TABLE_NAME: name, **shown},
        )
        for copy in table.copies:
            target, group = targets[copy.target]
            there = f"{printable(copy.database)}.{printable(table.name)}"
            shown = {metadata.COLUMN_SCHEMA: columns, metadata.URI: target.uri, metadata.DOCUMENTATION: of_targets}
            loaded.add_table(
                target_key(subscription, target.name, copy.database, table.name),
                [replica],
                group_name=group,
                kinds={target.kind},
                tags=tags,
                description=f"{name} in the {'lake' if target.is_lake else 'target'} {printable(target.name)}, as it "
                "was synced last. If it waits now, its newest event (tab Events) says why and what to do, and so does "
                f"`{HEALTH}/{printed}/{printable(target.name)}`.",
                metadata={metadata.TABLE_NAME: there, **shown},
            )


def _tags(subscription: str) -> dict[str, str]:
    """Of an asset of a subscription, if Dagster allows its name."""
    return {metadata.SUBSCRIPTION_TAG: subscription} if _TAG.fullmatch(subscription) else {}


def _group(*parts: str) -> str:
    """Dagster allows letters, digits and underscores."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in "_".join(parts))
