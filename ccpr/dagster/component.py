"""`ccpr.dagster.CcprComponent`: replication in anybody's Dagster project.

Its state is what `ccpr.dagster.inventory` reads: `dg utils refresh-defs-state` writes it, after it has made the state
folder what `config` says, and loading the project reads nothing else. A project that is under development refreshes it
by itself.

Loading never fails for what is wrong outside of the project: what was known before stays, and `replication_health` and
the log of the code location say what happened. `refresh-defs-state` says it too, and ends with an error.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field, PrivateAttr

from ccpr.config.config_actions import perform
from ccpr.config.config_plan import plan
from ccpr.config.document import written
from ccpr.config.wanted import WantedFollower, read_text
from ccpr.dagster.definitions import build_definitions, build_sync_job
from ccpr.dagster.health_sensor import build_health_sensor
from ccpr.dagster.inventory import Inventory, read_inventory
from ccpr.dagster.iteration_assets import (
    build_applied_tables,
    build_catalog_ddl,
    build_copied_objects,
    build_mirror,
    build_object_diffs,
    build_target_databases,
    build_upstream_database,
    build_upstream_snapshots,
)
from ccpr.dagster.log_sensor import build_log_sensor
from ccpr.dagster.replication import Replication
from ccpr.dagster.retention_sensor import build_retention_sensor
from ccpr.dagster.spark_resource import SparkResource
from ccpr.dagster.table_specs import TABLES_VARIABLE, add_inputs, define, most_tables
from ccpr.matrixone.errors import CcprError
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.workspace import Workspace
from ccpr.state.errors import BadSetting
from ccpr.state.patterns import ALL_NAMES, NamePatterns
from ccpr.state.settings import SENSOR_SECONDS

_LOG = logging.getLogger("ccpr.dagster")
_EXAMPLE = """\
type: ccpr.dagster.CcprComponent
attributes:
  home: "{{ env.CCPR_HOME }}"      # the state folder
  sensor: true                     # runs the subscriptions; it only looks where `ccpr serve` does
  interval: 10                     # seconds between its ticks
  freshness: 300                   # seconds after which health is overdue; without it as the subscriptions say
  tables: "*"                      # which become assets, the first by name
  most_tables: 1000
  config:                          # as a ccpr.yaml
    upstreams: {main: {uri: "mysql://sys#dump@db.example.com:6001", password: "${UPSTREAM_PASSWORD}"}}
    subscriptions: {shop: {upstream: main, database: shop, interval: 10s}}
  translation: {key_prefix: [replicas], group_name: replication, owners: ["team:data"]}
"""


class Translation(dg.Model, dg.Resolvable):
    """What is changed in each asset."""

    key_prefix: list[str] = Field(default_factory=list, description="In front of each asset key.")
    group_name: str | None = Field(default=None, description="The group of all assets; without it each has its own.")
    owners: list[str] = Field(default_factory=list, description="Mail addresses, or team:NAME.")
    tags: dict[str, str] = Field(default_factory=dict, description="Further tags.")

    def of(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """The spec with group, owners and tags; keys have their prefix already."""
        changed = spec.replace_attributes(owners=[*spec.owners, *self.owners], tags={**spec.tags, **self.tags})
        return changed if self.group_name is None else changed.replace_attributes(group_name=self.group_name)


class CcprScaffolder(dg.Scaffolder):
    """`dg scaffold defs ccpr.dagster.CcprComponent NAME`."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        dg.scaffold_component(request, {"home": "{{ env.CCPR_HOME }}", "translation": {"key_prefix": []}})
        (request.target_path / "README.md").write_text(
            f"A defs.yaml with all that there is:\n\n```yaml\n{_EXAMPLE}```\n"
        )


