"""`ccpr.dagster.CcprComponent`: replication in anybody's Dagster project.

Its state is what `ccpr.dagster.inventory` reads: `dg utils refresh-defs-state` writes it, after it has made the state
folder what `config` says, and loading the project reads nothing else. A project that is under development refreshes it
by itself.

Loading never fails for what is wrong outside of the project: what was known before stays, and `replication_health` and
the log of the code location say what happened. `refresh-defs-state` says it too, and ends with an error.
"""

import logging
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import BaseModel, Field, PrivateAttr, create_model, model_validator

from ccpr.config.config_actions import perform
from ccpr.config.config_plan import plan
from ccpr.config.document import written
from ccpr.config.wanted import WantedFollower, read_text
from ccpr.dagster import metadata
from ccpr.dagster.health_sensor import build_health_sensor
from ccpr.dagster.inventory import Inventory, read_inventory
from ccpr.dagster.iteration_assets import (
    build_applied_tables,
    build_catalog_ddl,
    build_copied_objects,
    build_mirror,
    build_object_diffs,
    build_sync_job,
    build_target_databases,
    build_upstream_database,
    build_upstream_snapshots,
)
from ccpr.dagster.keys import ProjectKeys
from ccpr.dagster.log_sensor import build_log_sensor
from ccpr.dagster.replication import Replication
from ccpr.dagster.retention_sensor import build_retention_sensor
from ccpr.dagster.spark_resource import SparkResource
from ccpr.dagster.table_specs import TABLES_VARIABLE, build_definitions, define, is_run, most_tables
from ccpr.dagster.tables import table_key
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
  tables: "*"                      # which become assets, the first by name
  most_tables: 1000
  config:                          # as a ccpr.yaml
    upstreams: {main: {uri: "mysql://sys#dump@db.example.com:6001", password: "${UPSTREAM_PASSWORD}"}}
    subscriptions: {shop: {upstream: main, database: shop, interval: 10s}}
  translation: {key_prefix: [replicas], group_name: replication, owners: ["team:data"]}
"""


class MirrorTranslator(dg.Model, dg.Resolvable):
    """What is changed in each asset. A project may have a subclass of its own: `translator` of the component."""

    key_prefix: list[str] = Field(default_factory=list, description="In front of each asset key.")
    group_name: str | None = Field(default=None, description="The group of all assets; without it each has its own.")
    owners: list[str] = Field(default_factory=list, description="Mail addresses, or team:NAME.")
    tags: dict[str, str] = Field(default_factory=dict, description="Further tags.")

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """The spec with another group, owners, tags, kinds or description, and of a table with another key, as a
        subclass has it. Of a table the metadata has `dagster/table_name`, and the tag `ccpr/subscription` its
        subscription. The key has the prefix already."""
        if self.owners or self.tags:
            spec = spec.merge_attributes(owners=self.owners, tags=self.tags)
        return spec if self.group_name is None else spec.replace_attributes(group_name=self.group_name)


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
    translation: MirrorTranslator = Field(
        default_factory=MirrorTranslator, description="What is changed in each asset."
    )
    translator: str = Field(
        default="",
        description="A subclass of `ccpr.dagster.MirrorTranslator`, `package.module.Class`, for `translation`.",
    )
    row_counts: dict[str, list[int | None]] = Field(
        default_factory=dict,
        description="By `database.table` the fewest and the most rows, for a check of Dagster's; null for no bound.",
    )
    engine: str = Field(default="auto", description="What copies: process, spark, or auto.")
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()
    _is_loading: bool = PrivateAttr(default=False)

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """What Dagster validates a defs.yaml by. Its own error does not say what might be meant."""
        return _with_checked_names(cls.model())

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
        found = found.within(most_tables(self.most_tables))
        translator = self._made_translator()
        has_own_keys = type(translator) is not MirrorTranslator  # it may give tables other ones
        loaded = define(found, prefix, translator.get_asset_spec, only_keys=is_run() and not has_own_keys)
        loaded.checks += self._checks_of_dagster(found, loaded.keys)
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
        )

    def _checks_of_dagster(self, found: Inventory, project: ProjectKeys) -> list[dg.AssetChecksDefinition]:
        """Whether the columns have changed, and whether there are as many rows as there should be. A run evaluates
        them: by the button, a job or a condition of the project."""
        keys = {
            (one.name, table.qualified_name): project.of(table_key(one.name, table.database, table.name))
            for one in found.known
            for table in one.tables
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)  # of both builders; a test pins what we rely on
            checks = list(dg.build_column_schema_change_checks(assets=list(keys.values()))) if keys else []
            for wanted, (fewest, most) in self.row_counts.items():
                if assets := [key for (_, name), key in keys.items() if name == wanted]:
                    checks += dg.build_metadata_bounds_checks(
                        assets=assets, metadata_key=metadata.ROW_COUNT, min_value=fewest, max_value=most
                    )
        return checks

    def _made_translator(self) -> MirrorTranslator:
        """Raises BadSetting."""
        module, _, name = self.translator.rpartition(".")
        if not module:
            return self.translation
        found = getattr(import_module(module), name, None)
        if not (isinstance(found, type) and issubclass(found, MirrorTranslator)):
            remedy = "Write package.module.Class of a subclass of ccpr.dagster.MirrorTranslator."
            raise BadSetting("it is no translator", subject=self.translator, remedy=remedy)
        return found(**self.translation.model_dump())


@cache
def _with_checked_names(model: type[BaseModel]) -> type[BaseModel]:
    check: Any = model_validator(mode="before")(partial(_check_names, model.model_fields))
    return create_model(model.__name__, __base__=model, __validators__={"names": check})


def _check_names(known: Iterable[str], attributes: Any) -> Any:
    """Raises ValueError for an attribute that there is not."""
    for name in attributes if isinstance(attributes, Mapping) else ():
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            raise ValueError(f"there is no attribute {name}: {f'{near[0]}?' if near else ', '.join(known)}")
    return attributes


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
