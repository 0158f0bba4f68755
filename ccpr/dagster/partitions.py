"""A partition is a subscription, its key the subscription's name. Iterations are none: they would be a hundred
thousand within days."""

from collections.abc import Iterable

import dagster as dg

from ccpr.service.workspace import Workspace

SUBSCRIPTIONS = dg.DynamicPartitionsDefinition(name="ccpr_subscription")


def present_partitions(instance: dg.DagsterInstance) -> set[str]:
    """Names of subscriptions that have one."""
    assert SUBSCRIPTIONS.name is not None
    return set(instance.get_dynamic_partitions(SUBSCRIPTIONS.name))


def add_partitions(instance: dg.DagsterInstance, names: Iterable[str]) -> None:
    """Those that are missing."""
    assert SUBSCRIPTIONS.name is not None
    if new := sorted(set(names) - present_partitions(instance)):
        instance.add_dynamic_partitions(SUBSCRIPTIONS.name, new)


def sync_partitions(instance: dg.DagsterInstance, workspace: Workspace) -> list[str]:
    """Bring the partitions in step with `mo_ccpr_log`, as the sensor does; returns the keys there are now."""
    assert SUBSCRIPTIONS.name is not None
    rows, bad = workspace.log.all_rows()
    wanted = [row.subscription_name for row in (*rows, *bad)]
    add_partitions(instance, wanted)
    for name in present_partitions(instance).difference(wanted):
        instance.delete_dynamic_partition(SUBSCRIPTIONS.name, name)
    return wanted


def main() -> None:
    """`python -m ccpr.dagster.partitions`: once, without the sensor, for the instance in DAGSTER_HOME."""
    workspace = Workspace()
    with dg.DagsterInstance.get() as instance:
        print("subscriptions in Dagster:", ", ".join(sync_partitions(instance, workspace)) or "none")
    workspace.close()


if __name__ == "__main__":
    main()
