"""A partition is a subscription, its key the subscription's name. Iterations are none: they would be a hundred
thousand within days."""

import dagster as dg

from ccpr.service.workspace import Workspace

SUBSCRIPTIONS = dg.DynamicPartitionsDefinition(name="ccpr_subscription")


def sync_partitions(instance: dg.DagsterInstance, workspace: Workspace) -> list[str]:
    """Bring the partitions in step with `mo_ccpr_log`, as the sensor does; returns the keys there are now."""
    assert SUBSCRIPTIONS.name is not None
    rows, bad = workspace.log.all_rows()
    wanted = [row.subscription_name for row in (*rows, *bad)]
    present = set(instance.get_dynamic_partitions(SUBSCRIPTIONS.name))
    instance.add_dynamic_partitions(SUBSCRIPTIONS.name, [name for name in wanted if name not in present])
    for name in present.difference(wanted):
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
