"""All subscriptions together: the asset `replication_health`, where an operator starts, with a check that is red or
yellow while one of them is, and a table of all."""

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from ccpr.base.errors import UnexpectedError
from ccpr.base.loops import unexpected
from ccpr.dagster import metadata
from ccpr.dagster.health import HEALTH, REPLICA_CURRENT, Health, severity
from ccpr.dagster.replica_health import health_of, unreadable_health
from ccpr.service.workspace import Workspace
from ccpr.state.errors import StateUnreadable
from ccpr.state.quarantine import tasks_in_quarantine
from ccpr.state.targets import tasks_with_targets

_SHOWN_NAMES, _SHOWN_FAILING = 5, 20
_LONGEST_TEXT = 1_000  # of each: an event has room for 64 kB in MySQL


@dataclass(frozen=True, slots=True)
class AllHealth:
    """How all subscriptions are together: those that are not current first."""

    found: tuple[Health, ...]

    @property
    def failing(self) -> list[Health]:
        return [one for one in self.found if not one.current]

    @property
    def says(self) -> str:
        failing = self.failing
        current = f"{len(self.found) - len(failing)} of {len(self.found)} subscriptions are current"
        return "; ".join([current, *(f"{one.subscription}: {one.says}" for one in failing[:_SHOWN_NAMES])])

    def result(self) -> dg.AssetCheckResult:
        """For a run of the check."""
        return dg.AssetCheckResult(
            passed=not self.failing, severity=self._severity(), description=self.says, metadata=self._metadata()
        )

    def events(self) -> Iterator[dg.AssetCheckEvaluation | dg.AssetMaterialization]:
        """For `DagsterInstance.report_runless_asset_event`."""
        yield dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(HEALTH),
            check_name=REPLICA_CURRENT,
            passed=not self.failing,
            severity=self._severity(),
            description=self.says,
            metadata=self._metadata(),
        )
        shown = {metadata.IS_CURRENT: 0 if self.failing else 1, **self._metadata(), metadata.SUBSCRIPTIONS: self._all()}
        yield dg.AssetMaterialization(dg.AssetKey(HEALTH), self.says, metadata=shown)

    def _metadata(self) -> dict[str, int | dg.TableMetadataValue]:
        failing = self.failing
        rows = (
            {"subscription": one.subscription, "state": one.state, "says": one.says[:_LONGEST_TEXT]}
            for one in failing[:_SHOWN_FAILING]
        )
        table = metadata.table(rows, dict.fromkeys(("subscription", "state", "says"), "string"))
        return {
            metadata.SUBSCRIPTIONS_TOTAL: len(self.found),
            metadata.SUBSCRIPTIONS_FAILING: len(failing),
            **({metadata.FAILING: table} if failing else {}),
        }

    def _all(self) -> dg.TableMetadataValue:
        rows = (
            {
                "subscription": one.subscription,
                "current": one.current,
                "state": one.state,
                "current_as_of": "" if one.as_of is None else one.as_of.isoformat(sep=" ", timespec="seconds"),
            }
            for one in self.found
        )
        kinds = {"subscription": "string", "current": "bool", "state": "string", "current_as_of": "string"}
        return metadata.table(rows, kinds)

    def _severity(self) -> dg.AssetCheckSeverity:
        return severity(any(one.grave for one in self.found))


def read_all_health(workspace: Workspace) -> AllHealth:
    """Raises StateUnavailable, StateUnreadable."""
    rows, bad = workspace.log.all_rows()
    found = [unreadable_health(row.subscription_name, row.error) for row in bad]
    engine = workspace.log.engine
    looked_at = tasks_in_quarantine(engine) | tasks_with_targets(engine)
    for row in rows:
        try:
            with unexpected():
                found.append(health_of(workspace, row, plain=row.task_id not in looked_at))
        except (StateUnreadable, UnexpectedError) as error:
            found.append(unreadable_health(row.subscription_name, error))
    return AllHealth(tuple(sorted(found, key=lambda one: (one.current, one.subscription))))