@dg.scaffold_with(CcprScaffolder)
class CcprComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """Replicates MatrixOne databases: the assets of an iteration, the tables and health of each subscription, the
    sensors that run and watch them, and jobs to act on them."""

    home: str = Field(default="", description="The state folder; empty for CCPR_HOME, else the nearest .ccpr upwards.")
    sensor: bool = Field(
        default=True,
        description="Whether the sensor that runs subscriptions is on at first. Where `ccpr serve` runs on the same "
        "state folder it only looks.",
    )
    interval: int = Field(default=SENSOR_SECONDS, ge=1, description="Seconds between two ticks of it, at least.")
    freshness: int | None = Field(
        default=None, ge=60, description="Seconds after which health is overdue; without it as the subscriptions say."
    )
    tables: str = Field(
        default="", description="Which tables are assets: patterns of `table` or `database.table`, joined by commas."
    )
    most_tables: int | None = Field(
        default=None, ge=0, description=f"How many of all subscriptions; without it {TABLES_VARIABLE}, or 1000."
    )
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="Subscriptions with their upstreams, intervals and targets, as in a ccpr.yaml. Applied when the "
        "state is refreshed; nothing is dropped. Empty: they are made by commands.",
    )
    translation: Translation = Field(default_factory=Translation, description="What is changed in each asset.")
    engine: str = Field(default="auto", description="What copies: process, spark, or auto.")
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()
    _is_loading: bool = PrivateAttr(default=False)

    @property
    def defs_state_config(self) -> DefsStateConfig:
        return DefsStateConfig.from_args(self.defs_state, default_key=f"CcprComponent[{self._prefix_text}]")

    @property
    def _prefix_text(self) -> str:
        return "/".join(self.translation.key_prefix)

    @property
    def _workspace(self) -> Workspace:
        return Workspace(Path(self.home) if self.home else None)

    def write_state_to_path(self, state_path: Path) -> None:
        before, trouble = _inventory_in(state_path), ""
        chosen = ALL_NAMES
        try:
            chosen = NamePatterns.of(self.tables)
            if self.config:
                with self._workspace as workspace:
                    apply_config(workspace, self.config)
        except (CcprError, ValueError) as error:
            trouble = printable(str(error))
        except dg.Failure as error:
            trouble = error.description or ""
        found = read_inventory(self._workspace, room=most_tables(self.most_tables), chosen=chosen)
        if before.known and not self._workspace.has_catalog:
            trouble = trouble or f"there is no state in {self._workspace.home}: set CCPR_HOME, or mount its disk"
        trouble = "; ".join(filter(None, (trouble, found.trouble)))
        state_path.write_text(replace(found, trouble=trouble).after(before).to_text())
        if trouble and not self._is_loading:
            raise dg.Failure(trouble, allow_retries=False)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        self._is_loading = True
        return super().build_defs(context)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        found, prefix = _inventory_in(state_path), self.translation.key_prefix
        if found.trouble:
            _LOG.warning("%s", found.trouble)
        loaded = define(found.within(most_tables(self.most_tables)), prefix)
        steps = [
            build(prefix)
            for build in (
                build_upstream_snapshots,
                build_catalog_ddl,
                build_object_diffs,
                build_copied_objects,
                build_applied_tables,
                build_target_databases,
            )
        ]
        add_inputs(loaded, state_path)
        return build_definitions(
            steps=steps,
            others=[build_upstream_database(prefix), build_mirror(prefix)],
            loaded=loaded,
            jobs=[build_sync_job(steps)],
            sensors=[
                build_log_sensor(is_on=self.sensor, seconds=self.interval),
                build_health_sensor(),
                build_retention_sensor(),
            ],
            replication=Replication(home=self.home, key_prefix=list(prefix)),
            spark=SparkResource(home=self.home or None, engine=self.engine),
        ).map_asset_specs(func=self._completed)

    def _completed(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        if self.freshness is not None and spec.freshness_policy is not None:
            policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=self.freshness))
            spec = spec.replace_attributes(freshness_policy=policy)
        return self.translation.of(spec)


def _inventory_in(state_path: Path | None) -> Inventory:
    """The state that was written, if it can be read."""
    if state_path is None or not state_path.exists():
        return Inventory()
    try:
        return Inventory.of(state_path.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Inventory((), f"the state of the component cannot be read ({error}): `dg utils refresh-defs-state`")


def apply_config(workspace: Workspace, config: Mapping[str, Any]) -> None:
    """Make the state folder what a ccpr.yaml says, without dropping anything. Raises ConfigInvalid, ConfigConflict, and
    Failure for what could not be done."""
    wanted = read_text(written(config).encode(), "config of CcprComponent")
    outcomes = perform(workspace, plan(workspace, wanted, _NoFollowers()).actions, lambda _: None)
    if failed := [str(outcome.failure) for outcome in outcomes if outcome.failure is not None]:
        raise dg.Failure(printable("; ".join(failed)), allow_retries=False)


class _NoFollowers:
    """See `ccpr.config.config_actions.Following`."""

    def follow(self, workspace: Workspace, name: str, one: WantedFollower) -> None:
        raise BadSetting(
            "a component adds no followers", subject=f"follower {one.name}", remedy="Use `ccpr follower add`."
        )

    def check(self, workspace: Workspace, name: str, one: WantedFollower, *, is_new: bool) -> None:
        self.follow(workspace, name, one)

    def check_end(self, workspace: Workspace, name: str, follower: str) -> None:
        self.unfollow(workspace, name, follower)

    def unfollow(self, workspace: Workspace, name: str, follower: str) -> None:
        raise BadSetting(
            "a component ends no followers", subject=f"follower {follower}", remedy="Use `ccpr follower remove`."
        )
