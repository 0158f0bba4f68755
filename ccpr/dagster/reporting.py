"""What is reported to Dagster without a run: events of assets, and of each subscription how it is."""

from collections.abc import Iterable, Mapping

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.dagster.events import APPLIED_TABLES
from ccpr.dagster.failed_runs import record_failed_run
from ccpr.dagster.health import Health, is_failing
from ccpr.dagster.keys import Runless, translated
from ccpr.dagster.replica_health import health_of, read_all_health, unreadable_health
from ccpr.dagster.target_health import target_events
from ccpr.dagster.verdicts import known_verdicts, news_of, remember, verdict_key
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable


def report(instance: dg.DagsterInstance, events: Iterable[Runless]) -> None:
    """Report events of assets by the keys of this package (see `ccpr.dagster.keys`)."""
    for event in translated(instance, events):
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
    changed. What fails newly is recorded as a failed run. `all_too`: that of all together also if none of these has
    changed. `in_run`: a run of Dagster's fails by itself."""
    found = {_key(name): _read(workspace, name) for name in subscriptions}
    events: list[Runless] = [event for health in found.values() for event in health.events()]
    known = known_verdicts(instance, found)
    news = news_of(known, found)
    if news or all_too:
        events += read_all_health(workspace).events()
    for key, health in news.items():
        if is_failing(health.verdict) and not in_run and not is_failing(known.get(key)):
            record_failed_run(instance, health.subscription, APPLIED_TABLES, health.says, health.shown)
    remember(instance, news)
    return events


def was_failing(instance: dg.DagsterInstance, subscription: str) -> bool:
    """Whether the replica was reported last to fail."""
    key = _key(subscription)
    return is_failing(known_verdicts(instance, [key]).get(key))


def changed(instance: dg.DagsterInstance, verdicts: Mapping[str, str]) -> set[str]:
    """The subscriptions whose reported verdict is another one, or missing."""
    known = known_verdicts(instance, map(_key, verdicts))
    return {name for name, verdict in verdicts.items() if known.get(_key(name)) != verdict}


def _key(subscription: str) -> str:
    return verdict_key("verdict", subscription)


def _read(workspace: Workspace, name: str) -> Health:
    try:
        with unexpected():
            return health_of(workspace, workspace.log.row(name))
    except (StateUnreadable, UnexpectedError) as error:
        return unreadable_health(name, error)
