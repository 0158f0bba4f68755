"""What is reported to Dagster without a run: events of assets, and of each subscription how it is."""

import hashlib
from collections.abc import Iterable, Mapping

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.dagster.all_health import read_all_health
from ccpr.dagster.events import APPLIED_TABLES
from ccpr.dagster.failed_runs import record_failed_run
from ccpr.dagster.health import Health, is_failing
from ccpr.dagster.keys import Runless, prefix_of, with_prefix
from ccpr.dagster.replica_health import read_health, unreadable_health
from ccpr.dagster.target_health import target_events
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable

# Keys in Dagster's own key-value table. There the first 64 characters of a key have to differ in MySQL.
_PENDING = "ccpr/failures_of_a_tick"


def report(instance: dg.DagsterInstance, events: Iterable[Runless]) -> None:
    """Report events of assets by the keys of this package (see `ccpr.dagster.keys`)."""
    for event in with_prefix(events, prefix_of(instance)):
        instance.report_runless_asset_event(event)


def report_health(instance: dg.DagsterInstance, workspace: Workspace, subscription: str) -> None:
    """How a subscription and its targets are, from a run of it. Raises SubscriptionMissing, and errors of the catalog
    database."""
    report(instance, health_events(instance, workspace, [subscription], in_run=True))
    report(instance, target_events(instance, workspace, [workspace.log.row(subscription)], in_run=True))


def health_events(
    instance: dg.DagsterInstance,
    workspace: Workspace,
    subscriptions: Iterable[str],
    *,
    all_too: bool = False,
    in_run: bool = False,
) -> list[Runless]:
    """What is to be reported of some subscriptions: each one's health, and that of all together if one of these has
    changed. What fails newly is recorded as a failed run.

    Parameters
    ----------
    all_too : that of all together also if none of these has changed.
    in_run : a run of Dagster's fails by itself.
    """
    found = [_read(workspace, name) for name in subscriptions]
    events: list[Runless] = [event for health in found for event in health.events()]
    known = _known(instance, [health.subscription for health in found])
    news = [health for health in found if known.get(_key(health.subscription)) != health.verdict]
    if news or all_too:
        events += read_all_health(workspace).events()
    for health in news:
        if is_failing(health.verdict) and not in_run and not is_failing(known.get(_key(health.subscription))):
            record_failed_run(instance, health.subscription, APPLIED_TABLES, health.says, health.shown)
    _remember(instance, news)
    return events


def changed(instance: dg.DagsterInstance, verdicts: Mapping[str, str]) -> list[str]:
    """The subscriptions of which another verdict, or none, was reported last."""
    known = _known(instance, verdicts)
    return [name for name, verdict in verdicts.items() if known.get(_key(name)) != verdict]


def known_verdict(instance: dg.DagsterInstance, subscription: str) -> str | None:
    """What was reported last; None if nothing was."""
    return _known(instance, [subscription]).get(_key(subscription))


def keep_failures(instance: dg.DagsterInstance, text: str) -> None:
    """For the next tick to fail with."""
    instance.daemon_cursor_storage.set_cursor_values({_PENDING: text})


def kept_failures(instance: dg.DagsterInstance) -> str:
    """Taken once; empty if there are none."""
    text = instance.daemon_cursor_storage.get_cursor_values({_PENDING}).get(_PENDING) or ""
    if text:
        keep_failures(instance, "")
    return text


def _known(instance: dg.DagsterInstance, subscriptions: Iterable[str]) -> Mapping[str, str]:
    """The verdicts that were reported last, by `_key`."""
    return instance.daemon_cursor_storage.get_cursor_values({_key(name) for name in subscriptions})


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
