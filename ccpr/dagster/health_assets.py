"""The assets and checks of health: `replication_health` of all subscriptions, `replication_health/<name>` of each, and
`replication_health/<name>/<target>` of each target. Ticks, runs and services report to them; the checks read the
catalog database and start nothing."""

from collections.abc import Sequence

import dagster as dg

from ccpr.dagster import metadata
from ccpr.dagster.events import APPLIED_TABLES, MIRROR
from ccpr.dagster.health import (
    HEALTH,
    PRESSING,
    REPLICA_CURRENT,
    TARGET_CURRENT,
    UNATTENDED,
    health_key,
)
from ccpr.dagster.inventory import KnownTarget
from ccpr.dagster.replica_health import DESCRIPTION, health_of, read_all_health
from ccpr.dagster.replication import state_check
from ccpr.dagster.target_health import read_targets, with_last_change
from ccpr.matrixone.sql.quoting import printable
from ccpr.service.workspace import Workspace
from ccpr.state.errors import TargetMissing

GROUP = "health"
TARGET_DESCRIPTION = (
    "The target shows the newest point of the replica, or is about to. Red: it could not be synced as a whole. Yellow: "
    "tables of it wait; the first of them is named with its statement, the metadata has all. Executing the check reads "
    f"the state and does not connect to the target: it says what the target answered last, and when. {PRESSING}"
)


def build_all_health(subscriptions: Sequence[str]) -> dg.AssetSpec:
    return dg.AssetSpec(
        HEALTH,
        deps=list(map(health_key, subscriptions)),
        group_name=GROUP,
        description="Start here: is all current? The check is green, or names the subscriptions that are not, each "
        "with what to do; the table has all of them. Each has a page, `replication_health/<name>`, and each of its "
        "targets has one, `replication_health/<name>/<target>`. What a code means: `ccpr explain CODE`. Subscriptions "
        "and tables that came after the definitions were loaded have their pages once these are loaded again: Reload "
        "definitions, under Deployment.",
    )


def health_asset(subscription: str, objective: float, group: str) -> dg.AssetSpec:
    """The asset with the time series of one subscription; `objective`: how old its data may be, in seconds. It is in
    the group of its tables, which is red or yellow with it."""
    return dg.AssetSpec(
        health_key(subscription),
        deps=[APPLIED_TABLES],
        group_name=group,
        description="How this subscription is, over time: `is_current` (1 or 0), `lag_seconds` when it was looked at, "
        "and its state in a sentence. Every tick, run and iteration of the service adds a point, failing ones too. The "
        "check `replica_current` compares the age of the data with the objective; if nothing runs the subscription, "
        f"its state is `{UNATTENDED}`. {PRESSING}",
        metadata={metadata.OBJECTIVE_SECONDS: objective},
    )


def target_asset(subscription: str, target: KnownTarget, group: str) -> dg.AssetSpec:
    """It is in the group of its tables, which is red or yellow with it."""
    return dg.AssetSpec(
        health_key(subscription, target.name),
        deps=[health_key(subscription), MIRROR],
        group_name=group,
        kinds={target.kind},
        description=f"How {'lake' if target.is_lake else 'target'} {printable(target.name)} is, over time: the point "
        f"that it shows, how old that is, and the tables that wait, with the statement and what to do. {PRESSING}",
        metadata={metadata.URI: target.uri},
    )


def all_health_check(prefix: Sequence[str] = ()) -> dg.AssetChecksDefinition:
    text = f"For each subscription: {DESCRIPTION}"
    return state_check(
        dg.AssetKey(HEALTH), REPLICA_CURRENT, text, prefix, lambda found: read_all_health(found).result()
    )


def health_check(subscription: str, prefix: Sequence[str] = ()) -> dg.AssetChecksDefinition:
    def read(workspace: Workspace) -> dg.AssetCheckResult:
        return health_of(workspace, workspace.log.row(subscription)).result()

    return state_check(health_key(subscription), REPLICA_CURRENT, DESCRIPTION, prefix, read)


def target_check(subscription: str, target: str, prefix: Sequence[str] = ()) -> dg.AssetChecksDefinition:
    def read(workspace: Workspace) -> dg.AssetCheckResult:
        row = workspace.log.row(subscription)
        found = {one.target: one for one in read_targets(workspace, row) if one.target == target}
        for one in with_last_change(workspace, row, found).values():
            return one.result()
        raise TargetMissing("the subscription has no target of that name", subject=f"target {target}")

    return state_check(health_key(subscription, target), TARGET_CURRENT, TARGET_DESCRIPTION, prefix, read)
