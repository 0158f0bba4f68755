"""The prefix of our asset keys in a project that gives them one (`CcprComponent`, `translation`).

Events without a run are made with the keys of this package, and get the prefix where they are reported. The Dagster
instance remembers it for `ccpr serve`, which reports to a code location that it does not know.
"""

import json
from collections.abc import Iterable, Sequence

import dagster as dg
from dagster_shared.record import replace

from ccpr.dagster.metadata import COLUMN_LINEAGE

Runless = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation  # all that can be reported
_REMEMBERED = "ccpr/key_prefix"  # a key in Dagster's own key-value table


def remember_prefix(instance: dg.DagsterInstance, prefix: Sequence[str]) -> None:
    """By runs and ticks, which know it."""
    if list(prefix) != prefix_of(instance):
        instance.daemon_cursor_storage.set_cursor_values({_REMEMBERED: json.dumps(list(prefix))})


def prefix_of(instance: dg.DagsterInstance) -> list[str]:
    """Empty if there is none."""
    text = instance.daemon_cursor_storage.get_cursor_values({_REMEMBERED}).get(_REMEMBERED)
    return [] if not text else list(map(str, json.loads(text)))


def with_prefix(events: Iterable[Runless], prefix: Sequence[str]) -> list[Runless]:
    """The events, of assets whose keys have the prefix."""
    return [_with_prefix(event, prefix) for event in events] if prefix else list(events)


def _with_prefix(event: Runless, prefix: Sequence[str]) -> Runless:
    key = prefixed(event.asset_key, prefix)
    if isinstance(event, dg.AssetCheckEvaluation):
        return replace(event, asset_key=key)
    lineage = event.metadata.get(COLUMN_LINEAGE)
    if not isinstance(lineage, dg.TableColumnLineageMetadataValue):
        return event._replace(asset_key=key)
    columns = {
        column: [dg.TableColumnDep(prefixed(one.asset_key, prefix), one.column_name) for one in deps]
        for column, deps in lineage.value.deps_by_column.items()
    }
    shown = {**event.metadata, COLUMN_LINEAGE: dg.MetadataValue.column_lineage(dg.TableColumnLineage(columns))}
    return event._replace(asset_key=key, metadata=shown)


def prefixed(key: dg.AssetKey, prefix: Sequence[str]) -> dg.AssetKey:
    return key.with_prefix(list(prefix)) if prefix else key
