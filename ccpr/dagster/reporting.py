"""What is reported to Dagster without a run: events of assets, and of each subscription how it is."""

import hashlib
from collections.abc import Iterable, Mapping

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.dagster.events import Runless
from ccpr.dagster.health import Health, read_all_health, read_health, unreadable_health
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable

# Keys in Dagster's own key-value table. There the first 64 characters of a key have to differ in MySQL.
_PENDING = "ccpr/failures_of_a_tick"


def report(instance: dg.DagsterInstance, events: Iterable[Runless]) -> None:
    for event in events:
        instance.report_runless_asset_event(event)


def report_health(instance: dg.DagsterInstance, workspace: Workspace, subscription: str) -> None:
    """How a subscription is, after each of its iterations, failed ones too. Raises SubscriptionMissing, and errors of
    the catalog database."""
    report(instance, health_events(instance, workspace, [subscription]))


def health_events(
    instance: dg.DagsterInstance, workspace: Workspace, subscriptions: Iterable[str], *, all_too: bool = False
) -> list[Runless]:
    """What is to be reported of some subscriptions: each one's health, and that of all together if one of these has
    changed. `all_too`: or has not."""
    found = [_read(workspace, name) for name in subscriptions]
    events: list[Runless] = [event for health in found for event in health.events()]
    news = changed(instance, {health.subscription: health.verdict for health in found})
    if news or all_too:
        events.append(read_all_health(workspace).evaluation())
    _remember(instance, [health for health in found if health.subscription in news])
    return events


def changed(instance: dg.DagsterInstance, verdicts: Mapping[str, str]) -> list[str]:
    """The subscriptions of which another verdict, or none, was reported last."""
    known = instance.daemon_cursor_storage.get_cursor_values({_key(name) for name in verdicts})
    return [name for name, verdict in verdicts.items() if known.get(_key(name)) != verdict]


def keep_failures(instance: dg.DagsterInstance, text: str) -> None:
    """For the next tick to fail with."""
    instance.daemon_cursor_storage.set_cursor_values({_PENDING: text})


def kept_failures(instance: dg.DagsterInstance) -> str:
    """Taken once; empty if there are none."""
    text = instance.daemon_cursor_storage.get_cursor_values({_PENDING}).get(_PENDING) or ""
    if text:
        keep_failures(instance, "")
    return text


def _key(subscription: str) -> str:
    """Of the verdict that was reported last."""
    return f"ccpr/verdict/{hashlib.sha256(subscription.encode()).hexdigest()[:40]}"


def _read(workspace: Workspace, name: str) -> Health:
    try:
        with unexpected():
            return read_health(workspace, name)
    except (StateUnreadable, UnexpectedError) as error:
        return unreadable_health(name, error)


def _remember(instance: dg.DagsterInstance, found: Iterable[Health]) -> None:
    values = {_key(health.subscription): health.verdict for health in found}
    if values:
        instance.daemon_cursor_storage.set_cursor_values(values)
