"""What a project calls our assets: a prefix of all keys (`CcprComponent`, `translation`), and for a table another key,
if its translator gives it one.

Events are made with the keys of this package, and get the project's where they are reported (`translated`). Ticks have
the definitions, which say them; the Dagster instance remembers them, for runs and for `ccpr serve`.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster_shared.record import replace

from ccpr.dagster.metadata import COLUMN_LINEAGE, OWN_KEY
from ccpr.dagster.verdicts import store_values, verdict_key
from ccpr.state.database import batches

Runless = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation  # all that can be reported
# Keys in Dagster's own key-value table: the prefix; of all keys of tables a digest, empty where all are ours.
_PREFIX, _NAMED = "ccpr/key_prefix", "ccpr/keys"
_MOVING = "moving"
_AT_ONCE, _SECONDS = 200, 5.0
_REMEMBERING = Lock()


@dataclass(frozen=True, slots=True)
class ProjectKeys:
    """`prefix`: of all keys that are not among `tables`. `tables`: the project's keys by ours."""

    prefix: tuple[str, ...] = ()
    tables: Mapping[dg.AssetKey, dg.AssetKey] = field(default_factory=dict)

    def of(self, key: dg.AssetKey) -> dg.AssetKey:
        return self.tables.get(key) or prefixed(key, self.prefix)

    def event(self, event: Runless) -> Runless:
        key = self.of(event.asset_key)
        if isinstance(event, dg.AssetCheckEvaluation):
            return replace(event, asset_key=key)
        columns = {
            column: [dg.TableColumnDep(self.of(one.asset_key), one.column_name) for one in deps]
            for column, deps in _lineage(event).items()
        }
        if not columns:
            return event._replace(asset_key=key)
        shown = {**event.metadata, COLUMN_LINEAGE: dg.MetadataValue.column_lineage(dg.TableColumnLineage(columns))}
        return event._replace(asset_key=key, metadata=shown)


def prefixed(key: dg.AssetKey, prefix: Sequence[str]) -> dg.AssetKey:
    return key.with_prefix(list(prefix)) if prefix else key


def prefix_of(instance: dg.DagsterInstance) -> list[str]:
    """Empty if there is none."""
    return _prefix_in(instance.daemon_cursor_storage.get_cursor_values({_PREFIX}))


def translated(instance: dg.DagsterInstance, events: Iterable[Runless]) -> list[Runless]:
    """The events, of assets by the project's keys."""
    found = list(events)
    values = instance.daemon_cursor_storage.get_cursor_values({_PREFIX, _NAMED}) if found else {}
    tables = {}
    if values.get(_NAMED):
        named = {event.asset_key for event in found}
        named |= {one.asset_key for event in found for deps in _lineage(event).values() for one in deps}
        tables = _stored(instance, named)
    keys = ProjectKeys(tuple(_prefix_in(values)), tables)
    return [keys.event(event) for event in found]


def own_keys(graph: BaseAssetGraph, prefix: Sequence[str]) -> Mapping[dg.AssetKey, dg.AssetKey]:
    """Our keys by the project's, of its assets that may be ours."""
    return _keys_in(graph, tuple(prefix)).own


def remember_prefix(instance: dg.DagsterInstance, prefix: Sequence[str]) -> None:
    """By runs, which know it."""
    if list(prefix) != prefix_of(instance):
        instance.daemon_cursor_storage.set_cursor_values({_PREFIX: json.dumps(list(prefix))})


def remember_keys(context: dg.SensorEvaluationContext, prefix: Sequence[str]) -> None:
    """By ticks. Where a table has got another key, its newest materialization is reported by that, too. What takes too
    long is left to the next tick."""
    remember_prefix(context.instance, prefix)
    if context.repository_def is not None and _REMEMBERING.acquire(blocking=False):  # else another tick does it
        try:
            _remember(context.instance, _keys_in(context.repository_def.asset_graph, tuple(prefix)), tuple(prefix))
        finally:
            _REMEMBERING.release()


def _remember(instance: dg.DagsterInstance, found: "_Keys", prefix: tuple[str, ...]) -> None:
    storage, end = instance.daemon_cursor_storage, time.monotonic() + _SECONDS
    if storage.get_cursor_values({_NAMED}).get(_NAMED, "") == found.digest:
        return
    storage.set_cursor_values({_NAMED: _MOVING})
    now = {ours: key for key, ours in found.own.items()}
    for part in batches(list(now), _AT_ONCE):
        if time.monotonic() >= end:
            return
        before = ProjectKeys(prefix, _stored(instance, part))
        changed = [ours for ours in part if before.of(ours) != now[ours]]
        # What is another table's key now has that one's events.
        moved = {old: now[ours] for ours in changed if (old := before.of(ours)) not in found.own}
        _move(instance, moved)
        store_values(instance, {_stored_as(ours): json.dumps(now[ours].path) for ours in changed})
        _move(instance, moved)  # what was reported meanwhile
    storage.set_cursor_values({_NAMED: found.digest})


def _move(instance: dg.DagsterInstance, moved: Mapping[dg.AssetKey, dg.AssetKey]) -> None:
    """Report the newest materialization of each asset by its new key, if that has another one."""
    records = instance.get_asset_records([*moved, *moved.values()]) if moved else []
    entries = {one.asset_entry.asset_key: one.asset_entry.last_materialization for one in records}
    newest = {key: entry.asset_materialization for key, entry in entries.items() if entry is not None}
    for old, new in moved.items():
        event, there = newest.get(old), newest.get(new)
        if event is not None and (there is None or there.tags != event.tags):
            instance.report_runless_asset_event(ProjectKeys(tables=moved).event(event))


def _lineage(event: Runless) -> Mapping[str, Sequence[dg.TableColumnDep]]:
    found = None if isinstance(event, dg.AssetCheckEvaluation) else event.metadata.get(COLUMN_LINEAGE)
    return found.value.deps_by_column if isinstance(found, dg.TableColumnLineageMetadataValue) else {}


@dataclass(frozen=True, slots=True)
class _Keys:
    """Of a project: our keys by its keys, and a digest of those that a translator gave; empty if there are none."""

    own: Mapping[dg.AssetKey, dg.AssetKey]
    digest: str


@lru_cache(maxsize=2)
def _keys_in(graph: BaseAssetGraph, prefix: tuple[str, ...]) -> _Keys:
    """Of a graph, which stays as it is while its code location is loaded."""
    found, named = dict[dg.AssetKey, dg.AssetKey](), list[str]()
    for node in graph.asset_nodes:
        if own := node.metadata.get(OWN_KEY):
            found[node.key] = dg.AssetKey.from_user_string(own)
            named.append(f"{own} {node.key.to_string()}")
        elif tuple(node.key.path[: len(prefix)]) == prefix and len(node.key.path) > len(prefix):
            found[node.key] = dg.AssetKey(node.key.path[len(prefix) :])
    return _Keys(found, verdict_key("keys", str((prefix, sorted(named)))) if named else "")


def _stored(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey]) -> dict[dg.AssetKey, dg.AssetKey]:
    places = {_stored_as(key): key for key in keys}
    found = {}
    for part in batches(list(places), _AT_ONCE):
        values = instance.daemon_cursor_storage.get_cursor_values(set(part))
        found |= {places[place]: dg.AssetKey(json.loads(path)) for place, path in values.items()}
    return found


def _stored_as(key: dg.AssetKey) -> str:
    return verdict_key("key", key.to_string())


def _prefix_in(values: Mapping[str, str]) -> list[str]:
    text = values.get(_PREFIX)
    return [] if not text else list(map(str, json.loads(text)))
